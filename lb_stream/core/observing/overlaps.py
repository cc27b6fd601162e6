"""Bundles whose hash ranges overlap: a broker split or merged one by itself, and reports still name
what it made beside what it had."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.model.names import RANGE_LENGTH, namespace_of
from lb_stream.core.model.view import Bools, Bundles, ClusterView, Ints, Rows

DIGITS = 8
"""Of one bound of a range, behind `0x`."""
_ENDS_IN = np.dtype([("lower", ">u8"), ("between", "S3"), ("upper", ">u8")])
"""The last characters of a bundle's name: LLLLLLLL_0xHHHHHHHH."""
IN_LATEST_REPORT = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Overlapped:
    """Bundles that reports make doubtful, one row for each bundle of the view."""

    # neither split nor merged: its range is another served bundle's as well, wholly or in part
    reshaping: Bools
    # not moved: what was split keeps its place, and so do two of which neither holds the other
    moving: Bools
    beside: dict[int, int]  # of each of these rows, another bundle that it overlaps

    @staticmethod
    def none(bundles: int) -> Overlapped:
        """No bundle of so many overlaps another."""
        nowhere = np.broadcast_to(np.False_, bundles)
        return Overlapped(nowhere, nowhere, {})


def find_overlaps(view: ClusterView) -> Overlapped:
    """Compare the ranges of bundles that live brokers own.

    What an owner's latest report names counts more than what it leaves out (top bundles of the
    extensible manager name some bundles only), and of those left out the one that was named later.
    A bundle is doubtful when another one that it overlaps counts as much or more. One inside
    another that counts as much may move: it is a part of what was split. O(bundles).
    """
    bundles = view.bundles
    served = np.flatnonzero(np.append(view.brokers.alive, False)[bundles.owner])
    rows, namespaces = _select_overlapping_namespaces(bundles, served)
    if not len(rows):
        return Overlapped.none(len(bundles))
    lower, upper = map(_parse_hex, _read_bounds(bundles.names, rows))
    named = bundles.reported_ms[rows] >= view.brokers.reported_ms[bundles.owner[rows]]
    weight = np.where(named, IN_LATEST_REPORT, bundles.reported_ms[rows])
    one, other = _find_overlapping_pairs(namespaces, lower, upper)
    one, other = np.concatenate([one, other]), np.concatenate([other, one])
    doubtful = weight[other] >= weight[one]
    one, other = one[doubtful], other[doubtful]
    inside = (
        (lower[other] <= lower[one]) & (upper[one] <= upper[other]) & (weight[other] == weight[one])
    )
    reshaping, moving = (np.zeros(len(bundles), np.bool_) for _ in range(2))
    reshaping[rows[one]] = True
    moving[rows[one[~inside]]] = True
    return Overlapped(
        reshaping, moving, dict(zip(rows[one].tolist(), rows[other].tolist(), strict=True))
    )


def _select_overlapping_namespaces(bundles: Bundles, served: Rows) -> tuple[Rows, Ints]:
    """Of the given rows those of namespaces in which two overlap, and a number for each one's
    namespace. In the order of the rows.

    Rows are sorted by name, so by lower bound within a namespace: where any two overlap, two that
    follow one another do.
    """
    lower, upper = _read_bounds(bundles.names, served)
    at = np.flatnonzero(lower[1:] < upper[:-1])  # also where one namespace ends and the next begins
    before, after = (
        pc.utf8_slice_codeunits(bundles.names.take(pa.array(served[at + step])), 0, -RANGE_LENGTH)
        for step in (0, 1)
    )
    at = at[pc.equal(before, after).to_numpy(zero_copy_only=False)]
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


def _read_bounds(
    names: pa.StringArray, rows: Rows
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The digits of both bounds, as numbers of the same order (not of the same value)."""
    if not len(rows):
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    _, offsets, content = names.buffers()
    ends = np.frombuffer(offsets, np.int32, len(names) + 1, 4 * names.offset)[1:][rows]
    characters, width = np.frombuffer(content, np.uint8), _ENDS_IN.itemsize
    windows = np.lib.stride_tricks.sliding_window_view(characters, width)
    found = windows[ends - width].view(_ENDS_IN)[:, 0]
    return found["lower"].astype(np.uint64), found["upper"].astype(np.uint64)


def _parse_hex(bounds: NDArray[np.uint64]) -> Ints:
    """The values of such digits."""
    digits = bounds.astype(">u8").view(np.uint8).reshape(-1, DIGITS).astype(np.int64)
    values = np.where(digits >= ord("a"), digits - ord("a") + 10, digits - ord("0"))
    found: Ints = values @ (16 ** np.arange(DIGITS - 1, -1, -1, dtype=np.int64))
    return found


def _find_overlapping_pairs(namespaces: Ints, lower: Ints, upper: Ints) -> tuple[Rows, Rows]:
    """Every two that overlap, by position.

    Sorted by namespace, lower and upper bound; each namespace is a band of its own.
    """
    band = namespaces << 33
    later = np.searchsorted(band + lower, band + upper, side="left") - np.arange(len(lower)) - 1
    one = np.repeat(np.arange(len(lower)), later)
    starts = np.cumsum(later) - later
    return one, one + 1 + np.arange(len(one)) - np.repeat(starts, later)
