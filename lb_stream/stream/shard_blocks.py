"""What one task has read → blocks: one row for each shard of each cluster that it has heard of, and
how far it has read.

A report goes to all shards of its cluster, with the samples of that shard's bundles only. How far a
task has read counts for all clusters: it is told once to each partition of the next stage, under a
cluster's name that is none and is sorted before all others. Clusters of which nothing has come are
called by the batch's first task alone.

Clusters of one shard go together, as one row for each partition of the next stage, once it is known
where their blocks are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lb_stream.contracts.base import canonical_json
from lb_stream.core.model.blocks import (
    EVENT_SCHEMA,
    NO_SAMPLES,
    REPORT_SCHEMA,
    SAMPLE_SCHEMA,
    to_bytes,
)
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.partition_records import LONGEST_SHOWN, PartitionRecords
from lb_stream.stream.shards.directory import NEW
from lb_stream.stream.shards.partition_keys import partition, slots_of
from lb_stream.stream.shards.slicing import name_hashes

BLOCK_SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        ("slot", pa.int32()),  # the shard's key
        ("shard", pa.int32()),
        ("shards", pa.int32()),  # how many the cluster has
        ("known", pa.bool_()),  # it was a cluster of this pipeline when the batch began
        (
            "before",
            pa.string(),
        ),  # JSON: the blocks of all its shards, where that number has just changed
        (
            "leaving",
            pa.bool_(),
        ),  # the cluster is forgotten unless something is heard of it in this batch
        (
            "first",
            pa.string(),
        ),  # what this task has read first: rows of several tasks are taken in this order
        (
            "clock",
            pa.string(),
        ),  # JSON: what this task has read of each partition; in the rows of ALL_CLUSTERS only
        ("reports", pa.binary()),  # Arrow IPC of REPORT_SCHEMA; null: none, or they are in a file
        ("samples", pa.binary()),
        ("stored_reports", pa.string()),  # where they are: block:first row:rows
        ("stored_samples", pa.string()),  # null: none of this shard
        ("events", pa.binary()),
        ("members", pa.binary()),  # Arrow IPC of MEMBER_SCHEMA; in the rows of ALL_CLUSTERS only
    ]
)
MEMBER_SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        ("blocks", pa.list_(pa.string())),  # what its only shard held after the batch before
        *(
            BLOCK_SCHEMA.field(name)
            for name in ("reports", "samples", "stored_reports", "stored_samples", "events")
        ),
    ]
)
"""Clusters of one shard each, in one row for all of them."""
BLOCK_DDL = (
    "cluster string, slot int, shard int, shards int, known boolean, before string, leaving "
    "boolean, first string, clock string, "
    "reports binary, samples binary, stored_reports string, stored_samples string, events binary, "
    "members binary"
)

ALL_CLUSTERS = ""
"""Stands for a cluster where a row is for all of them."""

STORED_BYTES = 16 << 10
"""Reports and samples of a task that together are larger don't travel through Spark's shuffle: a
file costs less than their way through its rows. There they are one block of all reports, and one of
samples for each partition of the next stage, however many the shards are."""

MAX_UNKNOWN_CLUSTER_RECORDS = 100
"""Records rejected for clusters that nobody knows, of one task and batch, that are told one by one;
of more only how many."""

BATCH_BYTES = 32 << 20
"""Blocks of about this size go out together."""


def build_clock_rows(clock: list[dict[str, Any]], partitions: int) -> pa.RecordBatch:
    """What a task has read, for each partition of the next stage.

    `clock`: of each Kafka partition first and last offset, append_ms.
    """
    common = {"cluster": ALL_CLUSTERS, "clock": canonical_json(clock)}
    rows = [common | {"slot": slot} for slot in slots_of(ALL_CLUSTERS, partitions, partitions)]
    return pa.RecordBatch.from_pylist(rows, BLOCK_SCHEMA)


def build_shard_rows(
    taken: PartitionRecords,
    config: DecodeConfig,
    first: str,
    store: Callable[[pa.Table], str] | None,
) -> Iterator[pa.RecordBatch]:
    """One row for each shard: all reports, heartbeats and goodbyes of its cluster, its own samples;
    all other events in shard 0 only."""
    samples, kept = (
        taken.without_malformed(taken.samples())
        if taken.reports
        else (NO_SAMPLES, np.empty(0, np.int64))
    )
    strangers = _dismiss_strangers(taken, config, {taken.of_report[row] for row in kept.tolist()})
    tables = _sort(taken, kept, samples, config, store)
    silent = config.known.keys() if config.first else set[str]()
    names = sorted((silent | taken.clusters.keys()) - strangers)
    rows = (row for name in names for row in _rows(name, taken.clusters.get(name), tables, config))
    for some in _portions(rows):
        own = [row | {"first": first} for row in some if "slot" in row]
        members = [
            {"first": first} | row
            for row in _members([row for row in some if "slot" not in row], config.partitions)
        ]
        yield pa.RecordBatch.from_pylist([*own, *members], BLOCK_SCHEMA)


def _members(rows: list[dict[str, Any]], partitions: int) -> Iterator[dict[str, Any]]:
    """One row for each partition of the next stage, of all these clusters that go there."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(partition(row["cluster"], 0, partitions), []).append(row)
    slots = slots_of(ALL_CLUSTERS, partitions, partitions)
    for at, own in sorted(found.items()):
        yield {
            "cluster": ALL_CLUSTERS,
            "slot": slots[at],
            "members": to_bytes(pa.Table.from_pylist(own, MEMBER_SCHEMA)),
        }


def _portions(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The rows in lists of BATCH_BYTES or a little more."""
    some: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        some.append(row)
        size += sum(len(row.get(column) or b"") for column in ("reports", "samples", "events"))
        if size >= BATCH_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


@dataclass(frozen=True, slots=True)
class _Sorted:
    """What a partition brought, by cluster and shard; clusters by their numbers."""

    reports: pa.Table
    report_rows: list[tuple[int, int]]  # of each cluster
    samples: pa.Table  # their `report` counts within the cluster
    sample_rows: list[tuple[int, int]]  # of each shard
    first_shard: list[int]  # of each cluster, in `sample_rows`
    stored_reports: (
        str | None
    )  # the block of all reports; None: they and the samples travel with the rows
    stored_samples: list[
        tuple[str, int]
    ]  # the block of each shard's samples, and the first of `samples` that is in it
    everywhere: dict[int, list[dict[str, Any]]]  # events that every shard of a cluster must see
    once: dict[int, list[dict[str, Any]]]  # events that are seen once

    def content_of(self, number: int, shard: int) -> dict[str, Any]:
        """The columns that hold the cluster's reports and the shard's samples, or say where they
        are."""
        begin, end = self.report_rows[number]
        if begin == end:
            return {}
        at = self.first_shard[number] + shard
        first, last = self.sample_rows[at]
        if self.stored_reports is None:
            given = self.reports.slice(begin, end - begin), self.samples.slice(first, last - first)
            return dict(zip(("reports", "samples"), map(to_bytes, given), strict=True))
        found: dict[str, Any] = {"stored_reports": f"{self.stored_reports}:{begin}:{end - begin}"}
        if first < last:
            block, before = self.stored_samples[at]
            found["stored_samples"] = f"{block}:{first - before}:{last - first}"
        return found

    def events_of(self, number: int, shard: int) -> list[dict[str, Any]]:
        return self.everywhere.get(number, []) + (self.once.get(number, []) if shard == 0 else [])


def _rows(
    name: str, number: int | None, tables: _Sorted, config: DecodeConfig
) -> Iterator[dict[str, Any]]:
    """The rows of a cluster's shards; `number` None: nothing has come of it."""
    own = config.known.get(name, NEW)
    common: dict[str, Any] = {
        "cluster": name,
        "shards": own.shards,
        "known": name in config.known,
        "before": own.told,
    }
    for shard, slot in enumerate(slots_of(name, own.shards, config.partitions)):
        place = {"leaving": own.leaving, "slot": slot, "shard": shard}
        row: dict[str, Any] = (
            {"cluster": name, "blocks": own.blocks[0]} if own.alone else common | place
        )
        if number is not None:
            row |= tables.content_of(number, shard)
            if events := tables.events_of(number, shard):
                row["events"] = to_bytes(pa.Table.from_pylist(events, EVENT_SCHEMA))
        yield row


def _sort(
    taken: PartitionRecords,
    kept: NDArray[np.int64],
    samples: pa.Table,
    config: DecodeConfig,
    store: Callable[[pa.Table], str] | None,
) -> _Sorted:
    """`kept`: rows of the reports that stay, `samples`: theirs. Large ones are stored."""
    of_report = np.array(taken.of_report, np.int64)
    by_cluster = kept[np.argsort(of_report[kept], kind="stable")]  # a cluster's together
    reports = pa.Table.from_pylist(
        [taken.reports[row] for row in by_cluster.tolist()], REPORT_SCHEMA
    )
    report_rows = _ranges(of_report[by_cluster], len(taken.clusters))
    stored = store if reports.nbytes + samples.nbytes > STORED_BYTES else None
    shards = np.array([config.known.get(name, NEW).shards for name in taken.clusters], np.int64)
    first_shard = np.cumsum(shards) - shards
    goes_to = _partitions(taken.clusters, shards, config.partitions if stored else 1)
    samples, sample_rows = _by_shard(samples, of_report, first_shard, shards, goes_to)
    place = np.zeros(len(of_report), np.int64)  # of a report among its cluster's
    begins = np.array([begin for begin, _ in report_rows], np.int64)
    place[by_cluster] = np.arange(len(by_cluster)) - begins[of_report[by_cluster]]
    renumbered = pa.array(place[samples["report"].to_numpy()], pa.int32())
    samples = samples.set_column(1, SAMPLE_SCHEMA.field("report"), renumbered)
    places = (
        [("", 0)] * len(goes_to)
        if stored is None
        else _stored(samples, sample_rows, goes_to, stored)
    )
    all_reports = None if stored is None else stored(reports)
    return _Sorted(
        reports,
        report_rows,
        samples,
        sample_rows,
        first_shard.tolist(),
        all_reports,
        places,
        *_events(taken),
    )


def _partitions(
    clusters: Iterable[str], shards: NDArray[np.int64], partitions: int
) -> NDArray[np.int64]:
    """Where each shard of each cluster goes, among the partitions of the next stage."""
    if partitions == 1:
        return np.zeros(int(shards.sum()), np.int64)
    keys = zip(clusters, shards.tolist(), strict=True)
    found = [
        partition(name, slot, partitions)
        for name, count in keys
        for slot in slots_of(name, count, partitions)
    ]
    return np.array(found, np.int64)


def _stored(
    samples: pa.Table,
    rows: list[tuple[int, int]],
    goes_to: NDArray[np.int64],
    store: Callable[[pa.Table], str],
) -> list[tuple[str, int]]:
    """Store the samples of each partition, which lie together, as one block.

    Returns the block of each shard and where it begins.
    """
    blocks: dict[int, tuple[str, int]] = {}
    for at in np.unique(goes_to).tolist():
        own = [rows[shard] for shard in np.flatnonzero(goes_to == at).tolist()]
        begin, end = min(first for first, _ in own), max(last for _, last in own)
        blocks[at] = store(samples.slice(begin, end - begin)) if begin < end else "", begin
    return [blocks[at] for at in goes_to.tolist()]


def _dismiss_strangers(
    taken: PartitionRecords, config: DecodeConfig, reporting: set[int]
) -> set[str]:
    """Find the names that are no clusters': not known, and without a report that is taken (of those
    numbered `reporting`).

    What is rejected of them is told under the default cluster, commands to them are answered by the
    fallback cluster: else whoever makes up names makes clusters. Other records of theirs are about
    brokers that have never reported, and say nothing.
    """
    known = config.known.keys() | {config.default_cluster}
    strangers = {
        number: name
        for name, number in taken.clusters.items()
        if name not in known and number not in reporting
    }
    if not strangers:
        return set()
    rejected, last, home = 0, dict[str, Any](), config.unknown_records_cluster
    events: list[tuple[int, dict[str, Any]]] = []
    for number, event in taken.events:
        if number not in strangers:
            events.append((number, event))
        elif event["kind"] == "rejected":
            rejected, last = rejected + 1, event
            if rejected <= MAX_UNKNOWN_CLUSTER_RECORDS:
                events.append(
                    (
                        taken.number(home),
                        event
                        | {"broker": f"{strangers[number]}/{event['broker']}"[:LONGEST_SHOWN]},
                    )
                )
        elif event["kind"] == "command":
            events.append(
                (
                    taken.number(config.fallback_cluster),
                    event | {"payload": _to_stranger(event["payload"], strangers[number])},
                )
            )
    if rejected > MAX_UNKNOWN_CLUSTER_RECORDS:
        shown = {
            "field": "key",
            "value": f"{rejected - MAX_UNKNOWN_CLUSTER_RECORDS} more",
            "expected": "records of known clusters, reports of new ones",
        }
        events.append((taken.number(home), last | {"broker": "", "payload": canonical_json(shown)}))
    taken.events = events
    taken.heartbeats = {
        key: event for key, event in taken.heartbeats.items() if key[0] not in strangers
    }
    return set(strangers.values())


def _to_stranger(payload: str, cluster: str) -> str:
    """A command to a cluster that nobody knows, as one that is refused."""
    content = json.loads(payload)
    if content["rejected"] is None:
        expected = "a cluster whose brokers have reported: is its name right?"
        content["rejected"] = {
            "field": "key",
            "value": cluster,
            "expected": expected,
            "rule": "unknown_cluster",
        }
    return canonical_json(content)


def _by_shard(
    samples: pa.Table,
    of_report: NDArray[np.int64],
    first_key: NDArray[np.int64],
    shards: NDArray[np.int64],
    goes_to: NDArray[np.int64],
) -> tuple[pa.Table, list[tuple[int, int]]]:
    """Samples ordered by partition, cluster and shard, as they came within one; and the rows of
    each shard."""
    cluster = of_report[samples["report"].to_numpy()]
    key = first_key[cluster]
    sliced = np.flatnonzero(shards[cluster] > 1)
    if len(sliced):
        several = (
            samples["name"]
            if len(sliced) == len(samples)
            else samples["name"].take(pa.array(sliced))
        )
        key[sliced] += name_hashes(several) & (shards[cluster[sliced]] - 1)
    rank = np.empty(len(goes_to), np.int64)
    rank[np.argsort(goes_to, kind="stable")] = np.arange(len(goes_to))
    key = rank[key]
    if (np.diff(key) < 0).any():
        order = np.sort((key << 32) | np.arange(len(key))) & 0xFFFFFFFF
        samples, key = samples.take(pa.array(order)), key[order]
    rows = _ranges(key, len(goes_to))
    return samples, [rows[at] for at in rank.tolist()]


def _ranges(sorted_groups: NDArray[np.int64], groups: int) -> list[tuple[int, int]]:
    """First row and the row after the last of each group 0..groups-1."""
    ends = (
        np.cumsum(np.bincount(sorted_groups, minlength=groups)) if groups else np.empty(0, np.int64)
    )
    return list(zip([0, *ends.tolist()], ends.tolist(), strict=False))


def _events(
    taken: PartitionRecords,
) -> tuple[dict[int, list[dict[str, Any]]], dict[int, list[dict[str, Any]]]]:
    """Events by the cluster's number: those that every shard must see, and those that are seen
    once."""
    everywhere: dict[int, list[dict[str, Any]]] = {}
    once: dict[int, list[dict[str, Any]]] = {}
    for (number, _), event in taken.heartbeats.items():
        everywhere.setdefault(number, []).append(event)
    for number, event in taken.events:
        (everywhere if event["kind"] in ("goodbye", "ack") else once).setdefault(number, []).append(
            event
        )
    return everywhere, once
