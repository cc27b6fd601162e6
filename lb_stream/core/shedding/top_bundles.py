"""Top bundles: the heaviest bundles of a broker, which brokers of the extensible manager report.

Figures are compared in steps. Equal bundles stay in the order of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lb_stream.core.model.view import Bools, Floats, Ints, Rates, Rows

THROUGHPUT_STEP = 100_000  # bytes/s
RATE_STEP = 100  # msg/s
_STEPS = np.array([[THROUGHPUT_STEP], [THROUGHPUT_STEP], [RATE_STEP]])
CONNECTIONS_STEP = 500
CACHE_STEP = 100_000  # bytes
LARGEST = float(2**63)
"""The value at which the reference's 64-bit integers saturate, as a double."""


def sort_keys(stats: Rates, connections: Ints, cache_bytes: Ints) -> tuple[Floats | Ints, ...]:
    """Return the keys by which bundles are compared, the first one first.

    `connections`: topics, consumers and producers together.
    """
    in_steps = np.array((stats.throughput_in, stats.throughput_out, stats.rate)) / _STEPS
    return (
        *rounded(in_steps),
        connections // CONNECTIONS_STEP,
        cache_bytes // CACHE_STEP,
    )


def rounded(values: Floats) -> Floats:
    """Round to whole numbers, halves up, as Java does."""
    down = np.floor(values)
    with np.errstate(invalid="ignore"):  # infinite values have no fraction
        return limited(down + (values - down >= 0.5))


def limited(values: Floats) -> Floats:
    """Clip to the range of the reference's integers; NaN becomes 0."""
    if (np.abs(values) <= LARGEST).all():
        return values
    return np.where(np.isnan(values), 0.0, np.clip(values, -LARGEST, LARGEST))


def highest(keys: Sequence[Floats | Ints], most: int) -> Rows:
    """Return the positions of the `most` highest, the highest first. O(n log n).

    The first key counts most.
    """
    order: Rows = np.lexsort([-key for key in reversed(keys)])
    return order[: max(most, 0)]


def reported_top(
    stats: Rates, connections: Ints, cache_bytes: Ints, allowed: Bools, most: int
) -> Rows:
    """Return the positions of a broker's top bundles, **the lightest first**.

    Bundles without throughput never count. `allowed` leaves out system namespaces, and those with
    policies.
    """
    counted = np.flatnonzero(allowed & (stats.throughput != 0))
    keys = sort_keys(stats.take(counted), connections[counted], cache_bytes[counted])
    return counted[highest(keys, most)[::-1]]
