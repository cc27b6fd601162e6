"""The plan: few, cheap moves that bring every hot broker down, each to a destination that stays
below its limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, starmap
from typing import NamedTuple

import numpy as np

from lb_stream.core.least_moves.payback import Payback
from lb_stream.core.model.view import Bools, Floats, Rows
from lb_stream.core.shedding.base import Disruption, heaviest_first

NEGLIGIBLE = 1e-9
MOVES_PER_SWAP = 2
"""Moves of an exchange."""
PARTNERS, SWAPPED = 12, 32
"""Coldest brokers that a stuck source is to swap with, and bundles of each side that are looked
at."""
PUSHED, ASKED, PUSHES = 6, 24, 18
"""The weightiest bundles of a source, the coldest brokers that room could be made at for one, and
how often that is tried."""
NO_ROWS: Rows = np.empty(0, np.intp)
NEARLY = 1.1
"""Factor on the fewest moves that a source can be relieved with: a plan that needs no more is not
improved on."""
EFFORT = 300
"""Moves of all other plans that are tried for one source."""
WORTH_A_SWAP = 0.02
"""What a swap lowers the source by, at least."""
TRIED = 24
"""Bundles of a source that are tried in one step before its excess is looked at anew."""


class PlannedMove(NamedTuple):
    """A bundle, where it leaves, where it goes, and the shares of the two best destinations with
    it."""

    bundle: int
    source: int
    destination: int
    share: float
    second: int  # -1: no other broker had room
    second_share: float
    with_next: bool = False  # the next one comes back in exchange


class State(NamedTuple):
    """How far a plan is."""

    share: Floats
    disruption: Disruption
    intake_left: Rows
    moves: list[PlannedMove]


@dataclass(slots=True)
class MovePlan:
    """Loads while moves are chosen, in shares of each broker's target (1: as full as its target
    says). Mutable: lives within one pass."""

    share: Floats  # (brokers, resources): load / (target · capacity)
    per_unit: Floats  # (brokers, resources): 1 / (target · capacity)
    demand: Floats  # (bundles, resources)
    cost: Floats  # of moving each bundle, the average one 1
    payback: Payback
    may_take: Callable[[int], Bools]  # bundle → brokers that may have it
    acceptable_share: float  # a source is brought below this
    target_share: float  # and to this if that takes no more moves
    limit: Floats  # what each destination is filled to at most; -inf: it takes nothing
    disruption: Disruption
    intake_left: Rows  # how many more bundles each broker may be given
    moves: list[PlannedMove] = field(default_factory=list)
    moved: Bools = field(init=False)  # bundles that the plan has moved: none moves twice

    def __post_init__(self) -> None:
        self.moved = np.zeros(len(self.demand), np.bool_)

    def state(self) -> State:
        """How far it is."""
        return State(
            self.share.copy(order="F"), self.disruption, self.intake_left.copy(), list(self.moves)
        )

    def restore(self, state: State) -> None:
        """Go back to there."""
        self.share, self.intake_left = state.share.copy(order="F"), state.intake_left.copy()
        self.disruption, self.moves = state.disruption, list(state.moves)
        self.moved[:] = False
        self.moved[[move.bundle for move in self.moves]] = True

    def bring_down(
        self, source: int, rows: Rows, others: Callable[[], dict[int, Rows]], search: bool
    ) -> None:
        """Relieve a source by single moves; or, with `search`, by a swap or by making room for a
        large bundle, where that takes fewer.

        `others`: brokers → the bundles of each that may move.
        """
        rows = self._not_moved(rows)
        before, fewest = (self.state(), self.fewest(source, rows)) if search else (None, 0)
        relieved = self.relieve(source, rows)
        if before is None:
            return
        best, found = self._rank(source, relieved, before), self.state()
        if best <= (0.0, max(fewest * NEARLY, MOVES_PER_SWAP)):
            return
        tried = 0
        self.restore(before)
        for least, attempt in self._attempts(source, rows, others()):
            if not best[0] and least >= best[1]:
                continue
            self.restore(before)
            most = np.inf if best[0] else len(before.moves) + best[1]
            if attempt(most) and self._pays(source, before):
                relieved = self.relieve(source, rows, most)
                if (rank := self._rank(source, relieved, before)) < best:
                    best, found = rank, self.state()
            tried += len(self.moves) - len(before.moves)
            if tried > EFFORT:
                break
        self.restore(found)

    def _pays(self, source: int, before: State) -> bool:
        """Whether the moves made since then are together worth what the source has come down by."""
        bundles = np.array([move.bundle for move in self.moves[len(before.moves) :]], np.intp)
        return self.payback.pay_together(source, before.share[source], self.share[source], bundles)

    def fewest(self, source: int, rows: Rows, more: Floats | float = 0.0) -> int:
        """A lower bound: as many of its largest bundles as cover what is too much, in the resource
        that takes most of them.

        `more`: what it gets before, (resources).
        """
        return int(self.fewest_by_level(np.array([self.acceptable_share]), source, rows, more)[0])

    def fewest_by_level(
        self, levels: Floats, source: int, rows: Rows, more: Floats | float = 0.0
    ) -> Rows:
        """The same for each level that the source could be brought below."""
        return self._moves_needed(levels, source, self._covered(source, rows), more)

    def _covered(self, source: int, rows: Rows) -> Floats:
        """(bundles, resources): what its largest bundle covers, its two largest, and so on, of each
        resource."""
        covered: Floats = np.cumsum(
            -np.sort(-self.demand[rows] * self.per_unit[source], axis=0), axis=0
        )
        return covered

    def _moves_needed(
        self, levels: Floats, source: int, covered: Floats, more: Floats | float
    ) -> Rows:
        """How many of its largest bundles must go for each level."""
        excess = self.share[source] + more * self.per_unit[source] - levels[:, None]
        needed: Rows = (covered < excess[:, None] - NEGLIGIBLE).sum(axis=1).max(
            axis=1, initial=-1, where=excess > NEGLIGIBLE
        ) + 1
        return needed

    def _attempts(
        self, source: int, rows: Rows, others: dict[int, Rows]
    ) -> list[tuple[int, Callable[[float], bool]]]:
        """Ways to begin otherwise than with single moves that fit, the likeliest to be short first,
        each with the fewest moves it takes.

        Each takes the most moves of a plan.
        """
        after = {
            bundle: self._share_with(bundle, source)
            for bundle in self._weightiest(source, rows)[:PUSHED].tolist()
        }
        stuck = [bundle for bundle, full in after.items() if not (full <= self.limit).any()]
        pushes, enough = list[tuple[int, float, int, int]](), np.array([self.acceptable_share])
        covered = dict[int, Floats]()
        for bundle, full in after.items():
            rest = self.fewest(source, rows[~np.isin(rows, [bundle, *stuck])], -self.demand[bundle])
            for broker in np.argsort(full, kind="stable")[:ASKED].tolist():
                if full[broker] < np.inf:
                    if broker not in covered:
                        covered[broker] = self._covered(broker, others.get(broker, NO_ROWS))
                    made = int(
                        self._moves_needed(enough, broker, covered[broker], self.demand[bundle])[0]
                    )
                    pushes.append((rest + made, float(full[broker]), bundle, broker))
        tried = [
            (1 + least, partial(self.push, bundle, source, broker, others.get(broker, NO_ROWS)))
            for least, _, bundle, broker in sorted(pushes)[:PUSHES]
        ]
        return [(MOVES_PER_SWAP, lambda most: self.exchange(source, rows, others, most)), *tried]

    def push(self, bundle: int, source: int, broker: int, theirs: Rows, most: float) -> bool:
        """Move a large bundle to a broker that has no room for it, and relieve that one; whether
        that can be."""
        if not self._within_budget(np.array([bundle]))[0]:
            return False
        after = self._share_with(bundle, source)
        after[(after > self.limit) & (np.arange(len(after)) != broker)] = np.inf
        self._record_move(bundle, source, broker, after)
        return self.relieve(broker, theirs, most)

    def _not_moved(self, rows: Rows) -> Rows:
        """Those that the plan hasn't moved yet."""
        return rows[~self.moved[rows]]

    def _rank(self, source: int, relieved: bool, before: State) -> tuple[float, int]:
        """What a plan for a source leaves undone, then how many moves it takes: the least is the
        best."""
        left = 0.0 if relieved else float(self.share[source].max() - self.acceptable_share)
        return (round(left, 2), len(self.moves) - len(before.moves))

    def relieve(self, source: int, rows: Rows, most: float = np.inf) -> bool:
        """Move bundles (of `rows`) that pay back away until that is enough, or the plan has `most`
        moves; whether it is enough.

        One that brings the source to its aim is taken first, the cheapest of them; then one that is
        enough; else what covers most of what is too much for its cost.
        """
        rows = self._not_moved(rows[self.demand[rows].max(axis=1, initial=0.0) > 0])
        left = np.ones(len(rows), np.bool_)
        weight, cost = self.demand[rows] * self.per_unit[source], self.cost[rows]
        price = cost + weight.sum(axis=1)
        while True:
            excess = self.share[source] - self.acceptable_share
            over = excess > NEGLIGIBLE
            if not over.any():
                return True
            left &= self._within_budget(rows)
            if not left.any() or len(self.moves) >= most:
                return False
            enough = left & (weight[:, over] >= excess[over]).all(axis=1)
            best = enough & (weight >= self.share[source] - self.target_share).all(axis=1)
            need = np.where(over, excess, 0.0)
            worth = np.minimum(weight, need).sum(axis=1) / cost
            wishes = ((best, price), (enough & ~best, price), (left & ~enough, -worth))
            for at in chain.from_iterable(
                starmap(_first, wishes)
            ):  # one at a time: mostly the first one does
                left[at] = (
                    # it moves; or never will: destinations only become fuller, and the source gains
                    # less and less
                    False
                )
                if self.payback.pays(
                    source, self.share[source], weight[at], int(rows[at])
                ) and self._move(int(rows[at]), source):
                    break

    def exchange(
        self, source: int, rows: Rows, others: dict[int, Rows], most: float = np.inf
    ) -> bool:
        """Swap bundles with cold brokers until that is enough, as long as each swap is worth its
        two moves; whether any is."""
        begun = len(self.moves)
        lightest, scarce = dict[int, Rows](), -1
        while self.share[source].max() > self.acceptable_share and len(self.moves) < most:
            if (now := int(np.argmax(self.share[source]))) != scarce:
                lightest, scarce = {}, now
            peaks = np.where(self.limit > 0, self.share.max(axis=1), np.inf)
            peaks[source] = np.inf
            partners = [
                one
                for one in np.argsort(peaks, kind="stable")[:PARTNERS].tolist()
                if peaks[one] < np.inf and one in others
            ]
            mine = self._weightiest(source, self._not_moved(rows))
            for one in partners:
                if one not in lightest:
                    lightest[one] = self._lightest(source, one, self._not_moved(others[one]))
            theirs = [lightest[partner] for partner in partners]
            best = self._swap(
                source,
                mine,
                np.repeat(partners, list(map(len, theirs))),
                np.concatenate([NO_ROWS, *theirs]),
            )
            if best is None:
                break
            bundle, back, broker = best
            del lightest[broker]
            for one, start, end in ((bundle, source, broker), (back, broker, source)):
                self._apply_move(one, start, end)
                self.moves.append(
                    PlannedMove(
                        one,
                        start,
                        end,
                        float(self.share[end].max()),
                        -1,
                        np.inf,
                        with_next=one == bundle,
                    )
                )
        return len(self.moves) > begun

    def _swap(
        self, source: int, mine: Rows, broker: Rows, theirs: Rows
    ) -> tuple[int, int, int] | None:
        """The swap that leaves the source least full, of one of its own with one of `theirs`, the
        bundles of each `broker`.

        A broker that has too much of something else is a partner, too, and what it is relieved by
        counts: where some have too much cpu in use and the others too much bandwidth, no broker has
        room for anything. None is filled beyond its limit, nor more than it was.

        Returns its bundle, the other's bundle, the other broker; None if no swap lowers the source
        enough.
        """
        if not len(mine) or not len(theirs):
            return None
        here, there = (np.full((len(mine), len(theirs)), -np.inf) for _ in range(2))
        for resource in np.flatnonzero(self.per_unit.any(axis=0)).tolist():
            differ = self.demand[mine, resource][:, None] - self.demand[theirs, resource]
            np.maximum(
                here,
                self.share[source, resource] - differ * self.per_unit[source, resource],
                out=here,
            )
            np.maximum(
                there,
                self.share[broker, resource] + differ * self.per_unit[broker, resource],
                out=there,
            )
        full = self.share[broker].max(axis=1)
        worth = (there <= np.maximum(self.limit[broker], full)) & (
            here <= max(self.acceptable_share, float(self.share[source].max()) - WORTH_A_SWAP)
        )
        relieved = np.minimum(np.maximum(there, self.acceptable_share) - full, 0.0)
        price = (
            np.maximum(here, self.acceptable_share)
            + relieved
            + 1e-3 * (self.cost[mine][:, None] + self.cost[theirs])
        )
        price[~worth] = np.inf
        for _ in range(TRIED):
            one, other = np.unravel_index(np.argmin(price), price.shape)
            if price[one, other] == np.inf:
                return None
            bundle, back, end = int(mine[one]), int(theirs[other]), int(broker[other])
            if (
                self._fits(bundle, end)
                and self._fits(back, source)
                and len(self.disruption.within(np.array([bundle, back]))) == 2
            ):
                return bundle, back, end
            price[one, other] = np.inf
        return None

    def _fits(self, bundle: int, broker: int) -> bool:
        return bool(self.intake_left[broker] > 0 and self.may_take(bundle)[broker])

    def _weightiest(self, source: int, rows: Rows) -> Rows:
        """Bundles that weigh most in what the source has most of."""
        return heaviest_first(rows, self.demand[:, int(np.argmax(self.share[source]))])[:SWAPPED]

    def _lightest(self, source: int, broker: int, rows: Rows) -> Rows:
        """Bundles of another broker that weigh least in what the source has most of, and most in
        what that one has too much of."""
        weight = self.demand[rows] * self.per_unit[broker]
        key = weight[:, int(np.argmax(self.share[source]))]
        if self.share[broker].max() > self.acceptable_share:
            key = key - weight[:, int(np.argmax(self.share[broker]))]
        return rows[np.argsort(key, kind="stable")][:SWAPPED]

    def _apply_move(self, bundle: int, source: int, destination: int) -> None:
        """Count a move in the loads and budgets."""
        demand = self.demand[bundle]
        self.share[source] -= demand * self.per_unit[source]
        self.share[destination] += demand * self.per_unit[destination]
        self.intake_left[destination] -= 1
        self.moved[bundle] = True
        self.disruption = self.disruption.after_moves(np.array([bundle]))

    def _within_budget(self, rows: Rows) -> Bools:
        left, budget = self.disruption.left, self.disruption.budget[rows]
        within: Bools = (
            np.append(left, 1)[budget] > 0 if len(left) else budget < 0
        )  # row -1, no budget, is the last
        return within

    def _share_with(self, bundle: int, source: int) -> Floats:
        """(brokers): how full each would be with a bundle of the source; infinite where it may not
        be."""
        after: Floats = (self.share + self.demand[bundle] * self.per_unit).max(axis=1)
        after[~self.may_take(bundle) | (self.limit < 0) | (self.intake_left <= 0)] = np.inf
        after[source] = np.inf
        return after

    def _move(self, bundle: int, source: int) -> bool:
        """Move a bundle to the broker that is least full with it and stays below its limit."""
        after = self._share_with(bundle, source)
        after[after > self.limit] = np.inf
        best = int(after.argmin())
        if after[best] == np.inf:
            return False
        self._record_move(bundle, source, best, after)
        return True

    def _record_move(self, bundle: int, source: int, destination: int, after: Floats) -> None:
        """Note a move, and who else is the least full with its bundle.

        `after`: infinite for brokers that have no room for it.
        """
        share = float(after[destination])
        after[destination] = np.inf
        second = int(after.argmin())
        other = float(after[second])
        self._apply_move(bundle, source, destination)
        self.moves.append(
            PlannedMove(bundle, source, destination, share, second if other < np.inf else -1, other)
        )


def _first(candidates: Bools, key: Floats) -> list[int]:
    """The candidates with the least keys, in their order."""
    (rows,) = candidates.nonzero()
    first: list[int] = rows[key[rows].argsort(kind="stable")][:TRIED].tolist() if len(rows) else []
    return first
