"""What the simple manager expects a bundle to cost, learned slowly from reports.

See docs/placement.md "The simple manager's three".

Rates messages/s, bandwidths bytes/s, memory MB, times ms. Every value follows its samples quickly
upwards (fully within 30 minutes) and slowly downwards (within a day).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RISE_MS = 30 * 60_000
FALL_MS = 1_440 * 60_000
GROUP = 500
"""The number of topics, producers and consumers that together cost one group's memory."""

VALUES = ("rate_in", "rate_out", "bandwidth_in", "bandwidth_out", "memory")
INITIAL = {
    "rate_in": 40.0,
    "rate_out": 120.0,
    "bandwidth_in": 100_000.0,
    "bandwidth_out": 300_000.0,
    "memory": 80.0,
}
LIMITS = {
    "rate_in": (5.0, np.inf),
    "rate_out": (5.0, np.inf),
    "bandwidth_in": (10_000.0, 1_000_000.0),
    "bandwidth_out": (10_000.0, 1_000_000.0),
    "memory": (2.0, 200.0),
}
"""The limits to which a sample is clipped."""

CPU_FACTOR_LIMITS = (0.01, 0.1)  # percent of a core for each msg/s
MEMORY_FACTOR_LIMITS = (10.0, 50.0)  # MB for each group
LEAST_RATE = 1_000.0
LEAST_GROUPS = 30
LEAST_BUNDLES = 30
"""A cluster with fewer bundles is too small to learn factors and a default quota from."""


@dataclass(frozen=True, slots=True)
class Factors:
    """What a message rate costs in cpu, and a group of connections in memory."""

    cpu: float = 0.025
    memory: float = 25.0


@dataclass(frozen=True, slots=True)
class Quotas:
    """One row for each bundle, one column for each of VALUES."""

    columns: Mapping[str, Floats]

    @staticmethod
    def initial(bundles: int) -> Quotas:
        """Of bundles about which nothing is known."""
        return Quotas({name: np.full(bundles, value) for name, value in INITIAL.items()})

    def smoothed(self, samples: Quotas, elapsed_ms: int | Ints) -> Quotas:
        """After one more sample of every row, `elapsed_ms` after the last one."""
        return Quotas(
            {
                name: smooth(self.columns[name], samples.columns[name], *LIMITS[name], elapsed_ms)
                for name in VALUES
            }
        )


@dataclass(frozen=True, slots=True)
class Learned:
    """All that has been learned of a cluster: the quota of each of its bundles, that of a bundle of
    which nothing is known, the factors."""

    quotas: Quotas
    default: Mapping[str, float] = field(default_factory=INITIAL.copy)
    factors: Factors = Factors()

    @staticmethod
    def initial(bundles: int) -> Learned:
        """Before the first report."""
        return Learned(Quotas.initial(bundles))


@dataclass(frozen=True, slots=True)
class BundleFigures:
    """What reports say of bundles, one row each: rates, throughputs, and topics, producers and
    consumers together."""

    rate_in: Floats
    rate_out: Floats
    throughput_in: Floats
    throughput_out: Floats
    connections: Ints

    def samples(self, factors: Factors) -> Quotas:
        """As samples for the quotas."""
        return Quotas(
            {
                "rate_in": self.rate_in,
                "rate_out": self.rate_out,
                "bandwidth_in": self.throughput_in,
                "bandwidth_out": self.throughput_out,
                "memory": groups(self.connections) * factors.memory,
            }
        )


def groups(connections: Ints) -> Floats:
    """How many groups' memory each bundle takes: at least one."""
    return (1 + connections // GROUP).astype(np.float64)


def smooth(
    old: Floats, sample: Floats, least: float, most: float, elapsed_ms: int | Ints
) -> Floats:
    """(1 - weight) * old + weight * sample, the sample brought within its limits; the weight is the
    elapsed part of the time it takes."""
    wanted = np.clip(sample, least, most)
    weight = np.clip(elapsed_ms / np.where(wanted >= old, RISE_MS, FALL_MS), 0.0, 1.0)
    return (1.0 - weight) * old + weight * wanted


def default_quota(
    old: Mapping[str, float], figures: BundleFigures, factors: Factors, elapsed_ms: int
) -> dict[str, float]:
    """The quota of bundles that nobody has reported yet: follows the mean over all bundles, once
    there are enough of them."""
    bundles = len(figures.connections)
    if bundles <= LEAST_BUNDLES:
        return dict(old)
    means = {
        name: float(column.sum() / bundles)
        for name, column in figures.samples(factors).columns.items()
    }
    return {name: _smooth_one(old[name], means[name], LIMITS[name], elapsed_ms) for name in VALUES}


def learned(
    old: Factors, figures: BundleFigures, cpu_percent: float, memory_mb: float, elapsed_ms: int
) -> Factors:
    """The factors after one more look at the whole cluster: all brokers' cpu usage (percent of a
    core) and memory usage (MB)."""
    rate = float((figures.rate_in + figures.rate_out).sum())
    all_groups = float(groups(figures.connections).sum())
    if rate <= LEAST_RATE or all_groups <= LEAST_GROUPS:
        return old
    return Factors(
        _smooth_one(old.cpu, cpu_percent / rate, CPU_FACTOR_LIMITS, elapsed_ms),
        _smooth_one(old.memory, memory_mb / all_groups, MEMORY_FACTOR_LIMITS, elapsed_ms),
    )


def _smooth_one(old: float, sample: float, limits: tuple[float, float], elapsed_ms: int) -> float:
    return float(smooth(np.array([old]), np.array([sample]), *limits, elapsed_ms)[0])


def allocated(
    quotas: Quotas, owner: NDArray[np.integer], brokers: int, factors: Factors
) -> dict[str, Floats]:
    """Sums of its bundles' quotas for each broker 0..brokers-1 (owner -1: nobody's), and the cpu
    that their rates cost."""
    owned = owner >= 0
    sums: dict[str, Floats] = {
        name: np.bincount(owner[owned], column[owned], brokers).astype(np.float64)
        for name, column in quotas.columns.items()
    }
    return sums | {"cpu": (sums["rate_in"] + sums["rate_out"]) * factors.cpu}
