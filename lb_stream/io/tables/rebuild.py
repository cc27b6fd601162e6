"""Rebuilds tables that follow from the log, each by one commit: readers see the old or the new one.

Rows that the log can't give any more are taken over from the old table: those of batches that
upkeep has deleted from the log, and figures whose files have been compacted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyarrow.dataset import Dataset

from lb_stream.contracts.audit import CUT
from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import AUDIT, ROUNDS, TABLES
from lb_stream.io.tables.audit import audit_rows, chain, find_heads
from lb_stream.io.tables.commits import Table
from lb_stream.io.tables.compaction import compaction_mark
from lb_stream.io.tables.delta import (
    apply_properties,
    arrow_schema,
    build_commit_properties,
    existing_table,
    numeric_dataset,
    open_table,
    plain_type,
    write_rows,
)
from lb_stream.io.tables.log import LogError, find_pipeline, read_batches
from lb_stream.io.tables.projections import (
    FILE_TABLES,
    PRESENT_TABLES,
    ROW_TABLES,
    LatestRowTable,
    Row,
    named_files,
)
from lb_stream.store import Store
from lb_stream.stream.ports import FatalError, Logged

CHUNK_ROWS = 50_000
FILE_BYTES = 128 * 2**20
"""Bytes of a new file's rows in memory; on disk the file is much smaller."""
REBUILT = "rebuilt"
"""Begins the names of the new files."""

Report = Callable[[str, int, int], None]
"""A function that shows progress: the table's name, batches done, batches in all."""


class RebuildRefused(FatalError):
    """A table can't be rebuilt, and is unchanged. The text says why and what to do."""


@dataclass(slots=True)
class Rebuilt:
    """The result for one table.

    `batches`: of the log; `taken_over`: rows of the old table that the log can't give any more;
    `lost`: rows that the log names, whose file is gone, and that the old table didn't have either;
    `first_log_seq`: the log is complete from this number on.
    """

    table: str
    rows: int = 0
    batches: int = 0
    taken_over: int = 0
    lost: int = 0
    first_log_seq: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Log:
    """The part of the log from which tables are rebuilt.

    `log_seqs`: the batch of each row; `first`, `last`: all batches from one to the other are there.
    """

    rows: Dataset
    pipeline: str
    log_seqs: pa.ChunkedArray
    first: int
    last: int

    def batches(self) -> Iterator[Logged]:
        """Yield the batches, in order."""
        return read_batches(self.rows, self.log_seqs)


@dataclass(frozen=True, slots=True)
class _OldTable:
    """The table before it is rebuilt; `table` None: it doesn't exist."""

    spec: TableSpec
    table: Table | None

    @property
    def usable(self) -> bool:
        """Return whether its rows name their batches."""
        return "log_seq" in self._columns

    @property
    def _columns(self) -> list[str]:
        """Return its columns whose type is that of the specification."""
        if self.table is None:
            return []
        types = {field.name: plain_type(field.type) for field in arrow_schema(self.table)}
        return [field.name for field in self.spec.schema if types.get(field.name) == field.type]

    def rows(self, wanted: pc.Expression) -> Iterator[pa.RecordBatch]:
        """Yield its rows with the columns of the specification.

        A column that it doesn't have, or has with another type, is null.
        """
        if self.table is None or not self.usable:
            return
        for batch in numeric_dataset(self.table).to_batches(columns=self._columns, filter=wanted):
            known = {name: batch[name] for name in self._columns}
            arrays = [
                known[field.name].cast(field.type)
                if field.name in known
                else pa.nulls(len(batch), field.type)
                for field in self.spec.schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.spec.schema)


def rebuildable_tables() -> list[str]:
    """Return the names of the tables that can be rebuilt."""
    return [spec.name for spec in TABLES if spec.from_log]


def rebuild(
    root: Store, names: Sequence[str], report: Report = lambda *_: None
) -> Iterator[Rebuilt]:
    """Rebuild these tables one after another, and yield the result for each.

    `root`: the folder of all tables. Raises RebuildRefused if a job or upkeep writes to the table
    meanwhile, and LogError if there is no log.
    """
    log = _open_log(root)
    for spec in (spec for spec in TABLES if spec.name in names):
        yield _rebuild(root, spec, log, report)


def _open_log(root: Store) -> _Log:
    """Open the log as far as it has been projected.

    The job's next start publishes and projects the batches after that.
    """
    table = open_table(root, ROUNDS) if existing_table(root, ROUNDS) is not None else None
    if table is None or (pipeline := find_pipeline(table)) is None:
        raise LogError(
            f"there is no log in {root / ROUNDS.name}: name the tables' folder with stream.tables"
        )

    # The last batch that any table has; without tables the last one of the log.
    others = [existing_table(root, spec) for spec in TABLES if spec.from_log]
    numbers = [other.transaction_version(pipeline) for other in others if other is not None]
    if not (projected := [number for number in numbers if number is not None]):
        newest = table.transaction_version(pipeline)
        projected = [-1 if newest is None else newest]
    last = max(projected)

    # The first batch from which on none is missing: of older ones upkeep leaves single rounds.
    rows = numeric_dataset(table)
    log_seqs = rows.to_table(columns=["log_seq"], filter=pc.field("log_seq") <= last)["log_seq"]
    batches = np.unique(log_seqs.to_numpy())
    first = 0
    if len(batches):
        gaps = np.flatnonzero(np.diff(batches) != 1)
        first = int(batches[gaps[-1] + 1] if len(gaps) else batches[0])
    return _Log(rows, pipeline, pc.filter(log_seqs, pc.greater_equal(log_seqs, first)), first, last)


def _rebuild(root: Store, spec: TableSpec, log: _Log, report: Report) -> Rebuilt:
    begin = time.perf_counter()
    existing = existing_table(root, spec)
    table = open_table(root, spec) if existing is None else existing
    if table.metadata().partition_columns:  # no table that follows from the log has partitions
        raise RebuildRefused(
            f"the table {spec.name} at {table.store} has partitions: move its folder away, then "
            "rebuild once more"
        )
    batches = pc.count_distinct(log.log_seqs).as_py()
    done = Rebuilt(spec.name, batches=batches, first_log_seq=log.first)
    source = _Source(spec, _OldTable(spec, existing), log, table.store, done)

    def rows() -> Iterator[pa.RecordBatch]:
        for number, step in enumerate(source.steps()):
            report(spec.name, min(number, batches), batches)
            yield from step

    try:
        apply_properties(table, spec)
        files = list(_write(table, spec, rows(), done))
        marks = build_commit_properties([(log.pipeline, log.last), compaction_mark(table)])
        # This also replaces the table's columns.
        table.create_write_transaction(
            [*files], mode="overwrite", schema=spec.schema, commit_properties=marks
        )
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


Steps = Iterator[Iterable[pa.RecordBatch]]
"""A table's rows, step by step: those that are taken over, and those of each batch."""


class _Source(NamedTuple):
    """Where the rows of a rebuilt table come from.

    `store`: the table's; `done`: the result, in which rows that are taken over or lost are counted.
    """

    spec: TableSpec
    old: _OldTable
    log: _Log
    store: Store
    done: Rebuilt

    def steps(self) -> Steps:
        """Return the table's rows."""
        if self.spec in FILE_TABLES:
            return self._from_files()
        for table in PRESENT_TABLES:
            if table.spec is self.spec:
                return self._latest_rows(table)
        if self.spec is AUDIT:
            return self._chained_rows()
        return self._from_log()

    def _take_over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of the old table, and count them."""
        for batch in batches:
            self.done.taken_over += len(batch)
            yield batch

    def _before_log(self) -> Iterator[pa.RecordBatch]:
        """Yield the old table's rows of batches that the log doesn't have any more."""
        return self.old.rows(pc.field("log_seq") < self.log.first)

    def _from_log(self) -> Steps:
        """Yield the rows of a table whose rows are in the log."""
        project = {spec.name: project for spec, project in ROW_TABLES}[self.spec.name]
        yield self._take_over(self._before_log())
        for logged in self.log.batches():
            yield pa.Table.from_pylist(project(logged), self.spec.schema).to_batches()

    def _chained_rows(self) -> Steps:
        """Yield the rows of the audit: the chain goes on from what is taken over.

        Rows that upkeep has deleted don't come back: the row that stands for them stays.
        """
        old = (_rows_to_keep(batch, self.log.first) for batch in self.old.rows(pc.scalar(True)))
        kept = pa.Table.from_batches(self._take_over(old), self.spec.schema)
        yield kept.to_batches()
        heads = find_heads(kept)
        cuts = kept.filter(pc.equal(kept["kind"], CUT)).select(["cluster", "log_seq"]).to_pylist()
        cut_until = {row["cluster"]: row["log_seq"] for row in cuts}
        for logged in self.log.batches():
            rows = [
                row
                for row in audit_rows(logged)
                if row["log_seq"] > cut_until.get(row["cluster"], -1)
            ]
            yield pa.Table.from_pylist(chain(rows, heads), self.spec.schema).to_batches()

    def _from_files(self) -> Steps:
        """Yield the rows of a table whose files the log names.

        If a file is gone, its batch's rows are taken over from the old table.
        """
        yield self._take_over(self._before_log())

        # Files that exist; of the other batches only the number of rows is known.
        missing: dict[int, int] = {}
        for logged in self.log.batches():
            files = {file["path"]: file["rows"] for file in named_files(self.spec, logged)}
            existing = [path for path in files if self.store.stat(path) is not None]
            if len(existing) < len(files) and self.old.usable:
                missing[logged.log_seq] = sum(files.values())
                continue
            self.done.lost += sum(rows for path, rows in files.items() if path not in existing)
            yield (batch for path in existing for batch in self._read(path).to_batches())

        # Rows of batches whose files have been compacted, or are lost.
        before = self.done.taken_over
        yield self._take_over(self.old.rows(pc.field("log_seq").isin(list(missing))))
        found = self.done.taken_over - before
        self.done.lost += max(0, sum(missing.values()) - found)

    def _read(self, path: str) -> pa.Table:
        """Return a file's rows with the table's columns."""
        rows = pq.read_table(pa.BufferReader(self.store.get(path)))
        return rows.select(self.spec.schema.names).cast(self.spec.schema)

    def _latest_rows(self, table: LatestRowTable) -> Steps:
        """Yield the last row of each bundle."""
        last: dict[tuple[str, str], Row] = {}
        for logged in self.log.batches():
            last |= table.last(logged)
            yield ()
        yield self._take_over(_without(self._before_log(), last))
        keys = sorted(key for key, row in last.items() if row[table.by] != table.end)
        for start in range(0, len(keys), CHUNK_ROWS):
            rows = [last[key] for key in keys[start : start + CHUNK_ROWS]]
            yield pa.Table.from_pylist(rows, self.spec.schema).to_batches()


def _rows_to_keep(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return the rows of an audit that the log can't give: of older batches, and of upkeep."""
    return batch.filter(pc.or_(pc.less(batch["log_seq"], first), pc.equal(batch["kind"], CUT)))


def _without(
    batches: Iterable[pa.RecordBatch], keys: Container[tuple[str, str]]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows whose cluster and bundle are not among the keys."""
    for batch in batches:
        own = zip(batch["cluster"].to_pylist(), batch["bundle"].to_pylist(), strict=True)
        yield batch.filter(pa.array([key not in keys for key in own], pa.bool_()))
