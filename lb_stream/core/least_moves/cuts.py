"""Where a bundle is cut: few pieces that brokers have room for, by its topics' shares.

A cut is places among the bundle's hashes in ascending order: place n is before hash n. Sizes are
usages of an average broker, as are free rooms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lb_stream.core.model.view import Floats, Ints

MAX_PIECES = 8
"""A bundle is cut into at most this number of pieces at once."""
BISECTIONS = 30
FILLED = 0.97
"""Part of a broker's free room that a piece is cut for: shares change."""

Cut = tuple[int, ...]


def boundaries_of(cut: Cut, hashes: Ints) -> tuple[int, ...]:
    """Return the boundaries of a cut, each in the middle of the hashes beside it."""
    return tuple(boundary_between(int(hashes[at - 1]), int(hashes[at])) for at in cut)


def boundary_between(low: int, high: int) -> int:
    """Return the boundary in the middle of two hashes: `low` is below it, `high` is not."""
    return low + (high - low + 1) // 2


def sizes_of(cut: Cut, sizes: Floats) -> Floats:
    """Return the size of each piece; `sizes`: of each hash."""
    return np.add.reduceat(sizes, [0, *cut])


def find_cuts(sizes: Floats, kept: float, rooms: Floats, most: int) -> Iterator[Cut]:
    """Yield cuts into at most `most` pieces that are worth an estimate, without doubles.

    Pieces are alike; or one is what the broker may keep, and the others are alike, or fill rooms.
    `sizes`: of each hash, in their order. `kept`: room of the bundle's broker for it; `rooms`: free
    rooms of the others.
    """
    most = min(most, MAX_PIECES, len(sizes))
    found = dict.fromkeys(cut_evenly(sizes, pieces) for pieces in range(2, most + 1))
    descending = np.sort(rooms[rooms > 0])[::-1] * FILLED
    for backwards in (False, True):
        way = sizes[::-1] if backwards else sizes
        cuts = [cut_for_rooms(way, kept, descending, most)]
        first = _fill(np.cumsum(way), kept)[:1]
        for pieces in range(1, most if first else 0):
            rest = cut_evenly(way[first[0] :], pieces) if pieces > 1 else ()
            cuts.append((*first, *(first[0] + at for at in rest)))
        if backwards:
            cuts = [tuple(len(sizes) - at for at in reversed(cut)) for cut in cuts]
        found |= dict.fromkeys(cuts)
    yield from (cut for cut in found if cut)


def cut_evenly(sizes: Floats, pieces: int) -> Cut:
    """Return the cut into at most so many pieces whose largest one is smallest. O(pieces log n)."""
    ends = np.cumsum(sizes)
    low, high = max(float(sizes.max()), float(ends[-1]) / pieces), float(ends[-1])
    best = _fill(ends, high)
    for _ in range(BISECTIONS):
        size = (low + high) / 2.0
        cut = _fill(ends, size)
        if len(cut) < pieces:
            high, best = size, cut
        else:
            low = size
    return best


def _fill(ends: Floats, size: float) -> Cut:
    """Return the cut into pieces of at most `size`, each as large as it can be.

    `ends`: sums of sizes. A hash above the size is a piece by itself.
    """
    cut, begin, done = list[int](), 0, 0.0
    while True:
        at = max(int(np.searchsorted(ends, done + size * (1.0 + 1e-12), "right")), begin + 1)
        if at >= len(ends):
            return tuple(cut)
        cut.append(at)
        begin, done = at, float(ends[at - 1])


def cut_for_rooms(sizes: Floats, kept: float, rooms: Floats, most: int) -> Cut:
    """Return the cut into at most `most` pieces that fills the rooms one after another.

    It ends when the rest, which is the last piece, is at most `kept`. Empty: the first hash fills
    no room.
    """
    ends, cut = np.cumsum(sizes), list[int]()
    begin, done = 0, 0.0
    for room in rooms.tolist():
        if float(ends[-1]) - done <= kept or len(cut) + 1 == most:
            break
        at = int(np.searchsorted(ends, done + room, "right"))
        if at <= begin or at >= len(ends):
            break
        cut.append(at)
        begin, done = at, float(ends[at - 1])
    return tuple(cut)


@dataclass(frozen=True, slots=True)
class MoveEstimate:
    """Estimates of the moves that pieces of a bundle take; a plan computes them exactly."""

    source: int  # broker
    room: Floats  # of each broker, without the bundle; -inf: it takes none
    # Sums of each broker's largest bundles that may move: how much room its first n moves make.
    freed: Sequence[Floats]

    def moves(self, pieces: Floats) -> float:
        """Return about how many moves place these pieces; infinite: they find no room.

        The largest ones that the broker has room for stay. Each other one goes where the fewest
        moves make room for it.
        """
        room, begun, moves = self.room.copy(), np.zeros(len(self.room), np.intp), 0.0
        leave = list[float]()
        for piece in np.sort(pieces)[::-1].tolist():
            if piece <= room[self.source]:
                room[self.source] -= piece
            else:
                leave.append(piece)
        if len(leave) == len(pieces):  # the smallest stays, and others make room for it
            moves += self._make_room(self.source, leave.pop() - room[self.source], begun)[0]
        room[self.source] = -np.inf
        for piece in leave:
            best = int(np.argmax(room))
            if room[best] < piece:
                # Without room for it anywhere: where it takes the fewest moves to make room.
                made = [self._make_room(at, piece - room[at], begun) for at in range(len(room))]
                best = min(range(len(room)), key=lambda at: (made[at][0], -room[at]))
                count, freed = made[best]
                if count == np.inf:
                    return np.inf
                moves += count
                begun[best] += int(count)
                room[best] += freed
            room[best] -= piece
            moves += 1
        return moves

    def _make_room(self, broker: int, missing: float, begun: Ints) -> tuple[float, float]:
        """Return the number of moves that make so much room at a broker, and the room.

        `begun`: moves of each broker so far.
        """
        if missing <= 0:
            return 0, 0.0
        if missing == np.inf:
            return np.inf, 0.0
        sums, first = self.freed[broker], int(begun[broker])
        before = float(sums[first - 1]) if first else 0.0
        at = int(np.searchsorted(sums, before + missing))
        if at >= len(sums):
            return np.inf, 0.0
        return at + 1 - first, float(sums[at]) - before
