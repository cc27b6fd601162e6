"""The broker monitor as documented: a broker's table whenever its record changes, all brokers every
minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from lb_stream.cli.monitor.documented_tables import (
    BrokerRow,
    Four,
    UsageProfile,
    all_brokers_table,
    extensible_table,
    max_percent,
    modular_table,
    simple_table,
)
from lb_stream.contracts.reports import ModularLoadReport, SimpleLoadReport
from lb_stream.io.messages.shown import shown

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition

OVERVIEW_EVERY_S = 60.0

Key = tuple[str, str]
"""A cluster and a broker of it."""


@dataclass(frozen=True, slots=True)
class BrokerFormat:
    """How a cluster's brokers are shown."""

    usage_profile: UsageProfile = "4.0"
    extensible: bool = False  # its brokers are shown all together, every minute


@dataclass(frozen=True, slots=True)
class BrokerAverages:
    """What the tables say of a broker: its averages, whether it lives, and when it was last heard
    of, ms since the epoch."""

    short: Four
    long: Four
    alive: bool
    seen_ms: int


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A broker's report, or its leaving (an empty value), and when it came.

    `caught_up`: what was there at the beginning came before.
    """

    key: Key
    value: bytes
    append_ms: int
    caught_up: bool


ReportChange = Literal["gained", "changed", "lost"]


@dataclass(slots=True)
class ClassicMonitor:
    """What the brokers last reported, and the tables that follow.

    Nothing is read or printed here. `manner` tells of a cluster.
    """

    manner: Callable[[str], BrokerFormat]
    _standing: Mapping[Key, BrokerAverages] = field(default_factory=dict)
    _last: dict[Key, BrokerRecord] = field(default_factory=dict)
    _reports: dict[Key, ModularLoadReport | SimpleLoadReport] = field(default_factory=dict)

    def take(self, record: BrokerRecord) -> ReportChange | None:
        """Note a record. None: nothing has changed, or it can't be read."""
        if not record.value:
            return self._forget(record.key)
        before = self._last.get(record.key)
        report = (
            read_report(record.value) if before is None or before.value != record.value else None
        )
        if before is not None:
            self._last[record.key] = replace(before, append_ms=record.append_ms)
        if report is None:
            return None
        self._last[record.key], self._reports[record.key] = record, report
        return "gained" if before is None else "changed"

    def learn(self, standing: Mapping[Key, BrokerAverages]) -> list[Key]:
        """Take what the tables say now.

        Returns the brokers that are lost by it: dead, and not heard of since.
        """
        self._standing = standing
        return [
            key
            for key, last in list(self._last.items())
            if key in standing
            and not standing[key].alive
            and last.append_ms <= standing[key].seen_ms
            and self._forget(key)
        ]

    def _forget(self, key: Key) -> ReportChange | None:
        self._last.pop(key, None)
        return None if self._reports.pop(key, None) is None else "lost"

    def table(self, key: Key) -> list[str]:
        """One broker's heading and table."""
        report, manner = self._reports[key], self.manner(key[0])
        if isinstance(report, SimpleLoadReport):
            return [f"Load Report for {self._name(key)}:", *simple_table(report)]
        known = self._standing.get(key)
        short, long = (known.short, known.long) if known else (None, None)
        table = (
            extensible_table(report, report.num_bundles, _latest(report), manner.usage_profile)
            if manner.extensible
            else modular_table(report, short, long, manner.usage_profile)
        )
        return [f"Broker Data for {self._name(key)}:", *table]

    def shown_at_change(self, key: Key) -> bool:
        """Whether the broker's table is printed when its record changes; else with those of all
        brokers."""
        return (
            isinstance(self._reports[key], SimpleLoadReport) or not self.manner(key[0]).extensible
        )

    def overview(self) -> list[str]:
        """The tables of extensible brokers, and that of all brokers."""
        lines = [
            line
            for key in sorted(self._reports)
            if not self.shown_at_change(key)
            for line in self.table(key)
        ]
        return [*lines, *all_brokers_table([self._row(key) for key in sorted(self._reports)])]

    def brokers(self) -> list[Key]:
        """All that have reported, sorted."""
        return sorted(self._reports)

    def _row(self, key: Key) -> BrokerRow:
        report = self._reports[key]
        if isinstance(report, SimpleLoadReport):
            stats, system = report.bundle_stats.values(), report.system_resource_usage
            rate = sum((stats.msg_rate_in + stats.msg_rate_out for stats in stats), 0.0)
            allocated = report.allocated_msg_rate_in + report.allocated_msg_rate_out
            throughput = system.bandwidth_in.usage + system.bandwidth_out.usage
            return BrokerRow(
                self._name(key), len(stats), rate, allocated, throughput, max_percent(system, "2.x")
            )
        latest, known = _latest(report), self._standing.get(key)
        return BrokerRow(
            self._name(key),
            report.num_bundles,
            latest.rate_in + latest.rate_out,
            None if known is None else known.long.rate_in + known.long.rate_out,
            latest.throughput_in + latest.throughput_out,
            max_percent(report, self.manner(key[0]).usage_profile),
        )

    def _name(self, key: Key) -> str:
        """The broker's, after its cluster's where there are several."""
        return shown(
            key[1] if len({cluster for cluster, _ in self._reports}) == 1 else "/".join(key)
        )


def read_report(value: bytes) -> ModularLoadReport | SimpleLoadReport | None:
    """A load report of either form; None for what is neither (the stream names it in
    rejected_reports)."""
    import msgspec

    from lb_stream.contracts.reports import REPORT_KINDS, report_kind

    try:
        fields = msgspec.json.decode(value)
        kind = report_kind(fields) if isinstance(fields, dict) else None
        return REPORT_KINDS[kind].model_validate(fields) if kind in REPORT_KINDS else None
    except (msgspec.DecodeError, UnicodeDecodeError, ValidationError):
        return None


def _latest(report: ModularLoadReport) -> Four:
    return Four(
        report.msg_throughput_in, report.msg_throughput_out, report.msg_rate_in, report.msg_rate_out
    )


def records(
    options: Mapping[str, Any], topic: str, since_ms: int, default_cluster: str, cluster: str | None
) -> Iterator[BrokerRecord | None]:
    """Reports on the topic since a time, then every new one, for ever.

    None now and then: nothing new, or all has been read.
    """
    from kafka import KafkaConsumer, TopicPartition

    from lb_stream.contracts.base import LARGEST_RECORD_BYTES

    fetch = {
        "max_partition_fetch_bytes": LARGEST_RECORD_BYTES,
        "fetch_max_bytes": 5 * LARGEST_RECORD_BYTES,
    }
    with closing(
        KafkaConsumer(
            **fetch | dict(options), isolation_level="read_committed", enable_auto_commit=False
        )
    ) as consumer:
        partitions = [
            TopicPartition(topic, number)
            for number in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(partitions)
        ends = _seek(consumer, partitions, since_ms)
        caught_up = False
        while True:
            for some in consumer.poll(timeout_ms=500).values():
                for record in some:
                    key = _key(record.key, default_cluster)
                    kind = dict(record.headers or ()).get("kind", b"report")
                    if (
                        key is not None
                        and cluster in (None, key[0])
                        and kind in (b"report", b"goodbye")
                    ):
                        yield BrokerRecord(
                            key,
                            record.value or b"" if kind == b"report" else b"",
                            record.timestamp,
                            caught_up,
                        )
            caught_up = caught_up or all(
                consumer.position(partition) >= end for partition, end in ends.items()
            )
            if caught_up:
                yield None


def _seek(
    consumer: KafkaConsumer, partitions: list[TopicPartition], since_ms: int
) -> dict[TopicPartition, int]:
    """Go to the first record at or after a time in each partition. Returns where each ends now."""
    ends: dict[TopicPartition, int] = consumer.end_offsets(partitions)
    found = consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
    for partition in partitions:
        consumer.seek(
            partition, found[partition].offset if found.get(partition) else ends[partition]
        )
    return ends


def _key(key: bytes | None, default_cluster: str) -> Key | None:
    """Cluster and broker; None for a record that doesn't name its broker there."""
    cluster, _, broker = (key or b"").decode(errors="replace").rpartition("/")
    return (cluster or default_cluster, broker) if broker else None


def follow_reports(
    monitor: ClassicMonitor,
    given: Iterator[BrokerRecord | None],
    standing: Callable[[], Mapping[Key, BrokerAverages]],
    say: Callable[[list[str]], None],
    tell: Callable[[str], None],
    once: bool,
) -> None:
    """Print each broker's table and that of all; then, unless `once`, a broker's at every change
    and all brokers every minute, for ever.

    `say` takes lines of tables, `tell` what has happened (brokers gained and lost).
    """
    shown_s: float | None = None
    for record in given:
        change = None if record is None else monitor.take(record)
        if record is not None and record.caught_up and change is not None:
            if change != "changed":
                tell(f"broker {change}: {'/'.join(record.key)}")
            if change != "lost" and monitor.shown_at_change(record.key):
                say(monitor.table(record.key))
        if record is not None or (
            shown_s is not None and time.monotonic() - shown_s < OVERVIEW_EVERY_S
        ):
            continue
        for key in monitor.learn(standing()):
            tell(shown(f"broker lost: {'/'.join(key)}"))
        if shown_s is None:
            for key in monitor.brokers():
                if monitor.shown_at_change(key):
                    say(monitor.table(key))
        say(monitor.overview())
        shown_s = time.monotonic()
        if once:
            return
