"""Read load reports from a file: one on a line, as brokers emit them or as captured, or gzipped."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa

from lb_stream.contracts.tables import BROKER_LOADS
from lb_stream.core.averages import fold
from lb_stream.core.model.blocks import NO_EVENTS, Batch, Shard, from_bytes
from lb_stream.io.local.report_lines import Report, Unsendable, read_line
from lb_stream.io.messages.times import utc
from lb_stream.query import QueryError
from lb_stream.query.lake import Row
from lb_stream.settings.resolve import resolve
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.decode import decode
from lb_stream.stream.shards.history import SlottedShard, broker_rows, bundle_rows, next_slot

_RECORD = pa.schema(
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
_GZIP = b"\x1f\x8b"
_LIVES = pa.schema(
    [BROKER_LOADS.schema.field(name) for name in ("now_ms", "broker", "alive", "seen_ms")]
)
_DRAINS = pa.schema([("at_ms", pa.int64()), ("kind", pa.string()), ("broker", pa.string())])


def read_reports(path: Path, broker: str | None = None) -> list[Report]:
    """Return the reports of a file. `broker`: the sender of reports that name none.

    Raises QueryError (exit code 2) for a file that can't be read, a line that is no report, and a
    file without any report.
    """
    reports = list(_read_lines(path, broker))
    if not reports:
        raise QueryError(
            f"{path} has no load report: expected one on a line, as brokers emit them or as "
            "captured",
            2,
        )
    return reports


def _read_lines(path: Path, broker: str | None) -> Iterator[Report]:
    """Yield the report of each line that has one."""
    number = 0  # of the current line
    try:
        data = path.read_bytes()
        for line in (gzip.decompress(data) if data.startswith(_GZIP) else data).splitlines():
            number += 1
            report = read_line(line, broker)
            if report is not None:
                yield replace(report, line=number)
    except Unsendable as error:
        raise QueryError(f"{path}, line {number}: {error}", 2) from None
    except (OSError, EOFError, zlib.error) as error:
        raise QueryError(f"{path} can't be read: {error}", 2) from None


def decode_reports(
    path: Path, cluster: str, reports: Sequence[Report], first_offset: int = 0
) -> Batch:
    """Decode all reports as the stream does, as if each was appended when it was captured.

    Raises QueryError, which names the line, for a report that the job would reject.
    """
    records = [
        {
            "key": f"{cluster}/{report.broker}".encode(),
            "value": report.value,
            "kind": None,
            "topic": "reports",
            "partition": 0,
            "offset": offset,
            "append_ms": int(report.at_ms or 0),
        }
        for offset, report in enumerate(reports, first_offset)
    ]
    config = DecodeConfig(cluster, "commands", {})
    blocks = decode([pa.RecordBatch.from_pylist(records, _RECORD)], config)
    rows = [row for block in blocks for row in block.to_pylist() if row["cluster"] == cluster]
    for row in rows:
        if row["events"] is not None:
            require_accepted(path, reports, from_bytes(row["events"]), first_offset)
    if not rows or rows[0]["reports"] is None:
        raise QueryError(f"{path} has no load report of {cluster}: expected one on a line", 2)
    samples = from_bytes(rows[0]["samples"])
    return Batch(from_bytes(rows[0]["reports"]), samples, NO_EVENTS)


def require_accepted(
    path: Path, reports: Sequence[Report], events: pa.Table, first_offset: int = 0
) -> None:
    """Raise QueryError for the first rejected report: line, field, value, what was expected.

    `events`: rows of EVENT_SCHEMA; their offsets count the reports from `first_offset`.
    """
    rejected = [event for event in events.to_pylist() if event["kind"] == "rejected"]
    if not rejected:
        return
    first = min(rejected, key=lambda event: reports[event["offset"] - first_offset].line)
    line, why = reports[first["offset"] - first_offset].line, json.loads(first["payload"])
    text = f"{why['field']} = {why['value']}: expected {why['expected']}"
    more = f" (and {len(rejected) - 1} more such lines)" if len(rejected) > 1 else ""
    raise QueryError(f"{path}, line {line}: {text}{more}. The job would reject this report", 2)


def build_history(
    path: Path,
    cluster: str,
    broker: str | None = None,
    resolution_ms: int = 60_000,
    from_ms: int | None = None,
    to_ms: int | None = None,
    settings: Mapping[str, object] = {},
) -> Row:
    """Return a cluster's past from a file's reports, as `tables.load_history` does from tables.

    A slot has what was reported until its end. `from_ms` None: from the first slot on. `to_ms`
    None: until the last slot. Raises QueryError, and SettingError for a setting.
    """
    reports = read_reports(path, broker)
    return fold_history(path, cluster, reports, resolution_ms, from_ms, to_ms, settings)[0]


def fold_history(
    path: Path,
    cluster: str,
    given: Sequence[Report],
    resolution_ms: int = 60_000,
    from_ms: int | None = None,
    to_ms: int | None = None,
    settings: Mapping[str, object] = {},
) -> tuple[Row, Shard]:
    """Return the same of reports that `read_reports` has read, and the averages at their end."""
    reports = sorted(given, key=lambda report: report.at_ms or 0)
    if any(report.at_ms is None for report in reports):
        raise QueryError(
            f"{path}: a report has no time: expected capturedAtMs, lastUpdate or timestamp in each",
            2,
        )
    config, shard, offset = resolve(settings).config.fold, Shard.empty(), 0
    before_ms: int | None = None
    bundles, brokers = [], []
    before_end = [report for report in reports if to_ms is None or (report.at_ms or 0) < to_ms]
    for _, group in groupby(before_end, key=lambda report: int(report.at_ms or 0) // resolution_ms):
        slot_reports = list(group)
        now_ms = int(slot_reports[-1].at_ms or 0)
        batch = decode_reports(path, cluster, slot_reports, offset)
        shard, rejected = fold(shard, batch, now_ms, config)
        require_accepted(path, slot_reports, rejected, offset)
        offset += len(slot_reports)
        if (slot := next_slot(before_ms, now_ms, resolution_ms)) is not None:
            slotted = [SlottedShard(cluster, shard, slot)]
            bundles.append(bundle_rows(slotted))
            brokers.append(broker_rows(slotted))
        before_ms = now_ms
    if not bundles:
        raise QueryError(f"{path} has no report from before the end, {utc(to_ms or 0)}", 2)
    slots = [rows["slot_ms"][0].as_py() for rows in brokers]
    history = {
        "cluster": cluster,
        "from_ms": slots[0] if from_ms is None else from_ms,
        "to_ms": slots[-1] + resolution_ms if to_ms is None else to_ms,
        "resolution_ms": resolution_ms,
        "bundles": pa.concat_tables(bundles),
        "brokers": pa.concat_tables(brokers),
        "alive": _LIVES.empty_table(),
        "drains": _DRAINS.empty_table(),
        "settings": settings,
        "report_interval_s": _find_interval_s(reports),
    }
    return history, shard


def _find_interval_s(reports: list[Report]) -> float | None:
    """Return the median time between two reports of a broker; None: no broker has two."""
    at_s: dict[str, list[float]] = {}
    for report in reports:
        at_s.setdefault(report.broker, []).append((report.at_ms or 0) / 1000)
    gaps = np.concatenate([np.diff(times) for times in at_s.values()])
    return float(np.median(gaps)) if len(gaps) else None
