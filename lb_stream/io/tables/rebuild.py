"""Writes the tables anew that follow from the log, each by one commit: a reader sees the old table
or the new one.

What the log can't tell any more is taken over from the table as it was: rows of batches that upkeep
has deleted from the log, and figures whose files have been put together with others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyarrow.dataset import Dataset

from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import ROUNDS, TABLES
from lb_stream.io.tables.commits import Table
from lb_stream.io.tables.compaction import compaction_mark
from lb_stream.io.tables.delta import (
    apply_properties,
    build_commit_properties,
    existing_table,
    numeric_dataset,
    open_table,
    plain_type,
    write_rows,
)
from lb_stream.io.tables.log import LogError, find_pipeline, read_batches
from lb_stream.io.tables.projections import FILE_TABLES, PRESENT_TABLES, ROW_TABLES, named_files
from lb_stream.store import Store
from lb_stream.stream.ports import FatalError, Logged

CHUNK_ROWS = 50_000
FILE_BYTES = 128 * 2**20
"""Of a new file's rows in memory; on the disk it is a fraction of that."""
REBUILT = "rebuilt"
"""Begins the names of the new files."""

Report = Callable[[str, int, int], None]
"""Is told how far a table is: its name, batches done, batches in all."""


class RebuildRefused(FatalError):
    """A table can't be written anew; it is as it was. The text says why and what to do."""


@dataclass(slots=True)
class Rebuilt:
    """What has become of one table."""

    table: str
    rows: int = 0
    batches: int = 0  # of the log
    taken_over: int = 0  # rows that were in the table and that the log can't tell any more
    lost: int = (
        0  # rows that the log names, whose file is gone and that were not in the table either
    )
    first_log_seq: int | None = None  # from here on the log is complete
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Log:
    """The log as a rebuild reads it."""

    rows: Dataset
    pipeline: str
    log_seqs: pa.ChunkedArray  # of each row that counts
    first: int  # all batches from this one on are there
    last: int

    def batches(self) -> Iterator[Logged]:
        return read_batches(self.rows, self.log_seqs)


@dataclass(frozen=True, slots=True)
class _Old:
    """What the table held before."""

    spec: TableSpec
    table: Table | None

    @property
    def usable(self) -> bool:
        """Whether its rows say which batch they belong to."""
        return "log_seq" in self._columns

    @property
    def _columns(self) -> list[str]:
        """Its columns that have the type of today."""
        types = (
            {one.name: plain_type(one.type) for one in pa.schema(self.table.schema().to_arrow())}
            if self.table is not None
            else {}
        )
        return [one.name for one in self.spec.schema if types.get(one.name) == one.type]

    def rows(self, wanted: pc.Expression) -> Iterator[pa.RecordBatch]:
        """Its rows in the columns of today; one that it lacks, or has in another type, is empty."""
        if self.table is None or not self.usable:
            return
        for batch in numeric_dataset(self.table).to_batches(columns=self._columns, filter=wanted):
            known = {name: batch[name] for name in self._columns}
            arrays = [
                known[one.name].cast(one.type)
                if one.name in known
                else pa.nulls(len(batch), one.type)
                for one in self.spec.schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.spec.schema)


def rebuildable_tables() -> list[str]:
    """The tables that can be written anew."""
    return [spec.name for spec in TABLES if spec.from_log]


def rebuild(
    root: Store, names: Sequence[str], report: Report = lambda *_: None
) -> Iterator[Rebuilt]:
    """Write these tables anew, one after another. `root`: the folder of all tables.

    Raises RebuildRefused when a job or upkeep writes to the table meanwhile, LogError when there is
    no log.
    """
    log = _open(root)
    for spec in (spec for spec in TABLES if spec.name in names):
        yield _rebuild(root, spec, log, report)


def _open(root: Store) -> _Log:
    """The log as far as it has been projected: what comes after that the job's next start projects,
    once it is published."""
    table = open_table(root, ROUNDS) if existing_table(root, ROUNDS) is not None else None
    if table is None or (pipeline := find_pipeline(table)) is None:
        raise LogError(
            f"there is no log in {root / ROUNDS.name}: name the tables' folder with stream.tables"
        )
    others = [
        other
        for spec in TABLES
        if spec.from_log and (other := existing_table(root, spec)) is not None
    ]
    versions = [
        version for other in others if (version := other.transaction_version(pipeline)) is not None
    ]
    end = table.transaction_version(pipeline)
    last = max(versions) if versions else -1 if end is None else end
    rows = numeric_dataset(table)
    log_seqs = rows.to_table(columns=["log_seq"], filter=pc.field("log_seq") <= last)["log_seq"]
    numbers = np.unique(log_seqs.to_numpy())
    holes = np.flatnonzero(np.diff(numbers) != 1)  # upkeep leaves each cluster's last round
    first = int(numbers[holes[-1] + 1] if len(holes) else numbers[0]) if len(numbers) else 0
    return _Log(rows, pipeline, pc.filter(log_seqs, pc.greater_equal(log_seqs, first)), first, last)


def _rebuild(root: Store, spec: TableSpec, log: _Log, report: Report) -> Rebuilt:
    begin = time.perf_counter()
    existing = existing_table(root, spec)
    table = open_table(root, spec) if existing is None else existing
    if table.metadata().partition_columns:  # no table that follows from the log has any
        raise RebuildRefused(
            f"the table {spec.name} at {table.store} has partitions: move its folder away, then "
            "rebuild once more"
        )
    old, done = (
        _Old(spec, existing),
        Rebuilt(
            spec.name, batches=pc.count_distinct(log.log_seqs).as_py(), first_log_seq=log.first
        ),
    )
    special = dict.fromkeys(
        (table.spec.name for table in PRESENT_TABLES), _present
    ) | dict.fromkeys((table.name for table in FILE_TABLES), _figures)
    source = special.get(spec.name, _rows)

    def rows() -> Iterator[pa.RecordBatch]:
        for number, some in enumerate(source(spec, old, log, table.store, done)):
            report(spec.name, min(number, done.batches), done.batches)
            yield from some

    try:
        apply_properties(table, spec)
        files = list(_write(table, spec, rows(), done))
        marks = build_commit_properties([(log.pipeline, log.last), compaction_mark(table)])
        table.create_write_transaction(
            [*files], mode="overwrite", schema=spec.schema, commit_properties=marks
        )  # the columns, too
    except CommitFailedError as error:
        raise RebuildRefused(
            f"a job, or upkeep, writes to {spec.name}: stop it, then rebuild once more. No row was "
            f"changed ({error})"
        ) from error
    done.seconds = time.perf_counter() - begin
    return done


def _write(
    table: Table, spec: TableSpec, rows: Iterable[pa.RecordBatch], done: Rebuilt
) -> Iterator[AddAction]:
    """Write rows to files of about FILE_BYTES, and count them."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        done.rows += len(batch)
        waiting.append(batch)
        size += batch.nbytes
        if size >= FILE_BYTES:
            yield write_rows(table, pa.Table.from_batches(waiting, spec.schema), REBUILT)
            waiting, size = [], 0
    if size:
        yield write_rows(table, pa.Table.from_batches(waiting, spec.schema), REBUILT)


# The sources of a table's rows: for each step (first what is taken over, then batch after batch)
# some record batches.

Steps = Iterator[Iterable[pa.RecordBatch]]


def _taken(batches: Iterable[pa.RecordBatch], done: Rebuilt) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        done.taken_over += len(batch)
        yield batch


def _rows(spec: TableSpec, old: _Old, log: _Log, _: Store, done: Rebuilt) -> Steps:
    """The rows of a table whose rows are in the log."""
    rows_of = {one.name: rows for one, rows in ROW_TABLES}[spec.name]
    yield _taken(old.rows(pc.field("log_seq") < log.first), done)
    for logged in log.batches():
        yield pa.Table.from_pylist(rows_of(logged), spec.schema).to_batches()


def _figures(spec: TableSpec, old: _Old, log: _Log, at: Store, done: Rebuilt) -> Steps:
    """The rows of a table whose files the log names.

    If a file is gone, its batch's rows are taken from the table.
    """
    yield _taken(old.rows(pc.field("log_seq") < log.first), done)
    gone: dict[int, int] = {}
    for logged in log.batches():
        files = {file["path"]: file["rows"] for file in named_files(spec, logged)}
        there = [path for path in files if at.stat(path) is not None]
        if len(there) < len(files) and old.usable:
            gone[logged.log_seq] = sum(files.values())
            continue
        done.lost += sum(rows for path, rows in files.items() if path not in there)
        yield (batch for path in there for batch in _read(at, path, spec.schema).to_batches())
    before = done.taken_over
    yield _taken(old.rows(pc.field("log_seq").isin(list(gone))), done)
    done.lost += max(0, sum(gone.values()) - (done.taken_over - before))


def _read(at: Store, path: str, schema: pa.Schema) -> pa.Table:
    """A file's rows, in the order of the table's columns."""
    return pq.read_table(pa.BufferReader(at.get(path))).select(schema.names).cast(schema)


def _present(spec: TableSpec, old: _Old, log: _Log, _: Store, done: Rebuilt) -> Steps:
    """The last row of each bundle."""
    (present,) = (table for table in PRESENT_TABLES if table.spec is spec)
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for logged in log.batches():
        last |= present.last(logged)
        yield ()
    yield _taken(_without(old.rows(pc.field("log_seq") < log.first), last), done)
    keys = sorted(key for key, row in last.items() if row[present.by] != present.end)
    for start in range(0, len(keys), CHUNK_ROWS):
        yield pa.Table.from_pylist(
            [last[key] for key in keys[start : start + CHUNK_ROWS]], spec.schema
        ).to_batches()


def _without(
    batches: Iterable[pa.RecordBatch], newer: Container[tuple[str, str]]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keys = zip(batch["cluster"].to_pylist(), batch["bundle"].to_pylist(), strict=True)
        yield batch.filter(pa.array([key not in newer for key in keys], pa.bool_()))
