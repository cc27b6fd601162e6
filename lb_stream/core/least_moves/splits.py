"""Splits of a plan: of bundles that are larger than an even load, where that lowers the max usage.

A split is for ever, so it is tried first: the plan is made for the cluster as it would be with the
children, and compared with the plan without them. See docs/splitting.md "Splits of a plan".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from lb_stream.core.least_moves.capacities import CPU, DIRECT
from lb_stream.core.least_moves.config import LeastMovesConfig
from lb_stream.core.least_moves.cuts import (
    MAX_PIECES,
    MoveEstimate,
    boundaries_of,
    find_cuts,
    sizes_of,
)
from lb_stream.core.least_moves.divided import TrialSplit, divide
from lb_stream.core.least_moves.fleet import UNKNOWN_NOISE, Fleet, find_urgent
from lb_stream.core.least_moves.memory import AskedSplit, LeastMovesMemory
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

AWAITED_MS = 15_000
"""Moves wait so long for the children of a split that has just been asked for."""
CHILDREN_KNOWN_MS = 600_000
"""After this time a split is forgotten whose children have not all been reported with figures."""
RETRY_MS = 300_000
"""A bundle whose split would gain too little is tried again after this time."""
FOLLOWS_MS = 60_000
"""Moves that are planned within this time after a split belong to the split's plan."""
HOUR_MS = 3_600_000
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
EvenLoadsOf = Callable[[Fleet], Floats]
"""Demands and capacities → the even load of each broker."""
MovesOf = Callable[[Context], Unloads]
"""Context → the moves that a plan makes at once, without waiting to be sure."""


class SplitPlan(NamedTuple):
    """The splits of a plan. With splits, or while their children are awaited, no bundle moves."""

    memory: LeastMovesMemory
    refusals: tuple[Refusal, ...] = ()
    proposals: tuple[SplitProposal, ...] = ()
    awaits: bool = False  # moves wait


def plans_splits(config: LeastMovesConfig) -> bool:
    """Return whether plans split bundles, so that no limit has to."""
    return config.least_moves_splits


def plan_splits(
    context: Context, fleet: Fleet, even_loads: EvenLoadsOf, moves_of: MovesOf
) -> SplitPlan:
    """Return the splits that lower the max usage, after all moves, by more than their price.

    O(bundles) to find out that no bundle is larger than an even load; only then more.
    """
    memory = _follow(context, fleet)
    rules = context.splittable
    if rules is None or not context.config.least_moves_splits:
        return SplitPlan(replace(memory, too_large={}) if memory.too_large else memory)
    awaited = _find_awaited(context.view, memory, rules.waiting)
    if awaited is not None:
        return SplitPlan(memory, (awaited,), awaits=True)
    large = _find_too_large(context, fleet, even_loads)
    if large is None and not memory.too_large:
        return SplitPlan(memory)
    memory, due, soon = _find_due(context, fleet, memory, large)
    if large is None or not (len(due) or len(soon)):
        return SplitPlan(memory)
    trial = _Trial(context, rules, fleet, large, moves_of, memory)
    if len(soon) and (held := trial.hold_moves(soon)) is not None:
        return SplitPlan(memory, (held,), awaits=True)
    return trial.plan(due)


def expect_children(fleet: Fleet, view: ClusterView, memory: LeastMovesMemory) -> Fleet:
    """Return the fleet with expected demands of children that no report has given figures of."""
    if not memory.splits:
        return fleet
    demand, lasting = fleet.demand.copy(), fleet.lasting.copy()
    for parent, split in memory.splits.items():
        rows = _children(view, parent)
        if len(rows) != len(split.shares):
            continue
        new = view.bundles.short_samples[rows] == 0
        expected = np.outer(split.shares, split.demand)[new]
        demand[rows[new]], lasting[rows[new]] = expected, expected
    return replace(fleet, demand=demand, lasting=lasting)


def expectation(view: ClusterView, memory: LeastMovesMemory) -> PlanExpectation | None:
    """Return what the plan with splits is expected to reach to which present moves belong, if any.

    These are moves within FOLLOWS_MS after the split was asked for.
    """
    return memory.expected if view.now_ms - memory.expected_ms <= FOLLOWS_MS else None


# --- what became of earlier splits ---


def _children(view: ClusterView, parent: str) -> Rows:
    """Return the owned bundles inside of a former bundle's range, in the order of their ranges."""
    rows = view.bundles.rows_inside(parent)
    found: Rows = rows[view.bundles.owner[rows] >= 0]
    return found


def _find_awaited(
    view: ClusterView, memory: LeastMovesMemory, waiting: frozenset[str]
) -> Refusal | None:
    """Return the refusal of moves while the children of a recent split are not known yet.

    `waiting`: bundles whose splits wait for approval, perhaps for hours: moves don't.
    """
    for parent, split in memory.splits.items():
        if parent in waiting:
            continue
        if view.now_ms - split.asked_ms < AWAITED_MS and not len(_children(view, parent)):
            until_ms = split.asked_ms + AWAITED_MS
            return refusal(Refuses.CHILDREN_AWAITED, None, [parent], until_ms=until_ms)
    return None


def _follow(context: Context, fleet: Fleet) -> LeastMovesMemory:
    """Return the memory without splits that have ended; it has the children of idle ones."""
    view, memory = context.view, context.memory
    if not (memory.splits or memory.indivisible or memory.split_times):
        return memory
    asked, too_large = dict(memory.splits), dict(memory.too_large)
    rows = view.bundles.rows_of(memory.indivisible).tolist()
    indivisible = {name for name, row in zip(memory.indivisible, rows, strict=True) if row >= 0}
    waiting = frozenset[str]() if context.splittable is None else context.splittable.waiting
    for parent, split in memory.splits.items():
        if parent in waiting:  # its time begins with its approval
            asked[parent] = replace(split, asked_ms=view.now_ms)
            continue
        children = _children(view, parent)
        stage = _find_stage(view, parent, children)
        if stage == _Stage.MEASURED:
            # A child that is too large has been so for as long as its parent.
            names = [view.bundles.name(row) for row in children.tolist()]
            too_large |= dict.fromkeys(names, split.since_ms)
            load = fleet.demand[children].max(axis=1, initial=0.0)
            heaviest = int(np.argmax(load))
            if not split.measured and load[heaviest] >= IDLE * load.sum():
                indivisible.add(names[heaviest])
        if stage != _Stage.OPEN or view.now_ms - split.asked_ms > CHILDREN_KNOWN_MS:
            del asked[parent]
    return replace(
        memory,
        too_large=too_large,
        splits=asked,
        indivisible=tuple(sorted(indivisible)),
        split_times=tuple(
            (when, name) for when, name in memory.split_times if view.now_ms - when < HOUR_MS
        ),
    )


class _Stage(Enum):
    """How far a split is that was asked for."""

    OPEN = auto()  # it is pending, or its children have no figures yet
    REFUSED = auto()  # its owner serves the whole bundle, and has no split pending
    MEASURED = auto()  # all of its children have been reported with figures


def _find_stage(view: ClusterView, parent: str, children: Rows) -> _Stage:
    """Return how far a split is. `children`: the bundles that are inside of the parent's range."""
    bundles = view.bundles
    row = int(bundles.rows_of([parent])[0])
    if row >= 0 and bundles.owner[row] >= 0:
        is_pending = bundles.in_flight[row] or len(children)
        return _Stage.OPEN if is_pending else _Stage.REFUSED
    sampled = len(children) > 1 and bundles.short_samples[children].min() > 0
    return _Stage.MEASURED if sampled else _Stage.OPEN


# --- bundles that are larger than an even load ---


@dataclass(frozen=True, slots=True)
class _TooLarge:
    """Bundles that are larger than an even load. Columns have a row for each, the largest first."""

    rows: Rows
    alone: Floats  # usage of the broker that it loads least, if it were alone there
    even: Floats  # the even load, if load were sand
    resource: Rows  # that it uses most of


def _find_too_large(context: Context, fleet: Fleet, even_loads: EvenLoadsOf) -> _TooLarge | None:
    """Find the bundles that alone exceed what an even load would be if bundles were sand.

    None: there is none. O(bundles).
    """
    # Bundles that exceed the mean usage of all brokers.
    reachable = context.view.brokers.reachable
    if not reachable.any():
        return None
    capacity, trigger = fleet.expected[reachable], context.config.least_moves_trigger_ratio
    most, whole = capacity.max(axis=0), capacity.sum(axis=0)
    alone = _over(fleet.lasting, most).max(axis=1)
    mean = _over(fleet.demand.sum(axis=0), whole).max()
    candidates = np.flatnonzero(alone > trigger * mean)
    candidates = candidates[context.view.bundles.owner[candidates] >= 0]
    if not len(candidates):
        return None

    # Those of them that exceed it at each broker that may take them.
    even = even_loads(replace(fleet, lasting=np.zeros_like(fleet.lasting)))
    found = list[tuple[int, float, float, int]]()
    for row in candidates.tolist():
        takers = np.zeros(len(reachable), np.bool_)
        takers[context.takers(row)] = True
        takers[context.view.bundles.owner[row]] = True
        at = np.flatnonzero(takers & reachable)
        usages = _over(fleet.lasting[row], fleet.capacity[at])
        if not len(at):
            continue
        best = int(np.argmin(usages.max(axis=1) / even[at]))
        usage, target = float(usages[best].max()), float(even[at[best]])
        if usage > trigger * target:
            found.append((row, usage, target, int(usages[best].argmax())))
    if not found:
        return None
    found.sort(key=lambda large: (-large[1] / large[2], large[0]))
    rows, usage_alone, targets, resources = zip(*found, strict=True)
    return _TooLarge(
        np.array(rows, np.intp), np.array(usage_alone), np.array(targets), np.array(resources)
    )


def _over(load: Floats, capacity: Floats) -> Floats:
    """Return load ÷ capacity; 0 without a capacity, as the resource does not count."""
    shape = np.broadcast_shapes(load.shape, capacity.shape)
    found: Floats = np.divide(load, capacity, out=np.zeros(shape), where=capacity > 0)
    return found


def _find_due(
    context: Context, fleet: Fleet, memory: LeastMovesMemory, large: _TooLarge | None
) -> tuple[LeastMovesMemory, Rows, Rows]:
    """Return the memory with the too large bundles, and two groups of them, as places in `large`.

    The first group has been too large for long enough, by more than noise. The second one soon
    will have been: it is too large by its long-term averages, too, and so is no passing peak.
    """
    now_ms, no_rows = context.view.now_ms, np.empty(0, np.intp)
    if large is None:
        return replace(memory, too_large={}), no_rows, no_rows
    names = [context.view.bundles.name(row) for row in large.rows.tolist()]
    since = {name: min(memory.too_large.get(name, now_ms), now_ms + RETRY_MS) for name in names}
    bundles, config = context.reported.bundles, context.config
    noise = UNKNOWN_NOISE if memory.noise is None else memory.noise
    samples = np.maximum(bundles.short_samples[large.rows], 1)
    error = noise / np.sqrt(2.0 * samples - 1.0)
    limit = config.least_moves_trigger_ratio * large.even
    sure = large.alone * (1.0 - config.least_moves_min_standard_errors * error) > limit

    # By the long-term average too, or only as it is now.
    long = bundles.long.take(large.rows)
    cpu = long.rate + memory.byte_cost * long.throughput
    columns = np.stack([cpu, long.throughput_in, long.throughput_out, long.throughput_in], axis=1)
    here = np.arange(len(names)), large.resource
    columns[:, DIRECT] *= memory.direct_slope
    usual = columns[here] / np.maximum(fleet.lasting[large.rows][here], 1e-300)
    lasts = large.alone * usual > limit
    grown_ms = max(config.least_moves_split_grown_ms, config.least_moves_hot_for_ms)
    wait_ms = np.where(lasts, config.least_moves_hot_for_ms, grown_ms)
    waited_ms = now_ms - np.array([since[name] for name in names])
    soon = lasts & (waited_ms >= 0) & (waited_ms < wait_ms)
    return (
        replace(memory, too_large=since),
        np.flatnonzero(sure & (waited_ms >= wait_ms)),
        np.flatnonzero(soon),
    )


# --- the trial of splits ---


@dataclass(frozen=True, slots=True)
class _Outcome:
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

    def gain_of(self, other: _Outcome) -> float:
        """Return by which part another plan lowers the max usage of the brokers that it changes.

        A broker that is as full with either plan does not hide what the other one gains.
        """
        mine, theirs = self.usage, other.usage
        changed = np.isfinite(mine)
        changed[changed] = np.abs(theirs[changed] - mine[changed]) > UNEQUAL * mine[changed]
        before = float(mine[changed].max(initial=0.0))
        return (before - float(theirs[changed].max(initial=0.0))) / max(before, 1e-9)


class _Option(NamedTuple):
    """One way to split a bundle."""

    division: TrialSplit
    algorithm: str
    boundaries: tuple[int, ...]  # empty: the owner finds them
    cost: float  # about how many moves it takes, added bundles included


class _Step(NamedTuple):
    """The split of one bundle."""

    place: int  # in `large`
    option: _Option
    outcome: _Outcome  # with this split and those before it


@dataclass(slots=True)
class _Trial:
    """The trial of splits, by plans for the cluster with the children. Mutable."""

    context: Context
    rules: Splittable
    fleet: Fleet
    large: _TooLarge
    moves_of: MovesOf
    memory: LeastMovesMemory
    refusals: list[Refusal] = field(default_factory=list)
    _unsplit: _Outcome | None = None

    def plan(self, due: Rows) -> SplitPlan:
        """Return the splits of these bundles (places in `large`) that are worth their price."""
        # The best split of each, after those of larger ones.
        steps = list[_Step]()
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

    def _find_refusal(self, place: int, steps: list[_Step]) -> Refusal | None:
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
    def unsplit(self) -> _Outcome:
        """The outcome of the best moves without any split. Found once."""
        if self._unsplit is None:
            self._unsplit = self._outcome([])
        return self._unsplit

    def _choose(self, place: int, before: list[_Step]) -> list[_Step]:
        """Return the best split of a bundle after earlier ones; empty: there is no way to split it.

        While another bundle is as large, a split alone may gain nothing: then the estimate counts.
        """
        divisions = [step.option.division for step in before]
        last = before[-1].outcome if before else self.unsplit
        tried = list[tuple[float, float, _Step]]()
        for option in self._options(place, divisions, last):
            outcome = self._outcome([*divisions, option.division])
            gain, cost = last.gain_of(outcome), option.cost
            if gain > 0:
                cost = outcome.moves + MOVES_PER_BUNDLE * len(option.division.boundaries)
            tried.append((gain, cost, _Step(place, option, outcome)))
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

    def _give_up(self, step: _Step, gain: float, price: float) -> None:
        """Refuse a split that is not worth its price, and try it again later."""
        row = int(self.large.rows[step.place])
        self._retry_later(row)
        if self.context.view.brokers.sampled[self._owner(row)]:
            limit = price * len(step.option.division.boundaries)
            self.refusals.append(self._refuse(row, Refuses.SPLIT_GAINS_LITTLE, gain, limit))

    def _propose(self, step: _Step) -> SplitProposal:
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

    def _options(self, place: int, divisions: list[TrialSplit], last: _Outcome) -> list[_Option]:
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
        found = list[tuple[float, float, _Option]]()
        for cut in find_cuts(sizes, max(kept, 0.0), others, most):
            boundaries, pieces = boundaries_of(cut, hashes), sizes_of(cut, shares)
            if lower < boundaries[0] and boundaries[-1] < upper:
                largest = float(sizes_of(cut, sizes).max())
                moves = estimate.moves(sizes_of(cut, sizes))
                division = TrialSplit(row, boundaries, tuple(pieces.tolist()))
                cost = moves + MOVES_PER_BUNDLE * len(cut)
                found.append((cost, largest, _Option(division, SPECIFIED, boundaries, cost)))
        found.sort(key=lambda entry: entry[:2])
        return [option for _, _, option in found[:CUTS_TRIED]]

    def _blind_options(self, place: int, estimate: MoveEstimate, room: int) -> list[_Option]:
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
        found = list[_Option]()
        for algorithm, count in pieces.items():
            if 2 <= count <= min(topics, room + 1, MAX_PIECES, upper - lower):
                edges = np.linspace(lower, upper, count + 1).astype(np.int64)
                division = TrialSplit(row, tuple(edges[1:-1].tolist()), (1 / count,) * count)
                moves = estimate.moves(np.full(count, alone / count))
                cost = moves + MOVES_PER_BUNDLE * (count - 1)
                found.append(_Option(division, algorithm, (), cost))
        return found

    def _estimate(self, place: int, divisions: list[TrialSplit], outcome: _Outcome) -> MoveEstimate:
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

    def _outcome(self, divisions: list[TrialSplit]) -> _Outcome:
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
        return _Outcome(start, usage, len(unloads.proposals))


def _topics_of(view: ClusterView, row: int) -> tuple[Ints, Floats]:
    """Return the hashes and shares of a bundle's topics, inside of its range; empty: not known."""
    _, lower, upper = parse_bundle(view.bundles.name(row))
    hashes, shares = view.topic_shares.of(row)
    inside = (hashes >= lower) & (hashes <= upper)
    return hashes[inside], shares[inside]
