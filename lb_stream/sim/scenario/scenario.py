"""The model of a scenario: a cluster, its loads over time, events, faults and rules.

Its arrays are explicit; nothing is drawn while it runs. Times are seconds since the scenario's
start, rates messages/s, throughputs bytes/s, memory bytes. Brokers and bundles are row numbers.
"""

from __future__ import annotations

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

    def __len__(self) -> int:
        return len(self.names)


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
