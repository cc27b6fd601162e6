"""The records of one decoding task: reports, their samples as growing columns, and events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import astuple
from numpy.typing import NDArray

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.columnar import ColumnarReport
from lb_stream.core.model.blocks import SAMPLE_SCHEMA
from lb_stream.core.model.names import are_bundle_names
from lb_stream.core.model.topic_shares import pack_shares
from lb_stream.stream.admission import summarise_records
from lb_stream.stream.columnar_samples import HASH, STATS_COLUMNS, ColumnarSamples
from lb_stream.stream.records import (
    BUNDLE_EXPECTED,
    LONGEST_BUNDLE,
    NO_STATS,
    STATS_FIELDS,
    RecordRejected,
    ReportRecord,
)
from lb_stream.stream.rosters import Roster
from lb_stream.stream.rows import ClusterEvent, RecordPosition

LONGEST_SHOWN = 200
"""Characters of a rejected value, and of each text about it, that are kept."""

_MAX_EXACT = 2.0**53
"""The largest integer up to which a float holds every integer exactly."""


class _Source(NamedTuple):
    """The source of a report: the cluster's number, the broker, the record's position."""

    cluster: int
    broker: str
    position: RecordPosition


@dataclass(slots=True)
class PartitionRecords:
    """The records of one task: columns that grow with each record, and the tables made of them.

    `clusters`: name → number, which counts only here. `reports`: rows of REPORT_SCHEMA, and
    `sources` where each comes from. `names` and `stats`: of all reports' bundles, one after
    another. `sizes`: how many bundles each report has. `unmeasured`: bundles without statistics.
    `topic_shares`: place in `names` → shares of that bundle's topics, packed; few have them.
    `columnar`: the samples of columnar reports, which have no bundles in `names`.
    `events` and `heartbeats`: with the cluster's number; of a broker only the last heartbeat.
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
    names: list[str] = field(default_factory=list)
    stats: list[msgspec.Struct] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    unmeasured: int = 0
    topic_shares: dict[int, bytes] = field(default_factory=dict)
    columnar: ColumnarSamples = field(default_factory=ColumnarSamples)
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
        if report.topic_shares:
            places = {name: at for at, name in enumerate(chain(report.stats, report.unmeasured))}
            for name, (hashes, share) in report.topic_shares.items():
                packed = pack_shares(position["append_ms"], hashes, share)
                self.topic_shares[len(self.names) + places[name]] = packed
        self._add_own_fields(cluster, report, digest, position)
        self.names += report.stats
        self.names += report.unmeasured
        self.stats += report.stats.values()
        self.stats += [NO_STATS] * len(report.unmeasured)
        self.unmeasured += len(report.unmeasured)
        self.sizes.append(len(report.stats) + len(report.unmeasured))

    def add_columns(
        self,
        cluster: str,
        report: ReportRecord,
        columns: ColumnarReport,
        roster: Roster,
        digest: bytes,
        position: RecordPosition,
    ) -> None:
        """Add a columnar report that is taken. `report`: the broker's own fields, without bundles.

        `roster`: the names of its rows.
        """
        shares = {
            name: pack_shares(position["append_ms"], hashes, share)
            for name, (hashes, share) in report.topic_shares.items()
        }
        self.columnar.add(len(self.reports), roster, columns, shares)
        self._add_own_fields(cluster, report, digest, position)
        self.sizes.append(0)

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

    def take_samples(self) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return the samples of all reports, and the rows of the reports that are taken.

        Samples are rows of SAMPLE_SCHEMA in the order of the reports. If some are of columnar
        reports, the column HASH has the hash of each name; -1: not known yet.
        """
        samples, kept = self.reject_malformed(self.samples())
        if not len(self.columnar):
            return samples, kept
        columnar = self.columnar.to_table()
        if not len(samples):
            return columnar, kept
        unknown = pa.array(np.full(len(samples), -1))
        joined = pa.concat_tables([samples.append_column(HASH, unknown), columnar])
        order = np.argsort(joined["report"].to_numpy(), kind="stable")
        return joined.take(pa.array(order)).combine_chunks(), kept

    def samples(self) -> pa.Table:
        """Return a row of SAMPLE_SCHEMA for each bundle of each JSON report."""
        count, width = len(self.names), len(STATS_FIELDS)
        numbers = np.fromiter(
            chain.from_iterable(map(astuple, self.stats)), np.float64, count * width
        ).reshape(count, width)
        has_stats = np.ones(count, np.bool_)
        if self.unmeasured:
            measured = (stats is not NO_STATS for stats in self.stats)
            has_stats = np.fromiter(measured, np.bool_, count)
        columns: dict[str, pa.Array | NDArray[Any]] = {
            "name": pa.array(self.names, pa.string()),
            "report": np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes),
            "has_stats": has_stats,
            "topic_shares": pa.nulls(count, pa.binary()),
        }
        if self.topic_shares:
            shares = [self.topic_shares.get(at) for at in range(count)]
            columns["topic_shares"] = pa.array(shares, pa.binary())
        for column, attribute in STATS_COLUMNS.items():
            values = np.ascontiguousarray(numbers[:, STATS_FIELDS.index(attribute)])
            if not pa.types.is_integer(SAMPLE_SCHEMA.field(column).type):
                columns[column] = values
            elif values.max(initial=0.0) < _MAX_EXACT:
                columns[column] = values.astype(np.int64)
            else:
                exact = [getattr(stats, attribute) for stats in self.stats]
                columns[column] = np.array(exact, np.int64)
        return pa.table(columns, schema=SAMPLE_SCHEMA)

    def reject_malformed(self, samples: pa.Table) -> tuple[pa.Table, NDArray[np.int64]]:
        """Reject the reports that name a malformed bundle.

        Returns the samples of the other reports, and the rows of those reports.
        """
        # The samples with a well-formed name.
        names = samples["name"]
        good = are_bundle_names(names, LONGEST_BUNDLE)
        if good.all():
            return samples, np.arange(len(self.reports))
        # The reports of the others, each with its first malformed name.
        of_report = samples["report"].to_numpy()
        bad_rows = np.flatnonzero(~good)
        bad_reports, first = np.unique(of_report[bad_rows], return_index=True)
        clusters = list(self.clusters)
        for report, row in zip(bad_reports.tolist(), bad_rows[first].tolist(), strict=True):
            cluster, broker, position = self.sources[report]
            rejection = RecordRejected("bundle", str(names[row].as_py()), BUNDLE_EXPECTED)
            self.reject(clusters[cluster], broker, rejection, position)
        kept = np.ones(len(self.reports), np.bool_)
        kept[bad_reports] = False
        return samples.filter(pa.array(kept[of_report])), np.flatnonzero(kept)


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
