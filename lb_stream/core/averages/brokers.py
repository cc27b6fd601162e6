"""Reports and signs of life of brokers, taken into the broker table: who lives, which reports
count, which are new samples."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.model.blocks import (
    BROKER_SCHEMA,
    EVENT_SCHEMA,
    NO_EVENTS,
    REPORT_FIELDS,
    Batch,
    one_array,
)
from lb_stream.core.model.view import Ints

CLOCK_CORRECTED_MS = 3_600_000
"""A report whose lastUpdate lies this far or farther behind the broker's previous one is no old
report: its clock was set back."""
SIGNS_OF_LIFE = ("heartbeat", "ack", "goodbye")


def has_signs_of_life(batch: Batch) -> bool:
    """Whether any broker of the cluster was heard.

    Every shard gets all reports and signs of life, so all shards agree.
    """
    if len(batch.reports) or not len(batch.events):
        return len(batch.reports) > 0
    return bool(pc.any(pc.is_in(batch.events["kind"], value_set=pa.array(SIGNS_OF_LIFE))).as_py())


# What decides about a report; the rest of it is only carried along, as columns.
_DECISIVE = (
    "name",
    "topic",
    "partition",
    "offset",
    "append_ms",
    "digest",
    "start_timestamp_ms",
    "last_update_ms",
    "no_load",
)
_CARRIED = [field.name for field in REPORT_FIELDS]


def _in_order(partition: Ints, offset: Ints, append_ms: Ints) -> Ints:
    """The order in which records count: that of their append times, then of partition and offset.

    Within a partition it is the order of the offsets: should the clock that stamps the records run
    backwards, it stands still here.
    """
    by_offset = np.lexsort((offset, partition))
    times = append_ms[by_offset]
    for part in np.split(times, np.flatnonzero(np.diff(partition[by_offset])) + 1):
        np.maximum.accumulate(part, out=part)
    order: Ints = by_offset[np.argsort(times, kind="stable")]
    return order


@dataclass(frozen=True, slots=True)
class TakenReports:
    """What came of a batch's reports: rows of its reports in the order in which they count, and the
    refused ones as events."""

    accepted: Ints
    fresh: Ints  # accepted ones that are new samples
    loads: Ints  # accepted ones that say what their broker carries
    refused: pa.Table
    broker: Ints  # of each accepted one


@dataclass(frozen=True, slots=True)
class _Records:
    """A batch's reports and, after them, its signs of life: one entry of each column for each
    record."""

    broker: Ints  # number of its broker: the row of a known one, new ones behind these
    partition: Ints
    append_ms: Ints
    order: Ints  # the records in the order in which they count
    kind: pa.ChunkedArray  # of the signs of life only
    reports: int
    new_names: pa.Array

    @staticmethod
    def of(known: pa.Table, batch: Batch) -> _Records:
        lives = batch.events.filter(
            pc.is_in(batch.events["kind"], value_set=pa.array(SIGNS_OF_LIFE))
        )
        names = pa.concat_arrays([*batch.reports["name"].chunks, *lives["broker"].chunks])
        number = pc.index_in(names, value_set=one_array(known["name"]))
        new_names = pc.unique(names.filter(pc.is_null(number)))
        if len(new_names):
            number = pc.coalesce(
                number,
                pc.add(pc.index_in(names, value_set=new_names), pa.scalar(len(known), pa.int32())),
            )
        partition, offset, append_ms = (
            np.concatenate([batch.reports[name].to_numpy(), lives[name].to_numpy()])
            for name in ("partition", "offset", "append_ms")
        )
        order = _in_order(partition, offset, append_ms)
        return _Records(
            number.to_numpy().astype(np.int64),
            partition,
            append_ms,
            order,
            lives["kind"],
            len(batch.reports),
            new_names,
        )


def fold_brokers(known: pa.Table, batch: Batch) -> tuple[pa.Table, Ints, TakenReports]:
    """Take reports, heartbeats, acknowledgements and goodbyes into the broker table.

    Returns it, where each known broker's row is in it (with -1 at the end, for nobody), and what
    came of the reports.
    """
    records = _Records.of(known, batch)
    taken = _take_reports(
        known, batch.reports, records.order[records.order < records.reports], records.broker
    )
    new = len(records.new_names)
    reported = np.append(
        np.arange(len(known)), np.full(new, -1)
    )  # row of the known brokers and then of the reports
    reported[records.broker[taken.loads]] = len(known) + taken.loads  # the last one stays
    lives = _fold_signs_of_life(known, records, taken)
    order = np.flatnonzero(reported >= 0)  # without those that have reported nothing yet
    if new:
        order = order[pc.sort_indices(lives["name"].take(pa.array(order))).to_numpy()]
        lives = {name: pa.array(column).take(pa.array(order)) for name, column in lives.items()}
    row_of = np.full(len(known) + new + 1, -1)
    row_of[order] = np.arange(len(order))
    taken = replace(taken, broker=row_of[records.broker[taken.accepted]])
    return (
        _broker_table(known, batch.reports, lives, reported[order]),
        np.append(row_of[: len(known)], -1),
        taken,
    )


def _fold_signs_of_life(known: pa.Table, records: _Records, taken: TakenReports) -> dict[str, Any]:
    """Name, signs of life and news of the known brokers and then the new ones.

    A new one's life begins with its first report.
    """
    broker, order, new = records.broker, records.order, len(records.new_names)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    begins = np.append(np.full(len(known), -1), np.full(new, len(order)))
    np.minimum.at(begins, broker[taken.loads], place[taken.loads])
    lived = order[place[order] >= begins[broker[order]]]

    def padded(name: str) -> NDArray[Any]:
        column = known[name].fill_null(-1) if name == "partition" else known[name]
        values = column.to_numpy(zero_copy_only=False)
        return np.concatenate([values, np.zeros(new, values.dtype)])

    seen_ms, reported_ms, partition, heartbeats, left = map(
        padded, ("seen_ms", "reported_ms", "partition", "heartbeats", "left")
    )
    np.maximum.at(seen_ms, broker[lived], records.append_ms[lived])
    reported_ms[broker[taken.loads]] = records.append_ms[taken.loads]
    partition[broker[lived]] = records.partition[lived]
    beats, goodbyes, decisive = (np.zeros(len(order), np.bool_) for _ in range(3))
    for flags, kind in ((beats, "heartbeat"), (goodbyes, "goodbye")):
        flags[records.reports :] = pc.equal(records.kind, kind).to_numpy(zero_copy_only=False)
    heartbeats[broker[lived[beats[lived]]]] = True
    decisive[records.reports :] = decisive[taken.loads] = (
        True  # a report is no goodbye, and neither is another sign of life
    )
    last = lived[decisive[lived]]
    left[broker[last]] = goodbyes[last]
    sampled = np.zeros(len(known) + new, np.bool_)
    sampled[broker[taken.fresh]] = True
    return {
        "name": pa.concat_arrays([one_array(known["name"]), records.new_names]),
        "seen_ms": seen_ms,
        "reported_ms": reported_ms,
        "heartbeats": heartbeats,
        "left": left,
        "partition": pa.array(partition, mask=partition < 0),
        "sampled": sampled,
    }


def _take_reports(known: pa.Table, reports: pa.Table, order: Ints, broker: Ints) -> TakenReports:
    """Which reports count, which are new samples, which are refused.

    `order`: their rows; `broker`: row of each one's broker.

    Where a known broker's only report is concerned, as nearly always, that is a comparison of
    columns.
    """
    no_load = reports["no_load"].fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
    broker = broker[: len(reports)]
    alone = (
        (np.bincount(broker)[broker] == 1) & (broker < len(known)) & ~no_load
        if len(broker)
        else no_load
    )
    rows = np.flatnonzero(alone)
    its = pa.array(broker[rows])
    accepted, fresh = alone.copy(), np.zeros(len(reports), np.bool_)
    gap = (
        known["last_update_ms"].to_numpy()[broker[rows]]
        - reports["last_update_ms"].to_numpy()[rows]
    )
    same_start = (
        known["start_timestamp_ms"].to_numpy()[broker[rows]]
        == reports["start_timestamp_ms"].to_numpy()[rows]
    )
    accepted[rows] = ~(same_start & (gap > 0) & (gap < CLOCK_CORRECTED_MS))
    same = pc.equal(known["digest"].take(its), reports["digest"].take(pa.array(rows))).fill_null(
        False
    )
    fresh[rows] = accepted[rows] & ~same.to_numpy().astype(np.bool_)
    expected = {
        at: _describe_min_last_update(int(known["last_update_ms"][int(broker[at])].as_py()))
        for at in rows[~accepted[rows]].tolist()
    }
    if len(rows) < len(reports):
        _take_reports_in_order(
            known, reports, order[~alone[order]], broker, accepted, fresh, expected
        )
    refused = order[~accepted[order]]
    events = [
        _build_rejection(report, expected[at])
        for at, report in zip(refused.tolist(), _read_decisive(reports, refused), strict=True)
    ]
    taken = order[accepted[order]]
    told = pa.Table.from_pylist(events, EVENT_SCHEMA) if events else NO_EVENTS
    return TakenReports(taken, order[fresh[order]], taken[~no_load[taken]], told, broker[taken])


def _take_reports_in_order(
    known: pa.Table,
    reports: pa.Table,
    order: Ints,
    broker: Ints,
    accepted: NDArray[np.bool_],
    fresh: NDArray[np.bool_],
    expected: dict[int, str],
) -> None:
    """The same, report by report: for new brokers and for brokers with several reports, where each
    depends on those before it."""
    mine = np.unique(broker[order])
    mine = mine[mine < len(known)]
    last = dict(zip(mine.tolist(), _read_decisive(known, mine), strict=True))
    for at, report in zip(order.tolist(), _read_decisive(reports, order), strict=True):
        before = last.get(int(broker[at]))
        if report["no_load"]:
            accepted[at] = fresh[at] = before is not None
            expected[at] = "a broker whose load data is known: its top bundles alone say too little"
            continue
        if before is not None and _is_old(before, report):
            expected[at] = _describe_min_last_update(before["last_update_ms"])
            continue
        accepted[at] = True
        fresh[at] = before is None or before["digest"] != report["digest"]
        last[int(broker[at])] = report


def _is_old(before: dict[str, Any], report: dict[str, Any]) -> bool:
    gap: int = before["last_update_ms"] - report["last_update_ms"]
    return (
        before["start_timestamp_ms"] == report["start_timestamp_ms"]
        and 0 < gap < CLOCK_CORRECTED_MS
    )


def _read_decisive(table: pa.Table, rows: Ints) -> list[dict[str, Any]]:
    """What decides about a report, as objects."""
    if not len(rows):
        return []
    given = set(table.column_names)
    found: list[dict[str, Any]] = (
        table.select([name for name in _DECISIVE if name in given]).take(pa.array(rows)).to_pylist()
    )
    return found


def _broker_table(
    known: pa.Table, reports: pa.Table, lives: dict[str, Any], reported: Ints
) -> pa.Table:
    """Brokers as given, with what they reported from that row of the known ones and then of the
    reports."""
    carried = pa.concat_tables([known.select(_CARRIED), reports.select(_CARRIED)]).take(
        pa.array(reported)
    )
    columns = {
        name: carried[name] if name in _CARRIED else lives[name] for name in BROKER_SCHEMA.names
    }
    return pa.table(columns, schema=BROKER_SCHEMA).combine_chunks()


def _describe_min_last_update(last_update_ms: int) -> str:
    return f">= {last_update_ms}, the broker's last report"


def _build_rejection(report: dict[str, Any], expected: str) -> dict[str, Any]:
    given = (
        ("key", report["name"])
        if report["no_load"]
        else ("lastUpdate", str(report["last_update_ms"]))
    )
    payload = {"field": given[0], "value": given[1], "expected": expected}
    position = {name: report[name] for name in ("topic", "partition", "offset", "append_ms")}
    return {"kind": "rejected", "broker": report["name"], "payload": json.dumps(payload)} | position
