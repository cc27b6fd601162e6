"""The physics of a simulated cluster: owners, loads, and what each broker carries and measures.

Scenarios and the simulated brokers beside a real Kafka share this model (docs/simulation.md).
Brokers and bundles are row numbers. Rates are messages/s, throughputs bytes/s, memory bytes, times
seconds since the scenario's start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lb_stream.sim.scenario.scenario import Bools, Floats, Ints, Scenario

RESOURCES = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
BUFFERED_S = 1.0
"""Seconds of inbound traffic that a broker holds in direct memory for its consumers."""

COLUMNS = ("topics", "producers", "consumers", "heap")
"""Attributes of the model with a count, or bytes, for each bundle."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of the scenario's bundles that each bundle consists of after splits and merges."""

    bundle: Ints  # row of the part's bundle now
    of_scenarios: Ints  # row of the scenario's bundle that it is a part of
    share: Floats  # of that bundle's load

    @staticmethod
    def of(count: int) -> _Parts:
        """Return the parts before any split: each of the scenario's bundles is whole."""
        return _Parts(np.arange(count), np.arange(count), np.ones(count))

    def split(self, rows: Ints, shares: Floats) -> _Parts:
        """Return the parts after a split. The first row is the bundle, the other rows are new."""
        mine = np.flatnonzero(self.bundle == rows[0])
        share = self.share.copy()
        share[mine] = share[mine] * shares[0]
        return _Parts(
            np.append(self.bundle, np.repeat(rows[1:], len(mine))),
            np.append(self.of_scenarios, np.tile(self.of_scenarios[mine], len(rows) - 1)),
            np.append(share, np.outer(shares[1:], self.share[mine])),
        )

    def merge(self, row: int, other: int) -> _Parts:
        """Return the parts after a merge into `row`. Rows behind `other` move up by one."""
        bundle = np.where(self.bundle == other, row, self.bundle)
        return _Parts(bundle - (bundle > other), self.of_scenarios, self.share)

    def with_idle(self, row: int) -> _Parts:
        """Return the parts with one more row, which carries nothing."""
        return _Parts(
            np.append(self.bundle, row), np.append(self.of_scenarios, 0), np.append(self.share, 0.0)
        )

    def sums(self, loads: Floats, count: int) -> Floats:
        """Return the loads of the bundles now (LOADS × bundles), from those of the scenario's."""
        return np.stack(
            [np.bincount(self.bundle, row[self.of_scenarios] * self.share, count) for row in loads]
        )

    @property
    def first_of_each(self) -> Ints:
        """Return, for each bundle, the scenario's bundle of its first part, whose noise it has."""
        return self.of_scenarios[np.unique(self.bundle, return_index=True)[1]]


@dataclass(frozen=True, slots=True)
class BrokerMeasurements:
    """What brokers measure at one moment. An overloaded broker measures only what it delivers."""

    loads: Floats  # LOADS × bundles, 0 for unassigned ones
    sums: Floats  # LOADS × brokers
    used: dict[str, Floats]  # resource → ratio of its capacity for each broker, at most 1


class ClusterModel:
    """A cluster at one moment. `owner`: row of each bundle's broker, -1: unassigned."""

    def __init__(self, scenario: Scenario) -> None:
        """Begin as the scenario begins."""
        brokers, bundles = scenario.brokers, scenario.bundles
        self.scenario = scenario
        self.names = list(bundles.names)
        self.owner = bundles.start_owner.astype(np.int64)
        self.topics = bundles.topics
        self.producers = bundles.producers
        self.consumers = bundles.consumers
        self.heap = bundles.memory_bytes
        self.up: Bools = brokers.up.copy()
        self.up_since_s: Floats = np.zeros(len(brokers))
        self.factor: Floats = np.ones(len(brokers))
        self._parts: _Parts | None = None  # None until a bundle is split, merged or added
        self._tick, self._loads = -1, np.empty(0)

    # --- changes ---

    def take_down(self, broker: int) -> None:
        """Take a broker down. Its bundles become unassigned."""
        self.up[broker] = False
        self.owner[self.owner == broker] = -1

    def bring_up(self, broker: int, t_s: float) -> None:
        """Bring a broker up at `t_s`, for the first time or again. It serves nothing."""
        self.up[broker] = True
        self.up_since_s[broker] = t_s

    def release(self, bundle: int, broker: int) -> bool:
        """Have the broker give the bundle up. False: it doesn't serve the bundle."""
        if self.owner[bundle] != broker:
            return False
        self.owner[bundle] = -1
        return True

    def acquire(self, bundle: int, broker: int) -> bool:
        """Have the broker serve the bundle from now on. False: the bundle has an owner."""
        if self.owner[bundle] >= 0:
            return False
        self.owner[bundle] = broker
        return True

    def replace(self, bundle: int, names: Sequence[str], shares: Sequence[float]) -> None:
        """Replace a bundle by children at the same broker.

        `shares`: each child's share of the load, topics and clients. They add up to 1.
        """
        parts = self._parts or _Parts.of(len(self.names))
        edges = np.concatenate([[0.0], np.cumsum(shares)])
        edges[-1] = 1.0
        added = len(names) - 1
        rows = np.append(bundle, np.arange(len(self.names), len(self.names) + added))
        self._parts = parts.split(rows, np.diff(edges))
        for name in COLUMNS:
            column = getattr(self, name)
            # Rounding the edges keeps the sum of the children's numbers.
            whole = np.diff(np.rint(column[bundle] * edges).astype(np.int64))
            column = np.append(column, np.zeros(added, np.int64))
            column[rows] = whole
            setattr(self, name, column)
        self.owner = np.append(self.owner, np.full(added, self.owner[bundle]))
        self.names[bundle] = names[0]
        self.names += names[1:]
        self._tick = -1

    def merge(self, bundle: int, other: int, name: str) -> None:
        """Replace two bundles by one at the broker of the first. It carries what both carried."""
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
        """Add a bundle that carries nothing and is unassigned."""
        self._parts = (self._parts or _Parts.of(len(self.names))).with_idle(len(self.names))
        for column in COLUMNS:
            setattr(self, column, np.append(getattr(self, column), 0))
        self.owner = np.append(self.owner, -1)
        self.names.append(name)
        self._tick = -1

    # --- loads and usage ---

    def loads(self, t_s: float) -> Floats:
        """Return the true loads of all bundles: LOADS × bundles."""
        tick = self.scenario.tick_of(t_s)
        if tick != self._tick:
            self._loads = self._divide(self.scenario.loads_at(tick))
            self._tick = tick
        return self._loads

    def _divide(self, loads: Floats) -> Floats:
        """Return the loads of the bundles now, from those of the scenario's bundles."""
        return loads if self._parts is None else self._parts.sums(loads, len(self.names))

    def _noise_of(self, noise: Floats) -> Floats:
        """Return the noise of the bundles now, from that of the scenario's bundles."""
        return noise if self._parts is None else noise[self._parts.first_of_each]

    def sums(self, loads: Floats) -> Floats:
        """Add up these loads (LOADS × bundles) by broker: LOADS × brokers."""
        assigned = self.owner >= 0
        broker, count = self.owner[assigned], len(self.up)
        return np.stack([np.bincount(broker, load[assigned], count) for load in loads])

    def demand(self, sums: Floats, t_s: float) -> dict[str, Floats]:
        """Return each resource's demand by broker, as a ratio of the capacity; it may exceed 1.

        `sums`: LOADS × brokers. Cpu includes what no bundle causes at `t_s`.
        """
        brokers = self.scenario.brokers
        background = self.scenario.background_at(self.scenario.tick_of(t_s))
        serving = np.bincount(self.owner[self.owner >= 0], minlength=len(brokers)) > 0
        heap = np.bincount(self.owner[self.owner >= 0], self.heap[self.owner >= 0], len(brokers))
        buffered = brokers.direct_memory_base_bytes + sums[2] * BUFFERED_S
        cpu = (
            (sums[0] + sums[1]) / brokers.cpu_msgs_per_s
            + (sums[2] + sums[3]) / brokers.cpu_bytes_per_s
        ) / self.factor
        return {
            "cpu": cpu if background is None else cpu + background,
            "memory": (brokers.memory_base_bytes + heap) / brokers.memory_bytes,
            "direct_memory": np.where(serving, buffered / brokers.direct_memory_bytes, 0.0),
            "bandwidth_in": sums[2] / brokers.bandwidth_in_bytes_per_s,
            "bandwidth_out": sums[3] / brokers.bandwidth_out_bytes_per_s,
        }

    def usage(self, t_s: float) -> Floats:
        """Return each broker's max demand over the judged resources. Heap is not one of them."""
        return _usage(self.demand(self.sums(self.loads(t_s)), t_s))

    def noise(self, t_s: float) -> tuple[Floats, Floats]:
        """Return the factors of measurement noise: on bundles' loads, and on brokers' cpu."""
        bundles, cpu = self.scenario.noise_at(self.scenario.tick_of(t_s))
        return self._noise_of(bundles), cpu

    def measure(self, t_s: float) -> BrokerMeasurements:
        """Return what brokers measure: with noise, and at most what they can deliver."""
        loads = self.loads(t_s)
        bundle_noise, cpu_noise = self.noise(t_s)
        # The last element is for owner -1: an unassigned bundle delivers nothing.
        delivered = np.append(1 / np.maximum(self.usage(t_s), 1.0), 0.0)
        measured: Floats = loads * (bundle_noise * delivered[self.owner])
        sums = self.sums(measured)
        demand = self.demand(sums, t_s)
        demand["cpu"] = demand["cpu"] * cpu_noise
        return BrokerMeasurements(
            measured, sums, {name: np.clip(ratio, 0.0, 1.0) for name, ratio in demand.items()}
        )


def _usage(demand: dict[str, Floats]) -> Floats:
    usage: Floats = np.maximum.reduce([ratio for name, ratio in demand.items() if name != "memory"])
    return usage
