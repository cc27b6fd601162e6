"""Bundles whose hash ranges overlap.

A broker has split or merged a bundle without a decision, and reports name old and new bundles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.core.model.names import RANGE_LENGTH, namespace_of, parse_hex, read_bounds
from lb_stream.core.model.view import Bools, ClusterView, Ints, Rows

IN_LATEST_REPORT = np.iinfo(np.int64).max
"""Weighs more than any time at which a report named a bundle."""


@dataclass(frozen=True, slots=True)
class Overlapped:
    """Bundles that reports make doubtful; a row for each bundle of the view."""

    # May not be split or merged: its range, or a part of it, is another served bundle's as well.
    reshaping: Bools
    # May not move: it contains another bundle, or two overlap in part.
    moving: Bools
    beside: dict[int, int]  # row of each of these bundles → another bundle that it overlaps

    @staticmethod
    def none(bundles: int) -> Overlapped:
        """Return that none of so many bundles overlaps another."""
        nowhere = np.zeros(bundles, np.bool_)
        nowhere.flags.writeable = False
        return Overlapped(nowhere, nowhere, {})


def find_overlaps(view: ClusterView) -> Overlapped:
    """Compare the ranges of bundles that live brokers own, and return the doubtful ones.

    A bundle that its owner's latest report names counts more than one that the report omits, as top
    bundles do. Of two omitted ones, that counts more which was named later. A bundle is doubtful
    when another one that it overlaps counts as much or more. One inside of another that counts as
    much may move: it is a part of what was split. O(bundles).
    """
    # Served bundles of namespaces in which two overlap, with their ranges and weights.
    bundles = view.bundles
    rows, namespaces = _select_overlapping_namespaces(view)
    if not len(rows):
        return Overlapped.none(len(bundles))
    lower, upper = map(parse_hex, read_bounds(bundles.names, rows))
    named = bundles.reported_ms[rows] >= view.brokers.reported_ms[bundles.owner[rows]]
    weight = np.where(named, IN_LATEST_REPORT, bundles.reported_ms[rows])
    # Each overlapping pair both ways round, if the first of it is doubtful.
    bundle, other = _find_overlapping_pairs(namespaces, lower, upper)
    doubtful = weight[other] >= weight[bundle]
    bundle, other = bundle[doubtful], other[doubtful]
    is_inside = (lower[other] <= lower[bundle]) & (upper[bundle] <= upper[other])
    is_inside &= weight[other] == weight[bundle]
    # What may not be done with them.
    reshaping, moving = (np.zeros(len(bundles), np.bool_) for _ in range(2))
    reshaping[rows[bundle]] = True
    moving[rows[bundle[~is_inside]]] = True
    beside = dict(zip(rows[bundle].tolist(), rows[other].tolist(), strict=True))
    return Overlapped(reshaping, moving, beside)


def find_overlapping_rows(view: ClusterView) -> dict[int, list[int]]:
    """Return the rows of bundles of live brokers that overlap others, each with the others' rows.

    O(bundles).
    """
    rows, namespaces = _select_overlapping_namespaces(view)
    lower, upper = map(parse_hex, read_bounds(view.bundles.names, rows))
    found: dict[int, list[int]] = {}
    for row, other in rows[np.stack(_find_overlapping_pairs(namespaces, lower, upper), 1)].tolist():
        found.setdefault(row, []).append(other)
    return found


def _select_overlapping_namespaces(view: ClusterView) -> tuple[Rows, Ints]:
    """Select the bundles of live brokers in namespaces where two overlap, and number these.

    Rows are sorted by name, so by lower bound within a namespace. Where any two overlap, two
    neighbouring rows do. Returns rows in their order, and the number of each one's namespace.
    """
    bundles = view.bundles
    served = np.flatnonzero(np.append(view.brokers.alive, False)[bundles.owner])
    # Neighbouring rows of one namespace that overlap.
    lower, upper = read_bounds(bundles.names, served)
    at = np.flatnonzero((lower[1:] < upper[:-1]) & (lower[1:] >= lower[:-1]))
    if not len(at):  # nearly always: at the border of two namespaces the bounds begin anew
        return np.empty(0, np.intp), np.empty(0, np.int64)
    before, after = (
        pc.utf8_slice_codeunits(bundles.names.take(pa.array(served[at + step])), 0, -RANGE_LENGTH)
        for step in (0, 1)
    )
    at = at[pc.equal(before, after).to_numpy(zero_copy_only=False)]
    # All rows of these namespaces.
    found: list[Rows] = []
    numbers: list[Ints] = []
    for namespace in dict.fromkeys(namespace_of(bundles.name(row)) for row in served[at].tolist()):
        mine = bundles.rows_of_namespace(namespace)
        begin, end = np.searchsorted(served, [mine.start, mine.stop])
        numbers.append(np.full(end - begin, len(found), np.int64))
        found.append(served[begin:end])
    if not found:
        return np.empty(0, np.intp), np.empty(0, np.int64)
    return np.concatenate(found), np.concatenate(numbers)


def _find_overlapping_pairs(namespaces: Ints, lower: Ints, upper: Ints) -> tuple[Rows, Rows]:
    """Return the positions of every two bundles that overlap, each pair both ways round.

    The bundles are sorted by namespace, lower and upper bound. Each namespace is a band of its own.
    """
    band = namespaces << 33
    later = np.searchsorted(band + lower, band + upper, side="left") - np.arange(len(lower)) - 1
    first = np.repeat(np.arange(len(lower)), later)
    starts = np.cumsum(later) - later
    second = first + 1 + np.arange(len(first)) - np.repeat(starts, later)
    return np.concatenate([first, second]), np.concatenate([second, first])
