"""The simple manager's trigger: each broker's own bundles, after it has written a load report.

See docs/splitting.md "Splitting".
"""

from __future__ import annotations

import numpy as np

from lb_stream.core.model.view import Bools
from lb_stream.core.splitting.config import SplittingConfig
from lb_stream.core.splitting.modular import Census, TooLarge, too_large
from lb_stream.core.splitting.trigger import SplitLoads


def split_simple(
    loads: SplitLoads, eligible: Bools, census: Census, config: SplittingConfig
) -> TooLarge:
    """The bundles to split by their latest statistics.

    O(n); the census is asked only when there are any.

    A namespace's maximum is compared with the bundles that it has before this look: several of one
    look may exceed it together. When splitting is off they are only reported.
    """
    rows, why = too_large(loads, eligible, config)
    bundles = np.zeros(0, np.int64)
    if len(rows):
        namespaces, counts = census(rows)
        bundles = counts[namespaces]
    return TooLarge.from_rows(rows, why, bundles, config.namespace_max_bundles)
