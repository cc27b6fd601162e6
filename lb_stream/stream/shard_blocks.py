"""Blocks of one decoding task: a row for each shard of each cluster whose records it has read.

A report goes to all shards of its cluster, with the samples of that shard's bundles only. The clock
has the offsets that a task has read, for all clusters. It goes once to each partition of the next
stage, under an empty cluster name, which sorts before all others. Only the batch's first task emits
rows for clusters without records.

Clusters of one shard share one row for each partition of the next stage, once the references to
their blocks are known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lb_stream.contracts.base import canonical_json
from lb_stream.core.model.blocks import (
    EVENT_SCHEMA,
    NO_SAMPLES,
    REPORT_SCHEMA,
    SAMPLE_SCHEMA,
    one_array,
    to_bytes,
)
from lb_stream.stream.admission import summarise_records
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.partition_records import LONGEST_SHOWN, PartitionRecords
from lb_stream.stream.records import RecordRejected
from lb_stream.stream.report_samples import HASH
from lb_stream.stream.rows import BlockRow, ClusterEvent, PartitionClock
from lb_stream.stream.shards.directory import NEW, ShardMap
from lb_stream.stream.shards.partition_keys import deciding_task, partition, slots_of

ALL_CLUSTERS = ""
"""The cluster in rows that are for all clusters."""

_CONTENT_FIELDS = [
    # Reports and samples are Arrow tables, or references to blocks as block:first row:rows. A
    # column is null if there are none, or if the other column of the pair has them.
    ("reports", pa.binary()),
    ("samples", pa.binary()),
    ("stored_reports", pa.string()),
    ("stored_samples", pa.string()),
    ("events", pa.binary()),
]
BLOCK_SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        # The shard's key.
        ("slot", pa.int32()),
        ("shard", pa.int32()),
        # Number of the cluster's shards.
        ("shards", pa.int32()),
        # Whether the pipeline knew the cluster before the batch.
        ("known", pa.bool_()),
        # JSON: the blocks of all its shards, if this shard begins from them and not from a state.
        ("inherited", pa.string()),
        # Whether the cluster is forgotten unless this batch has a record of it.
        ("leaving", pa.bool_()),
        # The task's first record: rows of several tasks are read in the order of this text.
        ("first", pa.string()),
        # JSON: the offsets that the task has read of each partition; only in rows of ALL_CLUSTERS.
        ("clock", pa.string()),
        *_CONTENT_FIELDS,
        # A table of MEMBER_SCHEMA; only in rows of ALL_CLUSTERS.
        ("members", pa.binary()),
    ]
)
MEMBER_SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        # References to the blocks of its only shard after the last batch.
        ("blocks", pa.list_(pa.string())),
        *_CONTENT_FIELDS,
    ]
)
"""Clusters of one shard each, in one row for all of them."""
BLOCK_DDL = (
    "cluster string, slot int, shard int, shards int, known boolean, inherited string, leaving "
    "boolean, first string, clock string, "
    "reports binary, samples binary, stored_reports string, stored_samples string, events binary, "
    "members binary"
)

STORED_BYTES = 16 << 10
"""Reports and samples of a task that are larger than this go into a file.

In rows of Spark's shuffle they would cost more. The file has one block of all reports, and one of
samples for each partition of the next stage, however many shards there are.
"""

MAX_UNKNOWN_CLUSTER_RECORDS = 100
"""Most rejected records of unknown clusters that a task lists; the others are only counted."""

BATCH_BYTES = 32 << 20
"""Rows are emitted together once their content has this size."""

_Range = tuple[int, int]
"""First row, and the row after the last."""


def build_clock_rows(clock: list[PartitionClock], partitions: int) -> pa.RecordBatch:
    """Return the task's clock, a row for each of the next stage's `partitions`."""
    text = canonical_json(clock)
    rows = [
        BlockRow(cluster=ALL_CLUSTERS, clock=text, slot=slot)
        for slot in slots_of(ALL_CLUSTERS, partitions, partitions)
    ]
    return pa.RecordBatch.from_pylist(rows, BLOCK_SCHEMA)


def build_shard_rows(
    records: PartitionRecords,
    config: DecodeConfig,
    first: str,
    store: Callable[[pa.Table], str] | None,
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each shard, with its cluster's reports and events, and its own samples.

    Goodbyes, heartbeats and acknowledgements go to every shard; other events to shard 0 only.
    `first`: the task's first record. `store`: writes a block and returns its reference.
    """
    samples, kept = NO_SAMPLES, np.empty(0, np.int64)
    if records.reports:
        sharded = {
            number
            for name, number in records.clusters.items()
            if config.known.get(name, NEW).shards > 1
        }
        samples, kept = records.take_samples(sharded)
        samples, kept = _refuse_new_clusters(records, config, samples, kept)
    records.summarise_rejected(config.admission.records_per_second)
    reporting = {records.sources[row].cluster for row in kept.tolist()}
    unknown = _redirect_unknown_clusters(records, config, reporting)
    tables = _sort_by_shard(records, kept, samples, config, store)
    silent = _clusters_of_each_batch(config.known) if config.first else set[str]()
    names = sorted((silent | records.clusters.keys()) - unknown)
    rows = (
        row for name in names for row in _rows(name, records.clusters.get(name), tables, config)
    )
    for portion in _portions(rows):
        alone = [row for row in portion if "slot" in row]
        members = [row for row in portion if "slot" not in row]
        emitted = [*alone, *_join_members(members, config.partitions)]
        for row in emitted:
            row["first"] = first
        yield pa.RecordBatch.from_pylist(emitted, BLOCK_SCHEMA)


def _clusters_of_each_batch(known: Mapping[str, ShardMap]) -> Set[str]:
    """Return the known clusters that have a round in a batch without records of them.

    Unconfirmed clusters have none if it would change nothing. If all clusters are such, all have
    one: a batch without a round would have no time.
    """
    awake = {name for name, shard_map in known.items() if not shard_map.rests}
    return awake or known.keys()


def _join_members(rows: list[BlockRow], partitions: int) -> Iterator[BlockRow]:
    """Yield a row for each partition of the next stage, with all clusters that go there.

    They go to the partition of the task that will make their rounds, so that no other task reads
    the blocks that they share.
    """
    found: dict[int, list[BlockRow]] = {}
    for row in rows:
        found.setdefault(deciding_task(row["cluster"], partitions), []).append(row)
    slots = slots_of(ALL_CLUSTERS, partitions, partitions)
    for number, members in sorted(found.items()):
        yield {
            "cluster": ALL_CLUSTERS,
            "slot": slots[number],
            "members": to_bytes(pa.Table.from_pylist(members, MEMBER_SCHEMA)),
        }


def _portions(rows: Iterable[BlockRow]) -> Iterator[list[BlockRow]]:
    """Yield the rows in lists of BATCH_BYTES or a little more."""
    portion: list[BlockRow] = []
    size = 0
    for row in rows:
        portion.append(row)
        size += len(row.get("reports", b""))
        size += len(row.get("samples", b""))
        size += len(row.get("events", b""))
        if size >= BATCH_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


@dataclass(frozen=True, slots=True)
class _SortedRecords:
    """The records of a task by cluster and shard. Clusters have the numbers of PartitionRecords.

    `reports` and `report_rows`: each cluster's reports. `samples` and `sample_rows`: each shard's
    samples; their column `report` counts within the cluster. `first_shard`: each cluster's first
    place in `sample_rows`. `stored_reports`: reference to the block of all reports; None: the rows
    themselves have reports and samples. `stored_samples`: for each shard the reference to the block
    of its samples, and the row of `samples` with which that block begins. `everywhere`: events for
    every shard of a cluster. `once`: events for shard 0.
    """

    reports: pa.Table
    report_rows: list[_Range]
    samples: pa.Table
    sample_rows: list[_Range]
    first_shard: list[int]
    stored_reports: str | None
    stored_samples: list[tuple[str, int]]
    everywhere: dict[int, list[ClusterEvent]]
    once: dict[int, list[ClusterEvent]]

    def content_of(self, number: int, shard: int) -> BlockRow:
        """Return the columns with the cluster's reports and the shard's samples, or references."""
        begin, end = self.report_rows[number]
        if begin == end:
            return {}
        place = self.first_shard[number] + shard
        first, last = self.sample_rows[place]
        if self.stored_reports is None:
            return {
                "reports": to_bytes(self.reports.slice(begin, end - begin)),
                "samples": to_bytes(self.samples.slice(first, last - first)),
            }
        content: BlockRow = {"stored_reports": f"{self.stored_reports}:{begin}:{end - begin}"}
        if first < last:
            block, block_begin = self.stored_samples[place]
            content["stored_samples"] = f"{block}:{first - block_begin}:{last - first}"
        return content

    def events_of(self, number: int, shard: int) -> list[ClusterEvent]:
        """Return the events for one shard of a cluster."""
        events = self.everywhere.get(number, [])
        return events + self.once.get(number, []) if shard == 0 else events


def _rows(
    name: str, number: int | None, tables: _SortedRecords, config: DecodeConfig
) -> Iterator[BlockRow]:
    """Yield the rows of a cluster's shards; `number` None: the batch has no record of it."""
    shard_map = config.known.get(name, NEW)
    for shard, slot in enumerate(slots_of(name, shard_map.shards, config.partitions)):
        row: BlockRow
        if shard_map.is_stateless:
            row = {"cluster": name, "blocks": shard_map.blocks[0]}
        else:
            row = {
                "cluster": name,
                "shards": shard_map.shards,
                "known": name in config.known,
                "inherited": shard_map.inherited,
                "leaving": shard_map.leaving,
                "slot": slot,
                "shard": shard,
            }
        if number is not None:
            row.update(tables.content_of(number, shard))
            if events := tables.events_of(number, shard):
                row["events"] = to_bytes(pa.Table.from_pylist(events, EVENT_SCHEMA))
        yield row


def _sort_by_shard(
    records: PartitionRecords,
    kept: NDArray[np.int64],
    samples: pa.Table,
    config: DecodeConfig,
    store: Callable[[pa.Table], str] | None,
) -> _SortedRecords:
    """Sort the reports by cluster and the samples by shard; large ones are stored.

    `kept`: rows of the reports that are taken. `samples`: of these reports.
    """
    # Reports, by cluster.
    cluster_of = np.array([source.cluster for source in records.sources], np.int64)
    by_cluster = kept[np.argsort(cluster_of[kept], kind="stable")]
    reports = pa.Table.from_pylist(
        [records.reports[row] for row in by_cluster.tolist()], REPORT_SCHEMA
    )
    report_rows = _group_ranges(cluster_of[by_cluster], len(records.clusters))
    # Samples, those of a partition of the next stage together, and in there those of a shard.
    to_store = store if reports.nbytes + samples.nbytes > STORED_BYTES else None
    shards = np.array([config.known.get(name, NEW).shards for name in records.clusters], np.int64)
    first_shard = np.cumsum(shards) - shards
    goes_to = _partitions(records.clusters, config.known, config.partitions if to_store else 1)
    samples, sample_rows = _sort_samples(samples, cluster_of, first_shard, shards, goes_to)
    # Samples name their report by its place within the cluster.
    place = np.zeros(len(cluster_of), np.int64)
    begins = np.array([begin for begin, _ in report_rows], np.int64)
    place[by_cluster] = np.arange(len(by_cluster)) - begins[cluster_of[by_cluster]]
    renumbered = pa.array(place[samples["report"].to_numpy()], pa.int32())
    samples = samples.set_column(1, SAMPLE_SCHEMA.field("report"), renumbered)
    # Blocks of large ones.
    stored_samples = [("", 0)] * len(goes_to)
    stored_reports = None
    if to_store is not None:
        stored_samples = _store_samples(samples, sample_rows, goes_to, to_store)
        stored_reports = to_store(reports)
    everywhere, once = _events_by_cluster(records)
    return _SortedRecords(
        reports,
        report_rows,
        samples,
        sample_rows,
        first_shard.tolist(),
        stored_reports,
        stored_samples,
        everywhere,
        once,
    )


def _partitions(
    clusters: Iterable[str], known: Mapping[str, ShardMap], partitions: int
) -> NDArray[np.int64]:
    """Return the partition of the next stage to which each shard of each cluster goes."""
    maps = {name: known.get(name, NEW) for name in clusters}
    if partitions == 1:
        return np.zeros(sum(shard_map.shards for shard_map in maps.values()), np.int64)
    found: list[int] = []
    for name, shard_map in maps.items():
        if shard_map.is_stateless:
            found.append(deciding_task(name, partitions))
        else:
            slots = slots_of(name, shard_map.shards, partitions)
            found += (partition(name, slot, partitions) for slot in slots)
    return np.array(found, np.int64)


def _store_samples(
    samples: pa.Table,
    rows: list[_Range],
    goes_to: NDArray[np.int64],
    store: Callable[[pa.Table], str],
) -> list[tuple[str, int]]:
    """Store the samples of each partition of the next stage as one block.

    Returns for each shard the block's reference, and which row of `samples` is the block's first.
    """
    blocks: dict[int, tuple[str, int]] = {}
    for number in np.unique(goes_to).tolist():
        own = [rows[shard] for shard in np.flatnonzero(goes_to == number).tolist()]
        begin, end = min(first for first, _ in own), max(last for _, last in own)
        reference = store(samples.slice(begin, end - begin)) if begin < end else ""
        blocks[number] = reference, begin
    return [blocks[number] for number in goes_to.tolist()]


def _refuse_new_clusters(
    records: PartitionRecords, config: DecodeConfig, samples: pa.Table, kept: NDArray[np.int64]
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Reject the reports of new clusters for which `admission` leaves no room.

    `kept`: rows of the reports that are taken. `samples`: of these. Returns what is left of both.
    """
    # The new clusters, in the order of their first records, with their brokers.
    limits, known = config.admission, config.known
    names = list(records.clusters)
    brokers: dict[int, set[str]] = {}
    first: dict[int, int] = {}
    for row in kept.tolist():
        number = records.sources[row].cluster
        if names[number] not in known and names[number] != config.default_cluster:
            brokers.setdefault(number, set()).add(records.sources[row].broker)
            first.setdefault(number, row)
    if not brokers:
        return samples, kept
    # Those for which there is no room.
    room = limits.clusters - len(known) if limits.clusters else len(brokers)
    unconfirmed = sum(shard_map.new_ms is not None for shard_map in known.values())
    alone = limits.unconfirmed_clusters - unconfirmed
    refused = set[int]()
    for number in sorted(brokers):
        is_alone = len(brokers[number]) == 1 and bool(limits.unconfirmed_clusters)
        if room > 0 and (alone > 0 or not is_alone):
            room, alone = room - 1, alone - is_alone
            continue
        refused.add(number)
        expected = f"one of {limits.clusters} clusters at most (admission.clusters)"
        if room > 0:
            expected = (
                f"one of {limits.unconfirmed_clusters} clusters at most of which one broker has "
                "been heard once (admission.unconfirmed_clusters)"
            )
        _, broker, position = records.sources[first[number]]
        rejection = RecordRejected("key", f"{names[number]}/{broker}", expected)
        records.reject(names[number], broker, rejection, position)
    if not refused:
        return samples, kept
    is_kept = np.array([source.cluster not in refused for source in records.sources])
    return samples.filter(pa.array(is_kept[samples["report"].to_numpy()])), kept[is_kept[kept]]


def _redirect_unknown_clusters(
    records: PartitionRecords, config: DecodeConfig, reporting: set[int]
) -> set[str]:
    """Move events of unknown clusters to known ones, and return the unknown clusters.

    A cluster becomes known with a report that is taken; `reporting` are the numbers of those that
    have one here. Otherwise anybody who makes up names would make clusters. Rejected records are
    listed under `unknown_records_cluster`; commands are answered by `fallback_cluster`. Other
    records are about brokers that have never reported, and are dropped.
    """
    known = config.known.keys() | {config.default_cluster}
    unknown = {
        number: name
        for name, number in records.clusters.items()
        if name not in known and number not in reporting
    }
    if not unknown:
        return set()
    home = config.unknown_records_cluster
    rejected: list[ClusterEvent] = []
    events: list[tuple[int, ClusterEvent]] = []
    for number, event in records.events:
        if number not in unknown:
            events.append((number, event))
        elif event["kind"] == "rejected":
            rejected.append(event)
            if len(rejected) <= MAX_UNKNOWN_CLUSTER_RECORDS:
                moved = event.copy()
                moved["broker"] = f"{unknown[number]}/{event['broker']}"[:LONGEST_SHOWN]
                events.append((records.number(home), moved))
        elif event["kind"] == "command":
            moved = event.copy()
            moved["payload"] = _refuse_unknown_cluster(event["payload"], unknown[number])
            events.append((records.number(config.fallback_cluster), moved))
    if (more := len(rejected) - MAX_UNKNOWN_CLUSTER_RECORDS) > 0:
        summary = rejected[-1].copy()
        summary["broker"] = ""
        summary["payload"] = canonical_json(
            {
                "field": "key",
                "value": summarise_records(more),
                "expected": "records of known clusters, reports of new ones",
            }
        )
        events.append((records.number(home), summary))
    records.events = events
    records.heartbeats = {
        key: event for key, event in records.heartbeats.items() if key[0] not in unknown
    }
    return set(unknown.values())


def _refuse_unknown_cluster(payload: str, cluster: str) -> str:
    """Return the payload of a command to an unknown cluster, as one that is refused."""
    content = json.loads(payload)
    if content["rejected"] is None:
        content["rejected"] = {
            "field": "key",
            "value": cluster,
            "expected": "a cluster whose brokers have reported: is its name right?",
            "rule": "unknown_cluster",
        }
    return canonical_json(content)


def _sort_samples(
    samples: pa.Table,
    cluster_of: NDArray[np.int64],
    first_shard: NDArray[np.int64],
    shards: NDArray[np.int64],
    goes_to: NDArray[np.int64],
) -> tuple[pa.Table, list[_Range]]:
    """Return the samples by partition, cluster and shard, and each shard's rows.

    Within a shard they stay in their order. `cluster_of`: of each report. `first_shard` and
    `shards`: of each cluster. `goes_to`: the partition of each shard.
    """
    cluster = cluster_of[samples["report"].to_numpy()]
    key = first_shard[cluster]
    # Names of clusters with several shards are hashed; where there is one, no bit of a hash counts.
    if HASH in samples.column_names:
        key += samples[HASH].to_numpy() & (shards[cluster] - 1)
        samples = samples.drop_columns(HASH)
    # From the shard to its rank among all shards, sorted by partition.
    rank = np.empty(len(goes_to), np.int64)
    rank[np.argsort(goes_to, kind="stable")] = np.arange(len(goes_to))
    key = rank[key]
    if (key[1:] < key[:-1]).any():
        # Numbers of 16 bits are sorted in one pass, which takes a tenth of the time.
        few = key.astype(np.uint16) if len(goes_to) <= _MAX_UINT16 else key
        order = np.argsort(few, kind="stable")
        samples, key = _take_rows(samples, order), key[order]
    rows = _group_ranges(key, len(goes_to))
    return samples, [rows[place] for place in rank.tolist()]


_MAX_UINT16 = 1 << 16


def _take_rows(samples: pa.Table, order: NDArray[np.int64]) -> pa.Table:
    """Return all samples in another order.

    Columns that have the same value in each row stay as they are, as two of them mostly do.
    """
    columns: list[pa.Array] = []
    rows = pa.array(order)
    for column in map(one_array, samples.columns):
        if column.null_count == len(column):
            columns.append(column)
        elif pa.types.is_boolean(column.type):
            columns.append(column if column.true_count == len(column) else column.take(rows))
        elif pa.types.is_primitive(column.type):
            columns.append(pa.array(column.to_numpy().take(order)))
        else:
            columns.append(column.take(rows))
    return pa.table(columns, schema=samples.schema)


def _group_ranges(sorted_groups: NDArray[np.int64], groups: int) -> list[_Range]:
    """Return the rows of each group 0..groups-1 in a sorted column."""
    if not groups:
        return []
    ends = np.cumsum(np.bincount(sorted_groups, minlength=groups)).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _events_by_cluster(
    records: PartitionRecords,
) -> tuple[dict[int, list[ClusterEvent]], dict[int, list[ClusterEvent]]]:
    """Return events by the cluster's number: those for every shard, and those for shard 0."""
    everywhere: dict[int, list[ClusterEvent]] = {}
    once: dict[int, list[ClusterEvent]] = {}
    for (number, _), event in records.heartbeats.items():
        everywhere.setdefault(number, []).append(event)
    for number, event in records.events:
        target = everywhere if event["kind"] in ("goodbye", "ack") else once
        target.setdefault(number, []).append(event)
    return everywhere, once
