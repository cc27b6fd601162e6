"""The plan: few and cheap moves that relieve hot brokers. No destination exceeds its limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, starmap
from typing import NamedTuple

import numpy as np

from lb_stream.core.least_moves.payback import Payback
from lb_stream.core.model.view import Bools, Floats, Rows
from lb_stream.core.shedding.base import Disruption, heaviest_first

NEGLIGIBLE = 1e-9
MOVES_PER_SWAP = 2
PARTNERS, SWAPPED = 12, 32
"""Swaps are tried with PARTNERS of the coldest brokers, and with SWAPPED bundles of each side."""
PUSHED, ASKED, PUSHES = 6, 24, 18
"""Pushes are tried for PUSHED of a source's heaviest bundles, with ASKED of the coldest brokers for
each, and PUSHES in all."""
NOT_ENOUGH = 1 << 20
"""Added to a lower bound of moves that don't relieve a source: other pushes are tried first."""
NO_ROWS: Rows = np.empty(0, np.intp)
NEARLY = 1.1
"""A plan within this factor of the fewest moves for a source is good enough."""
EFFORT = 300
"""The search for a better plan for one source ends after this number of tried moves."""
WORTH_A_SWAP = 0.02
"""A swap lowers the source's share by at least this."""
ROOMS = 4_000
"""Whether bundles fit into any broker is looked at for up to this product of both."""
TRIED = 24
"""Bundles or swaps that are tried in one step, before the loads are compared again."""


class PlannedMove(NamedTuple):
    """One move, with the share of its destination after it, and the second best destination."""

    bundle: int
    source: int
    destination: int
    share: float  # of the destination, with the bundle
    second: int  # broker; -1: no other broker had room
    second_share: float  # of that broker, with the bundle
    with_next: bool = False  # half of a swap with the next move


class State(NamedTuple):
    """The state of a plan, to which it can be restored."""

    share: Floats
    disruption: Disruption
    intake_left: Rows
    moves: list[PlannedMove]


@dataclass(slots=True)
class MovePlan:
    """The moves that are chosen so far, and the brokers' shares after them. Mutable.

    A share is load ÷ (even load · capacity), so 1 is even.
    """

    share: Floats  # (brokers, resources)
    per_unit: Floats  # (brokers, resources): the rise of the share by one unit of load
    demand: Floats  # (bundles, resources)
    cost: Floats  # of a move of each bundle; the average bundle's is 1
    payback: Payback
    may_take: Callable[[int], Bools]  # bundle → brokers that may take it
    acceptable_share: float  # a source below this is relieved
    target_share: float  # moves bring a source down to this if that takes no more of them
    min_gain: float  # a move lowers its source's share by at least this
    limit: Floats  # the highest share of each destination; -inf: it takes no bundle
    disruption: Disruption
    intake_left: Rows  # the intake of each broker
    moves: list[PlannedMove] = field(default_factory=list)
    moved: Bools = field(init=False)  # bundles of the moves: none moves twice

    def __post_init__(self) -> None:
        self.moved = np.zeros(len(self.demand), np.bool_)

    def state(self) -> State:
        """Return a copy of the state."""
        return State(
            self.share.copy(order="F"), self.disruption, self.intake_left.copy(), list(self.moves)
        )

    def restore(self, state: State) -> None:
        """Go back to an earlier state."""
        self.share, self.intake_left = state.share.copy(order="F"), state.intake_left.copy()
        self.disruption, self.moves = state.disruption, list(state.moves)
        self.moved[:] = False
        self.moved[[move.bundle for move in self.moves]] = True

    def bring_down(
        self,
        source: int,
        rows: Rows,
        others: Callable[[], dict[int, Rows]],
        effort: int = EFFORT,
    ) -> int:
        """Relieve a source with its bundles `rows`, by single moves or a shorter plan.

        `effort`: number of moves that may be tried in plans that begin with a swap or a push.
        `others`: broker → its bundles that may move; called only in this search. Returns the number
        of moves that were tried.
        """
        # Single moves.
        rows = self._not_moved(rows)
        if effort <= 0:
            self.relieve(source, rows)
            return 0
        before, fewest = self.state(), self.fewest(source, rows)
        relieved = self.relieve(source, rows)
        best, found = self._rank(source, relieved, before), self.state()
        if best <= (0.0, max(fewest * NEARLY, MOVES_PER_SWAP)):
            return 0

        # Plans with another first step, the shortest first, until the effort is spent.
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
            if tried > effort:
                break
        self.restore(found)
        return tried

    def _pays(self, source: int, before: State) -> bool:
        """Return whether the moves since `before` together pay back as the source's share falls."""
        bundles = np.array([move.bundle for move in self.moves[len(before.moves) :]], np.intp)
        return self.payback.pay_together(source, before.share[source], self.share[source], bundles)

    def fewest(self, source: int, rows: Rows, more: Floats | float = 0.0) -> int:
        """Return a lower bound of the moves that bring a source below the acceptable share.

        It is the number of its largest bundles that cover the excess, in the resource that takes
        most of them. `more`: demand that is added to the source first, (resources).
        """
        return int(self.fewest_by_level(np.array([self.acceptable_share]), source, rows, more)[0])

    def fewest_by_level(
        self, levels: Floats, source: int, rows: Rows, more: Floats | float = 0.0
    ) -> Rows:
        """Return the same lower bound for each of these levels."""
        excess = self.share[source] + more * self.per_unit[source] - levels[:, None]
        return _count_moves(excess, self._covered(source, rows))

    def _covered(self, source: int, rows: Rows) -> Floats:
        """Return (bundles, resources): the share of a source's n + 1 largest bundles in row n."""
        covered: Floats = np.cumsum(
            -np.sort(-self.demand[rows] * self.per_unit[source], axis=0), axis=0
        )
        return covered

    def _attempts(
        self, source: int, rows: Rows, others: dict[int, Rows]
    ) -> list[tuple[int, Callable[[float], bool]]]:
        """Return first steps of other plans, each with a lower bound of its moves, shortest first.

        The first is a swap, the others are pushes. A step is a function, which takes the maximum of
        moves of the plan and returns whether the step was made.
        """
        # The shares of all brokers with each of the source's heaviest bundles.
        after = {
            bundle: self._share_with(bundle, source)
            for bundle in self._weightiest(source, rows)[:PUSHED].tolist()
        }
        stuck = [bundle for bundle, full in after.items() if not (full <= self.limit).any()]

        # Pushes of each of these bundles to each of the coldest brokers, which is then relieved.
        pushes, needed = list[tuple[int, float, int, int]](), dict[int, Rows]()
        for number, (bundle, full) in enumerate(after.items()):
            rest, relieves = self._needed_without([bundle], source, rows, stuck)
            if not relieves:
                rest += NOT_ENOUGH
            for broker in np.argsort(full, kind="stable")[:ASKED].tolist():
                if full[broker] < np.inf:
                    if broker not in needed:  # moves that must leave it for each bundle
                        more = self.demand[list(after)] * self.per_unit[broker]
                        needed[broker] = _count_moves(
                            self.share[broker] + more - self.acceptable_share,
                            self._covered(broker, others.get(broker, NO_ROWS)),
                        )
                    made = int(needed[broker][number])
                    pushes.append((rest + made, float(full[broker]), bundle, broker))
        tried: list[tuple[int, Callable[[float], bool]]] = [
            (1 + least, partial(self.push, bundle, source, broker, others.get(broker, NO_ROWS)))
            for least, _, bundle, broker in sorted(pushes)[:PUSHES]
        ]
        tried = self._several_pushes(source, rows, stuck, others) + tried
        return [(MOVES_PER_SWAP, lambda most: self.exchange(source, rows, others, most)), *tried]

    def _needed_without(
        self, bundles: Sequence[int], source: int, rows: Rows, stuck: Sequence[int]
    ) -> tuple[int, bool]:
        """Return a lower bound of the moves that relieve a source without these bundles.

        `stuck`: bundles that can't move either. Also returns whether its others are enough.
        """
        left = rows[~np.isin(rows, [*bundles, *stuck])]
        needed = self.fewest(source, left, -self.demand[list(bundles)].sum(axis=0))
        return needed, needed <= len(left)

    def _several_pushes(
        self, source: int, rows: Rows, stuck: Sequence[int], others: dict[int, Rows]
    ) -> list[tuple[int, Callable[[float], bool]]]:
        """Return attempts to push several bundles that no broker has room for, one by one.

        They are as few as relieve the source: the lightest ones, and the heaviest ones.
        """
        found = list[tuple[int, Callable[[float], bool]]]()
        weight = self.demand[list(stuck)] @ self.per_unit[source]
        for order in (np.argsort(weight, kind="stable"), np.argsort(-weight, kind="stable")):
            for count in range(2, len(stuck) + 1):
                chosen = [stuck[at] for at in order[:count].tolist()]
                rest, relieves = self._needed_without(chosen, source, rows, stuck)
                if relieves:
                    push = partial(self._push_all, chosen, source, others)
                    found.append((count + rest, push))
                    break
        return found

    def _push_all(
        self, bundles: Sequence[int], source: int, others: dict[int, Rows], most: float
    ) -> bool:
        """Push these bundles, each to the broker that is least full with it."""
        for bundle in bundles:
            broker = int(self._share_with(bundle, source).argmin())
            if not self.push(bundle, source, broker, others.get(broker, NO_ROWS), most):
                return False
        return True

    def push(self, bundle: int, source: int, broker: int, theirs: Rows, most: float) -> bool:
        """Move a large bundle to a broker without room for it, and relieve that broker.

        `theirs`: that broker's bundles. Returns whether it is relieved.
        """
        if not self._within_budget(np.array([bundle]))[0]:
            return False
        self.move_to(bundle, source, broker)
        return self.relieve(broker, theirs, most)

    def gains(self, source: int, rows: Rows) -> Bools:
        """Return for each bundle of a source whether its move could gain enough."""
        weight = (self.demand[rows] * self.per_unit[source]).max(axis=1, initial=0.0)
        enough: Bools = weight >= max(self.min_gain, NEGLIGIBLE)
        return enough

    def _not_moved(self, rows: Rows) -> Rows:
        """Return the bundles that the plan has not moved."""
        return rows[~self.moved[rows]]

    def _rank(self, source: int, relieved: bool, before: State) -> tuple[float, int]:
        """Return (excess of the source, number of moves) of a plan; the lowest rank is best."""
        left = 0.0 if relieved else float(self.share[source].max() - self.acceptable_share)
        return (round(left, 2), len(self.moves) - len(before.moves))

    def relieve(self, source: int, rows: Rows, most: float = np.inf) -> bool:
        """Move bundles of `rows` away until the source is relieved, or the plan has `most` moves.

        Only moves that gain enough and pay back are made. The cheapest bundle that brings the
        source to the target share is taken first; else the cheapest that relieves it; else the
        bundle that covers most of the excess for its cost. Returns whether the source is relieved.
        """
        rows = self._not_moved(rows[self.gains(source, rows)])
        left = np.ones(len(rows), np.bool_)
        weight, cost = self.demand[rows] * self.per_unit[source], self.cost[rows]
        price = cost + weight.sum(axis=1)
        while True:
            # The resources in which the source is above the acceptable share.
            excess = self.share[source] - self.acceptable_share
            over = excess > NEGLIGIBLE
            if not over.any():
                return True
            left &= self._within_budget(rows) & (weight[:, over].max(axis=1) >= self.min_gain)
            if not left.any() or len(self.moves) >= most:
                return False

            # Candidates by preference; the first that pays back and has a destination moves.
            enough = left & (weight[:, over] >= excess[over]).all(axis=1)
            best = enough & (weight >= self.share[source] - self.target_share).all(axis=1)
            need = np.where(over, excess, 0.0)
            worth = np.minimum(weight, need).sum(axis=1) / cost
            preferred = ((best, price), (enough & ~best, price), (left & ~enough, -worth))
            screened = False
            for at in chain.from_iterable(starmap(_first, preferred)):
                if not left[at]:
                    continue
                # A bundle is tried once, as destinations only become fuller, and moves gain less.
                left[at] = False
                if self.payback.pays(
                    source, self.share[source], weight[at], int(rows[at])
                ) and self._move(int(rows[at]), source):
                    break
                if not screened:
                    left &= self._has_room(rows)
                    left &= self.payback.pay_each(source, self.share[source], weight, rows)
                    screened = True

    def exchange(
        self, source: int, rows: Rows, others: dict[int, Rows], most: float = np.inf
    ) -> bool:
        """Swap bundles with cold brokers until the source is relieved, while swaps gain enough.

        Returns whether any swap was made.
        """
        begun = len(self.moves)
        lightest, scarce = dict[int, Rows](), -1
        while self.share[source].max() > self.acceptable_share and len(self.moves) < most:
            if (now := int(np.argmax(self.share[source]))) != scarce:
                lightest, scarce = {}, now
            peaks = np.where(self.limit > 0, self.share.max(axis=1), np.inf)
            peaks[source] = np.inf
            partners = [
                broker
                for broker in np.argsort(peaks, kind="stable")[:PARTNERS].tolist()
                if peaks[broker] < np.inf and broker in others
            ]
            mine = self._weightiest(source, self._not_moved(rows))
            for partner in partners:
                if partner not in lightest:
                    bundles = self._not_moved(others[partner])
                    lightest[partner] = self._lightest(source, partner, bundles)
            theirs = [lightest[partner] for partner in partners]
            best = self._find_swap(
                source,
                mine,
                np.repeat(partners, list(map(len, theirs))),
                np.concatenate([NO_ROWS, *theirs]),
            )
            if best is None:
                break
            bundle, back, broker = best
            del lightest[broker]
            self.record_part(bundle, source, broker, with_next=True)
            self.record_part(back, broker, source, with_next=False)
        return len(self.moves) > begun

    def move_to(self, bundle: int, source: int, destination: int) -> None:
        """Move a bundle to this destination."""
        after = self._share_with(bundle, source)
        after[(after > self.limit) & (np.arange(len(after)) != destination)] = np.inf
        after[destination] = (
            self.share[destination] + self.demand[bundle] * self.per_unit[destination]
        ).max()
        self._record_move(bundle, source, destination, after)

    def record_part(self, bundle: int, source: int, destination: int, with_next: bool) -> None:
        """Record one move of a swap or a cycle, which is made only with the next one."""
        self._apply_move(bundle, source, destination)
        share = float(self.share[destination].max())
        self.moves.append(
            PlannedMove(bundle, source, destination, share, -1, np.inf, with_next=with_next)
        )

    def _find_swap(
        self, source: int, mine: Rows, broker: Rows, theirs: Rows
    ) -> tuple[int, int, int] | None:
        """Find the swap that leaves the source least full: of `mine` with one of `theirs`.

        `broker`: the broker of each of `theirs`. The relief of a partner too full in another
        resource counts too: brokers with too little cpu may swap with brokers with too little
        bandwidth. No broker exceeds its limit, unless it has done so before and becomes no fuller.

        Returns the source's bundle, the other bundle, its broker; None: no swap gains enough.
        """
        if not len(mine) or not len(theirs):
            return None

        # The shares of the source (here) and of the partner (there) after each swap.
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

        # Swaps that gain enough, by the excess that they leave and their cost.
        full = self.share[broker].max(axis=1)
        worth = (there <= np.maximum(self.limit[broker], full)) & (
            here
            <= min(
                max(self.acceptable_share, float(self.share[source].max()) - WORTH_A_SWAP),
                float(self.share[source].max()) - MOVES_PER_SWAP * self.min_gain,
            )
        )
        relieved = np.minimum(np.maximum(there, self.acceptable_share) - full, 0.0)
        price = (
            np.maximum(here, self.acceptable_share)
            + relieved
            + 1e-3 * (self.cost[mine][:, None] + self.cost[theirs])
        )
        price[~worth] = np.inf

        # The best of them that rules and budgets allow.
        for _ in range(TRIED):
            row, column = np.unravel_index(np.argmin(price), price.shape)
            if price[row, column] == np.inf:
                return None
            bundle, back, partner = int(mine[row]), int(theirs[column]), int(broker[column])
            if (
                self._is_allowed(bundle, partner)
                and self._is_allowed(back, source)
                and len(self.disruption.within(np.array([bundle, back]))) == 2
            ):
                return bundle, back, partner
            price[row, column] = np.inf
        return None

    def _is_allowed(self, bundle: int, broker: int) -> bool:
        """Return whether a broker may take a bundle, by rules and its intake."""
        return bool(self.intake_left[broker] > 0 and self.may_take(bundle)[broker])

    def _weightiest(self, source: int, rows: Rows) -> Rows:
        """Return the bundles with the highest demand of the source's scarcest resource."""
        return heaviest_first(rows, self.demand[:, int(np.argmax(self.share[source]))])[:SWAPPED]

    def _lightest(self, source: int, broker: int, rows: Rows) -> Rows:
        """Return bundles of a broker with the lowest demand of the source's scarcest resource.

        If the broker is too full itself, a high demand of its own scarcest resource counts too.
        """
        weight = self.demand[rows] * self.per_unit[broker]
        key = weight[:, int(np.argmax(self.share[source]))]
        if self.share[broker].max() > self.acceptable_share:
            key = key - weight[:, int(np.argmax(self.share[broker]))]
        return rows[np.argsort(key, kind="stable")][:SWAPPED]

    def _apply_move(self, bundle: int, source: int, destination: int) -> None:
        """Count a move in shares, intakes and budgets."""
        demand = self.demand[bundle]
        self.share[source] -= demand * self.per_unit[source]
        self.share[destination] += demand * self.per_unit[destination]
        self.intake_left[destination] -= 1
        self.moved[bundle] = True
        self.disruption = self.disruption.after_moves(np.array([bundle]))

    def take_back(self, number: int) -> None:
        """Take a move out of the plan."""
        move = self.moves.pop(number)
        demand, budget = self.demand[move.bundle], int(self.disruption.budget[move.bundle])
        self.share[move.source] += demand * self.per_unit[move.source]
        self.share[move.destination] -= demand * self.per_unit[move.destination]
        self.intake_left[move.destination] += 1
        self.moved[move.bundle] = False
        if budget >= 0:
            left = self.disruption.left.copy()
            left[budget] += 1
            self.disruption = replace(self.disruption, left=left)

    def _within_budget(self, rows: Rows) -> Bools:
        """Return which bundles have no budget, or one with moves left."""
        left, budget = self.disruption.left, self.disruption.budget[rows]
        # Budget -1, which means none, takes the last row.
        within: Bools = np.append(left, 1)[budget] > 0 if len(left) else budget < 0
        return within

    def _has_room(self, rows: Rows) -> Bools:
        """Return which bundles fit into any broker, whatever the rules say.

        Where there are many bundles and brokers it is not looked at, and each may fit.
        """
        brokers = np.flatnonzero(self.limit > 0)
        if len(brokers) * len(rows) > ROOMS:
            return np.ones(len(rows), np.bool_)
        after = self.share[brokers] + self.demand[rows, None] * self.per_unit[brokers]
        found: Bools = (after.max(axis=2) <= self.limit[brokers]).any(axis=1)
        return found

    def _share_with(self, bundle: int, source: int) -> Floats:
        """Return each broker's share with a bundle of the source; infinite: it may not take it."""
        after: Floats = (self.share + self.demand[bundle] * self.per_unit).max(axis=1)
        after[~self.may_take(bundle) | (self.limit < 0) | (self.intake_left <= 0)] = np.inf
        after[source] = np.inf
        return after

    def _move(self, bundle: int, source: int) -> bool:
        """Move a bundle to the broker that is least full with it; return whether any has room."""
        after = self._share_with(bundle, source)
        after[after > self.limit] = np.inf
        best = int(after.argmin())
        if after[best] == np.inf:
            return False
        self._record_move(bundle, source, best, after)
        return True

    def _record_move(self, bundle: int, source: int, destination: int, after: Floats) -> None:
        """Record a move, with the second best destination.

        `after`: each broker's share with the bundle, infinite where it has no room. It is changed.
        """
        share = float(after[destination])
        after[destination] = np.inf
        second = int(after.argmin())
        other = float(after[second])
        self._apply_move(bundle, source, destination)
        self.moves.append(
            PlannedMove(bundle, source, destination, share, second if other < np.inf else -1, other)
        )


def _count_moves(excess: Floats, covered: Floats) -> Rows:
    """Return how many of a broker's largest bundles cover each excess, a row of `excess`.

    `covered`: (bundles, resources), the share of its n + 1 largest bundles in row n.
    """
    needed: Rows = (covered < excess[:, None] - NEGLIGIBLE).sum(axis=1).max(
        axis=1, initial=-1, where=excess > NEGLIGIBLE
    ) + 1
    return needed


def _first(candidates: Bools, key: Floats) -> list[int]:
    """Return the candidates with the lowest keys, the lowest first."""
    (rows,) = candidates.nonzero()
    first: list[int] = rows[key[rows].argsort(kind="stable")][:TRIED].tolist() if len(rows) else []
    return first
