"""Makes larger files of a table's small ones, by commits of our own.

delta-rs doesn't notice if another compaction of the same files was quicker: then every row is there
twice. Our commit is refused if one of its files is gone. See
docs/decisions/0022-commits-of-our-own.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError, DeltaError

from lb_stream.io.tables.commits import COMMIT_TROUBLES, LiveFiles, Mark, Table
from lb_stream.io.tables.delta import (
    arrow_schema,
    describe_unknown_features,
    plain_type,
    write_parts,
)

logger = logging.getLogger(__name__)

COMPACT_EVERY = 100
"""Batches after which a writer compacts its small files."""
SMALL_FILE_BYTES = 8 * 2**20
"""Larger files are left to upkeep: compacting them would take noticeable time in the batch."""
PART_BYTES = 64 * 2**20
"""Bytes of rows in memory that are written together, as a row group of the new file."""
MOST_ROWS = 4_096
"""Rows of a file that are decoded at one time."""
THREADS = 8
"""Files that are read at one time, so that the answers of a far store are awaited together."""
TOGETHER = "together"
"""Begins the name of a file made of files whose names tell no number of a batch."""
COMPACTION = ":compaction"
"""The application that all compactions commit as; no pipeline has this name.

By its transactions a rebuild that began before a compaction is refused.
"""


def compact_small_files(table: Table) -> None:
    """Compact the table's small files if there are many; for the table's writer, between batches.

    Does nothing while upkeep compacts them. Upkeep removes the replaced files from the disk later.
    """
    try:
        if len(table.live().files) >= COMPACT_EVERY // 2:
            compact(table, SMALL_FILE_BYTES)
    except CommitFailedError:
        table.refresh()
    except COMMIT_TROUBLES as error:
        logger.warning("small files of %s are not compacted: %s", table.store, error)


def compact(table: Table, target_bytes: int) -> None:
    """Make files of about `target_bytes` out of smaller ones; all are on disk when this returns.

    Each new file is a commit. Does nothing to a table with partitions, or to one whose writers must
    know features that ours doesn't. Raises CommitFailedError if others replace or remove the files
    meanwhile, and DeltaError if one is damaged; the other files are compacted first. Upkeep removes
    a new file that no commit names.
    """
    if table.metadata().partition_columns or describe_unknown_features(table):
        return
    damage: DeltaError | None = None
    for group in group_files(table.live(), target_bytes):
        try:
            _merge_files(table, group)
        except DeltaError as error:
            damage = damage or error
    if damage is not None:
        raise damage


def _merge_files(table: Table, group: LiveFiles) -> None:
    """Write the rows of some files into one, and commit it in their place."""
    schema = pa.schema([(field.name, plain_type(field.type)) for field in arrow_schema(table)])
    first_batch = next(iter(group.files)).partition("-")[0]
    name = first_batch if first_batch.isdigit() else TOGETHER
    parts = _parts(table, schema, list(group.files))
    file = write_parts(table, schema, parts, name, durable=True, changes=False)
    # If this process was suspended for an hour, upkeep has removed the file.
    if table.store.stat(file.path) is None:
        raise CommitFailedError(f"{table.store}/{file.path} is gone")
    table.commit([file], [compaction_mark(table)], replaced=group, durable=True, rearranges=True)


def compaction_mark(table: Table) -> Mark:
    """Return the transaction of a compaction that begins now."""
    return COMPACTION, table.newest + 1


def group_files(live: LiveFiles, target_bytes: int) -> Iterator[LiveFiles]:
    """Yield groups of small files that make a file of about `target_bytes` together.

    They are in the order of their names, most of which begin with the number of a batch.
    """
    group: list[str] = []
    size = 0
    for path in sorted(path for path, file in live.files.items() if file.size < target_bytes):
        if size + live.files[path].size > target_bytes:
            yield from _if_several(live, group)
            group, size = [], 0
        group.append(path)
        size += live.files[path].size
    yield from _if_several(live, group)


def _if_several(live: LiveFiles, paths: Sequence[str]) -> Iterator[LiveFiles]:
    if len(paths) > 1:
        yield LiveFiles(live.version, {path: live.files[path] for path in paths})


def _parts(table: Table, schema: pa.Schema, paths: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of some files in parts of about PART_BYTES; at least one part."""
    waiting, size = [schema.empty_table()], 0
    with ThreadPoolExecutor(THREADS) as threads:
        for path, content in zip(paths, threads.map(table.store.get, paths), strict=True):
            for rows in _read_rows(f"{table.store}/{path}", content, schema):
                waiting.append(rows)
                size += rows.nbytes
                if size >= PART_BYTES:
                    yield pa.concat_tables(waiting)
                    waiting, size = [schema.empty_table()], 0
    yield pa.concat_tables(waiting)


def _read_rows(path: str, content: pa.Buffer, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield a file's rows with the table's columns. Raises DeltaError if it is damaged."""
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        for batch in file.iter_batches(_rows_at_a_time(file.metadata)):
            yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)
    except pa.ArrowException as error:
        raise DeltaError(f"{path} can't be read: {error}") from error


def _rows_at_a_time(file: pq.FileMetaData) -> int:
    """Return how many rows are less than a part: a row of the log may have megabytes."""
    size: int = sum(file.row_group(number).total_byte_size for number in range(file.num_row_groups))
    return max(1, min(MOST_ROWS, PART_BYTES * int(file.num_rows) // max(size, 1)))
