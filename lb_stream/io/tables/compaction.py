"""Puts small files of a table together, by commits of our own.

delta-rs doesn't notice that another compaction of the same files was quicker: every row is there
twice then. Ours is refused when a file is there no more. docs/decisions/0022-commits-of-our-own.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError, DeltaError

from lb_stream.io.tables.commits import COMMIT_TROUBLES, LiveFiles, Mark, Table
from lb_stream.io.tables.delta import describe_unknown_features, plain_type, write_parts

logger = logging.getLogger(__name__)

COMPACT_EVERY = 100
"""A writer makes one file of its small ones after so many batches."""
SMALL_FILE_BYTES = 8 * 2**20
"""Larger files are left to upkeep: putting them together would take noticeable time in the
batch."""
PART_BYTES = 64 * 2**20
"""Of rows in memory, which become a part of the new file (a row group) together."""
MOST_ROWS = 4_096
"""Of a file, decoded at one time."""
THREADS = 8
"""Files that are asked for at one time: a far store's answers are waited for together."""
TOGETHER = "together"
"""Begins the name of a file whose rows come from files that tell no number of a batch."""
COMPACTION = ":compaction"
"""The application that all compactions commit as: a rebuild that began before one of them is
refused by that. No pipeline is called so."""


def compact_small_files(table: Table) -> None:
    """Make larger files of the table's small ones; for its writer, now and then.

    Does nothing where there are few, or upkeep is at it.

    The files that are replaced stay on the disk until upkeep removes them.
    """
    try:
        if len(table.live().files) >= COMPACT_EVERY // 2:
            compact(table, SMALL_FILE_BYTES)
    except CommitFailedError:
        table.refresh()
    except COMMIT_TROUBLES as error:
        logger.warning("small files of %s stay as they are: %s", table.store, error)


def compact(table: Table, target_bytes: int) -> None:
    """Make files of about `target_bytes` out of those that are smaller, one commit for each, on
    disk when it returns.

    Does nothing to a table with partitions, or one that asks more of its writers than ours do.
    Raises CommitFailedError when somebody else replaces or removes files meanwhile, DeltaError when
    one is damaged; what else can be done is done first. A file that no commit names is left to
    upkeep.
    """
    if table.metadata().partition_columns or describe_unknown_features(table):
        return
    trouble: DeltaError | None = None
    for group in group_files(table.live(), target_bytes):
        try:
            _put_together(table, group)
        except DeltaError as error:
            trouble = trouble or error
    if trouble is not None:
        raise trouble


def _put_together(table: Table, group: LiveFiles) -> None:
    schema = pa.schema(
        [(one.name, plain_type(one.type)) for one in pa.schema(table.schema().to_arrow())]
    )
    number = next(iter(group.files)).partition("-")[0]
    name = number if number.isdigit() else TOGETHER
    file = write_parts(
        table, schema, _parts(table, schema, list(group.files)), name, durable=True, changes=False
    )
    if (
        table.store.stat(file.path) is None
    ):  # whoever was stopped for an hour finds that upkeep has removed it
        raise CommitFailedError(f"{table.store}/{file.path} is gone")
    table.commit([file], [compaction_mark(table)], replaced=group, durable=True, rearranges=True)


def compaction_mark(table: Table) -> Mark:
    """The transaction of a compaction that begins now."""
    return COMPACTION, table.newest + 1


def group_files(live: LiveFiles, target_bytes: int) -> Iterator[LiveFiles]:
    """Files to be put together, in the order of their names, which begin with numbers of batches
    mostly."""
    some: list[str] = []
    size = 0
    for path in sorted(path for path, file in live.files.items() if file.size < target_bytes):
        if size + live.files[path].size > target_bytes:
            yield from _worth(live, some)
            some, size = [], 0
        some.append(path)
        size += live.files[path].size
    yield from _worth(live, some)


def _worth(live: LiveFiles, paths: Sequence[str]) -> Iterator[LiveFiles]:
    if len(paths) > 1:
        yield LiveFiles(live.version, {path: live.files[path] for path in paths})


def _parts(table: Table, schema: pa.Schema, paths: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of some files, at least one part."""
    waiting, size = [schema.empty_table()], 0
    with ThreadPoolExecutor(THREADS) as threads:
        for path, content in zip(paths, threads.map(table.store.get, paths), strict=True):
            for rows in _rows(f"{table.store}/{path}", content, schema):
                waiting.append(rows)
                size += rows.nbytes
                if size >= PART_BYTES:
                    yield pa.concat_tables(waiting)
                    waiting, size = [schema.empty_table()], 0
    yield pa.concat_tables(waiting)


def _rows(path: str, content: pa.Buffer, schema: pa.Schema) -> Iterator[pa.Table]:
    """A file's rows with the table's columns."""
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        for batch in file.iter_batches(_rows_at_a_time(file.metadata)):
            yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)
    except pa.ArrowException as error:
        raise DeltaError(f"{path} can't be read: {error}") from error


def _rows_at_a_time(file: pq.FileMetaData) -> int:
    """So few that they are less than a part: a row of the log may have megabytes."""
    size: int = sum(file.row_group(number).total_byte_size for number in range(file.num_row_groups))
    return max(1, min(MOST_ROWS, PART_BYTES * int(file.num_rows) // max(size, 1)))
