"""A trace tick by tick: usages, imbalance and its bound, unassigned bundles, violations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lb_stream.sim.measures.bound import lower_bound
from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.state import TOLERANCE, BrokerState, Demand, broker_usage, ticks_at
from lb_stream.sim.measures.trace import BORN, LOST, RELEASED, SPLIT, OwnershipHistory
from lb_stream.sim.scenario.bundle_tree import BundleTree
from lb_stream.sim.scenario.scenario import Bools, Floats, Ints, Scenario, ScenarioRollout

LONG_S = 60.0
"""Seconds for which a moving bundle may be unassigned in a balanced tick."""
BALANCED = 1.15
"""Max usage ÷ its bound, at most, of a balanced tick."""


@dataclass(frozen=True, slots=True)
class Series:
    """Columns with a row for each tick.

    Usages are ratios of capacity; above 1 more is asked for than there is.
    """

    t_s: Floats
    usage: Floats  # ticks × brokers; NaN: down
    available: Bools  # ticks × brokers: up and not drained
    max_usage: Floats
    mean: Floats  # of all usage, over the available brokers
    bound: Floats  # no allowed assignment has a lower max usage
    moves: Ints  # releases during the tick
    unserved: Ints  # unassigned bundles
    # unassigned bundles whose broker went down, that never had one, or that are unassigned for more
    # than LONG_S
    orphaned: Ints
    isolation: Ints  # bundles at brokers that their isolation policy excludes
    anti_affinity: Ints  # pairs of a broker and a group of which it serves two namespaces
    # for each broker: the changes of its usage by moves, up and down, less their net change
    thrash: Floats
    # format 2, bounds that no split changes
    floor: Floats | None = None  # if bundles could be divided at will
    finest: Floats | None = None  # if bundles were divided into their topics
    away: Floats | None = None  # `finest`, while as many brokers are away as the rollout allows

    @property
    def max_over_mean(self) -> Floats:
        """Return max ÷ mean usage; 1 when all brokers are equal."""
        return _ratio(self.max_usage, self.mean)

    @property
    def max_over_bound(self) -> Floats:
        """Return max usage ÷ its bound; 1 is the best that is possible."""
        return _ratio(self.max_usage, self.bound)

    @property
    def max_over_floor(self) -> Floats | None:
        """Return max usage ÷ `floor`."""
        return None if self.floor is None else _ratio(self.max_usage, self.floor)

    @property
    def max_over_finest(self) -> Floats | None:
        """Return max usage ÷ `finest`; None: format 1."""
        return None if self.finest is None else _ratio(self.max_usage, self.finest)

    @property
    def available_mean(self) -> Floats:
        """Return the mean usage of the available brokers, without what drained ones still carry.

        `mean` spreads all usage over them, so it may be above `max_usage` during a drain.
        """
        number, usage = self.available.sum(axis=1), np.where(self.available, self.usage, 0.0)
        none = np.zeros(len(number))
        mean: Floats = np.divide(usage.sum(axis=1), number, out=none, where=number > 0)
        return mean

    @property
    def available_max_over_mean(self) -> Floats:
        """Return max ÷ mean usage of the available brokers; 1 when they are equal or idle."""
        usage = np.where(self.available, self.usage, 0.0)
        return _ratio(usage.max(axis=1, initial=0.0), self.available_mean)

    @property
    def balanced(self) -> Bools:
        """Return whether max usage is near its bound and no bundle is orphaned."""
        return self.is_balanced(self.max_over_bound)

    @property
    def balanced_by_finest(self) -> Bools | None:
        """Return whether max usage is near `finest` and no bundle is orphaned; None: format 1."""
        over = self.max_over_finest
        return None if over is None else self.is_balanced(over)

    def is_balanced(self, over: Floats) -> Bools:
        """Return whether a ratio to a bound is near 1, and no bundle is orphaned."""
        balanced: Bools = (over <= BALANCED + TOLERANCE) & (self.orphaned == 0)
        return balanced


def build_series(scenario: Scenario, rules: Rules, history: OwnershipHistory) -> Series:
    """Follow a trace's owners tick by tick, and build the columns.

    `rules`: of the history's bundles.
    """
    changes, count = history.changes, len(scenario.brokers)
    t_s: Floats = np.arange(scenario.ticks, dtype=np.float64) * scenario.tick_s
    usage = np.zeros((scenario.ticks, count))
    available = np.zeros((scenario.ticks, count), np.bool_)
    bounds, counts = np.zeros((4, scenario.ticks)), np.zeros((4, scenario.ticks), np.int64)
    walk, limits = _Walk(history), _Bounds(history.tree, rules)
    varied, remained = np.zeros(count), np.zeros(count)
    ends = np.searchsorted(changes.t_s, t_s + TOLERANCE, side="right")
    for tick, end in enumerate(ends.tolist()):
        before, was_up = walk.owner, walk.state.up.copy()
        walk.until(float(t_s[tick]), end)
        state, demand = walk.state, limits.demand_at(tick)
        bounds[0, tick] = limits.bound(tick, walk)
        if scenario.format >= 2:
            bounds[1:, tick] = limits.undivided(tick, state)
        now = broker_usage(scenario.brokers, walk.owner, demand, state.factor)
        if before is not walk.owner:
            change = np.where(
                state.up & was_up,
                now - broker_usage(scenario.brokers, before, demand, state.factor),
                0.0,
            )
            varied += np.abs(change)
            remained += change
        if tick == 0 or before is not walk.owner or (state.up != was_up).any():
            broken = _broken(scenario, rules, walk.owner, state.up)
        usage[tick], available[tick] = np.where(state.up, now, np.nan), state.available
        counts[:, tick] = (*walk.without_owner(float(t_s[tick])), *broken)
    floor, finest, away = bounds[1:] if scenario.format >= 2 else (None, None, None)
    number = available.sum(axis=1)
    served = np.nan_to_num(usage)
    return Series(
        t_s=t_s,
        usage=usage,
        available=available,
        max_usage=served.max(axis=1, initial=0.0),
        mean=np.divide(served.sum(axis=1), number, out=np.zeros(scenario.ticks), where=number > 0),
        bound=bounds[0],
        moves=_releases(scenario, history),
        unserved=counts[0],
        orphaned=counts[1],
        isolation=counts[2],
        anti_affinity=counts[3],
        thrash=varied - np.abs(remained),
        floor=floor,
        finest=finest,
        away=away,
    )


class _Walk:
    """The owners of bundles from tick to tick. `exists`: which bundles there are."""

    def __init__(self, history: OwnershipHistory) -> None:
        tree, scenario = history.tree, history.tree.scenario
        self.state = BrokerState.at_start(scenario, history.events)
        born = np.full(len(tree) - tree.roots, -1)
        self.owner = np.append(scenario.bundles.start_owner, born)
        self.exists: Bools = np.arange(len(tree)) < tree.roots
        self._changes, self._done = history.changes, 0
        self._lost, self._since = self.owner < 0, np.zeros(len(self.owner))

    def until(self, t_s: float, end: int) -> None:
        """Apply events until `t_s`, and the first `end` changes.

        `owner` is a new array when an owner has changed, `exists` when bundles were split.
        """
        self.state.until(t_s)
        if end == self._done:
            return
        now, self._done = slice(self._done, end), end
        bundle = self._changes.bundle[now]  # of several changes of one bundle, the last stays
        self.owner = self.owner.copy()
        self.owner[bundle] = self._changes.new[now]
        cause = self._changes.cause[now]
        self._lost[bundle] = cause == LOST
        self._since[bundle] = self._changes.t_s[now]
        if (cause == SPLIT).any():
            self.exists = self.exists.copy()
            self.exists[bundle[cause == BORN]] = True
            self.exists[bundle[cause == SPLIT]] = False

    def without_owner(self, t_s: float) -> tuple[int, int]:
        """Count the unassigned bundles, and how many of them are orphaned (see `Series`)."""
        unassigned = (self.owner < 0) & self.exists
        orphaned = self._lost[unassigned] | (t_s - self._since[unassigned] > LONG_S + TOLERANCE)
        return int(np.count_nonzero(unassigned)), int(np.count_nonzero(orphaned))


class _Bounds:
    """Bundles' demand and its bounds, computed anew when loads, brokers or bundles have changed."""

    def __init__(self, tree: BundleTree, rules: Rules) -> None:
        self._tree, self._rules, self._scenario = tree, rules, tree.scenario
        self._step, self._demand = 0, Demand.at_tick(tree, 0)
        self._known: tuple[int, int] | None = None
        self._exists: Bools | None = None
        self._bound = 0.0
        # of bounds that splits don't change
        self._far_known: tuple[int, int] | None = None
        self._far = (0.0, 0.0, 0.0)
        self._root_rules = rules.of_bundles(np.arange(tree.roots))
        self._heaviest = _heaviest_topics(tree)

    def demand_at(self, tick: int) -> Demand:
        """Return the demand of all bundles during a tick."""
        step = self._scenario.step_of(tick)
        if step != self._step:
            self._step, self._demand = step, Demand.at_tick(self._tree, tick)
        return self._demand

    def bound(self, tick: int, walk: _Walk) -> float:
        """Return the bound of the bundles that there are."""
        key = (self._scenario.step_of(tick), walk.state.applied)
        if key != self._known or walk.exists is not self._exists:
            self._known, self._exists = key, walk.exists
            demand = self.demand_at(tick)
            there = demand.times(walk.exists) if self._tree.is_grown else demand
            self._bound = lower_bound(self._scenario, self._rules, there, walk.state)
        return self._bound

    def undivided(self, tick: int, state: BrokerState) -> tuple[float, float, float]:
        """Return the bounds that no split changes: `floor`, `finest`, `away` of `Series`."""
        key, scenario = (self._scenario.step_of(tick), state.applied), self._scenario
        if key != self._far_known:
            demand = (
                Demand.at_tick(BundleTree(scenario), tick)
                if self._tree.is_grown
                else self.demand_at(tick)
            )
            self._far_known = key

            def bound(whole: Floats, brokers: BrokerState) -> float:
                return lower_bound(scenario, self._root_rules, demand, brokers, whole)

            self._far = (
                bound(np.zeros(self._tree.roots), state),
                bound(self._heaviest, state),
                0.0
                if scenario.rollout is None
                else bound(self._heaviest, _without_some(scenario, scenario.rollout, state)),
            )
        return self._far


def _heaviest_topics(tree: BundleTree) -> Floats:
    """Return the part of each of the scenario's bundles that its heaviest topic makes.

    Topics of one hash count together. 1: the bundle can't be split.
    """
    topics = tree.scenario.topics
    if topics is None:
        return np.ones(tree.roots)
    begins = np.append(True, (np.diff(topics.bundle) != 0) | (np.diff(topics.hash) != 0))
    first = np.flatnonzero(begins)
    heaviest = np.zeros(tree.roots)
    np.maximum.at(heaviest, topics.bundle[first], np.add.reduceat(topics.parts, first))
    return heaviest


def _without_some(scenario: Scenario, rollout: ScenarioRollout, state: BrokerState) -> BrokerState:
    """Return the state while as many of the rollout's brokers are away as may be.

    Those that are down, and the largest of the others.
    """
    brokers, of_it = scenario.brokers, np.array(rollout.brokers)
    msgs, size = brokers.cpu_msgs_per_s, brokers.cpu_bytes_per_s
    scale = np.maximum(msgs / msgs[0], size / size[0]) * state.factor
    more = max(0, rollout.at_most - int(np.count_nonzero(~state.up[of_it])))
    there = of_it[state.available[of_it]]
    up = state.up.copy()
    up[there[np.argsort(-scale[there], kind="stable")][:more]] = False
    return state.with_up(up)


def _broken(scenario: Scenario, rules: Rules, owner: Ints, up: Bools) -> tuple[int, int]:
    """Count bundles against their isolation policy, and brokers against anti-affinity groups."""
    forbidden = together = 0
    if rules.isolation:
        # The last column is for owner -1: being unassigned breaks no isolation policy.
        allowed = np.column_stack([rules.allowed(up), np.ones(len(rules.isolation) + 1, np.bool_)])
        forbidden = int(np.count_nonzero(~allowed[rules.policy, owner]))
    rows = np.flatnonzero((rules.group >= 0) & (owner >= 0))
    if len(rows):
        served = np.unique(
            np.column_stack([owner[rows], rules.group[rows], rules.namespace[rows]]), axis=0
        )
        _, namespaces = np.unique(served[:, :2], axis=0, return_counts=True)
        together = int(np.count_nonzero(namespaces > 1))
    return forbidden, together


def _releases(scenario: Scenario, history: OwnershipHistory) -> Ints:
    moved = history.changes.t_s[history.changes.cause == RELEASED]
    return np.bincount(ticks_at(scenario, moved), minlength=scenario.ticks)


def quantile(values: Floats, share: float) -> float | None:
    """Return the lowest value that this share of all values doesn't exceed. None: no values."""
    if not len(values):
        return None
    return float(np.sort(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)])


def _ratio(value: Floats, of: Floats) -> Floats:
    """Divide; the ratio is 1 where the divisor is 0."""
    return np.divide(value, of, out=np.ones(len(value)), where=of > 0)
