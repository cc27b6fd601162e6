"""Opens, creates and reads Delta tables, and appends to them at a cost that doesn't grow.

The cost of a commit of delta-rs grows with three things, so all three are kept small: the table's
live files (io.tables.compaction), the commits since the last checkpoint, and the files in
`_delta_log` (both by `table_properties`). docs/decisions/0007-upkeep-by-delta-rs.md has the
figures. Rows are added by io.tables.commits, whose cost doesn't grow.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.transaction import AddAction
from pyarrow import fs
from pyarrow.dataset import Dataset, FileSystemDataset, InMemoryDataset, UnionDataset

from lb_stream import __version__
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
from lb_stream.io.tables.formats import describe_writer, require_format
from lb_stream.store import Store
from lb_stream.stream.ports import FatalError

ONLY_COMMIT = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Properties of commits by others than the table's writer.

The writer alone makes checkpoints and removes old files of `_delta_log`.
"""
HISTORY = "interval 1 minutes"
"""How long a table's versions can be read; the same as io.tables.commits.KEPT_S.

Short, because each commit of delta-rs lists `_delta_log` twice, which takes 12 µs for each file.
"""
WRITER_VERSION = 2
"""Version of Delta's protocol that a writer of these tables must know."""
STATS_COLUMNS = "delta.dataSkippingStatsColumns"


class TableMismatch(FatalError):
    """A table has other columns than this program writes; the text names them and what to do."""


def table_properties(spec: TableSpec) -> dict[str, str | None]:
    """Return the properties of a table in Delta."""
    return {
        "delta.enableDeletionVectors": "false",  # readers without Spark don't understand them
        "delta.checkpointInterval": str(CHECKPOINT_EVERY),
        "delta.logRetentionDuration": HISTORY,
        "delta.deletedFileRetentionDuration": "interval 60 minutes",
        # Without this, compaction would write each file's min and max memory (JSON) into the log.
        STATS_COLUMNS: ",".join(_columns_with_bounds(spec)),
    }


def _columns_with_bounds(spec: TableSpec) -> list[str]:
    """Return the columns of which each file's min and max is known.

    Of files that tasks have written that is only the batch's number or the slot. A column that is
    named here and has no bounds would match no filter.
    """
    if spec in HISTORY_TABLES:
        return ["slot_ms"]
    integers = [field.name for field in spec.schema if pa.types.is_int64(field.type)]
    if spec in (BROKER_LOADS, REJECTED_REPORTS, BUNDLE_AVERAGES):
        return [name for name in integers if name == "log_seq"]
    return integers


def open_table(root: Store, spec: TableSpec) -> Table:
    """Open a table, or create it with its columns if it doesn't exist.

    Raises OtherFormat, and TableMismatch if it has other columns.
    """
    if (table := existing_table(root, spec)) is not None:
        require_format(table)
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
    """Give a table the properties of its specification."""
    wanted = {name: value for name, value in table_properties(spec).items() if value is not None}
    if wanted.items() - table.metadata().configuration.items():
        table.alter.set_table_properties(wanted)


def existing_table(root: Store, spec: TableSpec) -> Table | None:
    """Open a table, whatever its columns; None if it doesn't exist."""
    store = root / spec.name
    return Table(store) if DeltaTable.is_deltatable(store.uri, store.delta_options) else None


def require_columns(table: Table, spec: TableSpec) -> None:
    """Require the columns and the partitioning of the specification. Raises TableMismatch.

    Also requires that the table uses no feature that io.tables.commits doesn't know.
    """
    found = {field.name: plain_type(field.type) for field in arrow_schema(table)}
    differences = [
        f"it has no column {field.name!r} ({field.type})"
        for field in spec.schema
        if field.name not in found
    ]
    differences += [
        f"its column {field.name!r} is {found[field.name]}, not {field.type}"
        for field in spec.schema
        if field.name in found and found[field.name] != field.type
    ]
    differences += [
        f"it has a column {name!r} that is not known here"
        for name in found
        if name not in spec.schema.names
    ]
    if features := describe_unknown_features(table):
        differences.append(f"its writers must know {features}")
    expected = [spec.partition_by] if spec.partition_by else []
    if (columns := table.metadata().partition_columns) != expected:
        differences.append(
            f"it is partitioned by {', '.join(columns) or 'no column'}, not by "
            f"{', '.join(expected) or 'no column'}"
        )
    if differences:
        raise TableMismatch(
            f"the table {spec.name} at {table.table_uri} was written by {describe_writer(table)}, "
            f"this is lb_stream {__version__}: {'; '.join(differences)}. {_advice(spec)}"
        )


def arrow_schema(table: Table) -> pa.Schema:
    """Return the columns that a table has, as delta-rs gives them."""
    return pa.schema(table.schema().to_arrow())


def describe_unknown_features(table: Table) -> str:
    """Describe the features that a writer must know and ours doesn't; empty if there are none."""
    protocol = table.protocol()
    if protocol.writer_features:
        return ", ".join(protocol.writer_features)
    if protocol.min_writer_version > WRITER_VERSION:
        return f"protocol version {protocol.min_writer_version}"
    return ""


def _advice(spec: TableSpec) -> str:
    if spec.from_log:
        return (
            f"Stop the job and rebuild the table from the log: `lbctl tables rebuild {spec.name}`"
        )
    if spec.name == "rounds":
        return (
            "It is the log: go on with the version that wrote it, or begin with new folders "
            "(stream.tables, stream.checkpoint)"
        )
    return "Stop the job and move the table's folder away: the job creates and fills a new one"


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a column's type as specifications have it.

    delta-rs may give views and large strings for strings.
    """
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(plain_type(kind.value_type))
    return kind


def dataset(table: Table) -> Dataset:
    """Return the table as an Arrow dataset, for filters of any kind.

    Arrow itself reads local files. By default every read calls back into Python from Arrow's
    threads, which now and then hangs or crashes at the end of the process.
    """
    return _without_views(numeric_dataset(table))


def numeric_dataset(table: Table) -> FileSystemDataset:
    """Return the table as a dataset for filters that compare only numbers.

    No file is read in advance, unlike by `dataset`.
    """
    table.catch_up()
    if (folder := table.store.local) is not None:
        return table.to_pyarrow_dataset(
            filesystem=fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
        )
    return table.to_pyarrow_dataset()


def _without_views(found: FileSystemDataset) -> Dataset:
    """Return the dataset with files read at once whose texts are views.

    Arrow can't compare views, so a filter by a text would fail. delta-rs writes such files when it
    merges and deletes. All its files are named `part-…`.
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
    others = [fragment for fragment in fragments if fragment not in views]
    on_disk = FileSystemDataset(others, found.schema, found.format, found.filesystem)
    tables = [view.to_table(schema=found.schema) for view in views]
    return UnionDataset(found.schema, [on_disk, InMemoryDataset(tables, found.schema)])


def _has_views(schema: pa.Schema) -> bool:
    return any(pa.types.is_string_view(field.type) for field in schema)


class _Removal(TypedDict):
    """The action of Delta's log that removes a file, as far as it is used here."""

    path: str
    deletionTimestamp: int | None


def read_replacement_times(table: Table) -> dict[str, int]:
    """Return when files of the table were replaced: path → ms since the epoch.

    These are the files that the table named within the last hour. They are read from `_delta_log`
    itself: delta-rs's vacuum counts in whole hours, and a busy table replaces thousands of files in
    one hour.
    """
    log = table.store / "_delta_log"
    files = [entry.name for entry in log.list()]
    newest = max((name for name in files if name.endswith(".checkpoint.parquet")), default="")
    removals: list[_Removal] = []
    if newest:
        checkpoint = pq.read_table(pa.BufferReader(log.get(newest)), columns=["remove"])
        removals += checkpoint["remove"].drop_null().to_pylist()
    after_checkpoint = newest.partition(".")[0]
    for name in sorted(files):
        if name.endswith(".json") and name > after_checkpoint:
            actions = map(json.loads, log.get(name).to_pybytes().splitlines())
            removals += [action["remove"] for action in actions if "remove" in action]
    return {unquote(removal["path"]): removal["deletionTimestamp"] or 0 for removal in removals}


def read_mark(table: Table, app: str) -> int | None:
    """Look at the table, and return the number of the last transaction of `app`.

    None before the first; 0 is a number.
    """
    table.refresh()
    return table.mark(app)


def build_commit_properties(marks: Marks) -> CommitProperties:
    """Return delta-rs's properties for a commit that carries these transactions."""
    return CommitProperties(app_transactions=[Transaction(app, number) for app, number in marks])


def commit_once(table: Table, mark: Mark, commit: Callable[[Marks], None]) -> bool:
    """Commit as the transaction `mark`, unless the table has that one or a later one.

    Returns whether a commit was needed. `commit` is given the transaction. The table is looked at
    again only after a commit by others: upkeep deletes rows, a rebuild replaces all, another job
    has committed the same. What is committed follows from the log, so it doesn't matter what the
    table holds now. Raises one of COMMIT_TROUBLES when others never pause.
    """
    for attempt in range(COMMIT_ATTEMPTS):
        number = read_mark(table, mark[0]) if attempt else table.mark(mark[0])
        if number is not None and number >= mark[1]:
            return False
        try:
            commit([mark])
            break
        except COMMIT_TROUBLES:
            if attempt == COMMIT_ATTEMPTS - 1:
                raise
    return True


def write_rows(table: Table, rows: pa.Table, name: str, durable: bool = False) -> AddAction:
    """Write rows as one Parquet file, and return the action that adds it to the table.

    The table has no partitions. `name` shows people where the file comes from; an addition makes it
    unique, so that no other writer's file is overwritten. `durable`: the file is on the disk when
    this returns, not only in the memory of the operating system.
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
    """Write parts of rows as one Parquet file, as `write_rows` does. There is at least one part.

    `changes`: False if the table has these rows already, in other files.
    """
    path = f"{name}-{uuid.uuid4().hex[:12]}.parquet"
    out, bounds = pa.BufferOutputStream(), Bounds(table)
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(part)
            bounds.add(part)
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
    """Delta's statistics of a file, by which readers skip files.

    They have exactly the columns that the table's properties name. In delta-rs's dataset no filter
    matches a file that lacks the bounds of a named column.
    """

    def __init__(self, table: Table) -> None:
        named = filter(None, (table.metadata().configuration.get(STATS_COLUMNS) or "").split(","))
        self._bounds: dict[str, list[object]] = {name: [] for name in named}
        self._nulls = dict.fromkeys(self._bounds, 0)
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        """Take some of the file's rows into account."""
        self._rows += len(rows)
        for name, bounds in self._bounds.items():
            self._nulls[name] += rows[name].null_count
            found = pc.min_max(
                pa.chunked_array([*rows[name].chunks, pa.array(bounds, rows[name].type)])
            ).as_py()
            self._bounds[name] = [] if found["min"] is None else [found["min"], found["max"]]

    @property
    def stats(self) -> str:
        """Return them as JSON for a commit."""
        stats: dict[str, object] = {"numRecords": self._rows}
        if self._bounds:
            known = {name: bounds for name, bounds in self._bounds.items() if bounds}
            stats["minValues"] = {name: bounds[0] for name, bounds in known.items()}
            stats["maxValues"] = {name: bounds[1] for name, bounds in known.items()}
            stats["nullCount"] = self._nulls
        return json.dumps(stats)


def add_files(
    table: Table,
    spec: TableSpec,
    files: Iterable[AddAction],
    marks: Marks = (),
    replaced: Sequence[str] | None = None,
    durable: bool = False,
) -> None:
    """Add files that are written already to their table.

    `replaced`: the partitions whose earlier files are removed; `durable`: as for `write_rows`.
    """
    old = None
    if replaced is not None:
        old = table.live().select(lambda _, file: file.partition in replaced)
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

    The cost doesn't grow with the number of files, unlike that of `write_deltalake`.
    """
    add_files(table, spec, [write_rows(table, rows, name, durable)], marks, durable=durable)
