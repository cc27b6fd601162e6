"""The records of one decoding task: reports, the columns of their samples, and events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lb_stream.contracts.base import canonical_json
from lb_stream.core.model.topic_shares import pack_shares
from lb_stream.stream.admission import summarise_records
from lb_stream.stream.columns.reading import WholeReport
from lb_stream.stream.records import (
    BUNDLE_EXPECTED,
    RecordRejected,
    ReportRecord,
)
from lb_stream.stream.report_names import check_names
from lb_stream.stream.report_samples import ReportSamples
from lb_stream.stream.rows import ClusterEvent, RecordPosition

LONGEST_SHOWN = 200
"""Characters of a rejected value, and of each text about it, that are kept."""


class _Source(NamedTuple):
    """The source of a report: the cluster's number, the broker, the record's position."""

    cluster: int
    broker: str
    position: RecordPosition


@dataclass(slots=True)
class PartitionRecords:
    """The records of one task: columns that grow with each record, and the tables made of them.

    `clusters`: name → number, which counts only here. `reports`: rows of REPORT_SCHEMA, and
    `sources` where each comes from. `samples`: of all reports' bundles. `events` and `heartbeats`:
    with the cluster's number; of a broker only the last heartbeat.
    `fanned_out`: commands of single clusters that were made of commands to all clusters.
    `answered`: commands that are rejected, and answered.
    `max_rejected`: rejected records of a cluster that are listed; 0: all. `rejected`: how many each
    cluster has. `unlisted` and `surplus`: how many of them, and of the records that storms have too
    much, have no event of their own, with the position of the last one.
    """

    max_rejected: int = 0
    clusters: dict[str, int] = field(default_factory=dict)
    reports: list[dict[str, object]] = field(default_factory=list)
    sources: list[_Source] = field(default_factory=list)
    samples: ReportSamples = field(default_factory=ReportSamples)
    events: list[tuple[int, ClusterEvent]] = field(default_factory=list)
    heartbeats: dict[tuple[int, str], ClusterEvent] = field(default_factory=dict)
    fanned_out: int = 0
    answered: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    unlisted: dict[str, tuple[int, RecordPosition]] = field(default_factory=dict)
    surplus: dict[str, tuple[int, RecordPosition]] = field(default_factory=dict)

    def number(self, cluster: str) -> int:
        """Return the cluster's number, a new one for a new cluster."""
        return self.clusters.setdefault(cluster, len(self.clusters))

    def add_report(
        self, cluster: str, report: ReportRecord, digest: bytes, position: RecordPosition
    ) -> None:
        """Add a load report that is taken. `digest`: of its bytes."""
        names = pa.array([*report.stats, *report.unmeasured], pa.string())
        shares: dict[int, bytes] = {}
        if report.topic_shares:
            places = {name: at for at, name in enumerate(chain(report.stats, report.unmeasured))}
            for name, (hashes, share) in report.topic_shares.items():
                shares[places[name]] = pack_shares(position["append_ms"], hashes, share)
        checked = check_names(cluster, report.broker, names)
        self.samples.add(len(self.reports), checked, report.stats.values(), shares)
        self._add_own_fields(cluster, report, digest, position)

    def add_columns(self, cluster: str, report: WholeReport, position: RecordPosition) -> None:
        """Add a columnar report that is taken."""
        shares = {
            name: pack_shares(position["append_ms"], hashes, share)
            for name, (hashes, share) in report.own.topic_shares.items()
        }
        self.samples.add_columns(len(self.reports), report.roster.names, report.columns, shares)
        self._add_own_fields(cluster, report.own, report.digest, position)

    def _add_own_fields(
        self, cluster: str, report: ReportRecord, digest: bytes, position: RecordPosition
    ) -> None:
        """Add the row of a report, and the rejection of its topics' shares if they are wrong."""
        if report.wrong_shares is not None:
            self.reject(cluster, report.broker, report.wrong_shares, position)
        self.reports.append({"name": report.broker, "digest": digest, **report.fields, **position})
        self.sources.append(_Source(self.number(cluster), report.broker, position))

    def add_event(
        self, cluster: str, kind: str, broker: str, payload: str, position: RecordPosition
    ) -> None:
        """Add an event of a cluster.

        All records of a broker are in one partition, in order: its last heartbeat says all. A
        signed heartbeat that is no later than the one before is a copy, for the fold to find.
        """
        event: ClusterEvent = {"kind": kind, "broker": broker, "payload": payload, **position}
        number = self.number(cluster)
        if kind == "heartbeat":
            last = self.heartbeats.get((number, broker))
            is_copy = last is not None and (
                event.get("signed_us", 0) <= last.get("signed_us", 0) != 0
            )
            if not is_copy:
                self.heartbeats[number, broker] = event
                return
        self.events.append((number, event))

    def reject(
        self, cluster: str, broker: str, rejection: RecordRejected, position: RecordPosition
    ) -> None:
        """Add a record that is not taken."""
        self.rejected[cluster] += 1
        if self.max_rejected and self.rejected[cluster] > self.max_rejected:
            _add_more(self.unlisted, cluster, 1, position)
        else:
            self._list_rejected(cluster, broker, rejection, position)

    def add_surplus(self, cluster: str, count: int, position: RecordPosition) -> None:
        """Count records of a storm that are not read. `position`: of one of them."""
        _add_more(self.surplus, cluster, count, position)

    def summarise_rejected(self, per_second: int) -> None:
        """Add an event for the rejected records of each cluster that have none of their own.

        `per_second`: records of one kind that a broker may send within a second.
        """
        for cluster, (count, position) in self.unlisted.items():
            expected = f"{self.max_rejected} rejected records at most (admission.rejected_rows)"
            summary = RecordRejected("records", summarise_records(count), expected)
            self._list_rejected(cluster, "", summary, position)
        for cluster, (count, position) in self.surplus.items():
            expected = (
                f"{per_second} records of one kind by one broker within a second "
                "(admission.records_per_second): of more, the newest counts"
            )
            summary = RecordRejected("records", summarise_records(count), expected)
            self._list_rejected(cluster, "", summary, position)

    def _list_rejected(
        self, cluster: str, broker: str, rejection: RecordRejected, position: RecordPosition
    ) -> None:
        payload = to_payload(describe_rejection(rejection))
        unsigned = position.copy()
        unsigned.pop("signed_us", None)  # only records that count may make later ones copies
        self.add_event(cluster, "rejected", broker[:LONGEST_SHOWN], payload, unsigned)

    def take_samples(self, sharded: Set[int]) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return the samples of all reports, and the rows of the reports that are taken.

        Reports that name a malformed bundle are rejected. Samples are rows of SAMPLE_SCHEMA in the
        order of the reports. `sharded`: the clusters with several shards; samples of these have the
        hashes of their names in the column HASH.
        """
        clusters = list(self.clusters)
        malformed = dict(self.samples.malformed())
        for row, name in malformed.items():
            cluster, broker, position = self.sources[row]
            rejection = RecordRejected("bundle", name, BUNDLE_EXPECTED)
            self.reject(clusters[cluster], broker, rejection, position)
        hashed = {row for row, source in enumerate(self.sources) if source.cluster in sharded}
        kept = [row for row in range(len(self.reports)) if row not in malformed]
        return self.samples.to_table(malformed, hashed), np.array(kept, np.int64)


def _add_more(
    counts: dict[str, tuple[int, RecordPosition]],
    cluster: str,
    count: int,
    position: RecordPosition,
) -> None:
    before = counts[cluster][0] if cluster in counts else 0
    counts[cluster] = before + count, position


def describe_rejection(rejection: RecordRejected) -> dict[str, str]:
    """Return field, value and expectation of a rejection, each cut to LONGEST_SHOWN characters."""
    texts = {"field": rejection.field, "value": rejection.value, "expected": rejection.expected}
    return {name: text[:LONGEST_SHOWN] for name, text in texts.items()}


def to_payload(content: object) -> str:
    """Return canonical JSON that Arrow can hold: half a surrogate pair becomes a question mark."""
    return canonical_json(content).encode(errors="replace").decode()
