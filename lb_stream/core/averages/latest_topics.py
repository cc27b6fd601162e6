"""The latest shares of topics in the load of the few bundles whose owners report them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lb_stream.core.model.topic_shares import packed_at_ms
from lb_stream.core.model.view import Ints

KEPT_MS = 1_800_000
"""How long a bundle's shares are kept while reports name it without them: twice Pulsar's longest
interval between reports."""


def fold_topic_shares(
    known: pa.Array, reported: pa.Array, row: Ints, sample: Ints, reported_ms: Ints
) -> pa.Array:
    """Return each bundle's shares as last reported; null: none, or only ones that are too old.

    A move does not change them. `known`: of each bundle; `reported`: of each sample. `row`,
    `sample`: rows of bundles and the samples of each, in the order of the reports. `reported_ms`:
    when a report last named each bundle.
    """
    news, olds = len(reported) - reported.null_count, len(known) - known.null_count
    if not news and not olds:
        return known
    # Where each bundle's shares are, in one list of the known and the reported ones.
    place = np.arange(len(known))
    if news:
        given = np.flatnonzero(reported.is_valid().to_numpy(zero_copy_only=False)[sample])
        place[row[given]] = len(known) + sample[given]  # the last assignment stays
    # Shares that the bundle's reports have lacked for long.
    old = np.flatnonzero(known.is_valid().to_numpy(zero_copy_only=False) & (place < len(known)))
    at_ms = packed_at_ms(known.take(pa.array(old)).to_pylist())
    outdated = old[reported_ms[old] - at_ms > KEPT_MS]
    if not news and not len(outdated):
        return known
    forgotten = np.zeros(len(known), np.bool_)
    forgotten[outdated] = True
    return pa.concat_arrays([known, reported]).take(pa.array(place, mask=forgotten))
