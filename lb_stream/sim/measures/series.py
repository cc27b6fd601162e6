"""What a trace comes to tick by tick: each broker's usage, imbalance and its bound, who is
unserved, which rules are broken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.sim.measures.bound import lower_bound
from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.state import TOLERANCE, BrokerState, Demand, ticks_of, usage_of
from lb_stream.sim.measures.trace import LOST, RELEASED, OwnershipHistory
from lb_stream.sim.scenario.scenario import Bools, Floats, Ints, Scenario

LONG_S = 60.0
"""A bundle on its way may be without an owner for so long; longer is no balance."""
BALANCED = 1.15
"""Greatest usage over its bound, at most, of a balanced tick."""


@dataclass(frozen=True, slots=True)
class Series:
    """Columns with a row for each tick.

    Usages are ratios of capacity, 1: all of it is asked for.
    """

    t_s: Floats
    usage: Floats  # ticks × brokers; NaN: down
    available: Bools  # ticks × brokers: up and not drained
    greatest: Floats
    mean: Floats  # of all usage, over the available brokers
    bound: Floats  # no allowed assignment has a smaller greatest usage
    moves: Ints  # releases during the tick
    unserved: Ints  # bundles without an owner
    orphaned: (
        Ints  # those of them whose broker went down, or that have been so for more than LONG_S
    )
    isolation: Ints  # bundles at brokers where they may not be
    anti_affinity: Ints  # pairs of a broker and a group of which it serves two namespaces
    # of each broker: sum of what moves changed of its usage, up and down, less what remained of it
    thrash: Floats

    @property
    def max_over_mean(self) -> Floats:
        """1: all are alike."""
        return _ratio(self.greatest, self.mean)

    @property
    def max_over_bound(self) -> Floats:
        """1: nobody could do better."""
        return _ratio(self.greatest, self.bound)

    @property
    def available_mean(self) -> Floats:
        """Mean usage of the available brokers: what drained ones carry yet is not in it.

        `mean` spreads all usage over them, so that it may be above `greatest` during a drain.
        """
        number, usage = self.available.sum(axis=1), np.where(self.available, self.usage, 0.0)
        none = np.zeros(len(number))
        mean: Floats = np.divide(usage.sum(axis=1), number, out=none, where=number > 0)
        return mean

    @property
    def available_max_over_mean(self) -> Floats:
        """Max ÷ mean usage of the available brokers, 1 or more. 1: they are alike, or idle."""
        usage = np.where(self.available, self.usage, 0.0)
        return _ratio(usage.max(axis=1, initial=0.0), self.available_mean)

    @property
    def shown_over_bound(self) -> Floats:
        """`max_over_bound`, 1 or more, for charts.

        The bound places all bundles on available brokers. While drained brokers carry some yet, or
        some have no owner, the others may be below it: nobody did better.
        """
        return np.maximum(self.max_over_bound, 1.0)

    @property
    def balanced(self) -> Bools:
        """Near the bound, and nobody is left without an owner."""
        balanced: Bools = (self.max_over_bound <= BALANCED + TOLERANCE) & (self.orphaned == 0)
        return balanced


def series_of(scenario: Scenario, rules: Rules, history: OwnershipHistory) -> Series:
    """Play what the trace says once more, tick by tick."""
    changes, count = history.changes, len(scenario.brokers)
    t_s: Floats = np.arange(scenario.ticks, dtype=np.float64) * scenario.tick_s
    usage, available = (
        np.zeros((scenario.ticks, count)),
        np.zeros((scenario.ticks, count), np.bool_),
    )
    bound, counts = np.zeros(scenario.ticks), np.zeros((4, scenario.ticks), np.int64)
    walk, limits = _Walk(scenario, history), _Bounds(scenario, rules)
    varied, remained = np.zeros(count), np.zeros(count)
    ends = np.searchsorted(changes.t_s, t_s + TOLERANCE, side="right")
    for tick, end in enumerate(ends.tolist()):
        before, was_up = walk.owner, walk.state.up.copy()
        walk.until(float(t_s[tick]), end)
        state = walk.state
        demand, bound[tick] = limits.at(tick, state)
        now = usage_of(scenario.brokers, walk.owner, demand, state.factor)
        if before is not walk.owner:
            change = np.where(
                state.up & was_up,
                now - usage_of(scenario.brokers, before, demand, state.factor),
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
        greatest=served.max(axis=1, initial=0.0),
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
    """Owners from tick to tick."""

    def __init__(self, scenario: Scenario, history: OwnershipHistory) -> None:
        self.state, self.owner = BrokerState.of(scenario), scenario.bundles.start_owner
        self._changes, self._done = history.changes, 0
        self._lost, self._since = np.zeros(len(self.owner), np.bool_), np.zeros(len(self.owner))

    def until(self, t_s: float, end: int) -> None:
        """Up to a moment, which is the first `end` changes.

        `owner` is another array when it has changed.
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
        """How many bundles have none; how many of them because their broker went down, or for
        long."""
        nobody = self.owner < 0
        long = self._lost[nobody] | (t_s - self._since[nobody] > LONG_S + TOLERANCE)
        return int(np.count_nonzero(nobody)), int(np.count_nonzero(long))


class _Bounds:
    """Demand and its bound, computed anew when loads or brokers have changed."""

    def __init__(self, scenario: Scenario, rules: Rules) -> None:
        self._scenario, self._rules = scenario, rules
        self._step = 0
        self._known: tuple[int, int] | None = None
        self._demand, self._bound = Demand.at(scenario, 0), 0.0

    def at(self, tick: int, state: BrokerState) -> tuple[Demand, float]:
        step = self._scenario.step_of(tick)
        if step != self._step:
            self._step, self._demand = step, Demand.at(self._scenario, tick)
        if (step, state.done) != self._known:
            self._known = (step, state.done)
            self._bound = lower_bound(self._scenario, self._rules, self._demand, state)
        return self._demand, self._bound


def _broken(scenario: Scenario, rules: Rules, owner: Ints, up: Bools) -> tuple[int, int]:
    """Bundles where they may not be; brokers with two namespaces of one group, for each group."""
    forbidden = together = 0
    if rules.isolation:
        may = np.column_stack(
            [rules.allowed(up), np.ones(len(rules.isolation) + 1, np.bool_)]
        )  # the last column: nobody's
        forbidden = int(np.count_nonzero(~may[rules.policy, owner]))
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
    return np.bincount(ticks_of(scenario, moved), minlength=scenario.ticks)


def _ratio(value: Floats, of: Floats) -> Floats:
    """1 where there is nothing to compare with."""
    return np.divide(value, of, out=np.ones(len(value)), where=of > 0)
