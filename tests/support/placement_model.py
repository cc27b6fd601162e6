"""Placement once more, from the rules in words: one broker at a time, names and dicts only.

Uses nothing of the core.

Loads are ratios, rates messages/s, bandwidths kbit/s where a broker measures them and bytes/s in
quotas.
"""

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

VALUES = ("rate_in", "rate_out", "bandwidth_in", "bandwidth_out", "memory")
Policy = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], int]
"""Regular expressions of namespaces, primary hosts and secondary hosts, and the least number of
primaries."""


@dataclass
class Broker:
    """One broker as it reports."""

    usage: Mapping[str, tuple[float, float]] = field(
        default_factory=dict
    )  # resource → usage, limit
    topics: int = 0
    persistent: bool = True
    non_persistent: bool = True
    version: str = "4.0.7"
    manager: str = "modular"
    alive: bool = True


@dataclass
class Cluster:
    """All that placement looks at."""

    brokers: dict[str, Broker]
    owners: dict[str, str | None]  # bundle → broker
    policies: tuple[Policy, ...] = ()
    groups: dict[str, str] = field(default_factory=dict)  # namespace → anti-affinity group
    domains: dict[str, str] = field(default_factory=dict)  # broker → failure domain
    non_persistent: frozenset[str] = frozenset()
    domains_enabled: bool = False
    evenly: bool = True
    max_topics: int = 50_000
    later_versions: bool = False
    manager: str = "modular"
    own_counts: bool = True  # in an anti-affinity group, as in the reference; else only others

    def bundles_of(self, broker: str, namespace: str) -> int:
        return sum(
            owner == broker and namespace_of(bundle) == namespace
            for bundle, owner in self.owners.items()
        )


def namespace_of(bundle: str) -> str:
    return bundle.rpartition("/")[0]


class FilterFailed(Exception):
    """A version is missing or none."""


def by_policies(cluster: Cluster, bundle: str, brokers: Iterable[str]) -> set[str]:
    """§4.1."""
    namespace = namespace_of(bundle)
    policy = next(
        (
            policy
            for policy in cluster.policies
            if any(re.fullmatch(name, namespace) for name in policy[0])
        ),
        None,
    )
    if policy is not None:
        primaries = {name for name in brokers if _any(policy[1], name)}
        secondaries = {name for name in brokers if _any(policy[2], name)} - primaries
        return primaries | secondaries if len(primaries) < policy[3] else primaries
    shared = {
        name for name in brokers if not any(_any(policy[1], name) for policy in cluster.policies)
    }
    if namespace in cluster.non_persistent:
        return {name for name in shared if cluster.brokers[name].non_persistent}
    return {name for name in shared if cluster.brokers[name].persistent}


def _any(patterns: Iterable[str], broker: str) -> bool:
    return any(re.fullmatch(pattern, broker[: broker.rindex(":")]) for pattern in patterns)


def by_group(
    cluster: Cluster, bundle: str, brokers: set[str], count: Mapping[str, int] | None
) -> set[str]:
    """§4.3."""
    if count is None or not brokers:
        return brokers
    if cluster.domains_enabled and cluster.domains:
        total: dict[str, int] = {}
        for name in brokers if cluster.own_counts else count:
            domain = cluster.domains.get(name, "default")
            total[domain] = total.get(domain, 0) + count[name]
        least = min(total[cluster.domains.get(name, "default")] for name in brokers)
        brokers = {name for name in brokers if total[cluster.domains.get(name, "default")] == least}
    least = min(count[name] for name in brokers)
    return {name for name in brokers if count[name] == least}


def group_count(cluster: Cluster, bundle: str) -> dict[str, int] | None:
    """Broker → what counts there of the bundle's group; None outside of any group.

    Namespaces are counted; under the extensible manager bundles.
    """
    group = cluster.groups.get(namespace_of(bundle))
    if group is None:
        return None
    count = {}
    for broker in cluster.brokers:
        mine = [namespace_of(name) for name, owner in cluster.owners.items() if owner == broker]
        mine = [
            namespace
            for namespace in mine
            if cluster.groups.get(namespace, "").lower() == group.lower()
        ]
        if not cluster.own_counts:
            mine = [namespace for namespace in mine if namespace != namespace_of(bundle)]
        count[broker] = len(mine) if cluster.manager == "extensible" else len(set(mine))
    return count


def by_version(cluster: Cluster, brokers: set[str]) -> set[str]:
    """§4.6, for versions that are three numbers and perhaps `-SNAPSHOT`."""
    if not cluster.later_versions:
        return brokers
    keys = {}
    for name in brokers:
        match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(-SNAPSHOT)?", cluster.brokers[name].version)
        if match is None:
            raise FilterFailed
        keys[name] = (*map(int, match.group(1, 2, 3)), match.group(4) is None)
    if not keys:
        raise FilterFailed
    return {name for name in brokers if keys[name] == max(keys.values())}


def candidates(cluster: Cluster, bundle: str) -> set[str]:
    """Who is ranked by the strategy: §3 and §4."""
    alive = {name for name, broker in cluster.brokers.items() if broker.alive}
    count = group_count(cluster, bundle)
    if cluster.manager == "extensible":
        left = {name for name in alive if cluster.brokers[name].manager == "extensible"}
        left = {name for name in left if not cluster.brokers[name].topics >= cluster.max_topics}
        with suppress(FilterFailed):
            left = by_version(cluster, left)
        if cluster.own_counts:
            return by_policies(cluster, bundle, by_group(cluster, bundle, left, count))
        return by_group(cluster, bundle, by_policies(cluster, bundle, left), count)
    allowed = by_policies(cluster, bundle, alive)
    if cluster.manager == "simple":
        return _fewest(cluster, bundle, allowed)
    left = {
        name for name in allowed if cluster.brokers[name].topics <= cluster.max_topics
    } or allowed
    left = by_group(cluster, bundle, left, count)
    if cluster.evenly or namespace_of(bundle) == "pulsar/system":
        left = _fewest(cluster, bundle, left)
    left = {name for name in left if cluster.brokers[name].manager == "modular"}
    try:
        left = by_version(cluster, left)
    except FilterFailed:
        left = allowed
    return left or allowed


def _fewest(cluster: Cluster, bundle: str, brokers: set[str]) -> set[str]:
    counts = {name: cluster.bundles_of(name, namespace_of(bundle)) for name in brokers}
    return {name for name in brokers if counts[name] == min(counts.values())}


def unload_helps(cluster: Cluster, bundle: str, current: str) -> bool:
    """§6."""
    count = group_count(cluster, bundle)
    if count is None or (cluster.own_counts and not any(count.values())):
        return True
    allowed = by_policies(
        cluster, bundle, [name for name, broker in cluster.brokers.items() if broker.alive]
    )
    if not cluster.own_counts:
        return any(count[name] <= count[current] for name in allowed if name != current)
    if not allowed:
        return False
    least = min(count[name] for name in allowed)
    own = count[current] if current in allowed else 0
    if least == 0 or own > least:
        return True
    return not all(count[name] == least for name in allowed)


@dataclass
class Quota:
    """What a bundle is expected to cost."""

    rate_in: float = 40.0
    rate_out: float = 120.0
    bandwidth_in: float = 100_000.0
    bandwidth_out: float = 300_000.0
    memory: float = 80.0

    @staticmethod
    def total(quotas: Iterable["Quota"]) -> "Quota":
        total = Quota(0.0, 0.0, 0.0, 0.0, 0.0)
        for quota in quotas:
            for name in VALUES:
                setattr(total, name, getattr(total, name) + getattr(quota, name))
        return total


@dataclass
class SimpleManager:
    """§5.6: three strategies. `preallocated` is what this manager itself has placed."""

    cluster: Cluster
    quotas: dict[str, Quota]
    default: Quota = field(default_factory=Quota)
    cpu_factor: float = 0.025
    underloaded: float = 50.0
    overloaded: float = 85.0
    cursor: int = 0
    preallocated: dict[str, list[str]] = field(default_factory=dict)

    def percents(self, broker: str) -> dict[str, float]:
        """Estimated load of each resource, 0..100."""
        loaded = Quota.total(
            self.quotas[bundle] for bundle, owner in self.cluster.owners.items() if owner == broker
        )
        coming = Quota.total(self.quotas[bundle] for bundle in self.preallocated.get(broker, ()))
        parts = {
            "cpu": (
                (loaded.rate_in + loaded.rate_out) * self.cpu_factor,
                (coming.rate_in + coming.rate_out) * self.cpu_factor,
            ),
            "memory": (loaded.memory, coming.memory),
            "bandwidth_in": (loaded.bandwidth_in / 128, coming.bandwidth_in / 128),
            "bandwidth_out": (loaded.bandwidth_out / 128, coming.bandwidth_out / 128),
        }
        percents = {}
        for name, (allocated, more) in parts.items():
            used, limit = self.cluster.brokers[broker].usage[name]
            percents[name] = (
                min(100.0, 100.0 * (max(used, allocated) + more) / limit) if limit > 0 else 0.0
            )
        used, limit = self.cluster.brokers[broker].usage["direct_memory"]
        percents["direct_memory"] = min(100.0, 100.0 * used / limit) if limit > 0 else 0.0
        return percents

    def load(self, broker: str) -> float:
        return max(self.percents(broker).values())

    def rate(self, broker: str) -> float:
        mine = [
            bundle for bundle, owner in self.cluster.owners.items() if owner == broker
        ] + self.preallocated.get(broker, [])
        return sum(self.quotas[bundle].rate_in + self.quotas[bundle].rate_out for bundle in mine)

    def capacity(self, broker: str) -> int:
        limit = {name: pair[1] for name, pair in self.cluster.brokers[broker].usage.items()}
        rooms = (
            limit["cpu"] / self.cpu_factor / (self.default.rate_in + self.default.rate_out),
            limit["memory"] / self.default.memory,
            limit["bandwidth_in"] * 128 / self.default.bandwidth_in,
            limit["bandwidth_out"] * 128 / self.default.bandwidth_out,
        )
        return max(0, int(min(rooms)))

    def is_idle(self, broker: str) -> bool:
        return broker not in self.cluster.owners.values() and not self.preallocated.get(broker)

    def ranked(self, brokers: Iterable[str], strategy: str) -> list[str]:
        """In the order of their rank, then by name."""
        rank = {
            name: math.trunc(
                self.load(name) if strategy == "leastLoadedServer" else self.rate(name)
            )
            for name in brokers
        }
        return sorted(brokers, key=lambda name: (rank[name], name))

    def lower(self, one: str, other: str) -> bool:
        """Whether `one` beats `other` by the rule of five points."""
        left, right = self.percents(one), self.percents(other)
        left["load"], right["load"] = max(left.values()), max(right.values())
        for name in ("load", "memory", "cpu", "bandwidth_in", "bandwidth_out"):
            if abs(left[name] - right[name]) > 5:
                return left[name] < right[name]
        return left["load"] < right["load"]

    def place(self, bundle: str, strategy: str) -> str | None:
        """leastLoadedServer or leastMsgPerSecond; counts the choice."""
        brokers = self.ranked(candidates(self.cluster, bundle), strategy)
        if not brokers:
            return None
        selected = idle = None
        for name in brokers:
            if self.is_idle(name):
                idle = idle or name
            elif selected is None or (
                self.lower(name, selected)
                if strategy == "leastLoadedServer"
                else self.rate(name) < self.rate(selected)
            ):
                selected = name
        chosen = selected
        bounded = strategy == "leastLoadedServer"
        if selected is None or (self.load(selected) > self.underloaded and idle is not None):
            chosen = idle
        elif bounded and self.load(selected) >= 100:
            chosen = brokers[self.cursor % len(brokers)]
        elif bounded and self.load(selected) > self.overloaded:
            chosen = max(
                brokers, key=lambda name: int(self.capacity(name) * (100 - self.load(name)) / 100)
            )
        self.cursor += 1
        assert chosen is not None
        self.preallocated.setdefault(chosen, []).append(bundle)
        return chosen

    def weights(self, bundle: str) -> dict[str, int]:
        """weightedRandomSelection: the room of each candidate."""
        return {
            name: int(
                self.capacity(name)
                * ((100 - self.load(name)) / 100)
                * ((100 - self.load(name)) / 100)
            )
            for name in sorted(candidates(self.cluster, bundle))
        }
