"""The model of a scenario: a cluster, its loads over time, events, faults and rules.

Its arrays are explicit; nothing is drawn while it runs. Times are seconds since the scenario's
start, rates messages/s, throughputs bytes/s, memory bytes. Brokers and bundles are row numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

EventKind = Literal["crash", "leave", "up", "drain", "undrain", "slow"]
FaultKind = Literal["lost_decisions", "lost_acks", "stale_reports"]
JUDGED = ("cpu", "bandwidth_in", "bandwidth_out", "direct_memory")
"""The resources that count as usage."""
LOADS = ("rate_in", "rate_out", "bytes_in", "bytes_out")
"""The rows of `Scenario.loads_at`."""
Format = Literal[1, 2]
StatedLimit = Literal["bandwidth_in", "bandwidth_out", "memory", "direct_memory"]
LIMITS: dict[StatedLimit, str] = {
    "bandwidth_in": "bandwidth_in_bytes_per_s",
    "bandwidth_out": "bandwidth_out_bytes_per_s",
    "memory": "memory_bytes",
    "direct_memory": "direct_memory_bytes",
}
"""Limit that load reports state → the column of `ScenarioBrokers` with the true one."""


@dataclass(frozen=True, slots=True)
class ScenarioBrokers:
    """Brokers as columns: their capacities, and when they report."""

    names: tuple[str, ...]  # host:port
    up: Bools  # at the start
    cpu_msgs_per_s: Floats
    cpu_bytes_per_s: Floats
    bandwidth_in_bytes_per_s: Floats
    bandwidth_out_bytes_per_s: Floats
    memory_bytes: Floats
    memory_base_bytes: Floats
    direct_memory_bytes: Floats
    direct_memory_base_bytes: Floats
    report_phase_s: Floats
    cpu_base: Floats | None = None  # ratio of cpu that no bundle causes; None: 0
    # what reports state instead of the true limits, in their units; 0: not known
    stated: Mapping[StatedLimit, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def stated_limit(self, limit: StatedLimit) -> Floats:
        """Return the limit that each broker's reports state, bytes/s or bytes; 0: not known."""
        true: Floats = getattr(self, LIMITS[limit])
        return self.stated.get(limit, true)


@dataclass(frozen=True, slots=True)
class ScenarioBundles:
    """Bundles as columns."""

    names: tuple[str, ...]  # tenant/namespace/0xLLLLLLLL_0xHHHHHHHH
    start_owner: Ints  # row of the broker, -1: unassigned
    topics: Ints
    producers: Ints
    consumers: Ints
    memory_bytes: Ints  # heap

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Event:
    """An event at a broker. `factor`: of kind `slow`, on both cpu capacities from then on."""

    t_s: float
    broker: int
    kind: EventKind
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at some brokers while from_s <= t < to_s.

    `delay_s`: the age of the figures in stale reports.
    """

    kind: FaultKind
    brokers: tuple[int, ...]
    from_s: float
    to_s: float
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ScenarioIsolation:
    """An isolation policy: namespaces that may only use its brokers.

    Secondary brokers count while fewer than `min_available` primary ones are up.
    """

    name: str
    namespaces: tuple[str, ...]
    primary: tuple[int, ...]
    secondary: tuple[int, ...]
    min_available: int


@dataclass(frozen=True, slots=True)
class ScenarioAntiAffinity:
    """An anti-affinity group: no broker should serve two of its namespaces."""

    name: str
    namespaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScenarioPolicies:
    """Rules of the scenario. `budgets`: namespace → max moves of its bundles in any 3,600 s."""

    isolation: tuple[ScenarioIsolation, ...] = ()
    anti_affinity: tuple[ScenarioAntiAffinity, ...] = ()
    pinned_namespaces: tuple[str, ...] = ()
    budgets: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ScenarioTopics:
    """Topics as columns, sorted by (bundle, hash). A bundle's topics share its load."""

    bundle: Ints  # row of the bundle
    hash: Ints  # uint32 values
    share: NDArray[np.float32]  # of the bundle's load, relative to the sum of its topics' shares

    def __len__(self) -> int:
        return len(self.bundle)

    @cached_property
    def edges(self) -> Ints:
        """Return the row at which each bundle's topics begin, and the number of topics."""
        edges: Ints = np.searchsorted(self.bundle, np.arange(self.bundle[-1] + 2))
        return edges

    @cached_property
    def parts(self) -> Floats:
        """Return each topic's part of its bundle's load; those of a bundle sum to 1."""
        share = self.share.astype(np.float64)
        parts: Floats = share / np.add.reduceat(share, self.edges[:-1])[self.bundle]
        return parts

    def of(self, bundle: int) -> tuple[Ints, Floats]:
        """Return the hashes of a bundle's topics, ascending, and their parts of its load."""
        mine = slice(int(self.edges[bundle]), int(self.edges[bundle + 1]))
        return self.hash[mine], self.parts[mine]


@dataclass(frozen=True, slots=True)
class ScenarioSplits:
    """How brokers split bundles, and what they report of topics.

    `max_rate`, `max_bytes_per_s` and `difference` are limits of flow_or_qps_equally_divide.
    """

    split_s: float  # from a decision to its effect
    detailed_bundles: int  # of how many of its heaviest bundles a broker reports the topics
    max_rate: float
    max_bytes_per_s: float
    difference: float


@dataclass(frozen=True, slots=True)
class ScenarioRollout:
    """An operator's order, given at `t_s`, to restart each of these brokers once."""

    t_s: float
    restart_s: float  # how long each is down
    at_most: int  # of these brokers may be down at once
    brokers: tuple[int, ...]
    in_order: bool = False  # they stop in the order of `brokers`


@dataclass(frozen=True, slots=True)
class MoveTimes:
    """Seconds from a decision to its effect at the broker, and until clients have reconnected."""

    release_s: float
    acquire_s: float
    reconnect_s: float


@dataclass(frozen=True)
class Scenario:
    """The content of a scenario's folder."""

    name: str
    why: str
    tick_s: float
    ticks: int
    load_step_ticks: int
    noise_step_ticks: int
    noise_unit: float
    report_interval_s: float
    report_delay_s: float
    move: MoveTimes
    judge_from_s: float
    settled_from_s: float
    brokers: ScenarioBrokers
    bundles: ScenarioBundles
    events: tuple[Event, ...]  # in order of time
    faults: tuple[Fault, ...]
    policies: ScenarioPolicies
    loads: NDArray[np.float32]  # LOADS × bundles × steps
    noise: NDArray[np.int8] | None = None  # bundles × noise steps, in units of noise_unit
    broker_noise: NDArray[np.int8] | None = None  # of cpu, brokers × noise steps, likewise
    format: Format = 1
    # The others are of format 2.
    background: NDArray[np.float32] | None = None  # cpu that no bundle causes, brokers × steps
    topics: ScenarioTopics | None = None  # None: bundles can't be split
    splits: ScenarioSplits | None = None  # given where `topics` is
    rollout: ScenarioRollout | None = None

    @property
    def end_s(self) -> float:
        """Return the end of the scenario, seconds."""
        return self.tick_s * self.ticks

    def tick_of(self, t_s: float) -> int:
        """Return the tick in which a time (seconds) lies."""
        return min(int(t_s / self.tick_s + 1e-9), self.ticks - 1)

    def step_of(self, tick: int) -> int:
        """Return the load step of a tick."""
        return tick // self.load_step_ticks

    def loads_at(self, tick: int) -> Floats:
        """Return the true loads during a tick: LOADS × bundles."""
        loads: Floats = self.loads[:, :, self.step_of(tick)].astype(np.float64)
        return loads

    def background_at(self, tick: int) -> Floats | None:
        """Return each broker's cpu (ratio) that no bundle causes; None: none has any."""
        base, added = self.brokers.cpu_base, self.background
        if added is None:
            return base
        now: Floats = added[:, self.step_of(tick)].astype(np.float64)
        return now if base is None else base + now

    def noise_at(self, tick: int) -> tuple[Floats, Floats]:
        """Return the noise of a tick: factors on bundles' loads, and on brokers' cpu."""
        step = tick // self.noise_step_ticks

        def factors(noise: NDArray[np.int8] | None, count: int) -> Floats:
            return (
                np.ones(count)
                if noise is None
                else 1.0 + noise[:, step].astype(np.float64) * self.noise_unit
            )

        return factors(self.noise, len(self.bundles)), factors(self.broker_noise, len(self.brokers))

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        """Return each bundle's namespace, tenant/name."""
        return tuple(name.rpartition("/")[0] for name in self.bundles.names)
