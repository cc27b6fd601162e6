"""Records as Kafka hands them to the decoder, and what the decoder makes of them. Without a JVM."""

import json
from typing import Any

import pyarrow as pa

from lb_stream.core.model.blocks import from_bytes
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.decode import decode
from lb_stream.stream.shard_blocks import ALL_CLUSTERS
from lb_stream.stream.shards.directory import ShardMap

CONFIG = DecodeConfig(default_cluster="home", commands_topic="commands", known={})
KNOWN = DecodeConfig(default_cluster="home", commands_topic="commands", known={"eu": ShardMap()})
BUNDLE = "acme/orders/0x00000000_0x80000000"
RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("append_ms", pa.int64()),
    ]
)


def record(
    key: bytes | None,
    value: bytes | None,
    offset: int,
    kind: str | None = None,
    topic: str = "reports",
    partition: int = 0,
) -> dict[str, Any]:
    """One raw record, appended a millisecond after the one of the offset before."""
    return {
        "key": key,
        "value": value,
        "kind": kind,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "append_ms": 1_000 + offset,
    }


def report(**fields: Any) -> bytes:
    """A modular report with one bundle of 10 msg/s in."""
    stats = {BUNDLE: {"msgRateIn": 10.0, "topics": 3}}
    return json.dumps({"lastStats": stats, "loadReportType": "LocalBrokerData", **fields}).encode()


def rows_of(records: list[dict[str, Any]], config: DecodeConfig = CONFIG) -> list[dict[str, Any]]:
    """What a task makes of some records, the clock's rows among it."""
    return [
        row
        for batch in decode([pa.RecordBatch.from_pylist(records, RECORDS)], config)
        for row in batch.to_pylist()
    ]


def decoded(
    records: list[dict[str, Any]], config: DecodeConfig = CONFIG
) -> dict[tuple[str, int], dict[str, Any]]:
    """(cluster, shard) → its reports, samples and events as lists of rows."""
    return {
        (row["cluster"], row["shard"]): {
            name: from_bytes(row[name]).to_pylist() if row[name] else []
            for name in ("reports", "samples", "events")
        }
        for row in rows_of(records, config)
        if row["cluster"] != ALL_CLUSTERS
    }


def rejections(block: dict[str, Any]) -> list[tuple[int, str, str, str]]:
    """(offset, field, value, expected) of the rejected events."""
    events = [
        (event["offset"], json.loads(event["payload"]))
        for event in block["events"]
        if event["kind"] == "rejected"
    ]
    return [(offset, shown["field"], shown["value"], shown["expected"]) for offset, shown in events]


RECORD_DDL = (
    "key binary, value binary, kind string, topic string, partition int, offset bigint, "
    "append_ms bigint"
)
