"""Which bundles carry most: what the extensible manager's brokers report.

Statistics are rounded to their resolution. Equal bundles stay in the order of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lb_stream.core.model.view import Bools, Floats, Ints, Rates, Rows

THROUGHPUT_STEP = 100_000  # bytes/s
RATE_STEP = 100  # msg/s
CONNECTIONS_STEP = 500
CACHE_STEP = 100_000  # bytes
LARGEST = float(2**63)
"""What the reference's 64-bit integers saturate at (as a double)."""


def order_of_stats(stats: Rates, connections: Ints, cache_bytes: Ints) -> tuple[Floats | Ints, ...]:
    """The natural order of statistics, first key first.

    `connections` are topics, consumers and producers together.
    """
    return (
        rounded(stats.throughput_in / THROUGHPUT_STEP),
        rounded(stats.throughput_out / THROUGHPUT_STEP),
        rounded(stats.rate / RATE_STEP),
        connections // CONNECTIONS_STEP,
        cache_bytes // CACHE_STEP,
    )


def rounded(values: Floats) -> Floats:
    """To whole numbers, halves up, as Java does."""
    down = np.floor(values)
    with np.errstate(invalid="ignore"):  # infinite ones have no fraction
        return limited(down + (values - down >= 0.5))


def limited(values: Floats) -> Floats:
    """Within what the reference's integers hold; NaN becomes 0."""
    return np.clip(
        np.nan_to_num(values, nan=0.0, posinf=LARGEST, neginf=-LARGEST), -LARGEST, LARGEST
    )


def highest(keys: Sequence[Floats | Ints], most: int) -> Rows:
    """Positions of the `most` highest by these keys (the first one counts most), the highest first.

    O(n log n).
    """
    order: Rows = np.lexsort([-key for key in reversed(keys)])
    return order[: max(most, 0)]


def reported_top(
    stats: Rates, connections: Ints, cache_bytes: Ints, allowed: Bools, most: int
) -> Rows:
    """Positions of the bundles that a broker reports as its top ones, **the lowest of them first**.

    Left out: what `allowed` says (system namespaces, those with policies) and bundles without any
    throughput.
    """
    counted = np.flatnonzero(allowed & (stats.throughput != 0))
    keys = order_of_stats(stats.take(counted), connections[counted], cache_bytes[counted])
    return counted[highest(keys, most)[::-1]]
