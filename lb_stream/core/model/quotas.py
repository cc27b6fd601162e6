"""Quotas: the load that the simple manager expects of each bundle, learned from reports.

See docs/placement.md "The simple manager's three".

Rates are messages/s, bandwidths bytes/s, memory MB, times ms. A quota follows its samples fast
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
"""Time after which a sample above the quota counts in full."""
FALL_MS = 1_440 * 60_000
"""Time after which a sample below the quota counts in full."""
GROUP = 500
"""Topics, producers and consumers are counted in groups of this size."""

VALUES = ("rate_in", "rate_out", "bandwidth_in", "bandwidth_out", "memory")
"""The parts of a quota."""
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
    """The cost of a message rate in cpu, and of a group of connections in memory."""

    cpu: float = 0.025  # percent of a core for each msg/s
    memory: float = 25.0  # MB for each group


@dataclass(frozen=True, slots=True)
class Quotas:
    """Quotas of bundles: a row for each bundle, a column for each of VALUES."""

    columns: Mapping[str, Floats]

    @staticmethod
    def initial(bundles: int) -> Quotas:
        """Return the quotas of bundles before their first report."""
        return Quotas({name: np.full(bundles, value) for name, value in INITIAL.items()})

    def smoothed(self, samples: Quotas, elapsed_ms: int | Ints) -> Quotas:
        """Return the quotas after one more sample of every row, `elapsed_ms` after the last."""
        return Quotas(
            {
                name: smooth(self.columns[name], samples.columns[name], *LIMITS[name], elapsed_ms)
                for name in VALUES
            }
        )


@dataclass(frozen=True, slots=True)
class Learned:
    """Everything that the simple manager has learned of a cluster."""

    quotas: Quotas
    default: Mapping[str, float] = field(default_factory=INITIAL.copy)  # of an unreported bundle
    factors: Factors = Factors()

    @staticmethod
    def initial(bundles: int) -> Learned:
        """Return the values before the first report."""
        return Learned(Quotas.initial(bundles))


@dataclass(frozen=True, slots=True)
class BundleFigures:
    """Reported figures of bundles, with a row for each."""

    rate_in: Floats
    rate_out: Floats
    throughput_in: Floats
    throughput_out: Floats
    connections: Ints  # topics, producers and consumers together

    def samples(self, factors: Factors) -> Quotas:
        """Return the figures as samples for quotas."""
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
    """Return how many groups' memory each bundle takes: at least one."""
    return (1 + connections // GROUP).astype(np.float64)


def smooth(
    old: Floats, sample: Floats, least: float, most: float, elapsed_ms: int | Ints
) -> Floats:
    """Return (1 - weight) * old + weight * sample, with the sample clipped to its limits.

    The weight is the elapsed part of RISE_MS or FALL_MS, at most 1.
    """
    wanted = np.clip(sample, least, most)
    weight = np.clip(elapsed_ms / np.where(wanted >= old, RISE_MS, FALL_MS), 0.0, 1.0)
    return (1.0 - weight) * old + weight * wanted


def default_quota(
    old: Mapping[str, float], figures: BundleFigures, factors: Factors, elapsed_ms: int
) -> dict[str, float]:
    """Return the quota of unreported bundles, which follows the mean over all bundles.

    It stays while there are too few bundles (LEAST_BUNDLES).
    """
    bundles = len(figures.connections)
    if bundles <= LEAST_BUNDLES:
        return dict(old)
    means = {
        name: float(column.sum() / bundles)
        for name, column in figures.samples(factors).columns.items()
    }
    return {name: _smooth_one(old[name], means[name], LIMITS[name], elapsed_ms) for name in VALUES}


def learn_factors(
    old: Factors, figures: BundleFigures, cpu_percent: float, memory_mb: float, elapsed_ms: int
) -> Factors:
    """Return the factors after one more sample of the whole cluster.

    `cpu_percent` (of a core) and `memory_mb`: used by all brokers together.
    """
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
    """Return the sums of quotas for each broker, and the cpu that their rates cost.

    `owner`: the broker 0..brokers-1 of each bundle; -1: unassigned, which counts nowhere.
    """
    owned = owner >= 0
    sums: dict[str, Floats] = {
        name: np.bincount(owner[owned], column[owned], brokers).astype(np.float64)
        for name, column in quotas.columns.items()
    }
    return sums | {"cpu": (sums["rate_in"] + sums["rate_out"]) * factors.cpu}
