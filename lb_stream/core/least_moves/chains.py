"""Chains: the fewest moves that relieve all hot brokers of a small cluster together.

Single moves, swaps and pushes relieve one broker after another. Some clusters with few large
bundles need moves that help only together: A to B, B to C and C to A.

The search is by branch and bound. Each plan moves some bundle out of each broker that is too full.
So a partial plan continues with a move out of its fullest broker, until no broker is too full. The
partial plans of one level have the same number of moves, and NumPy extends all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lb_stream.core.least_moves.plan import EFFORT, NEARLY, NEGLIGIBLE, MovePlan, State
from lb_stream.core.model.view import Bools, Floats, Rows

MAX_BROKERS, MAX_MOVES = 24, 12
"""Chains are searched in clusters of up to MAX_BROKERS. They have up to MAX_MOVES."""
MIN_WEIGHT, HEAVIEST = 0.002, 48
"""Bundles that are at least MIN_WEIGHT of their broker's even load are tried, the HEAVIEST of each
broker."""
NARROW, WIDE = 30, 400
"""At each level, this number of partial plans is extended: few at first; many if their effort,
WIDE ÷ NARROW times that of few, is left."""
CHILDREN, WEIGHTS = 20, 300
"""For each of these, this number of moves is tried, and of weights of bundles is compared to find
what must leave a broker that is too full. What seems nearest to the end comes first."""
EFFORT_OF_CHAINS, EFFORT_OF_MOVE = 600_000, 16
"""Searches for chains end after this effort in one pass: the number of weights that are compared,
and EFFORT_OF_MOVE for each move that is tried."""
TRIES = 200
"""Number of moves that swaps and pushes may try in one pass over a small cluster."""
MAX_SEARCHES = 12
"""In larger clusters, swaps and pushes are tried for this number of the hottest brokers."""
NEVER = 1 << 20
"""Stands for the number of moves that relieve a broker if none do."""


@dataclass
class Reliever:
    """Relieves all sources of a pass, again for each level that it tries. Mutable.

    A small cluster is searched as a whole, as far as the effort of a pass allows.
    """

    plan: MovePlan
    others: Callable[[], dict[int, Rows]]  # returns broker → its bundles that may move
    chains_left: int = EFFORT_OF_CHAINS
    tries_left: int = TRIES
    takers: dict[int, Bools] = field(default_factory=dict)  # bundle → brokers that may take it

    def relieve(self, sources: Rows, rows: dict[int, Rows], search: bool = True) -> None:
        """Relieve these brokers, in this order. `rows`: broker → its bundles that may move.

        `search`: more than single moves is tried where these are not enough, or too many.
        """
        plan, begun = self.plan, len(self.plan.moves)
        goal = np.maximum(plan.share, plan.limit[:, None])
        goal[sources] = plan.acceptable_share
        if not search:
            self._relieve_each(sources, rows, 0)
        elif len(plan.share) > MAX_BROKERS:
            self._relieve_each(sources, rows, EFFORT)
        else:
            self._relieve_together(sources, rows, goal)
        _drop_needless(plan, begun, goal)

    def _relieve_each(self, sources: Rows, rows: dict[int, Rows], effort: int) -> None:
        """Relieve one broker after another; swaps and pushes are tried for the first ones."""
        for number, source in enumerate(sources.tolist()):
            left = effort if number < MAX_SEARCHES else 0
            self.plan.bring_down(source, rows[source], self.others, left)

    def _relieve_together(self, sources: Rows, rows: dict[int, Rows], goal: Floats) -> None:
        """Relieve the brokers of a small cluster by the best of several plans.

        `goal`: (brokers, resources), the highest shares of a plan that relieves them.
        """
        # Single moves, which are enough if hardly fewer are possible.
        plan, before = self.plan, self.plan.state()
        fewest = sum(plan.fewest(source, rows[source]) for source in sources.tolist())
        self._relieve_each(sources, rows, 0)
        best, found = self._rank(sources, before), plan.state()
        enough = (0.0, fewest * NEARLY, np.inf)
        if best <= enough:
            return

        # A chain from the start; swaps and pushes, as far as they go, and a chain from there.
        plan.restore(before)
        if self._search(goal, 2 * fewest + 4) and (rank := self._rank(sources, before)) < best:
            best, found = rank, plan.state()
        if best > enough and self.tries_left > 0:
            plan.restore(before)
            for source in sources.tolist():
                effort = self.tries_left
                self.tries_left -= plan.bring_down(source, rows[source], self.others, effort)
            if (rank := self._rank(sources, before))[0]:
                self._search(goal, 2 * fewest + 4)
                rank = self._rank(sources, before)
            if rank < best:
                best, found = rank, plan.state()

        # What can't be relieved is reached with fewer moves.
        if best[0]:
            plan.restore(before)
            moves = len(found.moves) - len(before.moves)
            if self._search(np.maximum(goal, found.share), moves) and (
                self._rank(sources, before) < best
            ):
                return
        plan.restore(found)

    def _rank(self, sources: Rows, before: State) -> tuple[float, int, float]:
        """Return (excess of the sources, moves, cost) of the plan; the lowest rank is best."""
        plan = self.plan
        excess = np.maximum(plan.share[sources].max(axis=1) - plan.acceptable_share, 0.0)
        bundles = [move.bundle for move in plan.moves[len(before.moves) :]]
        return round(float(excess.sum()), 2), len(bundles), float(plan.cost[bundles].sum())

    def _search(self, goal: Floats, most: int) -> bool:
        """Search for at most `most` moves that reach a goal, and make them.

        `goal`: (brokers, resources), the highest shares. Returns whether moves were made.
        """
        if self.chains_left <= 0:
            return False
        search = ChainSearch(self.plan, self.others(), goal, self.takers)
        most = min(most, MAX_MOVES)
        found = search.find(most, NARROW, self.chains_left)
        self.chains_left -= found.effort
        if not found.proven and found.effort * WIDE / NARROW <= self.chains_left:
            wide = search.find(most, WIDE, self.chains_left)
            self.chains_left -= wide.effort
            found = min(found, wide, key=Found.rank)
        return found.moves is not None and self._make(found.moves)

    def _make(self, moves: Sequence[tuple[int, int]]) -> bool:
        """Make moves of a chain, those that have room first; the rest only together.

        Returns whether the rules still allow them after one another; if not, none is made.
        """
        plan, before = self.plan, self.plan.state()
        highest = np.maximum(plan.share, plan.limit[:, None]) + NEGLIGIBLE
        source_of = {
            int(row): broker for broker, rows in self.others().items() for row in rows.tolist()
        }
        left = list(moves)
        while left:
            fits = [
                (bundle, to)
                for bundle, to in left
                if (plan.share[to] + plan.demand[bundle] * plan.per_unit[to] <= highest[to]).all()
            ]
            bundle, to = fits[0] if fits else left[0]
            if not plan.may_take(bundle)[to]:
                plan.restore(before)
                return False
            left.remove((bundle, to))
            if fits:
                plan.move_to(bundle, source_of[bundle], to)
            else:
                plan.record_part(bundle, source_of[bundle], to, with_next=bool(left))
        return True


def _drop_needless(plan: MovePlan, begun: int, goal: Floats) -> None:
    """Take back moves, the dearest first, without which no source is above its goal.

    `begun`: the number of moves that stay in any case. `goal`: (brokers, resources). Parts of swaps
    and cycles stay.
    """
    while True:
        moves = plan.moves[begun:]
        bundle = np.array([move.bundle for move in moves], np.intp)
        source = np.array([move.source for move in moves], np.intp)
        without = plan.share[source] + plan.demand[bundle] * plan.per_unit[source]
        needless = (without <= np.maximum(goal[source], plan.share[source]) + NEGLIGIBLE).all(
            axis=1
        )
        part = np.array([move.with_next for move in plan.moves], np.bool_)
        needless &= ~(part | np.append(False, part[:-1]))[begun:]
        if not needless.any():
            return
        number = int(np.argmax(np.where(needless, plan.cost[bundle], -np.inf)))
        plan.take_back(begun + number)


class Found(NamedTuple):
    """The result of a search."""

    moves: tuple[tuple[int, int], ...] | None  # (bundle, destination); None: none were found
    cost: float
    proven: bool  # the search has left nothing out
    effort: int

    def rank(self) -> tuple[float, float]:
        """Return (moves, cost); the lowest rank is best."""
        return (np.inf if self.moves is None else len(self.moves)), self.cost


class _Partial(NamedTuple):
    """Partial plans with the same number of moves. Each column has a row for each plan."""

    share: Floats  # (plans, brokers, resources)
    open: Bools  # (plans, bundles): bundles that may still move; others have moved, or stay
    need: Rows  # (plans, brokers): lower bound of the moves that must still leave each broker
    cost: Floats
    bundles: Rows  # (plans, moves)
    destinations: Rows  # (plans, moves)

    def take(self, rows: Rows) -> _Partial:
        """Return these plans."""
        return _Partial(
            self.share[rows],
            self.open[rows],
            self.need[rows],
            self.cost[rows],
            self.bundles[rows],
            self.destinations[rows],
        )


class _Pairs(NamedTuple):
    """Partial plans, each with a bundle that leaves its fullest broker. Rows are pairs."""

    plan: Rows
    bundle: Rows
    source: Rows
    share: Floats  # (pairs, resources): of the source without the bundle
    open: Bools  # (pairs, bundles): as in `_Partial`, after the move
    need: Rows  # as in `_Partial`: of the source
    other: Rows  # of all other brokers together

    def take(self, rows: Rows | Bools) -> _Pairs:
        """Return these pairs."""
        return _Pairs(
            self.plan[rows],
            self.bundle[rows],
            self.source[rows],
            self.share[rows],
            self.open[rows],
            self.need[rows],
            self.other[rows],
        )


class ChainSearch:
    """The search from the present state of a plan.

    Bundles are numbered in the order of `bundle`, brokers as in the plan; resources that no broker
    counts are left out.
    """

    def __init__(
        self,
        plan: MovePlan,
        others: dict[int, Rows],
        ceiling: Floats,
        takers: dict[int, Bools] | None = None,
    ) -> None:
        """Begin a search.

        `others`: broker → its bundles that may move. `ceiling`: (brokers, resources), the shares
        that the search must reach. `takers`: bundle → brokers that may take it, of an earlier
        search in the same plan; it is added to.
        """
        used = np.flatnonzero(plan.per_unit.any(axis=0))
        self.plan, self.used = plan, used
        self.share, self.per_unit = plan.share[:, used], plan.per_unit[:, used]
        self.high = ceiling[:, used] + NEGLIGIBLE
        self.takers_of = {} if takers is None else takers
        self.whole = True  # no bundle is left out
        self.width, self.effort = NARROW, 0

        # The bundles, and the number of each by weight on its broker, the heaviest first.
        found = [self._worthwhile(broker, others) for broker in range(len(self.share))]
        self.bundle = np.concatenate(found)
        self.owner = np.repeat(np.arange(len(found)), [len(rows) for rows in found])
        self.demand = plan.demand[self.bundle][:, used]
        weight = self.demand * self.per_unit[self.owner]
        self.gains = weight >= max(plan.min_gain, NEGLIGIBLE)  # (bundles, resources)
        cost = plan.cost[self.bundle]
        order = np.lexsort((cost, -weight.max(axis=1, initial=0.0)))
        self.rank = np.empty(len(order), np.intp)
        self.rank[order] = np.arange(len(order))
        self.order, self.weight = self._by_weight(found, weight)

        # What the rules allow, and bundles that equal the one before; both once they are needed.
        self.takers = np.zeros((len(self.bundle), len(self.share)), np.bool_)
        self.twin = np.full(len(self.bundle), -1, np.intp)
        self.asked = set[int]()

    def find(self, most: int, width: int, effort: int) -> Found:
        """Find the fewest moves after which no share is above its ceiling; the cheapest of those.

        `most`: the maximum of moves. `width`: the number of partial plans that are extended at each
        level. The search ends after this effort.
        """
        self.width, self.effort = width, 0
        if not len(self.bundle):
            return Found(None, 0.0, True, 0)
        level = self._start()
        if level.need.max(initial=0) >= NEVER or not self._fits():
            return Found(None, 0.0, self.whole, 0)
        proven = self.whole
        for left in range(most - 1, -1, -1):
            if self.effort > effort:
                return Found(None, 0.0, False, self.effort)
            level, cut = self._extend(level, left)
            proven = proven and not cut
            done = np.flatnonzero(~level.need.any(axis=1))
            for row in done[np.argsort(level.cost[done], kind="stable")].tolist():
                if self._pays_back(level, row):
                    bundles = self.bundle[level.bundles[row]].tolist()
                    moves = tuple(zip(bundles, level.destinations[row].tolist(), strict=True))
                    return Found(moves, float(level.cost[row]), proven, self.effort)
            if not len(level.cost):
                break
        return Found(None, 0.0, proven, self.effort)

    def _worthwhile(self, broker: int, others: dict[int, Rows]) -> Rows:
        """Return the bundles of a broker that are worth a move."""
        plan, rows = self.plan, others.get(broker, np.empty(0, np.intp))
        rows = rows[~plan.moved[rows]]
        weight = (plan.demand[rows] * plan.per_unit[broker]).max(axis=1, initial=0.0)
        heavy = np.argsort(-weight, kind="stable")[:HEAVIEST]
        heavy = heavy[(weight[heavy] >= MIN_WEIGHT) & plan.gains(broker, rows[heavy])]
        self.whole = self.whole and len(heavy) == np.count_nonzero(weight)
        found: Rows = rows[np.sort(heavy)]
        return found

    def _by_weight(self, found: list[Rows], weight: Floats) -> tuple[Rows, Floats]:
        """Return each broker's bundles and their weights, the heaviest first, by resource.

        Both are (brokers, resources, bundles). Brokers with fewer bundles are filled up with a
        bundle that is never open.
        """
        shape = (*self.per_unit.shape, max(len(rows) for rows in found))
        order, sorted_weight = np.full(shape, len(self.bundle), np.intp), np.zeros(shape)
        for broker in range(len(found)):
            mine = np.flatnonzero(self.owner == broker)
            by_weight = np.argsort(-weight[mine], axis=0, kind="stable").T
            order[broker, :, : len(mine)] = mine[by_weight]
            sorted_weight[broker, :, : len(mine)] = np.take_along_axis(
                weight[mine].T, by_weight, axis=1
            )
        return order, sorted_weight

    def _start(self) -> _Partial:
        """Return the plan without a move."""
        count = len(self.bundle)
        every, none = np.ones((1, count), np.bool_), np.empty((1, 0), np.intp)
        brokers = np.arange(len(self.share))
        need = self._needed(brokers, self.share, every, np.zeros(len(brokers), np.intp))
        return _Partial(self.share[None], every, need[None], np.zeros(1), none, none)

    def _fits(self) -> bool:
        """Return whether all load fits below the ceilings of all brokers together."""
        room = np.divide(
            self.high - self.share,
            self.per_unit,
            out=np.zeros_like(self.share),
            where=self.per_unit > 0,
        )
        return bool((room.sum(axis=0) >= 0).all())

    def _extend(self, level: _Partial, left: int) -> tuple[_Partial, bool]:
        """Return the plans with one move more, and whether any were cut.

        `left`: the maximum of moves that may follow.
        """
        pairs, cut = self._find_pairs(level, left)
        pair, to = np.nonzero(self.takers[pairs.bundle] & self._within_limits(level, pairs))
        self.effort += EFFORT_OF_MOVE * len(pair)

        # Destinations that must give another bundle away for this one.
        plan, bundle = pairs.plan[pair], pairs.bundle[pair]
        share = level.share[plan, to] + self.demand[bundle] * self.per_unit[to]
        need = level.need[plan, to]
        over: Bools = np.any(share > self.high[to], axis=1)
        others = pairs.need[pair] + pairs.other[pair] - need
        good = np.flatnonzero(others + np.maximum(need, over) <= left)
        pushed = good[over[good]]
        if len(pushed) > (most := self._most_brokers()):
            excess = np.maximum(share[pushed] - self.high[to[pushed]], 0.0).sum(axis=1)
            dropped = pushed[np.argsort(excess, kind="stable")[most:]]
            good, cut = np.setdiff1d(good, dropped, assume_unique=True), True
        pair, to, share, others = pair[good], to[good], share[good], others[good]
        need = self._needed(to, share, pairs.open, pair)
        good = np.flatnonzero(others + need <= left)

        # The best of them.
        pair, to, share, need = pair[good], to[good], share[good], need[good]
        extended = self._moved(level, pairs.take(pair), to, share, need)
        return self._best(extended, cut)

    def _find_pairs(self, level: _Partial, left: int) -> tuple[_Pairs, bool]:
        """Return what may leave the fullest broker of each plan, and whether any pairs were cut.

        Once a bundle has had its turn it stays in all plans that follow. So no two plans have the
        same moves in another order.
        """
        # The fullest broker, and its bundles that lower what is too high there.
        plans = np.arange(len(level.cost))
        source = (level.share - self.high).max(axis=2).argmax(axis=1)
        for broker in np.unique(source).tolist():
            self._ask_rules(broker)
        over = level.share[plans, source] > self.high[source]
        lowers = (over[:, None] & self.gains).any(axis=2)
        turn = level.open & (self.owner == source[:, None]) & lowers
        first = turn & ~((self.twin >= 0) & level.open[:, self.twin])
        plan, bundle = np.nonzero(first)
        most = self._most_brokers()
        cut = len(plan) > most
        plan, bundle = plan[:most], bundle[:most]

        # Those that pay back, and leave a broker that may be relieved in time.
        source = source[plan]
        before = level.share[plan, source]
        pays = self._each_pays_back(before, bundle, source)
        plan, bundle, source = plan[pays], bundle[pays], source[pays]
        share = before[pays] - self.demand[bundle] * self.per_unit[source]
        open_ = level.open[plan] & ~(turn[plan] & (self.rank <= self.rank[bundle, None]))
        need = self._needed(source, share, open_, np.arange(len(plan)))
        other = level.need.sum(axis=1)[plan] - level.need[plan, source]
        pairs = _Pairs(plan, bundle, source, share, open_, need, other)
        pairs = pairs.take(need + other <= left)
        if len(pairs.plan) > (most := max(self.width * CHILDREN // len(self.share), 1)):
            excess = np.maximum(pairs.share - self.high[pairs.source], 0.0).sum(axis=1)
            best = np.lexsort((excess, pairs.need + pairs.other))[:most]
            pairs, cut = pairs.take(np.sort(best)), True
        return pairs, cut

    def _moved(
        self, level: _Partial, pairs: _Pairs, to: Rows, share: Floats, need: Rows
    ) -> _Partial:
        """Return the plans with these moves. `share`, `need`: of their destinations."""
        each = np.arange(len(to))
        all_shares, all_needs = level.share[pairs.plan], level.need[pairs.plan]
        all_shares[each, pairs.source], all_shares[each, to] = pairs.share, share
        all_needs[each, pairs.source], all_needs[each, to] = pairs.need, need
        return _Partial(
            all_shares,
            pairs.open,
            all_needs,
            level.cost[pairs.plan] + self.plan.cost[self.bundle[pairs.bundle]],
            np.column_stack([level.bundles[pairs.plan], pairs.bundle]),
            np.column_stack([level.destinations[pairs.plan], to]),
        )

    def _best(self, level: _Partial, cut: bool) -> tuple[_Partial, bool]:
        """Return the plans that seem nearest to the end, the nearest first."""
        excess = np.maximum(level.share - self.high, 0.0).sum(axis=(1, 2))
        best = np.lexsort((level.cost, excess, level.need.sum(axis=1)))
        kept = best[: self.width]
        return level.take(kept), cut or len(kept) < len(best)

    def _needed(self, broker: Rows, share: Floats, open_: Bools, of: Rows) -> Rows:
        """Return lower bounds of the moves that must leave brokers with these shares.

        It is the number of the heaviest open bundles that cover the excess. `of`: rows of `open_`.
        """
        found = np.zeros(len(broker), np.intp)
        excess = share - self.high[broker]
        over = np.flatnonzero((excess > 0).any(axis=1))
        if not len(over):
            return found
        broker, excess, of = broker[over], excess[over, :, None], of[over, None, None]
        self.effort += self.weight[0].size * len(broker)
        padded = np.zeros((len(open_), len(self.bundle) + 1), np.bool_)
        padded[:, :-1] = open_
        free = padded[of, self.order[broker]]
        weight = self.weight[broker] * free
        covered = weight.cumsum(axis=2)
        needed = (free & (covered - weight < excess)).sum(axis=2)
        needed[(covered[:, :, -1:] < excess)[:, :, 0]] = NEVER
        found[over] = np.where(excess[:, :, 0] > 0, needed, 0).max(axis=1)
        return found

    def _most_brokers(self) -> int:
        """Return the number of brokers of which one level compares the weights."""
        return max(self.width * WEIGHTS // max(int(self.weight[0].size), 1), 1)

    def _within_limits(self, level: _Partial, pairs: _Pairs) -> Bools:
        """Return (pairs, brokers): whether intakes and budgets leave room for another move."""
        moves, each = level.destinations[pairs.plan], np.arange(len(pairs.plan))
        left = np.repeat(self.plan.intake_left[None], len(each), axis=0)
        for column in moves.T:
            left[each, column] -= 1
        within: Bools = left > 0
        disruption = self.plan.disruption
        if len(disruption.left):
            budget = disruption.budget[self.bundle]
            own = budget[pairs.bundle]
            spent = (budget[level.bundles[pairs.plan]] == own[:, None]).sum(axis=1)
            # Budget -1, which means none, takes the last row.
            within &= (spent < np.append(disruption.left, NEVER)[own])[:, None]
        return within

    def _each_pays_back(self, share: Floats, bundle: Rows, source: Rows) -> Bools:
        """Return whether each move out of a source with these shares pays back."""
        plan, rows = self.plan, self.bundle[bundle]
        before = np.zeros((len(rows), plan.share.shape[1]))
        before[:, self.used] = share
        return plan.payback.pay_each(
            source, before, plan.demand[rows] * plan.per_unit[source], rows
        )

    def _pays_back(self, level: _Partial, row: int) -> bool:
        """Return whether the moves of a plan pay back together."""
        after = self.plan.share.copy()
        after[:, self.used] = level.share[row]
        bundles = self.bundle[level.bundles[row]]
        return self.plan.payback.pay_in_all(self.plan.share, after, bundles)

    def _ask_rules(self, broker: int) -> None:
        """Find the brokers that may take the bundles of a broker, and which of these are equal."""
        if broker in self.asked:
            return
        self.asked.add(broker)
        plan, last = self.plan, dict[tuple[bytes, bytes, int], int]()
        mine = np.flatnonzero(self.owner == broker)
        for at in mine[np.argsort(self.rank[mine])].tolist():
            bundle = int(self.bundle[at])
            if bundle not in self.takers_of:
                self.takers_of[bundle] = plan.may_take(bundle) & (plan.limit >= 0)
            self.takers[at] = self.takers_of[bundle]
            self.takers[at, broker] = False
            budget = int(plan.disruption.budget[bundle])
            alike = self.demand[at].tobytes(), self.takers[at].tobytes(), budget
            self.twin[at] = last.get(alike, -1)
            last[alike] = at
