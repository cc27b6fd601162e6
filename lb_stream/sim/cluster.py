"""The model of a cluster: which broker owns which bundle, what load that means, and what each broker reports.

No clock and no chance of its own: the time is an argument (ms since the epoch), measurement noise is drawn from the seed. The
same calls in the same order give the same reports. Rates messages/s, throughputs bytes/s.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from lb_stream.core.model.names import parse_bundle
from lb_stream.core.splitting import SplitRejected, cut
from lb_stream.sim.workload import Workload, workload

BUNDLES_PER_NAMESPACE = 4  # Pulsar's default for a new namespace
MEAN_USAGE = 0.25
"""Cpu usage of an average broker under base load: a broker three times as busy still has room."""


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic of a bundle or a broker."""

    rate_in_msgs_per_s: float = 0.0
    rate_out_msgs_per_s: float = 0.0
    throughput_in_bytes_per_s: float = 0.0
    throughput_out_bytes_per_s: float = 0.0

    @property
    def rate_msgs_per_s(self) -> float:
        """Both ways."""
        return self.rate_in_msgs_per_s + self.rate_out_msgs_per_s

    @property
    def throughput_bytes_per_s(self) -> float:
        """Both ways."""
        return self.throughput_in_bytes_per_s + self.throughput_out_bytes_per_s

    @staticmethod
    def total(loads: Iterable[Load]) -> Load:
        """The sum, added in the given order."""
        rate_in = rate_out = throughput_in = throughput_out = 0.0
        for load in loads:
            rate_in += load.rate_in_msgs_per_s
            rate_out += load.rate_out_msgs_per_s
            throughput_in += load.throughput_in_bytes_per_s
            throughput_out += load.throughput_out_bytes_per_s
        return Load(rate_in, rate_out, throughput_in, throughput_out)


@dataclass(frozen=True, slots=True)
class BundleProfile:
    """What a bundle carries under base load: messages in, their size, and how many consumers get each of them."""

    name: str
    rate_in_msgs_per_s: float
    message_bytes: float
    fan_out: float
    topics: int = 4
    producers: int = 4
    consumers: int = 8

    def load(self, factor: float = 1.0) -> Load:
        """Traffic at `factor` times the base load, to a thousandth: reports stay readable."""
        rate_in = round(self.rate_in_msgs_per_s * factor, 3)
        rate_out = round(rate_in * self.fan_out, 3)
        return Load(rate_in, rate_out, round(rate_in * self.message_bytes, 3), round(rate_out * self.message_bytes, 3))

    def parts(self, names: Sequence[str], edges: Sequence[float]) -> list[BundleProfile]:
        """What the bundles between neighbouring edges (0..1) carry of this one. Topics and clients are whole and add up."""

        def between(count: int, low: float, high: float) -> int:
            return round(count * high) - round(count * low)

        return [
            replace(
                self,
                name=name,
                rate_in_msgs_per_s=self.rate_in_msgs_per_s * (high - low),
                topics=between(self.topics, low, high),
                producers=between(self.producers, low, high),
                consumers=between(self.consumers, low, high),
            )
            for name, (low, high) in zip(names, pairwise(edges), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class BrokerProfile:
    """A broker and what it can carry: either capacity alone would take the whole cpu."""

    name: str
    cores: int = 8
    nic_kbit_per_s: float = 1_000_000.0
    throughput_capacity_bytes_per_s: float = 320e6
    rate_capacity_msgs_per_s: float = 320e3
    heap_mib: int = 4096
    direct_mib: int = 8192

    def cpu_ratio(self, load: Load) -> float:
        """Usage of the cpu, 0..1: a broker that is asked for more than it has is full."""
        return min(1.0, self.demand_ratio(load))

    def demand_ratio(self, load: Load) -> float:
        """What part of the cpu the load asks for; above 1 it asks for more than there is."""
        bytes_share = load.throughput_bytes_per_s / self.throughput_capacity_bytes_per_s
        return bytes_share + load.rate_msgs_per_s / self.rate_capacity_msgs_per_s


@dataclass(slots=True)
class Broker:
    """One broker's state. `reported` is what its last report named."""

    profile: BrokerProfile
    noise: random.Random
    owned: set[str] = field(default_factory=set)
    reported: frozenset[str] = frozenset()
    reported_ms: int = 0


class SimCluster:
    """All brokers of one cluster. Ownership is each broker's own word: nothing here keeps two from owning one bundle."""

    def __init__(
        self,
        brokers: Iterable[BrokerProfile],
        bundles: Iterable[BundleProfile],
        load: Workload,
        start_ms: int,
        seed: int = 1,
        noise_ratio: float = 0.01,
    ) -> None:
        """`noise_ratio` is the standard deviation of what a bundle's load is measured as, relative to the load."""
        self.brokers = {profile.name: Broker(profile, random.Random(f"noise:{seed}:{profile.name}")) for profile in brokers}
        self.bundles = {profile.name: profile for profile in bundles}
        self.start_ms, self.noise_ratio = start_ms, noise_ratio
        self._load = load
        self._number = {name: number for number, name in enumerate(self.bundles)}

    def owns(self, broker: str, bundle: str) -> bool:
        """Whether the broker serves the bundle."""
        return bundle in self.brokers[broker].owned

    def release(self, broker: str, bundle: str) -> None:
        """The broker stops serving a bundle. Raises KeyError when it does not serve it."""
        self.brokers[broker].owned.remove(bundle)

    def acquire(self, broker: str, bundle: str) -> None:
        """The broker serves a bundle from now on. One of a new namespace is idle: no topic, no traffic.

        Raises KeyError for a bundle that the cluster does not have, of a namespace that it has.
        """
        if bundle not in self.bundles:
            self._add_idle(bundle)
        self.brokers[broker].owned.add(bundle)

    def _add_idle(self, bundle: str) -> None:
        new = parse_bundle(bundle)
        same = [parsed for parsed in map(parse_bundle, self.bundles) if parsed.namespace == new.namespace]
        if any(old.lower < new.upper and new.lower < old.upper for old in same):
            raise KeyError(bundle)
        self.bundles = self.bundles | {bundle: BundleProfile(bundle, 0.0, 1024.0, 1.0, topics=0, producers=0, consumers=0)}
        self._number |= {bundle: len(self._number)}

    def split(self, broker: str, bundle: str, boundaries: Sequence[int] = ()) -> None:
        """The broker serves a bundle's children instead of it: cut at the boundaries, or into halves. The bundle is no more.

        Each child carries the part of its load, topics and clients that its range is of the bundle's, and moves with the same workload.
        Raises KeyError for a bundle that is not served here, ValueError for boundaries that are not strictly inside it.
        """
        parent = parse_bundle(bundle)
        found = cut(parent, boundaries or (parent.lower + (parent.upper - parent.lower) // 2,))
        if isinstance(found, SplitRejected):
            raise ValueError(found.detail)
        self.release(broker, bundle)
        for other in self.brokers.values():
            other.owned.discard(bundle)
        edges = [(bound - parent.lower) / (parent.upper - parent.lower) for bound in (parent.lower, *found.boundaries, parent.upper)]
        children = dict(zip(found.children, self.bundles[bundle].parts(found.children, edges), strict=True))
        self._number |= dict.fromkeys(children, self._number[bundle])
        self.bundles = {name: profile for name, profile in self.bundles.items() if name != bundle} | children
        self.brokers[broker].owned |= set(children)

    def owners(self) -> dict[str, list[str]]:
        """Bundle → the brokers that serve it: one each, unless it is on its way or something is wrong."""
        found: dict[str, list[str]] = {bundle: [] for bundle in self.bundles}
        for name, broker in self.brokers.items():
            for bundle in broker.owned:
                found[bundle].append(name)
        return found

    def bundle_load(self, bundle: str, now_ms: int) -> Load:
        """A bundle's true traffic."""
        elapsed_s = max(0.0, (now_ms - self.start_ms) / 1000)
        return self.bundles[bundle].load(self._load(self._number[bundle], elapsed_s))

    def loads(self, now_ms: int) -> dict[str, Load]:
        """Every broker's true traffic."""
        return {
            name: Load.total(self.bundle_load(bundle, now_ms) for bundle in sorted(broker.owned)) for name, broker in self.brokers.items()
        }

    def measure(self, broker: str, now_ms: int) -> dict[str, Load]:
        """Owned bundle → its traffic as the broker measures it, names in order."""
        state = self.brokers[broker]
        elapsed_s = max(0.0, (now_ms - self.start_ms) / 1000)
        measured = {}
        for bundle in sorted(state.owned):
            factor = self._load(self._number[bundle], elapsed_s) * max(0.0, state.noise.gauss(1.0, self.noise_ratio))
            measured[bundle] = self.bundles[bundle].load(factor)
        return measured

    def note_report(self, broker: str, now_ms: int) -> tuple[list[str], list[str], int]:
        """A report is being made: (bundles gained, bundles lost since the last one, its time, which never goes back)."""
        state = self.brokers[broker]
        gained, lost = sorted(state.owned - state.reported), sorted(state.reported - state.owned)
        state.reported, state.reported_ms = frozenset(state.owned), max(now_ms, state.reported_ms)
        return gained, lost, state.reported_ms


def max_over_mean(throughputs: Iterable[float]) -> float:
    """How uneven brokers are: the greatest throughput over the mean. 1 when all are equal, or nothing flows."""
    values = list(throughputs)
    total = sum(values)
    return max(values) * len(values) / total if total > 0 else 1.0


def build_cluster(
    brokers: int = 6, bundles: int = 96, workload_name: str = "hot_spot", seed: int = 1, start_ms: int = 0, at_s: float = 0.0
) -> SimCluster:
    """A cluster whose bundles are dealt to its brokers in turn, four to a namespace, and differ by chance.

    Sizes are such that an average broker's cpu is at 25 % under base load, whatever the numbers are.
    """
    chance = random.Random(f"cluster:{seed}")
    broker_profiles = [BrokerProfile(f"broker-{number + 1}:8080") for number in range(brokers)]
    shapes = [(chance.uniform(0.6, 1.4), chance.choice((768.0, 1024.0, 1280.0)), chance.choice((1.0, 2.0, 3.0))) for _ in range(bundles)]
    names = bundle_names(bundles)
    rough = Load.total(BundleProfile(name, *shape).load() for name, shape in zip(names, shapes, strict=True))
    scale = MEAN_USAGE * brokers / max(broker_profiles[0].demand_ratio(rough), 1e-12)
    bundle_profiles = [
        BundleProfile(name, rate * scale, size, fan_out, chance.randint(2, 12), chance.randint(2, 8), chance.randint(2, 16))
        for name, (rate, size, fan_out) in zip(names, shapes, strict=True)
    ]
    cluster = SimCluster(broker_profiles, bundle_profiles, workload(workload_name, brokers, bundles, seed, at_s), start_ms, seed)
    for number, name in enumerate(names):
        cluster.brokers[broker_profiles[number % brokers].name].owned.add(name)
    return cluster


def bundle_names(count: int) -> list[str]:
    """`shop/app-07/0x40000000_0x80000000` and so on: four even ranges in each namespace; the last namespace may have fewer."""
    names = []
    for first in range(0, count, BUNDLES_PER_NAMESPACE):
        ranges = min(BUNDLES_PER_NAMESPACE, count - first)
        bounds = [2**32 // ranges * number for number in range(ranges)] + [0xFFFFFFFF]
        namespace = f"shop/app-{first // BUNDLES_PER_NAMESPACE + 1:02d}"
        names += [f"{namespace}/0x{low:08x}_0x{high:08x}" for low, high in pairwise(bounds)]
    return names
