"""A trace tick by tick: usages, imbalance and its bound, unassigned bundles, violations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.sim.measures.bound import lower_bound
from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.state import TOLERANCE, BrokerState, Demand, broker_usage, ticks_at
from lb_stream.sim.measures.trace import LOST, RELEASED, OwnershipHistory
from lb_stream.sim.scenario.scenario import Bools, Floats, Ints, Scenario

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
    # unassigned bundles whose broker went down, or that are unassigned for more than LONG_S
    orphaned: Ints
    isolation: Ints  # bundles at brokers that their isolation policy excludes
    anti_affinity: Ints  # pairs of a broker and a group of which it serves two namespaces
    # for each broker: the changes of its usage by moves, up and down, less their net change
    thrash: Floats

    @property
    def max_over_mean(self) -> Floats:
        """Return max ÷ mean usage; 1 when all brokers are equal."""
        return _ratio(self.max_usage, self.mean)

    @property
    def max_over_bound(self) -> Floats:
        """Return max usage ÷ its bound; 1 is the best that is possible."""
        return _ratio(self.max_usage, self.bound)

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
    def shown_over_bound(self) -> Floats:
        """Return `max_over_bound` for charts, raised to 1 at least.

        The bound places all bundles on available brokers. While drained brokers still carry some,
        or some are unassigned, the available ones may be below it.
        """
        return np.maximum(self.max_over_bound, 1.0)

    @property
    def balanced(self) -> Bools:
        """Return whether max usage is near its bound and no bundle is orphaned."""
        balanced: Bools = (self.max_over_bound <= BALANCED + TOLERANCE) & (self.orphaned == 0)
        return balanced


def build_series(scenario: Scenario, rules: Rules, history: OwnershipHistory) -> Series:
    """Follow a trace's owners tick by tick, and build the columns."""
    changes, count = history.changes, len(scenario.brokers)
    t_s: Floats = np.arange(scenario.ticks, dtype=np.float64) * scenario.tick_s
    usage = np.zeros((scenario.ticks, count))
    available = np.zeros((scenario.ticks, count), np.bool_)
    bound, counts = np.zeros(scenario.ticks), np.zeros((4, scenario.ticks), np.int64)
    walk, limits = _Walk(scenario, history), _Bounds(scenario, rules)
    varied, remained = np.zeros(count), np.zeros(count)
    ends = np.searchsorted(changes.t_s, t_s + TOLERANCE, side="right")
    for tick, end in enumerate(ends.tolist()):
        before, was_up = walk.owner, walk.state.up.copy()
        walk.until(float(t_s[tick]), end)
        state = walk.state
        demand, bound[tick] = limits.at(tick, state)
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
    number = available.sum(axis=1)
    served = np.nan_to_num(usage)
    return Series(
        t_s=t_s,
        usage=usage,
        available=available,
        max_usage=served.max(axis=1, initial=0.0),
        mean=np.divide(served.sum(axis=1), number, out=np.zeros(scenario.ticks), where=number > 0),
        bound=bound,
        moves=_releases(scenario, history),
        unserved=counts[0],
        orphaned=counts[1],
        isolation=counts[2],
        anti_affinity=counts[3],
        thrash=varied - np.abs(remained),
    )


class _Walk:
    """The owners of bundles from tick to tick."""

    def __init__(self, scenario: Scenario, history: OwnershipHistory) -> None:
        self.state, self.owner = BrokerState.at_start(scenario), scenario.bundles.start_owner
        self._changes, self._done = history.changes, 0
        self._lost, self._since = np.zeros(len(self.owner), np.bool_), np.zeros(len(self.owner))

    def until(self, t_s: float, end: int) -> None:
        """Apply events until `t_s`, and the first `end` changes.

        `owner` is a new array when an owner has changed.
        """
        self.state.until(t_s)
        if end == self._done:
            return
        now, self._done = slice(self._done, end), end
        bundle = self._changes.bundle[now]  # of several changes of one bundle, the last stays
        self.owner = self.owner.copy()
        self.owner[bundle] = self._changes.new[now]
        self._lost[bundle] = self._changes.cause[now] == LOST
        self._since[bundle] = self._changes.t_s[now]

    def without_owner(self, t_s: float) -> tuple[int, int]:
        """Count the unassigned bundles, and how many of them are orphaned (see `Series`)."""
        unassigned = self.owner < 0
        orphaned = self._lost[unassigned] | (t_s - self._since[unassigned] > LONG_S + TOLERANCE)
        return int(np.count_nonzero(unassigned)), int(np.count_nonzero(orphaned))


class _Bounds:
    """Bundles' demand and its bound, computed anew when loads or brokers have changed."""

    def __init__(self, scenario: Scenario, rules: Rules) -> None:
        self._scenario, self._rules = scenario, rules
        self._step = 0
        self._known: tuple[int, int] | None = None
        self._demand, self._bound = Demand.at_tick(scenario, 0), 0.0

    def at(self, tick: int, state: BrokerState) -> tuple[Demand, float]:
        step = self._scenario.step_of(tick)
        if step != self._step:
            self._step, self._demand = step, Demand.at_tick(self._scenario, tick)
        if (step, state.applied) != self._known:
            self._known = (step, state.applied)
            self._bound = lower_bound(self._scenario, self._rules, self._demand, state)
        return self._demand, self._bound


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


def _ratio(value: Floats, of: Floats) -> Floats:
    """Divide; the ratio is 1 where the divisor is 0."""
    return np.divide(value, of, out=np.ones(len(value)), where=of > 0)
