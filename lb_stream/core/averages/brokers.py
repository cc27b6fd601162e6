"""Folds brokers' reports and signs of life into the broker table.

It also decides which reports count, and which are new samples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

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
"""A lastUpdate this far before the broker's last one means a clock that was set back, no old
report."""

SIGNS_OF_LIFE = ("heartbeat", "ack", "goodbye")


def has_signs_of_life(batch: Batch) -> bool:
    """Whether the batch has a report or sign of life of any broker of the cluster.

    The answer is the same for all shards of a cluster, as each gets all of these records.
    """
    if len(batch.reports) or not len(batch.events):
        return len(batch.reports) > 0
    return bool(pc.any(pc.is_in(batch.events["kind"], value_set=pa.array(SIGNS_OF_LIFE))).as_py())


# The columns that decide whether a report counts. The others are only copied (_CARRIED).
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
_ABSENT = {"partition": -1, "signed_us": 0}
"""Column of the broker table that may be null → what stands for null in computations."""


def in_order(partition: Ints, offset: Ints, append_ms: Ints) -> Ints:
    """Return the order in which records count: by append time, then by partition and offset.

    Within a partition that is the order of offsets: an append time counts as at least that of the
    record before it.
    """
    by_offset = np.lexsort((offset, partition))
    times = append_ms[by_offset]
    for part in np.split(times, np.flatnonzero(np.diff(partition[by_offset])) + 1):
        np.maximum.accumulate(part, out=part)
    order: Ints = by_offset[np.argsort(times, kind="stable")]
    return order


class _Report(TypedDict):
    """The fields of a report, or of a known broker's last one, that decide whether it counts."""

    name: str
    topic: str
    partition: int
    offset: int
    append_ms: int
    digest: str
    start_timestamp_ms: int
    last_update_ms: int
    no_load: bool


@dataclass(frozen=True, slots=True)
class TakenReports:
    """The reports of a batch that count: rows of the reports, in the order in which they count."""

    accepted: Ints
    fresh: Ints  # accepted reports that are new samples
    loads: Ints  # accepted reports with their brokers' loads
    refused: pa.Table  # the other reports, as events
    broker: Ints  # row of the broker of each accepted report


@dataclass(frozen=True, slots=True)
class _Records:
    """A batch's reports, followed by its signs of life; an entry of each column for each record."""

    broker: Ints  # row of its broker; rows of new brokers follow those of known ones
    partition: Ints
    append_ms: Ints
    signed_us: Ints  # 0: no signature
    order: Ints  # the records in the order in which they count
    kind: pa.ChunkedArray  # of the signs of life only
    reports: int
    new_names: pa.Array

    @staticmethod
    def build(known: pa.Table, batch: Batch) -> _Records:
        """Return the records of a batch; `known`: the broker table."""
        lives = batch.events.filter(
            pc.is_in(batch.events["kind"], value_set=pa.array(SIGNS_OF_LIFE))
        )
        names = pa.concat_arrays([*batch.reports["name"].chunks, *lives["broker"].chunks])
        number = pc.index_in(names, value_set=one_array(known["name"]))
        new_names = pc.unique(names.filter(pc.is_null(number)))
        if len(new_names):
            places = pc.index_in(names, value_set=new_names)
            number = pc.coalesce(number, pc.add(places, pa.scalar(len(known), pa.int32())))
        partition, offset, append_ms = (
            np.concatenate([batch.reports[name].to_numpy(), lives[name].to_numpy()])
            for name in ("partition", "offset", "append_ms")
        )
        signed_us = np.concatenate(
            [table["signed_us"].fill_null(0).to_numpy() for table in (batch.reports, lives)]
        )
        order = in_order(partition, offset, append_ms)
        return _Records(
            number.to_numpy().astype(np.int64),
            partition,
            append_ms,
            signed_us,
            order,
            lives["kind"],
            len(batch.reports),
            new_names,
        )


def fold_brokers(known: pa.Table, batch: Batch) -> tuple[pa.Table, Ints, TakenReports]:
    """Fold reports, heartbeats, acknowledgements and goodbyes into the broker table.

    Returns the table, the new row of each known broker (with -1 at the end, for no broker), and
    the reports that count.
    """
    # The reports that count, and each broker's last report of its load. `reported` has its row in
    # one list of the known brokers and the reports.
    records = _Records.build(known, batch)
    taken = _take_reports(
        known, batch.reports, records.order[records.order < records.reports], records.broker
    )
    new = len(records.new_names)
    reported = np.append(np.arange(len(known)), np.full(new, -1))
    reported[records.broker[taken.loads]] = len(known) + taken.loads  # the last assignment stays
    # Signs of life, and the brokers in the order of their names.
    lives = _fold_signs_of_life(known, records, taken)
    order = np.flatnonzero(reported >= 0)  # without brokers that have never reported
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


@dataclass(slots=True)
class LastBrokers:
    """The last result of `fold_brokers`, for the next shard.

    All shards of a cluster have the same brokers, and get the same reports and signs of life.
    """

    _given: tuple[pa.Table, ...] = ()
    _result: tuple[pa.Table, Ints, TakenReports] | None = None

    def fold(self, known: pa.Table, batch: Batch) -> tuple[pa.Table, Ints, TakenReports]:
        """Return what `fold_brokers` does."""
        given = (known, batch.reports, batch.events)
        if self._result is None or not all(map(pa.Table.equals, self._given, given)):
            self._given, self._result = given, fold_brokers(known, batch)
        return self._result


def _fold_signs_of_life(
    known: pa.Table, records: _Records, taken: TakenReports
) -> dict[str, pa.Array | NDArray[np.generic]]:
    """Return columns of the known brokers, followed by the new ones: names and signs of life.

    Records of a new broker count from its first report on.
    """
    # The records that count.
    broker, order, new = records.broker, records.order, len(records.new_names)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    begins = np.append(np.full(len(known), -1), np.full(new, len(order)))
    np.minimum.at(begins, broker[taken.loads], place[taken.loads])
    lived = order[place[order] >= begins[broker[order]]]

    # When and where each broker was heard last.
    def padded(name: str) -> NDArray[Any]:
        column = known[name].fill_null(_ABSENT[name]) if name in _ABSENT else known[name]
        values = column.to_numpy(zero_copy_only=False)
        return np.concatenate([values, np.zeros(new, values.dtype)])

    seen_ms, reported_ms, partition, heartbeats, left, signed_us = map(
        padded, ("seen_ms", "reported_ms", "partition", "heartbeats", "left", "signed_us")
    )
    np.maximum.at(seen_ms, broker[lived], records.append_ms[lived])
    np.maximum.at(signed_us, broker[lived], records.signed_us[lived])
    reported_ms[broker[taken.loads]] = records.append_ms[taken.loads]
    partition[broker[lived]] = records.partition[lived]
    # Whether it sends heartbeats, and whether its last record is a goodbye.
    beats, goodbyes, decisive = (np.zeros(len(order), np.bool_) for _ in range(3))
    for flags, kind in ((beats, "heartbeat"), (goodbyes, "goodbye")):
        flags[records.reports :] = pc.equal(records.kind, kind).to_numpy(zero_copy_only=False)
    heartbeats[broker[lived[beats[lived]]]] = True
    decisive[records.reports :] = decisive[taken.loads] = True  # a report ends a goodbye, too
    last = lived[decisive[lived]]
    left[broker[last]] = goodbyes[last]
    # Whether it has sent a new sample.
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
        "signed_us": pa.array(signed_us, mask=signed_us == 0),
    }


def _take_reports(known: pa.Table, reports: pa.Table, order: Ints, broker: Ints) -> TakenReports:
    """Find the reports that count, those that are new samples, and those that are refused.

    `order`: rows of reports in the order in which they count. `broker`: each record's broker.
    Nearly all brokers are known and have one report in a batch: these reports are compared as
    columns, the others one by one.
    """
    # The reports that are the only ones of a known broker.
    no_load = reports["no_load"].fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
    broker = broker[: len(reports)]
    alone = (
        (np.bincount(broker)[broker] == 1) & (broker < len(known)) & ~no_load
        if len(broker)
        else no_load
    )
    # Those of them that are not old, and that differ from the broker's last report.
    rows = np.flatnonzero(alone)
    brokers = pa.array(broker[rows])
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
    same = pc.equal(
        known["digest"].take(brokers), reports["digest"].take(pa.array(rows))
    ).fill_null(False)
    fresh[rows] = accepted[rows] & ~same.to_numpy().astype(np.bool_)
    expected = {
        at: _describe_min_last_update(int(known["last_update_ms"][int(broker[at])].as_py()))
        for at in rows[~accepted[rows]].tolist()
    }
    # The others, one after another.
    if len(rows) < len(reports):
        _take_reports_in_order(
            known, reports, order[~alone[order]], broker, accepted, fresh, expected
        )
    # The refused reports as events.
    refused = order[~accepted[order]]
    events = [
        _build_rejection(report, expected[at])
        for at, report in zip(refused.tolist(), _read_decisive(reports, refused), strict=True)
    ]
    taken = order[accepted[order]]
    rejected = pa.Table.from_pylist(events, EVENT_SCHEMA) if events else NO_EVENTS
    loads = taken[~no_load[taken]]
    return TakenReports(taken, order[fresh[order]], loads, rejected, broker[taken])


def _take_reports_in_order(
    known: pa.Table,
    reports: pa.Table,
    order: Ints,
    broker: Ints,
    accepted: NDArray[np.bool_],
    fresh: NDArray[np.bool_],
    expected: dict[int, str],
) -> None:
    """Judge the reports of new brokers, and of brokers with several, one after another.

    Each may depend on those before it. Sets rows of `accepted` and `fresh`, and in `expected` the
    text of what was expected of a refused report.
    """
    concerned = np.unique(broker[order])
    concerned = concerned[concerned < len(known)]
    last = dict(zip(concerned.tolist(), _read_decisive(known, concerned), strict=True))
    for at, report in zip(order.tolist(), _read_decisive(reports, order), strict=True):
        before = last.get(int(broker[at]))
        if report["no_load"]:
            accepted[at] = fresh[at] = before is not None
            expected[at] = "a broker whose load data is known: its top bundles alone are not enough"
            continue
        if before is not None and _is_old(before, report):
            expected[at] = _describe_min_last_update(before["last_update_ms"])
            continue
        accepted[at] = True
        fresh[at] = before is None or before["digest"] != report["digest"]
        last[int(broker[at])] = report


def _is_old(before: _Report, report: _Report) -> bool:
    """Whether a report is older than its broker's last one."""
    gap = before["last_update_ms"] - report["last_update_ms"]
    return (
        before["start_timestamp_ms"] == report["start_timestamp_ms"]
        and 0 < gap < CLOCK_CORRECTED_MS
    )


def _read_decisive(table: pa.Table, rows: Ints) -> list[_Report]:
    """Return the fields of these reports that decide whether they count."""
    if not len(rows):
        return []
    given = set(table.column_names)
    found: list[_Report] = (
        table.select([name for name in _DECISIVE if name in given]).take(pa.array(rows)).to_pylist()
    )
    return found


def _broker_table(
    known: pa.Table,
    reports: pa.Table,
    lives: Mapping[str, pa.Array | NDArray[np.generic]],
    reported: Ints,
) -> pa.Table:
    """Return the broker table; `reported`: the row of each broker's last report.

    Rows of the known brokers come first, then those of the reports.
    """
    carried = pa.concat_tables([known.select(_CARRIED), reports.select(_CARRIED)]).take(
        pa.array(reported)
    )
    columns = {
        name: carried[name] if name in _CARRIED else lives[name] for name in BROKER_SCHEMA.names
    }
    return pa.table(columns, schema=BROKER_SCHEMA).combine_chunks()


def _describe_min_last_update(last_update_ms: int) -> str:
    """Describe the lastUpdate that was expected of a report."""
    return f">= {last_update_ms}, the broker's last report"


def _build_rejection(report: _Report, expected: str) -> dict[str, object]:
    """Return the event of a refused report, with the wrong field."""
    field_name, value = (
        ("key", report["name"])
        if report["no_load"]
        else ("lastUpdate", str(report["last_update_ms"]))
    )
    payload = {"field": field_name, "value": value, "expected": expected}
    return {
        "kind": "rejected",
        "broker": report["name"],
        "payload": json.dumps(payload),
        "topic": report["topic"],
        "partition": report["partition"],
        "offset": report["offset"],
        "append_ms": report["append_ms"],
    }
