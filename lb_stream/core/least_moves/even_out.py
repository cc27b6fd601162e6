"""Evening out: change the moves of a finished plan, and add none, to lower the fullest brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lb_stream.core.least_moves.plan import NO_ROWS, MovePlan, PlannedMove
from lb_stream.core.model.view import Bools, Floats, Rows

MIN_GAIN = 1e-4
"""A change lowers the highest share of its brokers by at least this."""
CHANGES, STUCK = 100, 12
"""Evening out ends after CHANGES changes, or once no change helps STUCK brokers."""
COLDEST = 12
"""The bundle that replaces another is tried at this number of the coldest brokers."""
TRIED = 12
"""For each move, this number of changes is checked against the rules, the best first."""
DEARER = 1.4
"""A bundle that replaces another may cost up to this factor of the planned one's cost."""
EVEN = 1.03
"""A broker below this share can take another bundle, so that a recently moved bundle stays."""


class Change(NamedTuple):
    """A change of one move or two; `peak`: the highest share of its brokers after it."""

    peak: float
    moves: tuple[tuple[int, int, int], ...] = ()  # (number in the plan, bundle, destination)


def even_out(plan: MovePlan, others: Callable[[], dict[int, Rows]], moved: Bools) -> None:
    """Change the plan's moves, and add none, so that the fullest brokers come nearer to even.

    To relieve a destination, one of its moves gets another destination, exchanges destinations with
    another move, or gets a lighter bundle of the same source. To relieve a source, one of its moves
    gets a heavier bundle. Then other bundles replace recently moved ones, if possible.

    `others`: broker → its bundles that may move. `moved`: recently moved bundles, which replace
    only each other.
    """
    if not plan.moves:
        return

    # The best change for the fullest broker, while there is one.
    evened = _EvenedPlan(plan, others, moved)
    stuck, changes = set[int](), 0
    while len(stuck) < STUCK and changes < CHANGES:
        peaks = evened.peaks()
        peaks[list(stuck)] = -np.inf
        fullest = int(peaks.argmax())
        if peaks[fullest] <= 1.0:
            break
        best = min(evened.changes(fullest, peaks[fullest] - MIN_GAIN), default=None)
        if best is None:
            stuck.add(fullest)
        else:
            evened.make(best)
            changes += 1

    # Recently moved bundles stay if possible, and brokers give before they take.
    evened.keep_recently_moved()
    evened.order()


@dataclass
class _EvenedPlan:
    """A plan while its moves are changed. Columns have a row for each move."""

    plan: MovePlan
    others: Callable[[], dict[int, Rows]]
    moved: Bools  # recently moved bundles
    allowed: dict[int, Bools] = field(default_factory=dict)  # bundle → brokers that may take it

    def __post_init__(self) -> None:
        moves = self.plan.moves
        self.bundle = np.array([move.bundle for move in moves], np.intp)
        self.source = np.array([move.source for move in moves], np.intp)
        self.destination = np.array([move.destination for move in moves], np.intp)
        with_next = np.array([move.with_next for move in moves])
        # Moves of swaps are decided in pairs, and stay as they are.
        self.single = ~(with_next | np.append(False, with_next[:-1]))
        self.planned_cost = self.plan.cost[self.bundle]

    @cached_property
    def rows(self) -> dict[int, Rows]:
        """Map each broker to its bundles that may move."""
        return self.others()

    def peaks(self) -> Floats:
        """Return the shares of brokers with single moves; -inf for others, which no change helps."""
        peaks = np.full(len(self.plan.share), -np.inf)
        brokers = np.concatenate([self.source[self.single], self.destination[self.single]])
        peaks[brokers] = self.plan.share[brokers].max(axis=1)
        return peaks

    def changes(self, broker: int, below: float) -> Iterator[Change]:
        """Yield the best changes of each of a broker's moves, with a peak lower than `below`."""
        every_broker = np.arange(len(self.plan.share))
        for number in np.flatnonzero(self.single & (self.destination == broker)).tolist():
            yield from self._best(
                number, self.bundle[[number]], every_broker[every_broker != broker], below
            )
            yield from self._trade(number, below)
            yield from self._best(number, self._stand_ins(number), np.array([broker]), below)
        for number in np.flatnonzero(self.single & (self.source == broker)).tolist():
            full = np.where(self.plan.limit >= 0, self.plan.share.max(axis=1), np.inf)
            coldest = np.argsort(full, kind="stable")[:COLDEST]
            now = self.destination[number]
            yield from self._best(
                number, self._stand_ins(number), np.append(coldest[coldest != now], now), below
            )

    def make(self, change: Change) -> None:
        """Apply a change to the shares and the moves."""
        # The shares.
        plan = self.plan
        for number, _, _ in change.moves:
            self._count(number, -1)
        for number, bundle, destination in change.moves:
            self.bundle[number], self.destination[number] = bundle, destination
            self._count(number, 1)

        # The moves, with their second best destinations.
        for number, bundle, destination in change.moves:
            full = (plan.share + plan.demand[bundle] * plan.per_unit).max(axis=1)
            full[~self._may_take(bundle) | (plan.intake_left <= 0) | (full > plan.limit)] = np.inf
            full[[self.source[number], destination]] = np.inf
            second = int(full.argmin())
            share, other = float(plan.share[destination].max()), float(full[second])
            plan.moves[number] = PlannedMove(
                bundle,
                int(self.source[number]),
                destination,
                share,
                second if other < np.inf else -1,
                other,
            )

    def keep_recently_moved(self) -> None:
        """Replace recently moved bundles by others if their brokers stay even enough."""
        fullest = self.peaks().max()
        for number in np.flatnonzero(self.single & self.moved[self.bundle]).tolist():
            fresh = self._stand_ins(number)
            fresh = fresh[
                ~self.moved[fresh] & (self.plan.cost[fresh] <= self.plan.cost[self.bundle[number]])
            ]
            below = max(EVEN, min(fullest, self.plan.limit[self.destination[number]]))
            for change in self._best(number, fresh, self.destination[[number]], below):
                self.make(change)

    def order(self) -> None:
        """Put moves to brokers that also give bundles last.

        If only the first moves of the plan are made, these brokers have given before they take.
        """
        gives = np.zeros(len(self.plan.share), np.bool_)
        gives[self.source] = True
        late = self.single & gives[self.destination]
        self.plan.moves[:] = [
            self.plan.moves[at] for at in np.argsort(late, kind="stable").tolist()
        ]

    def _stand_ins(self, number: int) -> Rows:
        """Return the bundles that could replace that of a move.

        They have the same source and budget, cost little more, and their moves pay back.
        """
        plan, bundle, source = self.plan, self.bundle[number], int(self.source[number])
        rows = self.rows.get(source, NO_ROWS)
        rows = rows[~plan.moved[rows] & (plan.cost[rows] <= DEARER * self.planned_cost[number])]
        rows = rows[plan.gains(source, rows)]
        rows = rows[
            (self.moved[bundle] | ~self.moved[rows])
            & (plan.disruption.budget[rows] == plan.disruption.budget[bundle])
        ]
        before = plan.share[source] + plan.demand[bundle] * plan.per_unit[source]
        found: Rows = rows[
            plan.payback.pay_each(source, before, plan.demand[rows] * plan.per_unit[source], rows)
        ]
        return found

    def _best(
        self, number: int, bundles: Rows, destinations: Rows, below: float
    ) -> Iterator[Change]:
        """Yield the best bundle and destination for a move, if its peak is lower than `below`."""
        if not len(bundles):
            return

        # The shares of the source, of each destination, and of the present destination.
        plan, now, source = self.plan, int(self.destination[number]), int(self.source[number])
        old, new = plan.demand[self.bundle[number]], plan.demand[bundles]
        left = (plan.share[source] + (old - new) * plan.per_unit[source]).max(axis=1)
        left[bundles == self.bundle[number]] = -np.inf  # the source is as full as before
        share = (
            plan.share[destinations]
            - np.where(destinations == now, 1.0, 0.0)[:, None] * old * plan.per_unit[now]
        )
        taken = (share[None] + new[:, None] * plan.per_unit[destinations][None]).max(axis=2)
        emptied = float((plan.share[now] - old * plan.per_unit[now]).max())
        peak = np.maximum(
            np.maximum(taken, left[:, None]), np.where(destinations == now, -np.inf, emptied)
        )
        peak[taken > np.maximum(plan.limit, plan.share.max(axis=1))[destinations]] = np.inf

        # The lowest peak that the rules allow.
        for at in np.argsort(peak, axis=None, kind="stable")[:TRIED].tolist():
            row, column = divmod(at, len(destinations))
            bundle, destination = int(bundles[row]), int(destinations[column])
            if not peak[row, column] < below:
                return
            if (
                destination != source
                and self._may_take(bundle)[destination]
                and (destination == now or plan.intake_left[destination] > 0)
            ):
                yield Change(float(peak[row, column]), ((number, bundle, destination),))
                return

    def _trade(self, number: int, below: float) -> Iterator[Change]:
        """Yield the best exchange of destinations with another move, if lower than `below`."""
        plan, bundle = self.plan, int(self.bundle[number])
        now, source = int(self.destination[number]), int(self.source[number])
        theirs = np.flatnonzero(
            self.single
            & (self.destination != now)
            & (self.source != now)
            & (self.destination != source)
        )
        there = self.destination[theirs]
        heavier = plan.demand[bundle] - plan.demand[self.bundle[theirs]]
        taken = (plan.share[there] + heavier * plan.per_unit[there]).max(axis=1)
        peak = np.maximum((plan.share[now] - heavier * plan.per_unit[now]).max(axis=1), taken)
        peak[taken > np.maximum(plan.limit[there], plan.share[there].max(axis=1))] = np.inf
        for at in np.argsort(peak, kind="stable")[:TRIED].tolist():
            other, destination = int(theirs[at]), int(there[at])
            if not peak[at] < below:
                return
            back = int(self.bundle[other])
            if self._may_take(bundle)[destination] and self._may_take(back)[now]:
                yield Change(float(peak[at]), ((number, bundle, destination), (other, back, now)))
                return

    def _may_take(self, bundle: int) -> Bools:
        """Return which brokers may take a bundle."""
        if bundle not in self.allowed:
            self.allowed[bundle] = self.plan.may_take(bundle) & (self.plan.limit >= 0)
        return self.allowed[bundle]

    def _count(self, number: int, sign: int) -> None:
        """Count a move in shares and intakes. `sign`: 1, or -1 to take it out of them."""
        plan, bundle = self.plan, self.bundle[number]
        source, destination = self.source[number], self.destination[number]
        plan.share[source] -= sign * plan.demand[bundle] * plan.per_unit[source]
        plan.share[destination] += sign * plan.demand[bundle] * plan.per_unit[destination]
        plan.intake_left[destination] -= sign
        plan.moved[bundle] = sign > 0
