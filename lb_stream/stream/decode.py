"""Kafka records → validated columnar blocks: one row for each (cluster, shard) of a partition's records.

Every report goes to all shards of its cluster (a bundle's absence is news too), with the samples of that shard's bundles
only. What can't be taken becomes a `rejected` event of its cluster; it never stops the stream.
"""

from __future__ import annotations

import gc
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.base import CLUSTER_PATTERN, canonical_json
from lb_stream.core.blocks import EVENT_SCHEMA, REPORT_SCHEMA, SAMPLE_SCHEMA, to_bytes
from lb_stream.core.names import BUNDLE_PATTERN
from lb_stream.stream.records import Rejection, agent_record, check_command, report_record

BLOCK_SCHEMA = pa.schema(
    [("cluster", pa.string()), ("shard", pa.int32()), ("reports", pa.binary()), ("samples", pa.binary()), ("events", pa.binary())]
)
BLOCK_DDL = "cluster string, shard int, reports binary, samples binary, events binary"

LONGEST_SHOWN = 200
"""Characters of a rejected value that are kept."""


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """Names that the decoder needs. `shards` maps every known cluster to its number of shards."""

    default_cluster: str
    commands_topic: str
    shards: Mapping[str, int]


@dataclass(slots=True)
class _Cluster:
    """What one partition brought for one cluster, as growing columns."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    stats: list[Any] = field(default_factory=list)
    has_stats: list[bool] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    heartbeats: dict[str, dict[str, Any]] = field(default_factory=dict)


def decode(batches: Iterable[pa.RecordBatch], config: DecodeConfig) -> Iterator[pa.RecordBatch]:
    """Decode one partition's records.

    Input columns: key, value (binary), kind (string, from the header), topic, partition, offset, append_ms. Yields batches of
    BLOCK_SCHEMA: for each cluster of the records and each known cluster, one row for each of its shards.
    """
    clusters: defaultdict[str, _Cluster] = defaultdict(_Cluster)
    clock: dict[tuple[str, int], dict[str, Any]] = {}
    collects = gc.isenabled()
    gc.disable()  # a million short-lived structs, none of them in a cycle
    try:
        for batch in batches:
            columns = [batch.column(name) for name in ("key", "value", "kind", "topic", "partition", "offset", "append_ms")]
            for key, value, kind, topic, partition, offset, append_ms in zip(*(column.to_pylist() for column in columns), strict=True):
                position = {"topic": topic, "partition": partition, "offset": offset, "append_ms": append_ms}
                _tell_time(clock, position)
                _take(clusters, config, key, value, kind, position)
    finally:
        if collects:
            gc.enable()
    if not clock:
        return
    ticks = [_clock_event(seen) for seen in clock.values()]
    for name in sorted({*clusters, *config.shards}):
        yield _blocks(name, clusters[name], config.shards.get(name, 1), ticks)


def _tell_time(clock: dict[tuple[str, int], dict[str, Any]], position: Mapping[str, Any]) -> None:
    seen = clock.setdefault((position["topic"], position["partition"]), {**position, "first": position["offset"]})
    seen["first"] = min(seen["first"], position["offset"])
    seen["offset"] = max(seen["offset"], position["offset"])
    seen["append_ms"] = max(seen["append_ms"], position["append_ms"])


def _clock_event(seen: dict[str, Any]) -> dict[str, Any]:
    payload = canonical_json({"first": seen["first"], "last": seen["offset"]})
    return {"kind": "clock", "broker": "", "payload": payload} | {
        name: seen[name] for name in ("topic", "partition", "offset", "append_ms")
    }


def _take(
    clusters: defaultdict[str, _Cluster],
    config: DecodeConfig,
    key: bytes | None,
    value: bytes | None,
    kind: str | None,
    position: dict[str, Any],
) -> None:
    cluster, broker = config.default_cluster, ""
    try:
        cluster, broker = _key(key, config)
        if position["topic"] == config.commands_topic:
            check_command(value)
            return
        _take_record(clusters[cluster], cluster, broker, value or b"", kind or "report", position)
    except Rejection as rejection:
        _reject(clusters[cluster], broker, rejection, position)
    except Exception as error:  # a record that is met again at every restart must not end the stream, whatever it does to us
        rejection = Rejection("value", repr((value or b"")[:LONGEST_SHOWN]), f"a readable record ({type(error).__name__}: {error})")
        _reject(clusters[cluster], broker, rejection, position)


def _reject(taken: _Cluster, broker: str, rejection: Rejection, position: dict[str, Any]) -> None:
    shown = {"field": rejection.field, "value": rejection.value[:LONGEST_SHOWN], "expected": rejection.expected}
    payload = canonical_json(shown).encode(errors="replace").decode()  # JSON may hold half a surrogate pair, Arrow can't
    taken.events.append({"kind": "rejected", "broker": broker, "payload": payload} | position)


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
    return cluster, broker


def _take_record(taken: _Cluster, cluster: str, broker: str, value: bytes, kind: str, position: dict[str, Any]) -> None:
    if kind != "report":
        if not broker:
            raise Rejection("key", cluster, "<cluster>/<broker>: a broker's record names its broker")
        event = {"kind": kind, "broker": broker, "payload": agent_record(kind, value)} | position
        if kind == "heartbeat":
            taken.heartbeats[broker] = event  # a partition's order is a broker's order: the last one tells all
        else:
            taken.events.append(event)
        return
    if not value:  # withdrawn: as when the broker's registration vanishes
        if not broker:
            raise Rejection("key", cluster, "<cluster>/<broker>: an empty report withdraws the broker that its key names")
        taken.events.append({"kind": "goodbye", "broker": broker, "payload": "{}"} | position)
        return
    report = report_record(value, broker)
    digest = blake2b(value, digest_size=8).digest()
    taken.reports.append({"name": report.broker, "digest": digest} | report.fields | position)
    named, unmeasured = report.stats, report.unmeasured
    taken.names += named
    taken.names += unmeasured
    taken.stats += named.values()
    taken.stats += [_NO_STATS] * len(unmeasured)
    taken.has_stats += [True] * len(named) + [False] * len(unmeasured)
    taken.sizes.append(len(named) + len(unmeasured))


class _NoStats:
    msg_throughput_in = msg_throughput_out = msg_rate_in = msg_rate_out = 0.0
    topics = producer_count = consumer_count = cache_size = 0


_NO_STATS = _NoStats()
_STATS_ATTRIBUTES = (
    ("latest_throughput_in_bytes_per_s", "msg_throughput_in"),
    ("latest_throughput_out_bytes_per_s", "msg_throughput_out"),
    ("latest_rate_in_msgs_per_s", "msg_rate_in"),
    ("latest_rate_out_msgs_per_s", "msg_rate_out"),
    ("topics", "topics"),
    ("producers", "producer_count"),
    ("consumers", "consumer_count"),
    ("cache_size_bytes", "cache_size"),
)


def _samples(taken: _Cluster) -> pa.Table:
    count = len(taken.names)
    columns: dict[str, Any] = {
        "name": pa.array(taken.names, pa.string()),
        "report": np.repeat(np.arange(len(taken.sizes), dtype=np.int32), taken.sizes),
        "has_stats": np.fromiter(taken.has_stats, np.bool_, count),
    }
    for column, attribute in _STATS_ATTRIBUTES:
        kind = SAMPLE_SCHEMA.field(column).type.to_pandas_dtype()
        columns[column] = np.fromiter((getattr(stats, attribute) for stats in taken.stats), kind, count)
    return pa.table(columns, schema=SAMPLE_SCHEMA)


def _without_malformed(taken: _Cluster, samples: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Reports and samples without the reports that name a malformed bundle; each such report becomes a rejected event."""
    reports = pa.Table.from_pylist(taken.reports, REPORT_SCHEMA)
    names = samples["name"]
    lower, upper = pc.utf8_slice_codeunits(names, -21, -11), pc.utf8_slice_codeunits(names, -10)
    good = pc.and_(pc.match_substring_regex(names, BUNDLE_PATTERN), pc.less(lower, upper)).to_numpy(zero_copy_only=False).astype(np.bool_)
    if good.all():
        return reports, samples
    of_report = samples["report"].to_numpy()
    bad_rows = np.flatnonzero(~good)
    bad_reports, first = np.unique(of_report[bad_rows], return_index=True)
    for report, row in zip(bad_reports.tolist(), bad_rows[first].tolist(), strict=True):
        given = taken.reports[report]
        shown = {
            "field": "bundle",
            "value": str(names[row].as_py())[:LONGEST_SHOWN],
            "expected": "<tenant>/<namespace>/0xLLLLLLLL_0xHHHHHHHH, L < H",
        }
        event = {"kind": "rejected", "broker": given["name"], "payload": canonical_json(shown)}
        taken.events.append(event | {name: given[name] for name in ("topic", "partition", "offset", "append_ms")})
    kept = np.ones(len(reports), np.bool_)
    kept[bad_reports] = False
    renumbered = np.cumsum(kept) - 1
    samples = samples.filter(pa.array(kept[of_report]))
    column = pa.array(renumbered[samples["report"].to_numpy()].astype(np.int32))
    return reports.filter(pa.array(kept)), samples.set_column(1, SAMPLE_SCHEMA.field("report"), column)


def _blocks(cluster: str, taken: _Cluster, shards: int, ticks: list[dict[str, Any]]) -> pa.RecordBatch:
    """One row for each shard: all reports and agents' events, that shard's samples; rejected records and acks in shard 0 only."""
    reports, samples = (
        _without_malformed(taken, _samples(taken)) if taken.reports else (REPORT_SCHEMA.empty_table(), SAMPLE_SCHEMA.empty_table())
    )
    everywhere = [*ticks, *taken.heartbeats.values(), *(event for event in taken.events if event["kind"] == "goodbye")]
    once = [event for event in taken.events if event["kind"] != "goodbye"]
    report_bytes = to_bytes(reports)
    rows = []
    for shard in range(shards):
        mine = samples if shards == 1 else samples.filter(pa.array(shard_of(samples["name"], shards) == shard))
        events = pa.Table.from_pylist(everywhere + (once if shard == 0 else []), EVENT_SCHEMA)
        rows.append({"cluster": cluster, "shard": shard, "reports": report_bytes, "samples": to_bytes(mine), "events": to_bytes(events)})
    return pa.RecordBatch.from_pylist(rows, BLOCK_SCHEMA)


def shard_of(names: pa.ChunkedArray, shards: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The shard of each bundle name: its CRC-32 modulo the number of shards (a power of two)."""
    hashes = np.fromiter((zlib.crc32(name.encode()) for name in names.to_pylist()), np.uint32, len(names))
    return (hashes & np.uint32(shards - 1)).astype(np.int32)
