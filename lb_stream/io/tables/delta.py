"""Delta tables through `deltalake`: opening, creating, appending at a cost that doesn't grow, and
what a writer has committed.

What a commit of delta-rs costs grows with three things, so all three are kept small
(docs/decisions/0007-upkeep-by-delta-rs.md has the figures): the table's live files (`tidy`), the
commits since the last checkpoint, and the files in `_delta_log` (both by `configuration`). Rows are
added by commits of our own (io.tables.commits), whose cost doesn't grow.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.transaction import AddAction
from pyarrow import fs
from pyarrow.dataset import Dataset, FileSystemDataset, InMemoryDataset, UnionDataset

from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import (
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    HISTORY_TABLES,
    REJECTED_REPORTS,
)
from lb_stream.io.tables.commits import (
    CHECKPOINT_EVERY,
    COMMIT_ATTEMPTS,
    COMMIT_TROUBLES,
    Mark,
    Marks,
    Table,
)
from lb_stream.store import Store
from lb_stream.stream.ports import FatalError

ONLY_COMMIT = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Commit properties for everybody but the table's own writer, who alone makes checkpoints and
removes old files of `_delta_log`."""
HISTORY = "interval 1 minutes"
"""How long a table's versions can be read (io.tables.commits.KEPT_S).

Short, because each commit of delta-rs lists `_delta_log` twice: 12 µs for each file in it.
"""
WRITER_VERSION = 2
"""Of Delta's protocol: the tables that are made here ask no more of a writer."""
STATS_COLUMNS = "delta.dataSkippingStatsColumns"


class TableMismatch(FatalError):
    """A table has other columns than this version of the program writes; the text names them and
    says what to do."""


def table_properties(spec: TableSpec) -> dict[str, str | None]:
    """Properties of a table."""
    return {
        "delta.enableDeletionVectors": "false",  # readers without Spark don't understand them
        "delta.checkpointInterval": str(CHECKPOINT_EVERY),
        "delta.logRetentionDuration": HISTORY,
        "delta.deletedFileRetentionDuration": "interval 60 minutes",
        # Else compaction would write each file's least and greatest memory (JSON) into the log.
        STATS_COLUMNS: ",".join(_columns_with_bounds(spec)),
    }


def _columns_with_bounds(spec: TableSpec) -> list[str]:
    """Of files that tasks have written only the batch's number or the slot is known; a column
    without bounds, named here, would match no filter."""
    if spec in HISTORY_TABLES:
        return ["slot_ms"]
    whole = [field.name for field in spec.schema if pa.types.is_int64(field.type)]
    return (
        [name for name in whole if name == "log_seq"]
        if spec in (BROKER_LOADS, REJECTED_REPORTS, BUNDLE_AVERAGES)
        else whole
    )


def open_table(root: Store, spec: TableSpec) -> Table:
    """The table, created with its columns when it isn't there yet.

    Raises TableMismatch when it has other columns.
    """
    if (table := existing_table(root, spec)) is not None:
        require_columns(table, spec)
        apply_properties(table, spec)
        return table
    store = root / spec.name
    DeltaTable.create(
        store.uri,
        schema=spec.schema,
        mode="ignore",
        name=spec.name,
        description=spec.row,
        partition_by=[spec.partition_by] if spec.partition_by else None,
        configuration=table_properties(spec),
        storage_options=store.delta_options,
    )
    return Table(store)


def apply_properties(table: Table, spec: TableSpec) -> None:
    """Give a table the properties that its specification asks for now."""
    wanted = {name: value for name, value in table_properties(spec).items() if value is not None}
    if wanted.items() - table.metadata().configuration.items():
        table.alter.set_table_properties(wanted)


def existing_table(root: Store, spec: TableSpec) -> Table | None:
    """The table as it is; None where there is none."""
    store = root / spec.name
    return Table(store) if DeltaTable.is_deltatable(store.uri, store.delta_options) else None


def require_columns(table: Table, spec: TableSpec) -> None:
    """Raise TableMismatch when the table's columns differ from the specification's in name, type or
    partitioning, or when it uses what commits of our own (io.tables.commits) know nothing of."""
    found = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
    troubles = [
        f"it has no column {field.name!r} ({field.type})"
        for field in spec.schema
        if field.name not in found
    ]
    troubles += [
        f"its column {field.name!r} is {plain_type(found[field.name])}, not {field.type}"
        for field in spec.schema
        if field.name in found and plain_type(found[field.name]) != field.type
    ]
    troubles += [
        f"it has a column {name!r} that is not known here"
        for name in found
        if name not in spec.schema.names
    ]
    if needs := describe_unknown_features(table):
        troubles.append(f"whoever writes to it must know {needs}")
    partitions = [spec.partition_by] if spec.partition_by else []
    if (by := table.metadata().partition_columns) != partitions:
        troubles.append(
            f"it is partitioned by {', '.join(by) or 'nothing'}, not by "
            f"{', '.join(partitions) or 'nothing'}"
        )
    if troubles:
        where = f"the table {spec.name} at {table.table_uri}"
        raise TableMismatch(
            f"{where} was written by another version: {'; '.join(troubles)}. {_advice(spec)}"
        )


def describe_unknown_features(table: Table) -> str:
    """What the table asks of its writers that ours know nothing of; empty: nothing."""
    protocol = table.protocol()
    more = protocol.writer_features or protocol.min_writer_version > WRITER_VERSION
    return (
        ", ".join(protocol.writer_features or [f"protocol version {protocol.min_writer_version}"])
        if more
        else ""
    )


def _advice(spec: TableSpec) -> str:
    if spec.from_log:
        return (
            "Stop the job and write the table anew from the log: `lbctl tables rebuild "
            f"{spec.name}`"
        )
    if spec.name == "rounds":
        return (
            "It is the log: go on with the version that wrote it, or begin with new folders "
            "(stream.tables, stream.checkpoint)"
        )
    return "Stop the job and move the table's folder away: the job fills a new one"


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A column's type as the specification writes it: delta-rs may give views and large strings for
    strings."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(plain_type(kind.value_type))
    return kind


def dataset(table: Table) -> Dataset:
    """The table as an Arrow dataset that reads local files by Arrow itself.

    By default every read calls back into Python from Arrow's threads, which now and then hangs or
    crashes at the end of the process.
    """
    return _without_views(numeric_dataset(table))


def numeric_dataset(table: Table) -> FileSystemDataset:
    """The table as a dataset for filters that compare only numbers: no file is read in advance."""
    table.catch_up()
    if (folder := table.store.local) is not None:
        return table.to_pyarrow_dataset(
            filesystem=fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
        )
    return table.to_pyarrow_dataset()


def _without_views(found: FileSystemDataset) -> Dataset:
    """The dataset, with those files read at once whose texts are views: Arrow can't compare views,
    a filter by a text would fail.

    delta-rs writes such files when it merges and deletes. All files of its own are named `part-…`.
    """
    fragments = list(found.get_fragments())
    views = [
        fragment
        for fragment in fragments
        if fragment.path.rpartition("/")[2].startswith("part-")
        and _has_views(fragment.physical_schema)
    ]
    if not views:
        return found
    rest = FileSystemDataset(
        [fragment for fragment in fragments if fragment not in views],
        found.schema,
        found.format,
        found.filesystem,
    )
    return UnionDataset(
        found.schema,
        [
            rest,
            InMemoryDataset([view.to_table(schema=found.schema) for view in views], found.schema),
        ],
    )


def _has_views(schema: pa.Schema) -> bool:
    return any(pa.types.is_string_view(field.type) for field in schema)


def read_replacement_times(table: Table) -> dict[str, int]:
    """When each file was replaced that the table has named within the last hour: path → ms since
    the epoch.

    Read from `_delta_log` itself: delta-rs's own vacuum counts in whole hours, and a busy table
    replaces thousands of files in one.
    """
    log = table.store / "_delta_log"
    files = [entry.name for entry in log.list()]
    newest = max((name for name in files if name.endswith(".checkpoint.parquet")), default="")
    removed: list[Mapping[str, Any]] = []
    if newest:
        removed += (
            pq.read_table(pa.BufferReader(log.get(newest)), columns=["remove"])["remove"]
            .drop_null()
            .to_pylist()
        )
    for name in sorted(
        name for name in files if name.endswith(".json") and name > newest.partition(".")[0]
    ):
        removed += [
            action["remove"]
            for action in map(json.loads, log.get(name).to_pybytes().splitlines())
            if "remove" in action
        ]
    return {unquote(one["path"]): one["deletionTimestamp"] or 0 for one in removed}


def read_mark(table: Table, app: str) -> int | None:
    """The version of the last transaction that `app` has committed to the table; None before the
    first. (0 is a version.)"""
    table.refresh()
    return table.mark(app)


def build_commit_properties(marks: Marks) -> CommitProperties:
    """delta-rs's commit properties that mark a commit as transaction `version` of each `app`."""
    return CommitProperties(app_transactions=[Transaction(app, version) for app, version in marks])


def commit_once(table: Table, mark: Mark, commit: Callable[[Marks], Any]) -> bool:
    """Commit as the transaction `mark`, unless the table has that one or a later one.

    Returns whether that was needed.

    The table is looked at again only when somebody else's commit got in between (upkeep deletes
    rows, a rebuild replaces all, an heir has committed the same), which a commit finds out: what
    was to be committed follows from the log, so it doesn't matter what the table holds now. Raises
    one of COMMIT_TROUBLES when that happens again and again.
    """
    for attempt in range(COMMIT_ATTEMPTS):
        version = read_mark(table, mark[0]) if attempt else table.mark(mark[0])
        if version is not None and version >= mark[1]:
            return False
        try:
            commit([mark])
            break
        except COMMIT_TROUBLES:
            if attempt == COMMIT_ATTEMPTS - 1:
                raise
    return True


def write_rows(table: Table, rows: pa.Table, name: str, durable: bool = False) -> AddAction:
    """Write rows as one Parquet file of a table without partitions; part of the table once the
    result is committed.

    `name` tells people where the file comes from, what is added to it makes it unique: a writer who
    is refused leaves no mark on another's file. `durable`: on the disk, not only in the memory of
    the operating system.
    """
    return write_parts(table, rows.schema, [rows], name, durable)


def write_parts(
    table: Table,
    schema: pa.Schema,
    parts: Iterable[pa.Table],
    name: str,
    durable: bool = False,
    changes: bool = True,
) -> AddAction:
    """The same of rows that come one part after another, at least one.

    `changes`: the table hasn't had them before.
    """
    path = f"{name}-{uuid.uuid4().hex[:12]}.parquet"
    out, bounds = pa.BufferOutputStream(), Bounds(table)
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(part)
            bounds.take(part)
    content = out.getvalue()
    table.store.put(path, content, durable=durable)
    now_ms = time.time_ns() // 1_000_000
    return AddAction(
        path=path,
        size=content.size,
        partition_values={},
        modification_time=now_ms,
        data_change=changes,
        stats=bounds.stats,
    )


class Bounds:
    """Delta's statistics of a file, which readers skip files by.

    Of exactly the columns that the table's properties name: delta-rs's dataset takes any other for
    one that no filter matches.
    """

    def __init__(self, table: Table) -> None:
        named = filter(None, (table.metadata().configuration.get(STATS_COLUMNS) or "").split(","))
        self._bounds: dict[str, list[Any]] = {name: [] for name in named}
        self._nulls = dict.fromkeys(self._bounds, 0)
        self._rows = 0

    def take(self, rows: pa.Table) -> None:
        """Some of the file's rows."""
        self._rows += len(rows)
        for name, bounds in self._bounds.items():
            self._nulls[name] += rows[name].null_count
            found = pc.min_max(
                pa.chunked_array([*rows[name].chunks, pa.array(bounds, rows[name].type)])
            ).as_py()
            self._bounds[name] = [] if found["min"] is None else [found["min"], found["max"]]

    @property
    def stats(self) -> str:
        """As a commit tells them."""
        stats: dict[str, Any] = {"numRecords": self._rows}
        if self._bounds:
            known = {name: bounds for name, bounds in self._bounds.items() if bounds}
            stats["minValues"] = {name: least for name, (least, _) in known.items()}
            stats |= {
                "maxValues": {name: greatest for name, (_, greatest) in known.items()},
                "nullCount": self._nulls,
            }
        return json.dumps(stats)


def add_files(
    table: Table,
    spec: TableSpec,
    files: Iterable[AddAction],
    marks: Marks = (),
    replaced: Sequence[str] | None = None,
    durable: bool = False,
) -> None:
    """Make files that are there part of their table.

    `replaced`: the partitions whose earlier files they replace; `durable` as in `write_rows`.
    """
    old = (
        None if replaced is None else table.live().select(lambda _, one: one.partition in replaced)
    )
    table.commit(list(files), marks, spec.partition_by, old, durable)


def append_rows(
    table: Table,
    spec: TableSpec,
    rows: pa.Table,
    name: str,
    marks: Marks = (),
    durable: bool = False,
) -> None:
    """Append rows to a table without partitions.

    Costs the same however many files it has, unlike `write_deltalake`.
    """
    add_files(table, spec, [write_rows(table, rows, name, durable)], marks, durable=durable)
