"""Small files of a table put together, by commits of our own.

delta-rs doesn't notice that another compaction of the same files was quicker: every row is there twice then. Ours is refused when a file
is there no more. docs/decisions/0022-commits-of-our-own.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from lb_stream.io.tables.commits import COMMIT_TROUBLES, Live, Mark, Table
from lb_stream.io.tables.delta import plain, write_parts

TIDY_EVERY = 100
"""A writer makes one file of its small ones after so many batches."""
TIDY_BYTES = 8 * 2**20
"""Larger files are left to upkeep: putting them together would take noticeable time in the batch."""
PART_BYTES = 64 * 2**20
"""Of rows in memory, which become a part of the new file (a row group) together."""
THREADS = 8
"""Files that are asked for at one time: a far store's answers are waited for together."""
TOGETHER = "together"
"""Begins the name of a file whose rows come from files that tell no number of a batch."""
COMPACTION = "compaction"
"""The application that all compactions commit as: a rebuild that began before one of them is refused by that."""


def tidy(table: Table, durable: bool = False) -> None:
    """Make larger files of the table's small ones; for its writer, now and then. Does nothing where there are few, or upkeep is at it.

    The files that are replaced stay on the disk until upkeep removes them. `durable`: as in `write_rows`.
    """
    try:
        if len(table.live().files) >= TIDY_EVERY // 2:
            compact(table, TIDY_BYTES, durable)
    except COMMIT_TROUBLES:
        table.refresh()


def compact(table: Table, target_bytes: int, durable: bool = False) -> None:
    """Make files of about `target_bytes` out of those that are smaller, one commit for each. Files in partitions stay as they are.

    Raises CommitFailedError when somebody else replaces or removes these files meanwhile, DeltaError when one is damaged. What has been
    committed stays; a file that no commit names is left to upkeep.
    """
    for group in groups(table.live(), target_bytes):
        schema = pa.schema([(one.name, plain(one.type)) for one in pa.schema(table.schema().to_arrow())])
        number = next(iter(group.files)).partition("-")[0]
        name = number if number.isdigit() else TOGETHER
        file = write_parts(table, schema, _parts(table, schema, list(group.files)), name, durable, changes=False)
        table.commit([file], [next_compaction(table)], replaced=group, durable=durable, rearranges=True)


def next_compaction(table: Table) -> Mark:
    """The transaction of a compaction that begins now."""
    return COMPACTION, table.newest + 1


def groups(live: Live, target_bytes: int) -> Iterator[Live]:
    """Files to be put together, in the order of their names, which begin with numbers of batches mostly."""
    some: list[str] = []
    size = 0
    for path in sorted(path for path, file in live.files.items() if file.size < target_bytes and file.partition is None):
        if size + live.files[path].size > target_bytes:
            yield from _worth(live, some)
            some, size = [], 0
        some.append(path)
        size += live.files[path].size
    yield from _worth(live, some)


def _worth(live: Live, paths: Sequence[str]) -> Iterator[Live]:
    if len(paths) > 1:
        yield Live(live.version, {path: live.files[path] for path in paths})


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
    """A file's rows with the table's columns: one that was added since is empty."""
    try:
        for batch in pq.ParquetFile(pa.BufferReader(content)).iter_batches():
            there = set(batch.schema.names)
            yield pa.table(
                [batch[one.name].cast(one.type) if one.name in there else pa.nulls(len(batch), one.type) for one in schema], schema
            )
    except pa.ArrowException as error:
        raise DeltaError(f"{path} can't be read: {error}") from error
