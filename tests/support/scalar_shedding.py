"""Plain implementations, one number after the other, of what has no recorded decisions: written
from the specification."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lb_stream.contracts.reports import BundleStats

MB = 1024 * 1024


@dataclass
class PlainBroker:
    """One broker's last report. Resources as (usage, limit)."""

    resources: dict[str, tuple[float, float]]
    bundles: dict[str, BundleStats] = field(default_factory=dict)

    def percent(self, name: str) -> float:
        """100 · usage / limit in single precision, 0 without a limit."""
        usage, limit = self.resources[name]
        return float(np.float32(usage) / np.float32(limit) * np.float32(100)) if limit > 0 else 0.0

    def usage(self) -> float:
        """Of the four resources with default weights (direct memory: 0)."""
        return (
            max(
                self.percent("cpu"),
                0.0 * self.percent("direct_memory"),
                self.percent("bandwidth_in"),
                self.percent("bandwidth_out"),
            )
            / 100
        )

    def throughput(self) -> float:
        """Bytes/s in and out."""
        return sum(bundle.msg_throughput_in for bundle in self.bundles.values()) + sum(
            bundle.msg_throughput_out for bundle in self.bundles.values()
        )


def both_ways(stats: BundleStats) -> float:
    return stats.msg_throughput_in + stats.msg_throughput_out


def heaviest_until(broker: PlainBroker, need: float, recently: set[str]) -> list[str]:
    """The heaviest bundles by throughput (by name where equal) until the need is met; at least
    one."""
    chosen, moved = [], 0.0
    for name in sorted(broker.bundles, key=lambda name: (-both_ways(broker.bundles[name]), name)):
        if name in recently:
            continue
        if moved < need or not chosen:
            chosen.append(name)
            moved += both_ways(broker.bundles[name])
    return chosen


@dataclass
class PlainRangeThreshold:
    """RangeThresholdShedder."""

    threshold: float
    history: float
    least_mb: float
    smoothed: dict[str, float] = field(default_factory=dict)

    def shed(self, brokers: dict[str, PlainBroker], recently: set[str]) -> dict[str, list[str]]:
        average = self._sample(brokers)
        if average == 0:
            return {}
        found = {}
        for name in sorted(brokers):
            if self.smoothed[name] < average + self.threshold:
                continue
            need = brokers[name].throughput() * (
                self.smoothed[name] - average - self.threshold + 0.05
            )
            if need < self.least_mb * MB or len(brokers[name].bundles) <= 1:
                continue
            found[name] = heaviest_until(brokers[name], need, recently)
        found = {name: chosen for name, chosen in found.items() if chosen}
        return found or self._below(brokers, recently)

    def _below(self, brokers: dict[str, PlainBroker], recently: set[str]) -> dict[str, list[str]]:
        average = self._sample(brokers)
        if not any(self.smoothed[name] < average - self.threshold for name in brokers):
            return {}
        highest = max(sorted(brokers), key=lambda name: self.smoothed[name])
        need = brokers[highest].throughput() * self.threshold
        if self.least_mb * MB > need or len(brokers[highest].bundles) <= 1:
            return {}
        chosen = heaviest_until(brokers[highest], need, recently)
        return {highest: chosen} if chosen else {}

    def _sample(self, brokers: dict[str, PlainBroker]) -> float:
        for name, broker in brokers.items():
            now = broker.usage()
            self.smoothed[name] = (
                self.smoothed[name] * self.history + (1 - self.history) * now
                if name in self.smoothed
                else now
            )
        total = 0.0
        for name in sorted(brokers):
            total += self.smoothed[name]
        return total / len(brokers)


def simple_manager_sheds(
    brokers: dict[str, PlainBroker],
    overloaded: float,
    comfort: float,
    recently: set[str],
    forbidden: set[tuple[str, str]],
) -> dict[str, list[str]]:
    """SimpleLoadManager's own shedding. `forbidden`: (bundle, broker) that policies rule out."""
    four = ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
    found = {}
    for name in sorted(brokers):
        broker = brokers[name]
        if (
            not any(broker.percent(resource) > overloaded for resource in four)
            or len(broker.bundles) <= 1
        ):
            continue
        bottleneck, greatest = "", -np.inf
        for resource in ("cpu", "memory", "bandwidth_in", "bandwidth_out"):
            if broker.percent(resource) > greatest:
                bottleneck, greatest = resource, broker.percent(resource)
        first = min(
            broker.bundles,
            key=lambda bundle: (-simple_weight(broker.bundles[bundle], bottleneck), bundle),
        )
        room = [
            other
            for other in brokers
            if other != name
            and all(brokers[other].percent(resource) < comfort for resource in four)
            and (first, other) not in forbidden
        ]
        if room and first not in recently:
            found[name] = [first]
    return found


def simple_weight(stats: BundleStats, bottleneck: str) -> int:
    if bottleneck == "cpu":
        return half_up((stats.msg_rate_in + stats.msg_rate_out) / 100)
    if bottleneck == "memory":
        return (stats.topics + stats.producer_count + stats.consumer_count) // 500
    return half_up(
        (stats.msg_throughput_in if bottleneck == "bandwidth_in" else stats.msg_throughput_out)
        / 100_000
    )


def half_up(value: float) -> int:
    whole = int(value // 1)
    return whole + 1 if value - whole >= 0.5 else whole


# --- quotas of the simple manager ---

QUOTA = {
    "rate_in": 40.0,
    "rate_out": 120.0,
    "bandwidth_in": 100_000.0,
    "bandwidth_out": 300_000.0,
    "memory": 80.0,
}


def quota_value(name: str, old: float, sample: float, elapsed_ms: float) -> float:
    if name.startswith("rate"):
        sample = max(sample, 5.0)
    elif name.startswith("bandwidth"):
        sample = min(max(sample, 10_000.0), 1_000_000.0)
    else:
        sample = min(max(sample, 2.0), 200.0)
    return followed(old, sample, elapsed_ms)


def followed(old: float, sample: float, elapsed_ms: float) -> float:
    minutes = 30 if sample >= old else 1440
    weight = min(max(elapsed_ms / (minutes * 60_000), 0.0), 1.0)
    return (1 - weight) * old + weight * sample


def quota_sample(stats: BundleStats, memory_factor: float) -> dict[str, float]:
    return {
        "rate_in": stats.msg_rate_in,
        "rate_out": stats.msg_rate_out,
        "bandwidth_in": stats.msg_throughput_in,
        "bandwidth_out": stats.msg_throughput_out,
        "memory": plain_groups(stats) * memory_factor,
    }


def plain_groups(stats: BundleStats) -> int:
    return 1 + (stats.topics + stats.producer_count + stats.consumer_count) // 500


def factors_after(
    cpu: float,
    memory: float,
    bundles: list[BundleStats],
    cpu_used: float,
    memory_used: float,
    elapsed_ms: int,
) -> tuple[float, float]:
    rate = sum(bundle.msg_rate_in + bundle.msg_rate_out for bundle in bundles)
    groups = sum(plain_groups(bundle) for bundle in bundles)
    if rate <= 1000 or groups <= 30:
        return cpu, memory
    return (
        followed(cpu, min(max(cpu_used / rate, 0.01), 0.1), elapsed_ms),
        followed(memory, min(max(memory_used / groups, 10.0), 50.0), elapsed_ms),
    )
