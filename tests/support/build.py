"""Clusters for tests, made the way the stream makes them: reports → batch → fold → view."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.blocks import (
    EVENT_SCHEMA,
    RATE_COLUMNS,
    REPORT_FIELDS,
    REPORT_SCHEMA,
    RESOURCES,
    SAMPLE_SCHEMA,
    Batch,
)
from lb_stream.core.model.topic_shares import pack_shares

IDLE = {name: (0.0, 100.0) for name in RESOURCES}


@dataclass(frozen=True)
class Report:
    """One load report as decoded.

    `bundles` maps names to statistics, or to None for one that is only named.
    """

    broker: str
    append_ms: int
    bundles: Mapping[str, BundleStats | None] = field(default_factory=dict)
    resources: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    partition: int = 0
    offset: int | None = None  # None: the append time
    last_update_ms: int | None = None  # None: the append time
    start_timestamp_ms: int = 0
    version: str = ""
    content: str | None = None  # equal content: no new sample; None: always new
    # Bundle → hash → share of that bundle's load.
    topic_shares: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @property
    def at(self) -> int:
        """Its offset."""
        return self.append_ms if self.offset is None else self.offset


@dataclass(frozen=True)
class Event:
    """A heartbeat, ack or goodbye."""

    kind: str
    broker: str
    append_ms: int
    partition: int = 0
    offset: int | None = None
    payload: str = "{}"

    @property
    def at(self) -> int:
        """Its offset."""
        return self.append_ms if self.offset is None else self.offset


def batch_of(reports: Sequence[Report], events: Iterable[Event] = (), keep: Any = None) -> Batch:
    """What one micro-batch brings to one shard.

    `keep` says which bundles are the shard's (by default all).
    """
    samples = [
        {"name": name, "report": row, "has_stats": stats is not None}
        | _stats(stats)
        | _topic_shares(report, name)
        for row, report in enumerate(reports)
        for name, stats in report.bundles.items()
        if keep is None or keep(name)
    ]
    return Batch(
        pa.Table.from_pylist([_report_row(report) for report in reports], REPORT_SCHEMA),
        pa.Table.from_pylist(samples, SAMPLE_SCHEMA),
        pa.Table.from_pylist([_event_row(event) for event in events], EVENT_SCHEMA),
    )


def four(stats: BundleStats) -> tuple[float, float, float, float]:
    """Throughput in, out, rate in, out."""
    return stats.msg_throughput_in, stats.msg_throughput_out, stats.msg_rate_in, stats.msg_rate_out


def _stats(stats: BundleStats | None) -> dict[str, Any]:
    stats = stats or BundleStats()
    return {
        f"latest_{name}": value for name, value in zip(RATE_COLUMNS, four(stats), strict=True)
    } | {
        "topics": stats.topics,
        "producers": stats.producer_count,
        "consumers": stats.consumer_count,
        "cache_size_bytes": stats.cache_size,
    }


def _topic_shares(report: Report, bundle: str) -> dict[str, bytes]:
    shares = report.topic_shares.get(bundle)
    if shares is None:
        return {}
    given = np.array(list(shares), np.int64), np.array(list(shares.values()), np.float64)
    return {"topic_shares": pack_shares(report.append_ms, *given)}


def _report_row(report: Report) -> dict[str, Any]:
    content = (
        f"{report.append_ms}/{report.at}/{report.broker}"
        if report.content is None
        else report.content
    )
    known = [stats for stats in report.bundles.values() if stats is not None]
    sums = [sum(values) for values in zip(*map(four, known), strict=True)] or [0.0] * 4
    numbers = {column.name: 0 for column in REPORT_FIELDS if pa.types.is_integer(column.type)}
    row: dict[str, Any] = numbers | {
        "name": report.broker,
        "topic": "reports",
        "partition": report.partition,
        "offset": report.at,
        "append_ms": report.append_ms,
        "kind": "modular",
        "digest": hashlib.blake2b(content.encode(), digest_size=8).digest(),
        "start_timestamp_ms": report.start_timestamp_ms,
        "last_update_ms": report.append_ms
        if report.last_update_ms is None
        else report.last_update_ms,
        "topics": sum(stats.topics for stats in known),
        "bundles": len(report.bundles),
        "persistent_topics": True,
        "non_persistent_topics": True,
        "version": report.version,
        "load_manager": "",
    }
    for name, (usage, limit) in (IDLE | dict(report.resources)).items():
        row |= {f"{name}_usage": float(usage), f"{name}_limit": float(limit)}
    return row | {
        f"latest_{name}": float(value) for name, value in zip(RATE_COLUMNS, sums, strict=True)
    }


def _event_row(event: Event) -> dict[str, Any]:
    return {
        "kind": event.kind,
        "broker": event.broker,
        "topic": "reports",
        "partition": event.partition,
        "offset": event.at,
        "append_ms": event.append_ms,
        "payload": event.payload,
    }
