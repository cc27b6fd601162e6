"""Pulsar's broker monitor: a broker's table at every change, all brokers' every minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

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
    from kafka.consumer.fetcher import ConsumerRecord

    from lb_stream.contracts.columnar import ReportReader

OVERVIEW_INTERVAL_S = 60.0

Key = tuple[str, str]
"""A cluster and a broker of it."""


@dataclass(frozen=True, slots=True)
class BrokerFormat:
    """How a cluster's brokers are shown. `extensible`: a broker's table once a minute only."""

    usage_profile: UsageProfile = "4.0"
    extensible: bool = False


@dataclass(frozen=True, slots=True)
class BrokerAverages:
    """A broker in the tables: its averages, whether it is alive, and its last record (ms)."""

    short: Four
    long: Four
    alive: bool
    seen_ms: int


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A broker's report, or its goodbye (an empty value), and the time of its append.

    `caught_up`: all records that the topic held at the beginning came before.
    """

    key: Key
    value: bytes
    append_ms: int
    caught_up: bool


ReportChange = Literal["gained", "changed", "lost"]


@dataclass(slots=True)
class ClassicMonitor:
    """The brokers' last reports, and tables of them. Nothing is read or printed here."""

    find_format: Callable[[str], BrokerFormat]  # of a cluster
    _averages: Mapping[Key, BrokerAverages] = field(default_factory=dict)
    _last: dict[Key, BrokerRecord] = field(default_factory=dict)
    _reports: dict[Key, ModularLoadReport | SimpleLoadReport] = field(default_factory=dict)

    def take(self, record: BrokerRecord) -> ReportChange | None:
        """Note a record. Returns what has changed. None: nothing, or it can't be read."""
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

    def update_averages(self, averages: Mapping[Key, BrokerAverages]) -> list[Key]:
        """Take averages of the tables. Returns the lost brokers: dead, without a record since."""
        self._averages = averages
        return [
            key
            for key, last in list(self._last.items())
            if key in averages
            and not averages[key].alive
            and last.append_ms <= averages[key].seen_ms
            and self._forget(key)
        ]

    def _forget(self, key: Key) -> ReportChange | None:
        self._last.pop(key, None)
        return None if self._reports.pop(key, None) is None else "lost"

    def table(self, key: Key) -> list[str]:
        """Return the heading and the table of a broker."""
        report, form = self._reports[key], self.find_format(key[0])
        if isinstance(report, SimpleLoadReport):
            return [f"Load Report for {self._name(key)}:", *simple_table(report)]
        known = self._averages.get(key)
        short, long = (known.short, known.long) if known else (None, None)
        table = (
            extensible_table(report, report.num_bundles, _latest(report), form.usage_profile)
            if form.extensible
            else modular_table(report, short, long, form.usage_profile)
        )
        return [f"Broker Data for {self._name(key)}:", *table]

    def shown_at_change(self, key: Key) -> bool:
        """Return whether a broker's table is shown at every change; else it is every minute."""
        is_simple = isinstance(self._reports[key], SimpleLoadReport)
        return is_simple or not self.find_format(key[0]).extensible

    def overview(self) -> list[str]:
        """Return the tables of extensible brokers, and the table of all brokers."""
        lines = [
            line
            for key in sorted(self._reports)
            if not self.shown_at_change(key)
            for line in self.table(key)
        ]
        return [*lines, *all_brokers_table([self._row(key) for key in sorted(self._reports)])]

    def brokers(self) -> list[Key]:
        """Return the brokers that have reported, sorted."""
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
        latest, known = _latest(report), self._averages.get(key)
        return BrokerRow(
            self._name(key),
            report.num_bundles,
            latest.rate_in + latest.rate_out,
            None if known is None else known.long.rate_in + known.long.rate_out,
            latest.throughput_in + latest.throughput_out,
            max_percent(report, self.find_format(key[0]).usage_profile),
        )

    def _name(self, key: Key) -> str:
        """Return a broker's name, with its cluster's where there are several."""
        return shown(
            key[1] if len({cluster for cluster, _ in self._reports}) == 1 else "/".join(key)
        )


def read_report(value: bytes) -> ModularLoadReport | SimpleLoadReport | None:
    """Read a load report, modular or simple. None: it is neither (see table rejected_reports)."""
    import msgspec

    from lb_stream.contracts.reports import REPORT_KINDS, find_report_kind

    try:
        fields = msgspec.json.decode(value)
        kind = find_report_kind(fields) if isinstance(fields, dict) else None
        return REPORT_KINDS[kind].model_validate(fields) if kind in REPORT_KINDS else None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _latest(report: ModularLoadReport) -> Four:
    return Four(
        report.msg_throughput_in, report.msg_throughput_out, report.msg_rate_in, report.msg_rate_out
    )


def read_reports(
    options: Mapping[str, object],
    topic: str,
    since_ms: int,
    default_cluster: str,
    cluster: str | None,
) -> Iterator[BrokerRecord | None]:
    """Yield the topic's reports since a time, then every new one, endlessly.

    None is yielded when there is nothing new.
    """
    from lb_stream.contracts.columnar import ReportReader
    from lb_stream.io.kafka.reading import POLL_MS, open_topic, seek_since

    columnar = ReportReader()
    with open_topic(options, topic) as (consumer, partitions):
        ends = seek_since(consumer, partitions, since_ms)
        caught_up = False
        while True:
            for polled in consumer.poll(timeout_ms=POLL_MS).values():
                for record in polled:
                    parsed = _parse_record(record, default_cluster, caught_up, columnar)
                    if parsed is not None and cluster in (None, parsed.key[0]):
                        yield parsed
            caught_up = caught_up or all(
                consumer.position(partition) >= end for partition, end in ends.items()
            )
            if caught_up:
                yield None


def _parse_record(
    record: ConsumerRecord, default_cluster: str, caught_up: bool, columnar: ReportReader
) -> BrokerRecord | None:
    """Parse a report or a goodbye. None: the record is of another kind, or names no broker.

    `columnar`: has the rosters and bases that were read before.
    """
    from lb_stream.contracts.arrow_stream import ColumnarError
    from lb_stream.contracts.columnar import COLUMNAR_KINDS

    cluster, _, broker = (record.key or b"").decode(errors="replace").rpartition("/")
    kind = dict(record.headers or ()).get("kind", b"report").decode(errors="replace")
    if not broker or kind not in ("report", "goodbye", *COLUMNAR_KINDS):
        return None
    value = b"" if kind == "goodbye" else record.value or b""
    if kind in COLUMNAR_KINDS:
        try:
            found = columnar.take(record.key or b"", kind, value)
        except ColumnarError:  # the job lists it in rejected_reports
            return None
        if found is None:
            return None
        value = found
    return BrokerRecord((cluster or default_cluster, broker), value, record.timestamp, caught_up)


def follow_reports(
    monitor: ClassicMonitor,
    given: Iterator[BrokerRecord | None],
    read_averages: Callable[[], Mapping[Key, BrokerAverages]],
    print_table: Callable[[list[str]], None],
    print_note: Callable[[str], None],
    once: bool,
) -> None:
    """Print each broker's table and that of all brokers. Unless `once`, go on endlessly.

    Then a broker's table is printed at every change, and that of all brokers every minute.
    `print_table` prints a table's lines, `print_note` a broker that is gained or lost.
    """
    shown_s: float | None = None
    for record in given:
        # what the record changes
        change = None if record is None else monitor.take(record)
        if record is not None and record.caught_up and change is not None:
            if change != "changed":
                print_note(f"broker {change}: {'/'.join(record.key)}")
            if change != "lost" and monitor.shown_at_change(record.key):
                print_table(monitor.table(record.key))
        # all brokers, once the topic has nothing new and the last overview is old enough
        is_recent = shown_s is not None and time.monotonic() - shown_s < OVERVIEW_INTERVAL_S
        if record is not None or is_recent:
            continue
        for key in monitor.update_averages(read_averages()):
            print_note(shown(f"broker lost: {'/'.join(key)}"))
        if shown_s is None:
            for key in monitor.brokers():
                if monitor.shown_at_change(key):
                    print_table(monitor.table(key))
        print_table(monitor.overview())
        shown_s = time.monotonic()
        if once:
            return
