"""A broker's usage from its resources, in the reference's arithmetic.

Percentages are computed in single precision (both casts, the division, the multiplication by 100),
the rest in double precision: decisions near a threshold depend on it. See docs/strategies.md
"Figures".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def percent(usage: Floats, limit: Floats) -> NDArray[np.float32]:
    """Return 100 · usage / limit in float32; 0 where the limit is not positive."""
    positive = limit > 0
    # A broker with infinite figures is left out by observing.finite.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = np.divide(
            usage.astype(np.float32),
            limit.astype(np.float32),
            out=np.zeros(usage.shape, np.float32),
            where=positive,
        )
        result: NDArray[np.float32] = ratio * np.float32(100)
    return result


def percents(
    resources: Mapping[str, tuple[Floats, Floats]], names: Iterable[str]
) -> NDArray[np.float32]:
    """Return `percent` of several resources, one row for each, in a single call."""
    columns = np.array([resources[name] for name in names])
    return percent(columns[:, 0], columns[:, 1])


def max_weighted_usage(
    resources: Mapping[str, tuple[Floats, Floats]], weights: Mapping[str, float]
) -> Floats:
    """Return each broker's maximum weighted usage, a ratio (1.0 = 100 %).

    `resources`: resource → its (usage, limit) columns. Only resources with a weight count.
    """
    if not weights:
        raise ValueError("no resource has a weight: expected one at least")
    weighted = (
        percents(resources, weights).astype(np.float64)
        * np.array([*weights.values()])[:, np.newaxis]
    )
    result: Floats = np.maximum.reduce(weighted) / 100.0
    return result


def max_usage(resources: Mapping[str, tuple[Floats, Floats]]) -> Floats:
    """Return each broker's maximum usage of cpu, direct memory and bandwidths, unweighted, a ratio.

    It is for people, not for decisions. Single precision to the end, as the reference shows it.
    """
    percents = [
        percent(*resources[name])
        for name in ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
    ]
    result: Floats = (np.maximum.reduce(percents) / np.float32(100)).astype(np.float64)
    return result
