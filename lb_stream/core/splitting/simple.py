"""The simple manager's trigger: each broker looks at its own bundles after it has written a load report. Source: spec/splitting.md §2.2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lb_stream.core.names import namespace_codes
from lb_stream.core.splitting.config import SplittingConfig
from lb_stream.core.splitting.modular import too_large
from lb_stream.core.splitting.trigger import Reasons, SplitLoads
from lb_stream.core.view import Rows


@dataclass(frozen=True, slots=True)
class SimpleSplits:
    """Rows to split and why; a dry run: automatic splitting is off, they are only to be spoken of."""

    rows: Rows
    reasons: Reasons
    dry_run: bool


def split_simple(names: pa.StringArray, loads: SplitLoads, bundle_counts: Mapping[str, int], config: SplittingConfig) -> SimpleSplits:
    """The bundles to split by their latest statistics. O(n).

    A namespace's maximum is compared with the bundles that it has before this look: several of one look may exceed it together.
    """
    rows, why = too_large(loads, config)
    codes, namespaces = namespace_codes(names.take(pa.array(rows)))
    counts = np.array([bundle_counts.get(namespace, 1) for namespace in namespaces], np.int64)
    allowed = counts[codes] < config.namespace_max_bundles if len(rows) else np.zeros(0, np.bool_)
    return SimpleSplits(rows[allowed], why[allowed], dry_run=not config.split_enabled)
