"""The simple manager's trigger: each broker checks its own bundles after each load report.

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
    """Choose the bundles to split by their latest figures. O(n).

    A namespace's maximum is compared with its bundles before this check: several splits of one
    check may exceed it together. `census` is called only if a bundle is too large.
    """
    rows, why = too_large(loads, eligible, config)
    bundles = np.zeros(0, np.int64)
    if len(rows):
        namespaces, counts = census(rows)
        bundles = counts[namespaces]
    return TooLarge.from_rows(rows, why, bundles, config.namespace_max_bundles)
