"""Brokers' states and bundles' demand at a moment, as the measures compute them.

They follow from the scenario alone, independently of `sim.model`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from lb_stream.sim.scenario.bundle_tree import BundleTree
from lb_stream.sim.scenario.scenario import Bools, Event, Floats, Ints, Scenario, ScenarioBrokers

TOLERANCE = 1e-6
"""Times that differ by less are equal; a limit is exceeded by more than this."""


def ticks_at(scenario: Scenario, t_s: Floats) -> Ints:
    """Return the ticks in which these times (seconds) lie."""
    return np.minimum((t_s / scenario.tick_s + TOLERANCE).astype(np.int64), scenario.ticks - 1)


@dataclass(slots=True)
class BrokerState:
    """Which brokers are up, drained and slow; it follows events."""

    up: Bools
    drained: Bools
    factor: Floats
    _events: list[Event]
    applied: int = 0

    @staticmethod
    def at_start(scenario: Scenario, events: Iterable[Event] | None = None) -> BrokerState:
        """Begin before the first event. `events`: by default those of the scenario."""
        count, given = len(scenario.brokers), scenario.events if events is None else events
        return BrokerState(
            scenario.brokers.up.copy(), np.zeros(count, np.bool_), np.ones(count), list(given)
        )

    def with_up(self, up: Bools) -> BrokerState:
        """Return the state at this moment if these brokers were up."""
        return replace(self, up=up)

    def add(self, event: Event) -> None:
        """Add an event that is still to come."""
        insort(self._events, event, lo=self.applied, key=lambda event: event.t_s)

    @property
    def available(self) -> Bools:
        """Return which brokers are up and not drained."""
        return self.up & ~self.drained

    def next_until(self, t_s: float) -> Event | None:
        """Apply the next event up to `t_s`, and return it. None: there is none."""
        if self.applied == len(self._events) or self._events[self.applied].t_s > t_s + TOLERANCE:
            return None
        event = self._events[self.applied]
        self.applied += 1
        match event.kind:
            case "up":
                self.up[event.broker] = True
            case "crash" | "leave":
                self.up[event.broker] = False
            case "drain" | "undrain":
                self.drained[event.broker] = event.kind == "drain"
            case "slow":
                self.factor[event.broker] = event.factor
        return event

    def until(self, t_s: float) -> None:
        """Apply all events up to `t_s`."""
        while self.next_until(t_s):
            pass


@dataclass(frozen=True, slots=True)
class Demand:
    """Each bundle's load during a step: messages/s, bytes/s.

    `background`: each broker's cpu (ratio) that no bundle causes; None: none has any.
    """

    rate: Floats
    bytes_in: Floats
    bytes_out: Floats
    background: Floats | None = None

    @staticmethod
    def at_tick(tree: BundleTree, tick: int) -> Demand:
        """Return the demand during a tick, also of bundles that have been split or are yet to be.

        It is the demand that they would have.
        """
        scenario = tree.scenario
        rate_in, rate_out, bytes_in, bytes_out = tree.of_roots(scenario.loads_at(tick))
        return Demand(rate_in + rate_out, bytes_in, bytes_out, scenario.background_at(tick))

    def times(self, factor: Floats | Bools) -> Demand:
        """Return these parts of each bundle's demand."""
        return Demand(
            self.rate * factor, self.bytes_in * factor, self.bytes_out * factor, self.background
        )


def broker_usage(brokers: ScenarioBrokers, owner: Ints, demand: Demand, factor: Floats) -> Floats:
    """Return each broker's max usage over the judged resources; as demand, it may exceed 1."""
    count, place = len(brokers), owner + 1  # place 0: unassigned
    rate, bytes_in, bytes_out = (
        np.bincount(place, column, count + 1)[1:]
        for column in (demand.rate, demand.bytes_in, demand.bytes_out)
    )
    cpu = (
        rate / brokers.cpu_msgs_per_s + (bytes_in + bytes_out) / brokers.cpu_bytes_per_s
    ) / factor
    if demand.background is not None:
        cpu = cpu + demand.background
    direct_memory = (brokers.direct_memory_base_bytes + bytes_in) / brokers.direct_memory_bytes
    direct_memory[np.bincount(place, minlength=count + 1)[1:] == 0] = 0.0
    bandwidth_in = bytes_in / brokers.bandwidth_in_bytes_per_s
    bandwidth_out = bytes_out / brokers.bandwidth_out_bytes_per_s
    usage: Floats = np.maximum.reduce([cpu, bandwidth_in, bandwidth_out, direct_memory])
    return usage
