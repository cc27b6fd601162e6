"""The physics: who serves which bundle, what load that is, what each broker has to carry and what
it measures. docs/simulation.md.

One model for all that is only played: scenarios, and the brokers that agents run beside Kafka.
Brokers and bundles are row numbers; rates messages/s, throughputs bytes/s, memory bytes, times
seconds since the scenario's start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lb_stream.sim.scenario.scenario import Bools, Floats, Ints, Scenario

RESOURCES = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
BUFFERED_S = 1.0
"""Seconds of inbound traffic that a broker holds in direct memory for its readers."""


COLUMNS = ("topics", "producers", "consumers", "heap")
"""What a bundle has beside its load."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What bundles are made of after splits and merges: of each part its bundle, the scenario's
    bundle it is of, and its share of that."""

    bundle: Ints
    of_scenarios: Ints
    share: Floats

    @staticmethod
    def of(count: int) -> _Parts:
        """The scenario's own bundles."""
        return _Parts(np.arange(count), np.arange(count), np.ones(count))

    def split(self, rows: Ints, shares: Floats) -> _Parts:
        """The first of the rows was the bundle, and keeps the first share; the others are new."""
        mine = np.flatnonzero(self.bundle == rows[0])
        share = self.share.copy()
        share[mine] = share[mine] * shares[0]
        return _Parts(
            np.append(self.bundle, np.repeat(rows[1:], len(mine))),
            np.append(self.of_scenarios, np.tile(self.of_scenarios[mine], len(rows) - 1)),
            np.append(share, np.outer(shares[1:], self.share[mine])),
        )

    def merge(self, row: int, other: int) -> _Parts:
        """What was the other's is the row's; the rows behind the other move up."""
        bundle = np.where(self.bundle == other, row, self.bundle)
        return _Parts(bundle - (bundle > other), self.of_scenarios, self.share)

    def with_idle(self, row: int) -> _Parts:
        """With one more row, that carries nothing."""
        return _Parts(
            np.append(self.bundle, row), np.append(self.of_scenarios, 0), np.append(self.share, 0.0)
        )

    def sums(self, loads: Floats, count: int) -> Floats:
        """LOADS × bundles, from the scenario's."""
        return np.stack(
            [np.bincount(self.bundle, row[self.of_scenarios] * self.share, count) for row in loads]
        )

    @property
    def first_of_each(self) -> Ints:
        """Of each bundle the scenario's bundle that its first part is of: measured with its
        noise."""
        return self.of_scenarios[np.unique(self.bundle, return_index=True)[1]]


@dataclass(frozen=True, slots=True)
class BrokerMeasurements:
    """What brokers see of themselves at one moment: less than is asked for, if that is more than
    they have."""

    loads: Floats  # LOADS × bundles, 0 for those that nobody serves
    sums: Floats  # LOADS × brokers
    used: dict[str, Floats]  # resource → ratio of its capacity, 1 at most


class ClusterModel:
    """A cluster between two moments.

    `owner`: of each bundle the broker that serves it, -1: nobody.
    """

    def __init__(self, scenario: Scenario) -> None:
        """As the scenario begins."""
        brokers, bundles = scenario.brokers, scenario.bundles
        self.scenario = scenario
        self.names = list(bundles.names)
        self.owner = bundles.start_owner.astype(np.int64)
        self.topics, self.producers, self.consumers, self.heap = (
            bundles.topics,
            bundles.producers,
            bundles.consumers,
            bundles.memory_bytes,
        )
        self.up: Bools = brokers.up.copy()
        self.up_since_s: Floats = np.zeros(len(brokers))
        self.factor: Floats = np.ones(len(brokers))
        self._parts: _Parts | None = None  # once bundles are others than the scenario's
        self._tick, self._loads = -1, np.empty(0)

    # --- what happens ---

    def goes_down(self, broker: int) -> None:
        """The broker is gone, and so is all that it served."""
        self.up[broker] = False
        self.owner[self.owner == broker] = -1

    def comes_up(self, broker: int, t_s: float) -> None:
        """The broker is there, for the first time or again, and serves nothing."""
        self.up[broker] = True
        self.up_since_s[broker] = t_s

    def release(self, bundle: int, broker: int) -> bool:
        """The broker lets the bundle go. False: it doesn't serve it."""
        if self.owner[bundle] != broker:
            return False
        self.owner[bundle] = -1
        return True

    def acquire(self, bundle: int, broker: int) -> bool:
        """The broker serves the bundle from now on. False: somebody serves it."""
        if self.owner[bundle] >= 0:
            return False
        self.owner[bundle] = broker
        return True

    def replace(self, bundle: int, names: Sequence[str], shares: Sequence[float]) -> None:
        """The bundle is served in parts from now on, by the same broker.

        `shares` of its load, topics and clients; they add up to 1.
        """
        parts = self._parts or _Parts.of(len(self.names))
        edges = np.concatenate([[0.0], np.cumsum(shares)])
        edges[-1] = 1.0
        added = len(names) - 1
        rows = np.append(bundle, np.arange(len(self.names), len(self.names) + added))
        self._parts = parts.split(rows, np.diff(edges))
        for name in COLUMNS:
            column = getattr(self, name)
            whole = np.diff(np.rint(column[bundle] * edges).astype(np.int64))  # numbers that add up
            column = np.append(column, np.zeros(added, np.int64))
            column[rows] = whole
            setattr(self, name, column)
        self.owner = np.append(self.owner, np.full(added, self.owner[bundle]))
        self.names[bundle] = names[0]
        self.names += names[1:]
        self._tick = -1

    def merge(self, bundle: int, other: int, name: str) -> None:
        """The two bundles are served as one from now on, by the broker of the first: it carries
        what both carry."""
        self._parts = (self._parts or _Parts.of(len(self.names))).merge(bundle, other)
        for column in COLUMNS:
            values = getattr(self, column).copy()
            values[bundle] += values[other]
            setattr(self, column, np.delete(values, other))
        self.owner = np.delete(self.owner, other)
        self.names[bundle] = name
        del self.names[other]
        self._tick = -1

    def add_idle(self, name: str) -> None:
        """A bundle that carries nothing, and that nobody serves."""
        self._parts = (self._parts or _Parts.of(len(self.names))).with_idle(len(self.names))
        for column in COLUMNS:
            setattr(self, column, np.append(getattr(self, column), 0))
        self.owner = np.append(self.owner, -1)
        self.names.append(name)
        self._tick = -1

    # --- what that means ---

    def loads(self, t_s: float) -> Floats:
        """True loads of all bundles: LOADS × bundles."""
        tick = self.scenario.tick_of(t_s)
        if tick != self._tick:
            loads = self.scenario.loads_at(tick)
            self._loads = loads if self._parts is None else self._parts.sums(loads, len(self.names))
            self._tick = tick
        return self._loads

    def sums(self, loads: Floats) -> Floats:
        """What each broker serves of these loads: LOADS × brokers."""
        served = self.owner >= 0
        who, count = self.owner[served], len(self.up)
        return np.stack([np.bincount(who, row[served], count) for row in loads])

    def demand(self, sums: Floats) -> dict[str, Floats]:
        """Of each resource, what is asked for relative to what there is: more than 1 is more than
        there is."""
        brokers = self.scenario.brokers
        serving = np.bincount(self.owner[self.owner >= 0], minlength=len(brokers)) > 0
        heap = np.bincount(self.owner[self.owner >= 0], self.heap[self.owner >= 0], len(brokers))
        buffered = brokers.direct_memory_base_bytes + sums[2] * BUFFERED_S
        return {
            "cpu": (
                (sums[0] + sums[1]) / brokers.cpu_msgs_per_s
                + (sums[2] + sums[3]) / brokers.cpu_bytes_per_s
            )
            / self.factor,
            "memory": (brokers.memory_base_bytes + heap) / brokers.memory_bytes,
            "direct_memory": np.where(serving, buffered / brokers.direct_memory_bytes, 0.0),
            "bandwidth_in": sums[2] / brokers.bandwidth_in_bytes_per_s,
            "bandwidth_out": sums[3] / brokers.bandwidth_out_bytes_per_s,
        }

    def usage(self, t_s: float) -> Floats:
        """Of each broker the greatest demand among the judged resources: heap is none of them."""
        return _usage(self.demand(self.sums(self.loads(t_s))))

    def noise(self, t_s: float) -> tuple[Floats, Floats]:
        """By what factor each bundle's load and each broker's cpu is mismeasured."""
        bundles, cpu = self.scenario.noise_at(self.scenario.tick_of(t_s))
        return (bundles if self._parts is None else bundles[self._parts.first_of_each]), cpu

    def measure(self, t_s: float) -> BrokerMeasurements:
        """What brokers measure: with noise, and no more than they can deliver."""
        loads, (bundle_noise, cpu_noise) = self.loads(t_s), self.noise(t_s)
        delivered = np.append(1 / np.maximum(self.usage(t_s), 1.0), 0.0)  # nobody delivers nothing
        measured: Floats = loads * (bundle_noise * delivered[self.owner])
        sums = self.sums(measured)
        demand = self.demand(sums)
        demand["cpu"] = demand["cpu"] * cpu_noise
        return BrokerMeasurements(
            measured, sums, {name: np.clip(ratio, 0.0, 1.0) for name, ratio in demand.items()}
        )


def _usage(demand: dict[str, Floats]) -> Floats:
    usage: Floats = np.maximum.reduce([ratio for name, ratio in demand.items() if name != "memory"])
    return usage
