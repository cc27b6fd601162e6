"""The modular manager's trigger, the reference's BundleSplitterTask.

See docs/splitting.md "Splitting".

The leader looks at all bundles of the cluster after every update of load data: topics and sessions
as last reported, rates and throughputs as long-term averages.
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
"""(rows) → (the number of each row's namespace, the bundles that each namespace has, by its
number)."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Rows to split, with the reason of each, and rows that are too large as well but whose
    namespace is full, with its bundles."""

    rows: Rows
    reasons: Reasons
    full: Rows
    full_bundles: Ints

    @staticmethod
    def from_rows(rows: Rows, why: Reasons, bundles: Ints, most: int) -> TooLarge:
        """From all rows that are too large, and how many bundles the namespace of each has at its
        turn."""
        allowed = bundles < most
        return TooLarge(rows[allowed], why[allowed], rows[~allowed], bundles[~allowed])


def too_large(loads: SplitLoads, eligible: Bools, config: SplittingConfig) -> tuple[Rows, Reasons]:
    """The rows of eligible bundles with two topics or more that are above a limit, and which.

    O(n).
    """
    why = reasons(loads, config)
    rows = np.flatnonzero((why > 0) & (loads.topics >= FEWEST_TOPICS) & eligible)
    return rows, why[rows]


def split_task(
    loads: SplitLoads, eligible: Bools, census: Census, config: SplittingConfig
) -> TooLarge:
    """The bundles to split: the last places of a namespace go by the order of the rows. O(n).

    The census is asked only when there are any.
    """
    rows, why = too_large(loads, eligible, config)
    most = config.namespace_max_bundles
    bundles = bundles_before(*census(rows), most) if len(rows) else np.zeros(0, np.int64)
    return TooLarge.from_rows(rows, why, bundles, most)
