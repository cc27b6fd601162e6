"""What one partition's records bring: reports, their samples as growing columns, events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple
from numpy.typing import NDArray

from lb_stream.contracts.base import canonical_json
from lb_stream.core.model.blocks import SAMPLE_SCHEMA
from lb_stream.core.model.names import BUNDLE_PATTERN
from lb_stream.stream.records import (
    LONGEST_BUNDLE,
    NO_STATS,
    STATS_FIELDS,
    RecordRejected,
    ReportRecord,
)

LONGEST_SHOWN = 200
"""Characters of a rejected value, and of each text about it, that are kept."""

_COLUMN_OF = {
    "latest_throughput_in_bytes_per_s": "msg_throughput_in",
    "latest_throughput_out_bytes_per_s": "msg_throughput_out",
    "latest_rate_in_msgs_per_s": "msg_rate_in",
    "latest_rate_out_msgs_per_s": "msg_rate_out",
    "topics": "topics",
    "producers": "producer_count",
    "consumers": "consumer_count",
    "cache_size_bytes": "cache_size",
}
_EXACT = 2.0**53
"""Up to here a float is as good as an integer."""


@dataclass(slots=True)
class PartitionRecords:
    """Columns that grow with each record, and the tables that they become."""

    clusters: dict[str, int] = field(default_factory=dict)  # name → number
    reports: list[dict[str, Any]] = field(default_factory=list)
    of_report: list[int] = field(default_factory=list)  # the cluster's number
    names: list[str] = field(default_factory=list)
    stats: list[Any] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # samples of each report
    unmeasured: int = 0  # samples without statistics
    events: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    heartbeats: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)

    def number(self, cluster: str) -> int:
        """The cluster's number, here only."""
        return self.clusters.setdefault(cluster, len(self.clusters))

    def add_report(
        self, cluster: str, report: ReportRecord, digest: bytes, position: Mapping[str, Any]
    ) -> None:
        """A report that is taken."""
        self.reports.append({"name": report.broker, "digest": digest, **report.fields, **position})
        self.of_report.append(self.number(cluster))
        self.names += report.stats
        self.names += report.unmeasured
        self.stats += report.stats.values()
        self.stats += [NO_STATS] * len(report.unmeasured)
        self.unmeasured += len(report.unmeasured)
        self.sizes.append(len(report.stats) + len(report.unmeasured))

    def add_event(
        self, cluster: str, kind: str, broker: str, payload: str, position: Mapping[str, Any]
    ) -> None:
        """Anything else that is news to a cluster.

        A partition's order is a broker's order: its last heartbeat tells all.
        """
        event = {"kind": kind, "broker": broker, "payload": payload, **position}
        if kind == "heartbeat":
            self.heartbeats[self.number(cluster), broker] = event
        else:
            self.events.append((self.number(cluster), event))

    def reject(
        self, cluster: str, broker: str, rejection: RecordRejected, position: Mapping[str, Any]
    ) -> None:
        """A record that can't be taken."""
        payload = (
            canonical_json(shown(rejection)).encode(errors="replace").decode()
        )  # JSON may hold half a surrogate pair, Arrow can't
        self.add_event(cluster, "rejected", broker[:LONGEST_SHOWN], payload, position)

    def samples(self) -> pa.Table:
        """One row of SAMPLE_SCHEMA for each bundle of each report."""
        count, width = len(self.names), len(STATS_FIELDS)
        numbers = np.fromiter(
            chain.from_iterable(map(astuple, self.stats)), np.float64, count * width
        ).reshape(count, width)
        columns: dict[str, Any] = {
            "name": pa.array(self.names, pa.string()),
            "report": np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes),
            "has_stats": np.fromiter(
                (stats is not NO_STATS for stats in self.stats), np.bool_, count
            )
            if self.unmeasured
            else np.ones(count, np.bool_),
        }
        for column, attribute in _COLUMN_OF.items():
            values = np.ascontiguousarray(numbers[:, STATS_FIELDS.index(attribute)])
            if pa.types.is_integer(SAMPLE_SCHEMA.field(column).type):
                exact = values.max(initial=0.0) < _EXACT
                values = (
                    values.astype(np.int64)
                    if exact
                    else np.array([getattr(stats, attribute) for stats in self.stats], np.int64)
                )
            columns[column] = values
        return pa.table(columns, schema=SAMPLE_SCHEMA)

    def without_malformed(self, samples: pa.Table) -> tuple[pa.Table, NDArray[np.int64]]:
        """Samples without those of reports that name a malformed bundle, and the rows of the
        reports that stay. The others are rejected."""
        names = samples["name"]
        lower, upper = pc.utf8_slice_codeunits(names, -21, -11), pc.utf8_slice_codeunits(names, -10)
        well_formed = pc.and_(
            pc.match_substring_regex(names, BUNDLE_PATTERN), pc.less(lower, upper)
        )
        good = (
            pc.and_(well_formed, pc.less_equal(pc.binary_length(names), LONGEST_BUNDLE))
            .to_numpy(zero_copy_only=False)
            .astype(np.bool_)
        )
        if good.all():
            return samples, np.arange(len(self.reports))
        of_report = samples["report"].to_numpy()
        bad_rows = np.flatnonzero(~good)
        bad_reports, first = np.unique(of_report[bad_rows], return_index=True)
        clusters = list(self.clusters)
        expected = (
            f"<tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH, L < H, at most {LONGEST_BUNDLE} bytes"
        )
        for report, row in zip(bad_reports.tolist(), bad_rows[first].tolist(), strict=True):
            given = self.reports[report]
            position = {name: given[name] for name in ("topic", "partition", "offset", "append_ms")}
            self.reject(
                clusters[self.of_report[report]],
                given["name"],
                RecordRejected("bundle", str(names[row].as_py()), expected),
                position,
            )
        kept = np.ones(len(self.reports), np.bool_)
        kept[bad_reports] = False
        return samples.filter(pa.array(kept[of_report])), np.flatnonzero(kept)


def shown(rejection: RecordRejected) -> dict[str, str]:
    """A rejection as the event's payload tells it."""
    given = {"field": rejection.field, "value": rejection.value, "expected": rejection.expected}
    return {name: text[:LONGEST_SHOWN] for name, text in given.items()}
