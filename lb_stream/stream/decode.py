"""Kafka records → validated columnar blocks: one row for each (cluster, shard) of a partition's records.

Every report goes to all shards of its cluster (a bundle's absence is news too), with the samples of that shard's bundles
only. What can't be taken becomes a `rejected` event of its cluster; it never stops the stream.
"""

from __future__ import annotations

import gc
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple
from numpy.typing import NDArray

from lb_stream.contracts.base import CLUSTER_PATTERN, canonical_json
from lb_stream.core.averages.acknowledgements import believed
from lb_stream.core.model.blocks import EVENT_SCHEMA, REPORT_SCHEMA, SAMPLE_SCHEMA, to_bytes
from lb_stream.core.model.names import BUNDLE_PATTERN
from lb_stream.stream.records import (
    LARGEST_BYTES,
    LONGEST_BROKER,
    LONGEST_BUNDLE,
    NO_STATS,
    STATS_FIELDS,
    Rejection,
    agent_record,
    command_record,
    report_record,
    sender_of,
)
from lb_stream.stream.shards.directory import NEW, ShardMap
from lb_stream.stream.shards.partition_keys import slots_of

BLOCK_SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        ("slot", pa.int32()),  # the shard's key
        ("shard", pa.int32()),
        ("shards", pa.int32()),  # how many the cluster has
        ("before", pa.string()),  # JSON: the blocks of all its shards, where that number has just changed
        ("leaving", pa.bool_()),  # the cluster is forgotten unless something is heard of it in this batch
        ("clock", pa.string()),  # JSON: what this task has read of each partition
        ("reports", pa.binary()),  # Arrow IPC of REPORT_SCHEMA; null: none
        ("samples", pa.binary()),
        ("stored", pa.string()),  # or where a block file holds the samples, when they are many
        ("events", pa.binary()),
    ]
)
BLOCK_DDL = (
    "cluster string, slot int, shard int, shards int, before string, leaving boolean, clock string, "
    "reports binary, samples binary, stored string, events binary"
)

LONGEST_SHOWN = 200
"""Characters of a rejected value, and of each text about it, that are kept."""

STORED_BYTES = 16 << 10
"""Samples of a shard that are larger don't travel through Spark's shuffle: their way through its rows costs more than a file."""

MOST_STRANGERS = 100
"""Records rejected for clusters that nobody knows, of one task and batch, that are told one by one; of more only how many."""

BATCH_BYTES = 32 << 20
"""Blocks of about this size go out together."""


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """Names that the decoder needs. `known` maps every known cluster to its slices; `partitions` is how many the next stage has;
    `allowed` is the regular expression of the clusters that are served.
    """

    default_cluster: str
    commands_topic: str
    known: Mapping[str, ShardMap]
    partitions: int = 1
    allowed: str = ""

    @property
    def fallback_cluster(self) -> str:
        """The cluster where a record is rejected that names none: the default one, unless only others are known."""
        return self.default_cluster if self.default_cluster in self.known or not self.known else min(self.known)

    def check(self, cluster: str) -> None:
        """Raises Rejection for a cluster that isn't served."""
        if self.allowed and not re.fullmatch(self.allowed, cluster):
            raise Rejection("key", cluster, f"a cluster that matches stream.allowed_clusters = {self.allowed}")


@dataclass(slots=True)
class _Taken:
    """What one partition brought, as growing columns."""

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
        return self.clusters.setdefault(cluster, len(self.clusters))


def decode(
    batches: Iterable[pa.RecordBatch], config: DecodeConfig, store: Callable[[pa.Table], str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Decode one partition's records.

    Input columns: key, value (binary), kind (string, from the header), topic, partition, offset, append_ms. Yields batches of
    BLOCK_SCHEMA: for each cluster of the records and each known cluster, one row for each of its shards. `store` takes a block of
    many samples and says where it is.
    """
    taken = _Taken()
    clock: dict[tuple[str, int], dict[str, Any]] = {}
    collects = gc.isenabled()
    gc.disable()  # a million short-lived structs, none of them in a cycle
    try:
        for batch in batches:
            columns = [batch.column(name) for name in ("key", "value", "kind", "topic", "partition", "offset", "append_ms")]
            for key, value, kind, topic, partition, offset, append_ms in zip(*(column.to_pylist() for column in columns), strict=True):
                position = {"topic": topic, "partition": partition, "offset": offset, "append_ms": append_ms}
                _tell_time(clock, position)
                _take(taken, config, key, value, kind, position)
        if clock:
            yield from _blocks(taken, config, canonical_json(list(clock.values())), store)
    finally:
        if collects:
            gc.enable()


def _tell_time(clock: dict[tuple[str, int], dict[str, Any]], position: Mapping[str, Any]) -> None:
    seen = clock.setdefault(
        (position["topic"], position["partition"]),
        {"topic": position["topic"], "partition": position["partition"], "first": position["offset"], "last": -1, "append_ms": 0},
    )
    seen["first"] = min(seen["first"], position["offset"])
    seen["last"] = max(seen["last"], position["offset"])
    seen["append_ms"] = max(seen["append_ms"], position["append_ms"])


def _take(taken: _Taken, config: DecodeConfig, key: bytes | None, value: bytes | None, kind: str | None, position: dict[str, Any]) -> None:
    cluster, broker = config.default_cluster, ""
    try:
        if value is not None and len(value) > LARGEST_BYTES:
            raise Rejection("value", f"{len(value)} bytes", f"at most {LARGEST_BYTES} bytes when decompressed")
        if position["topic"] == config.commands_topic:
            cluster = config.fallback_cluster
            _take_command(taken, config, key, value, position)
            return
        cluster, broker = _key(key, config)
        _take_record(taken, config, cluster, broker, value or b"", kind or "report", position)
    except Rejection as rejection:
        _reject(taken, cluster, broker, rejection, position)
    except Exception as error:  # a record that is met again at every restart must not end the stream, whatever it does to us
        rejection = Rejection("value", repr((value or b"")[:LONGEST_SHOWN]), f"a readable record ({type(error).__name__}: {error})")
        _reject(taken, cluster, broker, rejection, position)


def _take_command(taken: _Taken, config: DecodeConfig, key: bytes | None, value: bytes | None, position: dict[str, Any]) -> None:
    """A command goes to its cluster, one without a cluster to every known one. What can't be read is answered too, if it has an id."""
    cluster = config.fallback_cluster
    try:
        clusters = _addressed(key, config)
        cluster = clusters[0] if len(clusters) == 1 else cluster
        command = command_record(value)
    except Rejection as rejection:
        _reject(taken, cluster, "", rejection, position)
        if (sender := sender_of(value)) is not None:
            _command_event(taken, cluster, {"record": sender, "rejected": _shown(rejection)}, position)
        return
    if command is not None:
        for name in clusters:
            _command_event(taken, name, {"record": command.model_dump(mode="json"), "rejected": None}, position)


def _command_event(taken: _Taken, cluster: str, content: dict[str, Any], position: dict[str, Any]) -> None:
    payload = canonical_json(content).encode(errors="replace").decode()
    taken.events.append((taken.number(cluster), {"kind": "command", "broker": "", "payload": payload} | position))


def _addressed(key: bytes | None, config: DecodeConfig) -> list[str]:
    """The clusters that a command is for."""
    try:
        text = (key or b"").decode()
    except UnicodeDecodeError:
        raise Rejection("key", repr(key), "<cluster> in UTF-8, or nothing for all of them") from None
    if not text:
        return sorted(config.known)
    if not re.fullmatch(CLUSTER_PATTERN, text):
        raise Rejection("key", text, "<cluster> of letters, digits, '.', '_' and '-', or nothing for all of them")
    config.check(text)
    return [text]


def _shown(rejection: Rejection) -> dict[str, str]:
    given = {"field": rejection.field, "value": rejection.value, "expected": rejection.expected}
    return {name: text[:LONGEST_SHOWN] for name, text in given.items()}


def _reject(taken: _Taken, cluster: str, broker: str, rejection: Rejection, position: dict[str, Any]) -> None:
    payload = canonical_json(_shown(rejection)).encode(errors="replace").decode()  # JSON may hold half a surrogate pair, Arrow can't
    taken.events.append((taken.number(cluster), {"kind": "rejected", "broker": broker[:LONGEST_SHOWN], "payload": payload} | position))


def _key(key: bytes | None, config: DecodeConfig) -> tuple[str, str]:
    """Cluster and broker of a record's key `<cluster>/<broker>`; a key without a cluster belongs to the default one."""
    try:
        text = (key or b"").decode()
    except UnicodeDecodeError:
        raise Rejection("key", repr(key), "<cluster>/<broker> in UTF-8") from None
    cluster, slash, broker = text.rpartition("/")
    if not slash or not cluster:
        cluster = config.default_cluster
    if not re.fullmatch(CLUSTER_PATTERN, cluster):
        raise Rejection("key", text, "<cluster>/<broker> with a cluster of letters, digits, '.', '_' and '-'")
    if len(broker) > LONGEST_BROKER:
        raise Rejection("key", text, f"<cluster>/<broker> with at most {LONGEST_BROKER} characters of a broker")
    config.check(cluster)
    return cluster, broker


def _take_record(taken: _Taken, config: DecodeConfig, cluster: str, broker: str, value: bytes, kind: str, position: dict[str, Any]) -> None:
    if kind != "report":
        if not broker:
            raise Rejection("key", cluster, "<cluster>/<broker>: a broker's record names its broker")
        payload = agent_record(kind, value)
        if kind == "ack":
            payload = believed(payload, broker, config.known.get(cluster, NEW).asked)
        event = {"kind": kind, "broker": broker, "payload": payload} | position
        if kind == "heartbeat":
            taken.heartbeats[taken.number(cluster), broker] = event  # a partition's order is a broker's order: the last one tells all
        else:
            taken.events.append((taken.number(cluster), event))
        return
    if not value:  # withdrawn: as when the broker's registration vanishes
        if not broker:
            raise Rejection("key", cluster, "<cluster>/<broker>: an empty report withdraws the broker that its key names")
        taken.events.append((taken.number(cluster), {"kind": "goodbye", "broker": broker, "payload": "{}"} | position))
        return
    report = report_record(value, broker)
    digest = blake2b(value, digest_size=8).digest()
    taken.reports.append({"name": report.broker, "digest": digest} | report.fields | position)
    taken.of_report.append(taken.number(cluster))
    taken.names += report.stats
    taken.names += report.unmeasured
    taken.stats += report.stats.values()
    taken.stats += [NO_STATS] * len(report.unmeasured)
    taken.unmeasured += len(report.unmeasured)
    taken.sizes.append(len(report.stats) + len(report.unmeasured))


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


def _samples(taken: _Taken) -> pa.Table:
    count, width = len(taken.names), len(STATS_FIELDS)
    numbers = np.fromiter(chain.from_iterable(map(astuple, taken.stats)), np.float64, count * width).reshape(count, width)
    columns: dict[str, Any] = {
        "name": pa.array(taken.names, pa.string()),
        "report": np.repeat(np.arange(len(taken.sizes), dtype=np.int32), taken.sizes),
        "has_stats": np.fromiter((stats is not NO_STATS for stats in taken.stats), np.bool_, count)
        if taken.unmeasured
        else np.ones(count, np.bool_),
    }
    for column, attribute in _COLUMN_OF.items():
        values = np.ascontiguousarray(numbers[:, STATS_FIELDS.index(attribute)])
        if pa.types.is_integer(SAMPLE_SCHEMA.field(column).type):
            exact = values.max(initial=0.0) < _EXACT
            values = values.astype(np.int64) if exact else np.array([getattr(stats, attribute) for stats in taken.stats], np.int64)
        columns[column] = values
    return pa.table(columns, schema=SAMPLE_SCHEMA)


def _without_malformed(taken: _Taken, samples: pa.Table) -> tuple[pa.Table, NDArray[np.int64]]:
    """Samples without those of reports that name a malformed bundle, and the rows of the reports that stay. The others are rejected."""
    names = samples["name"]
    lower, upper = pc.utf8_slice_codeunits(names, -21, -11), pc.utf8_slice_codeunits(names, -10)
    well_formed = pc.and_(pc.match_substring_regex(names, BUNDLE_PATTERN), pc.less(lower, upper))
    good = pc.and_(well_formed, pc.less_equal(pc.binary_length(names), LONGEST_BUNDLE)).to_numpy(zero_copy_only=False).astype(np.bool_)
    if good.all():
        return samples, np.arange(len(taken.reports))
    of_report = samples["report"].to_numpy()
    bad_rows = np.flatnonzero(~good)
    bad_reports, first = np.unique(of_report[bad_rows], return_index=True)
    for report, row in zip(bad_reports.tolist(), bad_rows[first].tolist(), strict=True):
        given = taken.reports[report]
        shown = {
            "field": "bundle",
            "value": str(names[row].as_py())[:LONGEST_SHOWN],
            "expected": f"<tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH, L < H, at most {LONGEST_BUNDLE} bytes",
        }
        event = {"kind": "rejected", "broker": given["name"], "payload": canonical_json(shown)}
        position = {name: given[name] for name in ("topic", "partition", "offset", "append_ms")}
        taken.events.append((taken.of_report[report], event | position))
    kept = np.ones(len(taken.reports), np.bool_)
    kept[bad_reports] = False
    return samples.filter(pa.array(kept[of_report])), np.flatnonzero(kept)


def _blocks(taken: _Taken, config: DecodeConfig, clock: str, store: Callable[[pa.Table], str] | None) -> Iterator[pa.RecordBatch]:
    """One row for each shard: all reports, heartbeats and goodbyes of its cluster, its own samples; all other events in shard 0 only."""
    samples, kept = _without_malformed(taken, _samples(taken)) if taken.reports else (SAMPLE_SCHEMA.empty_table(), np.empty(0, np.int64))
    of_report = np.array(taken.of_report, np.int64)
    strangers = _dismiss_strangers(taken, config, set(of_report[kept].tolist()))
    by_cluster = kept[np.argsort(of_report[kept], kind="stable")]  # rows of the reports that stay, a cluster's together
    reports = pa.Table.from_pylist([taken.reports[row] for row in by_cluster.tolist()], REPORT_SCHEMA)
    reports_of = _ranges(of_report[by_cluster], len(taken.clusters))

    names = sorted((config.known.keys() | taken.clusters.keys()) - strangers)
    slices = {name: config.known.get(name, NEW) for name in (*names, *strangers)}
    shards = np.ones(len(taken.clusters), np.int64)
    for name, number in taken.clusters.items():
        shards[number] = slices[name].shards
    first_key = np.cumsum(shards) - shards
    samples, samples_of = _by_shard(samples, of_report, first_key, shards)
    place = np.zeros(len(of_report), np.int64)  # of a report among its cluster's
    begins = np.array([begin for begin, _ in reports_of], np.int64)
    place[by_cluster] = np.arange(len(by_cluster)) - begins[of_report[by_cluster]]
    renumbered = pa.array(place[samples["report"].to_numpy()], pa.int32())
    samples = samples.set_column(1, SAMPLE_SCHEMA.field("report"), renumbered)

    everywhere, once = _events(taken)
    rows: list[dict[str, Any]] = []
    size = 0
    for name in names:
        number = taken.clusters.get(name)
        own = slices[name]
        common = {"cluster": name, "shards": own.shards, "before": own.before, "leaving": own.leaving, "clock": clock, "reports": None}
        if number is not None and reports_of[number][0] < reports_of[number][1]:
            common["reports"] = _sliced(reports, *reports_of[number])
        for shard, slot in enumerate(slots_of(name, own.shards, config.partitions)):
            row = common | {"slot": slot, "shard": shard, "samples": None, "stored": None, "events": None}
            if number is not None:
                if common["reports"]:
                    begin, end = samples_of[int(first_key[number]) + shard]
                    some = samples.slice(begin, end - begin)
                    row |= {"stored": store(some)} if store and some.nbytes > STORED_BYTES else {"samples": to_bytes(some)}
                events = everywhere.get(number, []) + (once.get(number, []) if shard == 0 else [])
                row["events"] = to_bytes(pa.Table.from_pylist(events, EVENT_SCHEMA)) if events else None
            rows.append(row)
            size += sum(len(row[column] or b"") for column in ("reports", "samples", "events"))
            if size >= BATCH_BYTES:
                yield pa.RecordBatch.from_pylist(rows, BLOCK_SCHEMA)
                rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, BLOCK_SCHEMA)


def _dismiss_strangers(taken: _Taken, config: DecodeConfig, reporting: set[int]) -> set[str]:
    """Find the names that are no clusters': not known, and without a report that is taken (of those numbered `reporting`).

    What is rejected of them is told under the default cluster, commands to them are answered by the fallback cluster: else whoever makes
    up names makes clusters. Other records of theirs are about brokers that have never reported, and say nothing.
    """
    known = config.known.keys() | {config.default_cluster}
    strangers = {number: name for name, number in taken.clusters.items() if name not in known and number not in reporting}
    if not strangers:
        return set()
    rejected, last = 0, dict[str, Any]()
    events: list[tuple[int, dict[str, Any]]] = []
    for number, event in taken.events:
        if number not in strangers:
            events.append((number, event))
        elif event["kind"] == "rejected":
            rejected, last = rejected + 1, event
            if rejected <= MOST_STRANGERS:
                events.append(
                    (taken.number(config.default_cluster), event | {"broker": f"{strangers[number]}/{event['broker']}"[:LONGEST_SHOWN]})
                )
        elif event["kind"] == "command":
            events.append((taken.number(config.fallback_cluster), event | {"payload": _to_stranger(event["payload"], strangers[number])}))
    if rejected > MOST_STRANGERS:
        shown = {"field": "key", "value": f"{rejected - MOST_STRANGERS} more", "expected": "records of known clusters, reports of new ones"}
        events.append((taken.number(config.default_cluster), last | {"broker": "", "payload": canonical_json(shown)}))
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
        key[sliced] += hashes(several) & (shards[cluster[sliced]] - 1)
    if (np.diff(key) < 0).any():
        order = np.sort((key << 32) | np.arange(len(key))) & 0xFFFFFFFF
        samples, key = samples.take(pa.array(order)), key[order]
    return samples, _ranges(key, int(shards.sum()))


def _ranges(sorted_groups: NDArray[np.int64], groups: int) -> list[tuple[int, int]]:
    """First row and the row after the last of each group 0..groups-1."""
    ends = np.cumsum(np.bincount(sorted_groups, minlength=groups)) if groups else np.empty(0, np.int64)
    return list(zip([0, *ends.tolist()], ends.tolist(), strict=False))


def _sliced(table: pa.Table, begin: int, end: int) -> bytes:
    return to_bytes(table.slice(begin, end - begin))


def _events(taken: _Taken) -> tuple[dict[int, list[dict[str, Any]]], dict[int, list[dict[str, Any]]]]:
    """Events by the cluster's number: those that every shard must see, and those that are seen once."""
    everywhere: dict[int, list[dict[str, Any]]] = {}
    once: dict[int, list[dict[str, Any]]] = {}
    for (number, _), event in taken.heartbeats.items():
        everywhere.setdefault(number, []).append(event)
    for number, event in taken.events:
        (everywhere if event["kind"] in ("goodbye", "ack") else once).setdefault(number, []).append(event)
    return everywhere, once


def hashes(names: pa.ChunkedArray) -> NDArray[np.int64]:
    """The CRC-32 of each name: modulo the number of shards, a power of two, it is the bundle's shard."""
    return np.fromiter(map(zlib.crc32, map(str.encode, names.to_pylist())), np.int64, len(names))
