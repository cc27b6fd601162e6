"""A broker's usage from its resources, in the reference's arithmetic.

Percentages are computed in single precision (both casts, the division, the times 100), the rest in
double: exact threshold cases depend on it. See docs/strategies.md "Figures".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def percent(usage: Floats, limit: Floats) -> NDArray[np.float32]:
    """100 · usage / limit in float32; 0 where the limit is not positive."""
    positive = limit > 0
    with np.errstate(
        over="ignore", divide="ignore", invalid="ignore"
    ):  # such a broker is left out: observing.finite
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
    """`percent` of several resources, one row for each: a call takes longer than its figures where
    brokers are few."""
    columns = np.array([resources[name] for name in names])
    return percent(columns[:, 0], columns[:, 1])


def max_weighted_usage(
    resources: Mapping[str, tuple[Floats, Floats]], weights: Mapping[str, float]
) -> Floats:
    """Greatest weighted usage over the resources that have a weight, as a ratio (1.0 = 100 %).

    `resources` maps each resource to its (usage, limit) columns, one row per broker.
    """
    if not weights:
        raise ValueError("no resource has a weight: a broker's usage would have no meaning")
    greatest, *others = (
        percents(resources, weights).astype(np.float64)
        * np.array([*weights.values()])[:, np.newaxis]
    )
    for weighted in others:
        greatest = np.maximum(greatest, weighted)
    result: Floats = greatest / 100.0
    return result


def max_usage(resources: Mapping[str, tuple[Floats, Floats]]) -> Floats:
    """Greatest usage over cpu, direct memory and both bandwidths without weights, as a ratio: for
    people, not for decisions.

    Single precision to the end, as the reference shows it.
    """
    percents = [
        percent(*resources[name])
        for name in ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
    ]
    result: Floats = (np.maximum.reduce(percents) / np.float32(100)).astype(np.float64)
    return result
