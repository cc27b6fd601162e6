"""What one task has read → blocks: one row for each shard of each cluster that it has heard of, and how far it has read.

A report goes to all shards of its cluster, with the samples of that shard's bundles only. How far a task has read counts for all clusters:
it is told once to each partition of the next stage, under a cluster's name that is none and is sorted before all others. Clusters of which
nothing has come are called by the batch's first task alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lb_stream.contracts.base import canonical_json
from lb_stream.core.model.blocks import EVENT_SCHEMA, REPORT_SCHEMA, SAMPLE_SCHEMA, to_bytes
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.partition_records import LONGEST_SHOWN, PartitionRecords
from lb_stream.stream.shards.directory import NEW, ShardMap
from lb_stream.stream.shards.partition_keys import slots_of
from lb_stream.stream.shards.slicing import name_hashes

BLOCK_SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        ("slot", pa.int32()),  # the shard's key
        ("shard", pa.int32()),
        ("shards", pa.int32()),  # how many the cluster has
        ("known", pa.bool_()),  # it was a cluster of this pipeline when the batch began
        ("before", pa.string()),  # JSON: the blocks of all its shards, where that number has just changed
        ("leaving", pa.bool_()),  # the cluster is forgotten unless something is heard of it in this batch
        ("first", pa.string()),  # what this task has read first: rows of several tasks are taken in this order
        ("clock", pa.string()),  # JSON: what this task has read of each partition; in the rows of EVERYBODY only
        ("reports", pa.binary()),  # Arrow IPC of REPORT_SCHEMA; null: none
        ("samples", pa.binary()),
        ("stored", pa.string()),  # or where a block file holds the samples, when they are many
        ("events", pa.binary()),
    ]
)
BLOCK_DDL = (
    "cluster string, slot int, shard int, shards int, known boolean, before string, leaving boolean, first string, clock string, "
    "reports binary, samples binary, stored string, events binary"
)

EVERYBODY = ""
"""Stands for a cluster where a row is for all of them."""

STORED_BYTES = 16 << 10
"""Samples of a shard that are larger don't travel through Spark's shuffle: their way through its rows costs more than a file."""

MOST_STRANGERS = 100
"""Records rejected for clusters that nobody knows, of one task and batch, that are told one by one; of more only how many."""

BATCH_BYTES = 32 << 20
"""Blocks of about this size go out together."""


def clock_rows(clock: list[dict[str, Any]], partitions: int) -> pa.RecordBatch:
    """What a task has read, for each partition of the next stage. `clock`: of each Kafka partition first and last offset, append_ms."""
    common = {"cluster": EVERYBODY, "clock": canonical_json(clock)}
    slots = slots_of(EVERYBODY, partitions, partitions)
    return pa.RecordBatch.from_pylist([common | {"slot": slot} for slot in slots], BLOCK_SCHEMA)


def shard_blocks(
    taken: PartitionRecords, config: DecodeConfig, first: str, store: Callable[[pa.Table], str] | None
) -> Iterator[pa.RecordBatch]:
    """One row for each shard: all reports, heartbeats and goodbyes of its cluster, its own samples; all other events in shard 0 only."""
    samples, kept = taken.without_malformed(taken.samples()) if taken.reports else (SAMPLE_SCHEMA.empty_table(), np.empty(0, np.int64))
    strangers = _dismiss_strangers(taken, config, {taken.of_report[row] for row in kept.tolist()})
    tables = _sort(taken, kept, samples, config.known)
    rows: list[dict[str, Any]] = []
    size = 0
    silent = config.known.keys() if config.first else set[str]()
    for name in sorted((silent | taken.clusters.keys()) - strangers):
        for row in _rows(name, taken.clusters.get(name), tables, config, store):
            rows.append(row | {"first": first})
            size += sum(len(row[column] or b"") for column in ("reports", "samples", "events"))
            if size >= BATCH_BYTES:
                yield pa.RecordBatch.from_pylist(rows, BLOCK_SCHEMA)
                rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, BLOCK_SCHEMA)


@dataclass(frozen=True, slots=True)
class _Sorted:
    """What a partition brought, by cluster and shard; clusters by their numbers."""

    reports: pa.Table
    report_rows: list[tuple[int, int]]  # of each cluster
    samples: pa.Table  # their `report` counts within the cluster
    sample_rows: list[tuple[int, int]]  # of each shard
    first_shard: list[int]  # of each cluster, in `sample_rows`
    everywhere: dict[int, list[dict[str, Any]]]  # events that every shard of a cluster must see
    once: dict[int, list[dict[str, Any]]]  # events that are seen once

    def reports_of(self, number: int) -> pa.Table:
        begin, end = self.report_rows[number]
        return self.reports.slice(begin, end - begin)

    def samples_of(self, number: int, shard: int) -> pa.Table:
        begin, end = self.sample_rows[self.first_shard[number] + shard]
        return self.samples.slice(begin, end - begin)

    def events_of(self, number: int, shard: int) -> list[dict[str, Any]]:
        return self.everywhere.get(number, []) + (self.once.get(number, []) if shard == 0 else [])


def _rows(
    name: str, number: int | None, tables: _Sorted, config: DecodeConfig, store: Callable[[pa.Table], str] | None
) -> Iterator[dict[str, Any]]:
    """The rows of a cluster's shards; `number` None: nothing has come of it."""
    own = config.known.get(name, NEW)
    common: dict[str, Any] = {"cluster": name, "shards": own.shards, "known": name in config.known, "before": own.before}
    common |= {"leaving": own.leaving, "reports": None}
    if number is not None and len(reports := tables.reports_of(number)):
        common["reports"] = to_bytes(reports)
    for shard, slot in enumerate(slots_of(name, own.shards, config.partitions)):
        row = common | {"slot": slot, "shard": shard, "samples": None, "stored": None, "events": None}
        if number is not None:
            if row["reports"]:
                samples = tables.samples_of(number, shard)
                row |= {"stored": store(samples)} if store and samples.nbytes > STORED_BYTES else {"samples": to_bytes(samples)}
            events = tables.events_of(number, shard)
            row["events"] = to_bytes(pa.Table.from_pylist(events, EVENT_SCHEMA)) if events else None
        yield row


def _sort(taken: PartitionRecords, kept: NDArray[np.int64], samples: pa.Table, known: Mapping[str, ShardMap]) -> _Sorted:
    """`kept`: rows of the reports that stay, `samples`: theirs."""
    of_report = np.array(taken.of_report, np.int64)
    by_cluster = kept[np.argsort(of_report[kept], kind="stable")]  # a cluster's together
    reports = pa.Table.from_pylist([taken.reports[row] for row in by_cluster.tolist()], REPORT_SCHEMA)
    report_rows = _ranges(of_report[by_cluster], len(taken.clusters))
    shards = np.array([known.get(name, NEW).shards for name in taken.clusters], np.int64)
    first_shard = np.cumsum(shards) - shards
    samples, sample_rows = _by_shard(samples, of_report, first_shard, shards)
    place = np.zeros(len(of_report), np.int64)  # of a report among its cluster's
    begins = np.array([begin for begin, _ in report_rows], np.int64)
    place[by_cluster] = np.arange(len(by_cluster)) - begins[of_report[by_cluster]]
    renumbered = pa.array(place[samples["report"].to_numpy()], pa.int32())
    samples = samples.set_column(1, SAMPLE_SCHEMA.field("report"), renumbered)
    return _Sorted(reports, report_rows, samples, sample_rows, first_shard.tolist(), *_events(taken))


def _dismiss_strangers(taken: PartitionRecords, config: DecodeConfig, reporting: set[int]) -> set[str]:
    """Find the names that are no clusters': not known, and without a report that is taken (of those numbered `reporting`).

    What is rejected of them is told under the default cluster, commands to them are answered by the fallback cluster: else whoever makes
    up names makes clusters. Other records of theirs are about brokers that have never reported, and say nothing.
    """
    known = config.known.keys() | {config.default_cluster}
    strangers = {number: name for name, number in taken.clusters.items() if name not in known and number not in reporting}
    if not strangers:
        return set()
    rejected, last, home = 0, dict[str, Any](), config.strangers_cluster
    events: list[tuple[int, dict[str, Any]]] = []
    for number, event in taken.events:
        if number not in strangers:
            events.append((number, event))
        elif event["kind"] == "rejected":
            rejected, last = rejected + 1, event
            if rejected <= MOST_STRANGERS:
                events.append((taken.number(home), event | {"broker": f"{strangers[number]}/{event['broker']}"[:LONGEST_SHOWN]}))
        elif event["kind"] == "command":
            events.append((taken.number(config.fallback_cluster), event | {"payload": _to_stranger(event["payload"], strangers[number])}))
    if rejected > MOST_STRANGERS:
        shown = {"field": "key", "value": f"{rejected - MOST_STRANGERS} more", "expected": "records of known clusters, reports of new ones"}
        events.append((taken.number(home), last | {"broker": "", "payload": canonical_json(shown)}))
    taken.events = events
    taken.heartbeats = {key: event for key, event in taken.heartbeats.items() if key[0] not in strangers}
    return set(strangers.values())


def _to_stranger(payload: str, cluster: str) -> str:
    """A command to a cluster that nobody knows, as one that is refused."""
    content = json.loads(payload)
    if content["rejected"] is None:
        expected = "a cluster whose brokers have reported: is its name right?"
        content["rejected"] = {"field": "key", "value": cluster, "expected": expected, "rule": "unknown_cluster"}
    return canonical_json(content)


def _by_shard(
    samples: pa.Table, of_report: NDArray[np.int64], first_key: NDArray[np.int64], shards: NDArray[np.int64]
) -> tuple[pa.Table, list[tuple[int, int]]]:
    """Samples ordered by cluster and shard, as they came within one; and the rows of each."""
    cluster = of_report[samples["report"].to_numpy()]
    key = first_key[cluster]
    sliced = np.flatnonzero(shards[cluster] > 1)
    if len(sliced):
        several = samples["name"] if len(sliced) == len(samples) else samples["name"].take(pa.array(sliced))
        key[sliced] += name_hashes(several) & (shards[cluster[sliced]] - 1)
    if (np.diff(key) < 0).any():
        order = np.sort((key << 32) | np.arange(len(key))) & 0xFFFFFFFF
        samples, key = samples.take(pa.array(order)), key[order]
    return samples, _ranges(key, int(shards.sum()))


def _ranges(sorted_groups: NDArray[np.int64], groups: int) -> list[tuple[int, int]]:
    """First row and the row after the last of each group 0..groups-1."""
    ends = np.cumsum(np.bincount(sorted_groups, minlength=groups)) if groups else np.empty(0, np.int64)
    return list(zip([0, *ends.tolist()], ends.tolist(), strict=False))


def _events(taken: PartitionRecords) -> tuple[dict[int, list[dict[str, Any]]], dict[int, list[dict[str, Any]]]]:
    """Events by the cluster's number: those that every shard must see, and those that are seen once."""
    everywhere: dict[int, list[dict[str, Any]]] = {}
    once: dict[int, list[dict[str, Any]]] = {}
    for (number, _), event in taken.heartbeats.items():
        everywhere.setdefault(number, []).append(event)
    for number, event in taken.events:
        (everywhere if event["kind"] in ("goodbye", "ack") else once).setdefault(number, []).append(event)
    return everywhere, once
