"""The modular manager's trigger, the reference's BundleSplitterTask.

See docs/splitting.md "Splitting".

The leader checks all bundles of the cluster after every update of load data, by topics and sessions
as last reported, and by long-term averages of rate and throughput.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lb_stream.core.model.view import Bools, Ints, Rows
from lb_stream.core.splitting.config import SplittingConfig
from lb_stream.core.splitting.trigger import (
    FEWEST_TOPICS,
    Reasons,
    SplitLoads,
    bundles_before,
    reasons,
)

Census = Callable[[Rows], tuple[NDArray[np.integer], Ints]]
"""Rows of bundles → (number of each row's namespace, bundles of each namespace by number)."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The bundles that are too large: those to split, and those whose namespace is full."""

    rows: Rows  # to split
    reasons: Reasons  # of each of these
    full: Rows  # too large, but the namespace has as many bundles as allowed
    full_bundles: Ints  # bundles of the namespace of each of these

    @staticmethod
    def from_rows(rows: Rows, why: Reasons, bundles: Ints, most: int) -> TooLarge:
        """Divide rows that are too large by `bundles`: the namespace's at the row's turn."""
        allowed = bundles < most
        return TooLarge(rows[allowed], why[allowed], rows[~allowed], bundles[~allowed])


def too_large(loads: SplitLoads, eligible: Bools, config: SplittingConfig) -> tuple[Rows, Reasons]:
    """Return eligible bundles with two topics or more that are above a limit, and which. O(n)."""
    why = reasons(loads, config)
    rows = np.flatnonzero((why > 0) & (loads.topics >= FEWEST_TOPICS) & eligible)
    return rows, why[rows]


def split_task(
    loads: SplitLoads, eligible: Bools, census: Census, config: SplittingConfig
) -> TooLarge:
    """Choose the bundles to split; within a namespace the first rows take the places left. O(n).

    `census` is called only if a bundle is too large.
    """
    rows, why = too_large(loads, eligible, config)
    most = config.namespace_max_bundles
    bundles = bundles_before(*census(rows), most) if len(rows) else np.zeros(0, np.int64)
    return TooLarge.from_rows(rows, why, bundles, most)
