"""What brokers are at a moment, and how much of each is asked for: a scenario's events and physics,
as its judge sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.sim.scenario.scenario import Bools, Event, Floats, Ints, Scenario, ScenarioBrokers

TOLERANCE = 1e-6
"""Times closer than this are one moment; a limit is exceeded by more than this."""


def ticks_of(scenario: Scenario, t_s: Floats) -> Ints:
    """The ticks during which these moments lie."""
    return np.minimum((t_s / scenario.tick_s + TOLERANCE).astype(np.int64), scenario.ticks - 1)


@dataclass(slots=True)
class BrokerState:
    """Who is up, who is drained, who is how slow; follows the scenario's events."""

    up: Bools
    drained: Bools
    factor: Floats
    _events: tuple[Event, ...]
    done: int = 0

    @staticmethod
    def of(scenario: Scenario) -> BrokerState:
        """As the scenario starts, before its first event."""
        count = len(scenario.brokers)
        return BrokerState(
            scenario.brokers.up.copy(), np.zeros(count, np.bool_), np.ones(count), scenario.events
        )

    @property
    def available(self) -> Bools:
        """Up and not drained."""
        return self.up & ~self.drained

    def next_until(self, t_s: float) -> Event | None:
        """Apply the next event if it happens up to this moment, and return it."""
        if self.done == len(self._events) or self._events[self.done].t_s > t_s + TOLERANCE:
            return None
        event = self._events[self.done]
        self.done += 1
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
        """Apply all events up to this moment."""
        while self.next_until(t_s):
            pass


@dataclass(frozen=True, slots=True)
class Demand:
    """What each bundle asks for during a step: messages/s, bytes/s."""

    rate: Floats
    bytes_in: Floats
    bytes_out: Floats

    @staticmethod
    def at(scenario: Scenario, tick: int) -> Demand:
        """During a tick."""
        rate_in, rate_out, bytes_in, bytes_out = scenario.loads_at(tick)
        return Demand(rate_in + rate_out, bytes_in, bytes_out)


def usage_of(brokers: ScenarioBrokers, owner: Ints, demand: Demand, factor: Floats) -> Floats:
    """The greatest of each broker's judged resources. It is what is asked for: it may exceed 1."""
    count, place = len(brokers), owner + 1  # place 0: nobody's
    rate, bytes_in, bytes_out = (
        np.bincount(place, column, count + 1)[1:]
        for column in (demand.rate, demand.bytes_in, demand.bytes_out)
    )
    cpu = (
        rate / brokers.cpu_msgs_per_s + (bytes_in + bytes_out) / brokers.cpu_bytes_per_s
    ) / factor
    direct_memory = (brokers.direct_memory_base_bytes + bytes_in) / brokers.direct_memory_bytes
    direct_memory[np.bincount(place, minlength=count + 1)[1:] == 0] = 0.0
    bandwidth_in, bandwidth_out = (
        bytes_in / brokers.bandwidth_in_bytes_per_s,
        bytes_out / brokers.bandwidth_out_bytes_per_s,
    )
    usage: Floats = np.maximum.reduce([cpu, bandwidth_in, bandwidth_out, direct_memory])
    return usage
