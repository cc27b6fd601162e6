"""The averages once more, one number at a time and straight from the JSON: what the tables must
hold. Uses nothing of lb_stream.

Rates messages/s, throughputs bytes/s, times ms (append time in Kafka), usages ratios 0..1.
"""

import copy
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

FOUR = ("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut")
RESOURCES = ("cpu", "directMemory", "bandwidthIn", "bandwidthOut")
WEIGHTS = {"cpu": 1.0, "directMemory": 0.0, "bandwidthIn": 1.0, "bandwidthOut": 1.0}
MOST_SAMPLES = {"short": 10, "long": 1000}
AN_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Record:
    """One record of the reports topic."""

    partition: int
    offset: int
    append_ms: int
    cluster: str
    broker: str
    value: bytes


@dataclass
class Broker:
    """What is kept of a broker: its last report that counted."""

    value: bytes
    report: dict[str, Any]
    reported_ms: int


@dataclass
class Bundle:
    """A bundle's owner and averages; the defaults are what it has before its first sample."""

    owner: str | None = None
    since_ms: int = 0
    topics: int = 0
    latest: list[float] = field(default_factory=lambda: [0.0] * 4)
    samples: dict[str, int] = field(default_factory=lambda: {"short": 0, "long": 0})
    average: dict[str, list[float]] = field(
        default_factory=lambda: {span: [50_000.0, 50_000.0, 50.0, 50.0] for span in MOST_SAMPLES}
    )

    def sample(self, stats: Mapping[str, Any]) -> None:
        """Take one sample into both averages."""
        self.topics, self.latest = stats["topics"], [stats[name] for name in FOUR]
        for span, most in MOST_SAMPLES.items():
            n = self.samples[span] = min(self.samples[span] + 1, most)
            self.average[span] = [
                ((n - 1) * v + s) / n for v, s in zip(self.average[span], self.latest, strict=True)
            ]


@dataclass
class Cluster:
    """One cluster, record by record."""

    bundle_retention_ms: int
    brokers: dict[str, Broker] = field(default_factory=dict)
    bundles: dict[str, Bundle] = field(default_factory=dict)
    samples: int = 0
    repeated: int = 0
    refused: list[tuple[int, int]] = field(default_factory=list)  # partition, offset of old reports
    forgotten: list[str] = field(default_factory=list)

    def batch(self, records: Iterable[Record], now_ms: int) -> bool:
        """Take one micro-batch; whether it brought a new sample.

        Within a batch records count by append time, partition, offset.
        """
        before, owned = (
            self.samples,
            {name for name, bundle in self.bundles.items() if bundle.owner is not None},
        )
        for record in sorted(
            records, key=lambda record: (record.append_ms, record.partition, record.offset)
        ):
            self._take(record)
        for name, bundle in list(self.bundles.items()):
            late = now_ms - bundle.since_ms >= self.bundle_retention_ms
            if (
                bundle.owner is None and name not in owned and late
            ):  # a round must have seen that it is nobody's
                del self.bundles[name]
                self.forgotten.append(name)
        return self.samples > before

    def _take(self, record: Record) -> None:
        report, last = json.loads(record.value), self.brokers.get(record.broker)
        same_life = last is not None and last.report["startTimestamp"] == report["startTimestamp"]
        if same_life and 0 < last.report["lastUpdate"] - report["lastUpdate"] < AN_HOUR_MS:
            self.refused.append((record.partition, record.offset))
            return
        self.brokers[record.broker] = Broker(record.value, report, record.append_ms)
        for name in report["lastStats"]:
            self._own(name, record.broker, record.append_ms)
        for name, bundle in self.bundles.items():
            if bundle.owner == record.broker and name not in report["lastStats"]:
                self._own(name, None, record.append_ms)
        if last and last.value == record.value:
            self.repeated += 1
            return
        self.samples += 1
        for name, stats in report["lastStats"].items():
            self.bundles[name].sample(stats)

    def _own(self, name: str, owner: str | None, at_ms: int) -> None:
        bundle = self.bundles.setdefault(name, Bundle())
        if bundle.owner != owner:
            bundle.owner, bundle.since_ms = owner, at_ms

    def sums(self, broker: str, span: str) -> list[float]:
        """A broker's four sums over its bundles, added in the order of their names."""
        total = [0.0] * 4
        for name in sorted(self.bundles):
            bundle = self.bundles[name]
            if bundle.owner == broker:
                values = bundle.latest if span == "latest" else bundle.average[span]
                total = [one + other for one, other in zip(total, values, strict=True)]
        return total

    def copied(self) -> "Cluster":
        """As it is now."""
        return copy.deepcopy(self)


def single(value: float) -> float:
    """Rounded to single precision."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def percent(usage: float, limit: float) -> float:
    """100 · usage / limit, every step in single precision."""
    return single(single(single(usage) / single(limit)) * 100.0) if limit > 0 else 0.0


def throughput(report: Mapping[str, Any]) -> float:
    """Bytes/s in and out."""
    return float(report["msgThroughputIn"] + report["msgThroughputOut"])


def is_split(cluster: Cluster, name: str) -> bool:
    """Whether a bundle that has a broker, or lost it later, overlaps the range of this one, which
    has none."""
    namespace, _, cut = name.rpartition("/")
    lower, upper = (int(bound, 16) for bound in cut.split("_"))
    since_ms = cluster.bundles[name].since_ms if name in cluster.bundles else None
    for other, bundle in cluster.bundles.items():
        later = since_ms is not None and bundle.since_ms > since_ms
        if other.rpartition("/")[0] != namespace or (bundle.owner is None and not later):
            continue
        begin, end = (int(bound, 16) for bound in other.rpartition("/")[2].split("_"))
        if begin < upper and lower < end:
            return True
    return False


def usages(cluster: Cluster, pending: Iterable[Mapping[str, Any]] = ()) -> dict[str, float]:
    """Each broker's greatest weighted usage, as it will be when the pending moves have been made.

    A bundle takes with it the part of its broker's usage that it has in its broker's throughput;
    what nobody owns comes as from the average broker, over those that carry anything. A bundle that
    has been split carries nothing.
    """
    reports = {name: cluster.brokers[name].report for name in sorted(cluster.brokers)}
    usage = {
        name: {resource: report[resource]["usage"] for resource in RESOURCES}
        for name, report in reports.items()
    }
    arrivals = []
    for move in pending:
        bundle = cluster.bundles.get(
            move["bundle"], Bundle()
        )  # on its way: known, though its retention may be over
        busy = (
            [report for report in reports.values() if throughput(report) > 0]
            if bundle.owner is None
            else [reports[bundle.owner]]
        )
        carried = sum(map(throughput, busy)) / len(busy) if busy else 0.0
        share = (
            min((bundle.average["short"][0] + bundle.average["short"][1]) / carried, 1.0)
            if carried > 0
            else 0.0
        )
        if bundle.owner is None and is_split(cluster, move["bundle"]):
            share = 0.0
        for resource in RESOURCES:
            amount = (
                share * (sum(max(report[resource]["usage"], 0.0) for report in busy) / len(busy))
                if busy
                else 0.0
            )
            if bundle.owner is not None:
                usage[bundle.owner][resource] -= amount
            if move["destination"] in usage:
                arrivals.append((move["destination"], resource, amount))
    for broker, resource, amount in arrivals:
        usage[broker][resource] += amount
    greatest = {}
    for name, report in reports.items():
        moved = {
            resource: max(usage[name][resource], 0.0)
            if report[resource]["usage"] > 0
            else usage[name][resource]
            for resource in RESOURCES
        }
        greatest[name] = (
            max(
                percent(moved[resource], report[resource]["limit"]) * WEIGHTS[resource]
                for resource in RESOURCES
            )
            / 100.0
        )
    return greatest
