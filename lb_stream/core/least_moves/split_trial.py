"""The trial of splits: by plans for the cluster as it would be with the children.

See docs/splitting.md "Splits of a plan".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from lb_stream.core.least_moves.capacities import CPU
from lb_stream.core.least_moves.config import LeastMovesConfig
from lb_stream.core.least_moves.cuts import (
    MAX_PIECES,
    MoveEstimate,
    boundaries_of,
    find_cuts,
    sizes_of,
)
from lb_stream.core.least_moves.divided import TrialSplit, divide
from lb_stream.core.least_moves.fleet import Fleet, find_urgent
from lb_stream.core.least_moves.memory import AskedSplit, LeastMovesMemory
from lb_stream.core.least_moves.too_large import RETRY_MS, TooLarge
from lb_stream.core.model.names import namespace_of, parse_bundle
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Decides, Refuses, Rule
from lb_stream.core.model.view import ClusterView, Floats, Ints, Rows
from lb_stream.core.shedding.base import (
    PlanExpectation,
    ShedContext,
    SplitProposal,
    Splittable,
    Unloads,
    rows_by_broker,
)
from lb_stream.core.splitting.manual import FLOW
from lb_stream.core.splitting.perform import SPECIFIED

IDLE = 0.95
"""A split is idle if one child has this part of the load: its other children relieve no broker."""
MOST_TRIED, CUTS_TRIED = 4, 2
"""Bundles whose splits are tried in one pass, the largest first, and cuts that are tried of each,
those first that seem to cost least."""
UNEQUAL = 0.01
"""Usages of a broker that differ by this part are unequal."""
MOVES_PER_BUNDLE = 2
"""A cut that adds one bundle more must save more than this number of moves."""
LESS_GAIN = 0.02
"""A cut may lower the max usage by this part less than the best one, if it costs less."""
BLIND = ("topic_count_equally_divide", "range_equally_divide")
"""Algorithms of splits without topics' shares; the first one that is supported is used."""
ABOVE_FLOW_LIMIT, FLOW_FILLS = 1.5, 0.75
"""flow_or_qps_equally_divide is tried for bundles that are this many times above its limit, where
its pieces are expected to have this part of the limit."""
AT_ONCE = {"least_moves_hot_for_ms": 0, "least_moves_min_standard_errors": 0.0}
"""Settings of a plan on trial, which waits for nothing."""
REASONS = {CPU: "MsgRate"}
"""Scarcest resource → Pulsar's name of the reason of a split; of others: Bandwidth."""

Context = ShedContext[LeastMovesConfig, LeastMovesMemory]
MovesOf = Callable[[Context], Unloads]
"""Context → the moves that a plan makes at once, without waiting to be sure."""


class SplitPlan(NamedTuple):
    """The splits of a plan. With splits, or while their children are awaited, no bundle moves."""

    memory: LeastMovesMemory
    refusals: tuple[Refusal, ...] = ()
    proposals: tuple[SplitProposal, ...] = ()
    awaits: bool = False  # moves wait


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a plan leads to."""

    start: Floats  # usage of each broker before its moves; -inf: it is not reachable
    usage: Floats  # the same after them
    moves: int

    @property
    def before(self) -> float:
        """Return the max usage before the moves."""
        return float(self.start.max(initial=0.0))

    @property
    def after(self) -> float:
        """Return the max usage after the moves."""
        return float(self.usage.max(initial=0.0))

    def gain_of(self, other: Outcome) -> float:
        """Return by which part another plan lowers the max usage of the brokers that it changes.

        A broker that is as full with either plan does not hide what the other one gains.
        """
        mine, theirs = self.usage, other.usage
        changed = np.isfinite(mine)
        changed[changed] = np.abs(theirs[changed] - mine[changed]) > UNEQUAL * mine[changed]
        before = float(mine[changed].max(initial=0.0))
        return (before - float(theirs[changed].max(initial=0.0))) / max(before, 1e-9)


class Option(NamedTuple):
    """One way to split a bundle."""

    division: TrialSplit
    algorithm: str
    boundaries: tuple[int, ...]  # empty: the owner finds them
    cost: float  # about how many moves it takes, added bundles included


class Step(NamedTuple):
    """The split of one bundle."""

    place: int  # in `large`
    option: Option
    outcome: Outcome  # with this split and those before it


@dataclass(slots=True)
class Trial:
    """The trial of splits, by plans for the cluster with the children. Mutable."""

    context: Context
    rules: Splittable
    fleet: Fleet
    large: TooLarge
    moves_of: MovesOf
    memory: LeastMovesMemory
    refusals: list[Refusal] = field(default_factory=list)
    _unsplit: Outcome | None = None

    def plan(self, due: Rows) -> SplitPlan:
        """Return the splits of these bundles (places in `large`) that are worth their price."""
        # The best split of each, after those of larger ones.
        steps = list[Step]()
        tried = 0
        for place in due.tolist():
            row = int(self.large.rows[place])
            if tried == MOST_TRIED or len(steps) >= self.rules.left:
                break
            if not self.rules.bundles[row] and not self.context.stays[row]:
                continue  # it is moving, or its last split has failed
            refused = self._find_refusal(place, steps)
            if refused is None:
                steps += self._choose(place, steps)
                tried += 1
            elif self.context.view.brokers.sampled[self._owner(row)]:
                self.refusals.append(refused)
        if not steps:
            return SplitPlan(self.memory, tuple(self.refusals))

        # As many of them, the largest first, as gain most beyond their price.
        price = self.context.config.least_moves_min_split_gain_ratio
        gains = [self.unsplit.gain_of(step.outcome) for step in steps]
        added = np.cumsum([len(step.option.division.boundaries) for step in steps])
        net = np.array(gains) - price * added
        made = int(np.argmax(net)) + 1 if net.max() >= 0 and max(gains) > 0 else 0
        for step in steps[made:]:
            self._give_up(step, max(gains), price)
        if not made:
            return SplitPlan(self.memory, tuple(self.refusals))
        proposals = [self._propose(step) for step in steps[:made]]
        before, now_ms = self.unsplit.before, self.context.view.now_ms
        expected = PlanExpectation(
            plan=f"{self.context.view.cluster}:{self.context.number}",
            before=before,
            unsplit=self.unsplit.after,
            split=before,  # the children are at the same brokers
            after=steps[made - 1].outcome.after,
        )
        memory = replace(self.memory, expected=expected, expected_ms=now_ms)
        return SplitPlan(memory, tuple(self.refusals), tuple(proposals))

    def hold_moves(self, soon: Rows) -> Refusal | None:
        """Return the refusal of moves while a bundle (place in `soon`) is about to be split.

        They would aim at an even load that the split changes. Full and slowed brokers do not wait.
        """
        context = self.context
        if find_urgent(context.view, context.reported, self.memory, self.fleet).any():
            return None
        for place in soon.tolist():
            row = int(self.large.rows[place])
            if self.rules.bundles[row] and self._find_refusal(place, []) is None:
                name, now_ms = context.view.bundles.name(row), context.view.now_ms
                return self._refuse(
                    row,
                    Refuses.NOT_HOT_FOR_LONG,
                    now_ms - self.memory.too_large[name],
                    context.config.least_moves_hot_for_ms,
                )
        return None

    def _owner(self, row: int) -> int:
        return int(self.context.view.bundles.owner[row])

    def _find_refusal(self, place: int, steps: list[Step]) -> Refusal | None:
        """Return why a bundle's split is not even tried after these steps; None: it is."""
        row, view = int(self.large.rows[place]), self.context.view
        name = view.bundles.name(row)
        if self.context.stays[row]:
            return self._refuse(row, Refuses.HELD_WHOLE)
        _, shares = _topics_of(view, row)
        largest = float(shares.max(initial=0.0))
        if view.bundles.topics[row] == 1 or largest >= IDLE:
            saw = largest if len(shares) else 1.0
            return self._refuse(row, Refuses.ONE_TOPIC, saw, IDLE)
        if name in self.memory.indivisible:
            return self._refuse(row, Refuses.IDLE_SPLIT)
        namespace = namespace_of(name)
        planned = (view.bundles.name(step.option.division.bundle) for step in steps)
        recent = sum(other == namespace for _, other in self.memory.split_times)
        recent += sum(namespace_of(other) == namespace for other in planned)
        limit = self.context.config.least_moves_max_splits_per_hour
        if recent >= limit:
            return refusal(
                Refuses.SPLITS_PER_HOUR,
                None,
                [name],
                saw=[recent],
                limit=limit,
                namespace=namespace,
            )
        full = self.rules.room(row) < 1
        return self._refuse(row, Refuses.NAMESPACE_MAX_BUNDLES) if full else None

    def _room(self, row: int, divisions: list[TrialSplit]) -> int:
        """Return how many bundles the namespace may have in addition, after these splits."""
        names = self.context.view.bundles
        namespace = namespace_of(names.name(row))
        added = (
            len(division.boundaries)
            for division in divisions
            if namespace_of(names.name(division.bundle)) == namespace
        )
        return self.rules.room(row) - sum(added)

    def _refuse(
        self, row: int, rule: Rule, saw: float | None = None, limit: float | None = None
    ) -> Refusal:
        view = self.context.view
        seen = [] if saw is None else [saw]
        source = view.brokers.names[self._owner(row)]
        return refusal(rule, source, [view.bundles.name(row)], saw=seen, limit=limit)

    @property
    def unsplit(self) -> Outcome:
        """The outcome of the best moves without any split. Found once."""
        if self._unsplit is None:
            self._unsplit = self._outcome([])
        return self._unsplit

    def _choose(self, place: int, before: list[Step]) -> list[Step]:
        """Return the best split of a bundle after earlier ones; empty: there is no way to split it.

        While another bundle is as large, a split alone may gain nothing: then the estimate counts.
        """
        divisions = [step.option.division for step in before]
        last = before[-1].outcome if before else self.unsplit
        tried = list[tuple[float, float, Step]]()
        for option in self._options(place, divisions, last):
            outcome = self._outcome([*divisions, option.division])
            gain, cost = last.gain_of(outcome), option.cost
            if gain > 0:
                cost = outcome.moves + MOVES_PER_BUNDLE * len(option.division.boundaries)
            tried.append((gain, cost, Step(place, option, outcome)))
        most = max((gain for gain, *_ in tried), default=0.0)
        enough = [entry for entry in tried if entry[0] >= most - LESS_GAIN]
        best = min(enough, key=lambda entry: (entry[1], -entry[0]), default=None)
        if best is None:
            self._retry_later(int(self.large.rows[place]))
            return []
        return [best[2]]

    def _retry_later(self, row: int) -> None:
        """Have a bundle's split not tried again before RETRY_MS, as each trial takes a plan."""
        name, now_ms = self.context.view.bundles.name(row), self.context.view.now_ms
        too_large = {**self.memory.too_large, name: now_ms + RETRY_MS}
        self.memory = replace(self.memory, too_large=too_large)

    def _give_up(self, step: Step, gain: float, price: float) -> None:
        """Refuse a split that is not worth its price, and try it again later."""
        row = int(self.large.rows[step.place])
        self._retry_later(row)
        if self.context.view.brokers.sampled[self._owner(row)]:
            limit = price * len(step.option.division.boundaries)
            self.refusals.append(self._refuse(row, Refuses.SPLIT_GAINS_LITTLE, gain, limit))

    def _propose(self, step: Step) -> SplitProposal:
        """Return the proposal of a split, which is remembered.

        Its broker has been hot for as long as the bundle has been too large.
        """
        place, option = step.place, step.option
        row = int(self.large.rows[place])
        source, now_ms = self._owner(row), self.context.view.now_ms
        name, broker = self.context.view.bundles.name(row), self.context.view.brokers.names[source]
        memory, even = self.memory, float(self.large.even[place])
        since = memory.too_large[name]
        asked = AskedSplit(
            now_ms,
            since,
            option.algorithm == SPECIFIED,
            option.boundaries,
            option.division.shares,
            tuple(self.fleet.demand[row].tolist()),
        )
        self.memory = replace(
            memory,
            too_large={other: when for other, when in memory.too_large.items() if other != name},
            splits={**memory.splits, name: asked},
            split_times=(*memory.split_times, (now_ms, namespace_of(name))),
            hot={**memory.hot, broker: min(since, memory.hot.get(broker, now_ms))},
        )
        return SplitProposal(
            row,
            source,
            option.algorithm,
            option.boundaries,
            REASONS.get(int(self.large.resource[place]), "Bandwidth"),
            Decides.LARGER_THAN_EVEN,
            saw=float(self.large.alone[place]),
            limit=self.context.config.least_moves_trigger_ratio * even,
            average=even,
        )

    def _options(self, place: int, divisions: list[TrialSplit], last: Outcome) -> list[Option]:
        """Return the ways to split a bundle, those first that seem to cost least.

        They go by its topics' shares; if these are not known, the bundle is halved. `divisions`: of
        larger bundles, which lead to the outcome `last`.
        """
        row, view = int(self.large.rows[place]), self.context.view
        _, lower, upper = parse_bundle(view.bundles.name(row))
        hashes, shares = _topics_of(view, row)
        estimate = self._estimate(place, divisions, last)
        if not len(shares):
            return self._blind_options(place, estimate, self._room(row, divisions))
        if SPECIFIED not in self.rules.algorithms:
            return []
        most = min(self._room(row, divisions) + 1, MAX_PIECES if self.rules.several else 2)
        sizes = shares * float(self.large.alone[place])
        slack = self.context.config.least_moves_max_destination_ratio - 1.0
        kept = estimate.room[estimate.source] - slack * float(self.large.even[place])
        others = estimate.room.copy()
        others[estimate.source] = -np.inf
        found = list[tuple[float, float, Option]]()
        for cut in find_cuts(sizes, max(kept, 0.0), others, most):
            boundaries, pieces = boundaries_of(cut, hashes), sizes_of(cut, shares)
            if lower < boundaries[0] and boundaries[-1] < upper:
                largest = float(sizes_of(cut, sizes).max())
                moves = estimate.moves(sizes_of(cut, sizes))
                division = TrialSplit(row, boundaries, tuple(pieces.tolist()))
                cost = moves + MOVES_PER_BUNDLE * len(cut)
                found.append((cost, largest, Option(division, SPECIFIED, boundaries, cost)))
        found.sort(key=lambda entry: entry[:2])
        return [option for _, _, option in found[:CUTS_TRIED]]

    def _blind_options(self, place: int, estimate: MoveEstimate, room: int) -> list[Option]:
        """Return ways to split a bundle whose topics' shares only its owner knows.

        The owner finds the boundaries. Halves by number of topics are taken to be alike, and so are
        the pieces that it cuts at its own limits. `room`: bundles that may be added.
        """
        row, bundles = int(self.large.rows[place]), self.context.view.bundles
        _, lower, upper = parse_bundle(bundles.name(row))
        topics, alone = int(bundles.topics[row]), float(self.large.alone[place])
        pieces = {name: 2 for name in reversed(BLIND) if name in self.rules.algorithms}
        pieces = dict([*pieces.items()][-1:])
        if self.rules.flow_limits is not None:
            most_rate, most_bytes = self.rules.flow_limits
            rate, volume = float(bundles.short.rate[row]), float(bundles.short.throughput[row])
            times = max(rate / max(most_rate, 1.0), volume / max(most_bytes, 1.0))
            if times > ABOVE_FLOW_LIMIT:
                pieces[FLOW] = int(np.ceil(times / FLOW_FILLS))
        found = list[Option]()
        for algorithm, count in pieces.items():
            if 2 <= count <= min(topics, room + 1, MAX_PIECES, upper - lower):
                edges = np.linspace(lower, upper, count + 1).astype(np.int64)
                division = TrialSplit(row, tuple(edges[1:-1].tolist()), (1 / count,) * count)
                moves = estimate.moves(np.full(count, alone / count))
                cost = moves + MOVES_PER_BUNDLE * (count - 1)
                found.append(Option(division, algorithm, (), cost))
        return found

    def _estimate(self, place: int, divisions: list[TrialSplit], outcome: Outcome) -> MoveEstimate:
        """Return the estimate of moves around a bundle, in the resource that it uses most of."""
        context = self.context
        row, resource = int(self.large.rows[place]), int(self.large.resource[place])
        source, alone = self._owner(row), float(self.large.alone[place])
        limit = context.config.least_moves_max_destination_ratio * float(self.large.even[place])
        room = limit - (outcome.usage if divisions else outcome.start)
        room[source] = limit - outcome.start[source] + alone
        takers = np.zeros(len(room), np.bool_)
        takers[context.takers(row)] = True
        takers[source] = True
        room[~takers | ~np.isfinite(outcome.usage)] = -np.inf

        # What each broker's largest bundles free, of those that may move.
        movable = context.movable.copy()
        movable[[row, *(division.bundle for division in divisions)]] = False
        capacity = self.fleet.capacity[:, resource]
        freed = [
            np.cumsum(-np.sort(-self.fleet.demand[rows, resource])) / max(capacity[broker], 1e-9)
            for broker, rows in rows_by_broker(context.view, np.arange(len(room)), movable).items()
        ]
        return MoveEstimate(source, room, freed)

    def _outcome(self, divisions: list[TrialSplit]) -> Outcome:
        """Return what the best moves lead to with these splits."""
        context = divide(self.context, divisions) if divisions else self.context
        config = context.config.model_copy(update=AT_ONCE)
        unloads = self.moves_of(
            replace(context, config=config, memory=self.memory, splittable=None)
        )
        if unloads.plan is None:
            raise ValueError("a plan without facts")
        usage = np.where(np.isnan(unloads.plan.usage), -np.inf, unloads.plan.usage)
        start = usage.copy()
        for move in unloads.proposals:
            if move.usages is not None and move.destination is not None:
                usage[move.source], usage[move.destination] = move.usages[1], move.usages[3]
        return Outcome(start, usage, len(unloads.proposals))


def _topics_of(view: ClusterView, row: int) -> tuple[Ints, Floats]:
    """Return the hashes and shares of a bundle's topics, inside of its range; empty: not known."""
    _, lower, upper = parse_bundle(view.bundles.name(row))
    hashes, shares = view.topic_shares.of(row)
    inside = (hashes >= lower) & (hashes <= upper)
    return hashes[inside], shares[inside]
