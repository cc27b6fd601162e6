"""Gathers what several decoding tasks have read for one shard, or for many shards at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Row

from lb_stream.core.model.blocks import (
    NO_EVENTS,
    NO_REPORTS,
    NO_SAMPLES,
    Batch,
    from_bytes,
)
from lb_stream.core.model.view import Ints

Read = Callable[[str], pa.Table]
"""Returns the block of a reference."""


class MemberRow(NamedTuple):
    """What one decoding task has read for a cluster of one shard: a row of MEMBER_SCHEMA.

    `first`: the task's first record. Attributes of Spark's `Row` are searched by name each time.
    """

    cluster: str
    blocks: Sequence[str]
    reports: bytes | None
    samples: bytes | None
    stored_reports: str | None
    stored_samples: str | None
    events: bytes | None
    first: str


TaskRow = Row | MemberRow
"""What one decoding task has read for one shard."""


class _Part(NamedTuple):
    """Some rows of a table."""

    table: pa.Table
    begin: int
    rows: int

    @staticmethod
    def whole(table: pa.Table) -> _Part:
        """Return all rows of a table."""
        return _Part(table, 0, len(table))

    @staticmethod
    def stored(place: str, read: Read) -> _Part:
        """Return the rows at a place, which is written as a shard's rows of a shared block are.

        They are not cut out here: rows of several parts are taken at once.
        """
        reference, begin, rows = place.rsplit(":", 2)
        return _Part(read(reference), int(begin), int(rows))


def gather_batch(rows: Iterable[TaskRow], read: Read) -> Batch:
    """Return the records of one shard. `rows`: one of each decoding task that has read some."""
    return gather_batches([rows], read)[0]


def gather_batches(shards: Sequence[Iterable[TaskRow]], read: Read) -> list[Batch]:
    """Return the records of each shard, in the order of the tasks' first records.

    `shards`: the rows of each, one of each decoding task. All tables are gathered at once, however
    many shards there are: each batch has slices of them.
    """
    reports: list[_Part] = []
    samples: list[_Part] = []
    before: list[int] = []  # of each part of the samples: reports of earlier tasks in its shard
    ends = np.zeros((len(shards), 2), np.int64)  # where each shard's reports and samples end
    events: list[pa.Table] = []
    for number, rows in enumerate(shards):
        own_events: list[pa.Table] = []
        count = measured = 0
        for row in sorted(rows, key=lambda row: row.first):
            if row.events is not None:
                own_events.append(from_bytes(row.events))
            if row.reports is not None or row.stored_reports is not None:
                of_reports, of_samples = _read_content(row, read)
                reports.append(of_reports)
                samples.append(of_samples)
                before.append(count)
                count += of_reports.rows
                measured += of_samples.rows
        ends[number] = count, measured
        events.append(_concat_events(own_events))
    all_reports, all_samples = _gather(reports, NO_REPORTS), _gather(samples, NO_SAMPLES)
    all_samples = _renumber(all_samples, before, [part.rows for part in samples])
    starts = (np.cumsum(ends, axis=0) - ends).tolist()
    return [
        Batch(all_reports.slice(begin, count), all_samples.slice(first, measured), own)
        for (begin, first), (count, measured), own in zip(
            starts, ends.tolist(), events, strict=True
        )
    ]


def count_samples(rows: Iterable[TaskRow]) -> int:
    """Return the number of samples that decoding tasks have read for a shard; O(rows)."""
    count = 0
    for row in rows:
        if row.stored_samples is not None:
            count += int(row.stored_samples.rpartition(":")[2])
        elif row.samples is not None:
            count += len(from_bytes(row.samples))
    return count


def _read_content(row: TaskRow, read: Read) -> tuple[_Part, _Part]:
    """Return reports and samples, from the row itself or from the blocks that it refers to."""
    if row.stored_reports is None:
        assert row.reports is not None and row.samples is not None, "a row has both or none"
        return _Part.whole(from_bytes(row.reports)), _Part.whole(from_bytes(row.samples))
    samples = _Part.whole(NO_SAMPLES)
    if row.stored_samples is not None:
        samples = _Part.stored(row.stored_samples, read)
    return _Part.stored(row.stored_reports, read), samples


def _concat_events(tables: list[pa.Table]) -> pa.Table:
    if not tables:
        return NO_EVENTS
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()


def _renumber(samples: pa.Table, before: Sequence[int], counts: Sequence[int]) -> pa.Table:
    """Return samples whose rows of reports count on from those of earlier tasks."""
    if not any(before):
        return samples
    added = np.repeat(np.array(before, np.int32), counts)
    at = samples.schema.get_field_index("report")
    column = pa.array(samples["report"].to_numpy() + added, pa.int32())
    return samples.set_column(at, samples.schema.field(at), column)


def _gather(parts: Sequence[_Part], empty: pa.Table) -> pa.Table:
    """Return the rows of all parts, one part after another, as one chunk."""
    parts = [part for part in parts if part.rows]
    if not parts:
        return empty
    # The rows of each table, one table after another.
    by_table: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        by_table.setdefault(id(part.table), []).append(number)
    pieces = [_take([parts[number] for number in own]) for own in by_table.values()]
    if len(pieces) == 1:
        return pieces[0]
    # The same rows in the order of the parts.
    order = [number for own in by_table.values() for number in own]
    lengths = np.array([part.rows for part in parts], np.int64)
    begins = np.empty(len(parts), np.int64)
    begins[order] = np.cumsum(lengths[order]) - lengths[order]
    joined = pa.concat_tables(pieces).combine_chunks()
    if order == sorted(order):
        return joined
    return joined.take(pa.array(_row_numbers(begins, lengths)))


def _take(parts: Sequence[_Part]) -> pa.Table:
    """Return the rows of parts of one table, one part after another."""
    table, begin, _ = parts[0]
    if all(part.begin + part.rows == after.begin for part, after in pairwise(parts)):
        return table.slice(begin, sum(part.rows for part in parts))
    begins, lengths = np.array([(part.begin, part.rows) for part in parts], np.int64).T
    return table.take(pa.array(_row_numbers(begins, lengths)))


def _row_numbers(begins: Ints, lengths: Ints) -> Ints:
    """Return the numbers of rows in runs of these lengths."""
    before = np.cumsum(lengths) - lengths
    found: Ints = np.repeat(begins - before, lengths) + np.arange(int(lengths.sum()))
    return found
