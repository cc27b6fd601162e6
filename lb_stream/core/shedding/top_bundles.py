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
    ends = np.array([len(allowed)])
    (top,) = reported_tops(stats, connections, cache_bytes, allowed, ends, most)
    return top


def reported_tops(
    stats: Rates, connections: Ints, cache_bytes: Ints, allowed: Bools, ends: Rows, most: int
) -> list[Rows]:
    """Return the top bundles of several brokers, each as `reported_top` does.

    The bundles of a broker follow one another; `ends`: the position after each broker's last one.
    """
    # Few bundles have a first key among the highest of their broker; only they are compared.
    (counted,) = (allowed & (stats.throughput != 0)).nonzero()
    first = rounded(stats.throughput_in[counted] / THROUGHPUT_STEP)
    chosen, sizes, begin = [], [], 0
    for end in counted.searchsorted(ends).tolist():
        mine = _may_be_highest(first[begin:end], most)
        chosen.append(counted[begin:end][mine])
        sizes.append(len(chosen[-1]))
        begin = end
    rows = np.concatenate(chosen)

    # All brokers' bundles are sorted at once; the broker is the first key.
    broker = np.arange(0, -len(sizes), -1).repeat(sizes)
    keys = sort_keys(stats.take(rows), connections[rows], cache_bytes[rows])
    ordered, tops, begin = rows[highest((broker, *keys), len(rows))], [], 0
    for size in sizes:
        tops.append(ordered[begin : begin + min(size, max(most, 0))][::-1])
        begin += size
    return tops


def _may_be_highest(key: Floats, most: int) -> Rows | slice:
    """Return the places whose first key is none too low to be among the `most` highest."""
    if len(key) <= most or most <= 0:
        return slice(None)
    ordered = key.copy()
    ordered.partition(len(key) - most)
    found: Rows = (key >= ordered[len(key) - most]).nonzero()[0]
    return found
