"""What `fold` must come to, written as plainly as possible: one record after another, one bundle
after another.

Follows docs/strategies.md "Figures" and docs/architecture.md "Behaviour in detail". Shares no code
with the columnar fold but the names of its columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.rates import RATE_COLUMNS
from tests.support.build import Event, Report, four

HOUR_MS = 3_600_000


@dataclass
class Average:
    """One average: 50 msg/s and 50 000 bytes/s before its first sample."""

    most: int
    samples: int = 0
    values: list[float] = field(default_factory=lambda: [50_000.0, 50_000.0, 50.0, 50.0])

    def take(self, sample: Iterable[float]) -> None:
        self.samples = min(self.samples + 1, self.most)
        n = float(self.samples)
        self.values = [
            ((n - 1.0) * value + new) / n for value, new in zip(self.values, sample, strict=True)
        ]


@dataclass
class Bundle:
    short: Average
    long: Average
    owner: str | None = None
    owner_since_ms: int = 0
    reported_ms: int = 0
    owner_before: str | None = None  # at the start of the batch
    owner_forgotten: bool = False  # in this batch
    latest: BundleStats = field(default_factory=BundleStats)


@dataclass
class Broker:
    last: Report
    seen_ms: int
    heartbeats: bool = False
    left: bool = False
    sampled: bool = False


@dataclass
class Model:
    """A shard by the definition."""

    config: FoldConfig
    brokers: dict[str, Broker] = field(default_factory=dict)
    bundles: dict[str, Bundle] = field(default_factory=dict)
    refused: list[Report] = field(default_factory=list)

    def batch(self, records: Iterable[Report | Event], now_ms: int) -> None:
        """Take one batch's records, in the order in which they count."""
        for broker in self.brokers.values():
            broker.sampled = False
        for bundle in self.bundles.values():
            bundle.owner_before, bundle.owner_forgotten = bundle.owner, False
        for record in records:
            if isinstance(record, Report):
                self._report(record)
            else:
                self._event(record)
        self._forget(now_ms)

    def _event(self, event: Event) -> None:
        broker = self.brokers.get(event.broker)
        if broker is not None:
            broker.seen_ms = max(broker.seen_ms, event.append_ms)
            broker.heartbeats |= event.kind == "heartbeat"
            broker.left = event.kind == "goodbye"

    def _report(self, report: Report) -> None:
        broker = self.brokers.get(report.broker)
        if broker is not None:
            broker.seen_ms = max(broker.seen_ms, report.append_ms)
            behind = _last_update(broker.last) - _last_update(report)
            if broker.last.start_timestamp_ms == report.start_timestamp_ms and 0 < behind < HOUR_MS:
                self.refused.append(report)
                return
        is_new = broker is None or _content(broker.last) != _content(report)
        broker = self.brokers.setdefault(report.broker, Broker(report, report.append_ms))
        broker.last, broker.left, broker.sampled = report, False, broker.sampled or is_new
        for name, stats in report.bundles.items():
            bundle = self.bundles.setdefault(
                name, Bundle(Average(self.config.short_samples), Average(self.config.long_samples))
            )
            if bundle.owner != report.broker:
                bundle.owner, bundle.owner_since_ms = report.broker, report.append_ms
            bundle.reported_ms = report.append_ms
            if is_new and stats is not None:
                bundle.latest = stats
                bundle.short.take(four(stats))
                bundle.long.take(four(stats))
        for name, bundle in self.bundles.items():
            if bundle.owner == report.broker and name not in report.bundles:
                bundle.owner, bundle.owner_since_ms = None, report.append_ms

    def _forget(self, now_ms: int) -> None:
        for name in [
            name
            for name, broker in self.brokers.items()
            if now_ms - broker.seen_ms >= self.config.broker_retention_ms
        ]:
            del self.brokers[name]
            for bundle in self.bundles.values():
                if bundle.owner == name:
                    bundle.owner, bundle.owner_since_ms, bundle.owner_forgotten = None, now_ms, True
        for name, bundle in [*self.bundles.items()]:
            retention_ms = self.config.bundle_retention_ms
            lost_now = (
                bundle.owner_before is not None or bundle.owner_forgotten
            )  # a round must see that first
            if (
                bundle.owner is None
                and now_ms - bundle.owner_since_ms >= retention_ms
                and not (lost_now and retention_ms)
            ):
                del self.bundles[name]

    def bundle_rows(self) -> list[dict[str, Any]]:
        """In the form of `bundle_rows` below."""
        return [
            {
                "name": name,
                "owner": bundle.owner,
                "owner_since_ms": bundle.owner_since_ms,
                "reported_ms": bundle.reported_ms,
                "gained": bundle.owner != bundle.owner_before or bundle.owner_forgotten,
                "topics": bundle.latest.topics,
                "latest": list(four(bundle.latest)),
                "short": [bundle.short.samples, *bundle.short.values],
                "long": [bundle.long.samples, *bundle.long.values],
            }
            for name, bundle in sorted(self.bundles.items())
        ]

    def broker_rows(self) -> list[dict[str, Any]]:
        """In the form of `broker_rows` below."""
        return [
            {
                "name": name,
                "seen_ms": broker.seen_ms,
                "reported_ms": broker.last.append_ms,
                "heartbeats": broker.heartbeats,
                "left": broker.left,
                "sampled": broker.sampled,
                "cpu_usage": float(broker.last.resources.get("cpu", (0.0, 0.0))[0]),
            }
            for name, broker in sorted(self.brokers.items())
        ]


def _content(report: Report) -> str:
    return (
        f"{report.append_ms}/{report.at}/{report.broker}"
        if report.content is None
        else report.content
    )


def _last_update(report: Report) -> int:
    return report.append_ms if report.last_update_ms is None else report.last_update_ms


def bundle_rows(shards: Iterable[Shard]) -> list[dict[str, Any]]:
    """The bundles of some shards by name, owners by name."""
    rows = []
    for shard in shards:
        names = shard.brokers["name"].to_pylist()
        for row in shard.bundles.to_pylist():
            averages = {
                span: [row[f"{span}_samples"], *(row[f"{span}_{value}"] for value in RATE_COLUMNS)]
                for span in ("short", "long")
            }
            kept = {
                name: row[name]
                for name in ("name", "owner_since_ms", "reported_ms", "gained", "topics")
            }
            owner = None if row["owner"] < 0 else names[row["owner"]]
            rows.append(
                kept
                | averages
                | {"owner": owner, "latest": [row[f"latest_{value}"] for value in RATE_COLUMNS]}
            )
    return sorted(rows, key=lambda row: row["name"])


def broker_rows(shard: Shard) -> list[dict[str, Any]]:
    """The brokers of a shard."""
    columns = ["name", "seen_ms", "reported_ms", "heartbeats", "left", "sampled", "cpu_usage"]
    return shard.brokers.select(columns).to_pylist()
