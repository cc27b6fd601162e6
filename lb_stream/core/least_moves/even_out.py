"""Evening out: the moves of a finished plan are changed, and none is added, as long as that lowers
the fullest brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lb_stream.core.least_moves.plan import NO_ROWS, MovePlan, PlannedMove
from lb_stream.core.model.view import Bools, Floats, Rows

LEAST = 1e-4
"""By so much a change lowers the fullest of the brokers that it concerns."""
CHANGES, STUCK = 100, 12
"""Changes of one plan, and brokers that none of them helps, before that is enough: both take
long."""
COLDEST = 12
"""Destinations that are tried for a bundle that stands in for another one."""
TRIED = 12
"""Changes of a move that are held against the rules, the best first."""
DEARER = 1.4
"""Factor on what a move costs: a bundle that stands in for another one costs at most so much
more."""
EVEN = 1.03
"""A broker below this share can take another bundle so that a recently moved one stays."""


class Change(NamedTuple):
    """Moves that are to be made otherwise, and how full that leaves the fullest broker that they
    concern."""

    peak: float
    moves: tuple[
        tuple[int, int, int], ...
    ] = ()  # the move's number in the plan, its bundle, its destination


def even_out(plan: MovePlan, others: Callable[[], dict[int, Rows]], moved: Bools) -> None:
    """Bring the fullest brokers nearer to even: their moves take other bundles, or go elsewhere.

    As many moves as before.

    A destination that has become the fullest gives a move to another broker, exchanges it for
    another's, or takes a lighter bundle of the same source; a source gives a heavier one. Then
    bundles that have moved recently stay where others can go.

    `others`: brokers → the bundles of each that may move. `moved`: recently moved bundles, which
    replace only each other.
    """
    if not plan.moves:
        return
    evening = _EvenedPlan(plan, others, moved)
    stuck, changes = set[int](), 0
    while len(stuck) < STUCK and changes < CHANGES:
        peaks = evening.peaks()
        peaks[list(stuck)] = -np.inf
        fullest = int(peaks.argmax())
        if peaks[fullest] <= 1.0:
            break
        best = min(evening.changes(fullest, peaks[fullest] - LEAST), default=None)
        if best is None:
            stuck.add(fullest)
        else:
            evening.make(best)
            changes += 1
    evening.keep_recently_moved()
    evening.order()


@dataclass
class _EvenedPlan:
    """A plan while its moves are changed."""

    plan: MovePlan
    others: Callable[[], dict[int, Rows]]
    moved: Bools
    allowed: dict[int, Bools] = field(default_factory=dict)

    def __post_init__(self) -> None:
        moves = self.plan.moves
        self.bundle, self.source, self.destination = (
            np.array(one, np.intp) for one in list(zip(*moves, strict=True))[:3]
        )
        exchanged = np.array([move.with_next for move in moves])
        self.single = ~(
            exchanged | np.append(False, exchanged[:-1])
        )  # the others are decided in pairs
        self.planned_cost = self.plan.cost[self.bundle]

    @cached_property
    def rows(self) -> dict[int, Rows]:
        """Brokers → the bundles of each that may move."""
        return self.others()

    def peaks(self) -> Floats:
        """How full the brokers are that single moves concern; the others, which can't be helped,
        are -inf."""
        peaks = np.full(len(self.plan.share), -np.inf)
        concerned = np.concatenate([self.source[self.single], self.destination[self.single]])
        peaks[concerned] = self.plan.share[concerned].max(axis=1)
        return peaks

    def changes(self, broker: int, below: float) -> Iterator[Change]:
        """Yield the best change of each move of a broker that keeps all its brokers below this."""
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
        """Apply a change to the loads and the moves."""
        plan = self.plan
        for number, _, _ in change.moves:
            self._count(number, -1)
        for number, bundle, destination in change.moves:
            self.bundle[number], self.destination[number] = bundle, destination
            self._count(number, 1)
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
        """Replace recently moved bundles by others where every broker stays even enough."""
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
        """Put moves to brokers that others leave last: of a plan that is carried out in part, they
        have given before they take."""
        gives = np.zeros(len(self.plan.share), np.bool_)
        gives[self.source] = True
        late = self.single & gives[self.destination]
        self.plan.moves[:] = [
            self.plan.moves[at] for at in np.argsort(late, kind="stable").tolist()
        ]

    def _stand_ins(self, number: int) -> Rows:
        """Bundles that could move in the place of one: of the same source and the same budget, not
        much dearer, worth it."""
        plan, bundle, source = self.plan, self.bundle[number], int(self.source[number])
        rows = self.rows.get(source, NO_ROWS)
        rows = rows[~plan.moved[rows] & (plan.cost[rows] <= DEARER * self.planned_cost[number])]
        rows = rows[plan.demand[rows].max(axis=1, initial=0.0) > 0]
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
        """Yield the best of these bundles and destinations for a move, if its peak is below."""
        if not len(bundles):
            return
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
        """The best other move to exchange destinations with."""
        plan, bundle, now, source = (
            self.plan,
            int(self.bundle[number]),
            int(self.destination[number]),
            int(self.source[number]),
        )
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
            if self._may_take(bundle)[destination] and self._may_take(int(self.bundle[other]))[now]:
                yield Change(
                    float(peak[at]),
                    ((number, bundle, destination), (other, int(self.bundle[other]), now)),
                )
                return

    def _may_take(self, bundle: int) -> Bools:
        if bundle not in self.allowed:
            self.allowed[bundle] = self.plan.may_take(bundle) & (self.plan.limit >= 0)
        return self.allowed[bundle]

    def _count(self, number: int, sign: int) -> None:
        """Count a move in the loads (1), or take it out of them (-1)."""
        plan, bundle, source, destination = (
            self.plan,
            self.bundle[number],
            self.source[number],
            self.destination[number],
        )
        plan.share[source] -= sign * plan.demand[bundle] * plan.per_unit[source]
        plan.share[destination] += sign * plan.demand[bundle] * plan.per_unit[destination]
        plan.intake_left[destination] -= sign
        plan.moved[bundle] = sign > 0
