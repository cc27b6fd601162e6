"""Tables with at most one row of each bundle.

A batch rewrites the files that its bundles are in, not the whole table.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from lb_stream.contracts.table_spec import TableSpec
from lb_stream.io.tables.commits import Marks, Table
from lb_stream.io.tables.delta import write_rows

KEY = ("cluster", "bundle")
ROWS = 1 << 16
"""Rows of a file at most; a larger one is cut.

Neighbouring files with less than half as many rows together become one when either changes.
"""
THREADS = 4
"""Files that are read and written at one time.

That many are in memory, and the answers of a far store are awaited together.
"""
SPAN = b"lb.span"
"""Name of the metadata in which a file has its span.

The bounds of its columns are not enough: a cluster may go on in the next file.
"""

Key = tuple[str, str]
"""A cluster and a bundle."""


class Span(NamedTuple):
    """The keys of a file: the first, the last and their number. They are in order."""

    first: Key
    last: Key
    rows: int


class Group(NamedTuple):
    """Files that are rewritten together, nearly always one.

    `first`: their first key; `in_order`: they are one file, whose rows are in the order of their
    keys.
    """

    first: Key
    paths: tuple[str, ...]
    in_order: bool = True


class RewrittenGroup(NamedTuple):
    """New files, each with its span, and the old ones that they replace."""

    old: tuple[str, ...]
    new: tuple[tuple[str, Span], ...]


@dataclass(slots=True)
class KeyedTable:
    """A table with at most one row of each cluster and bundle, and its only writer.

    `_spans`: file → its span, as it was read or written; None: the file has none.
    """

    table: Table
    spec: TableSpec
    _spans: dict[str, Span | None] = field(default_factory=dict)

    def put(self, rows: pa.Table, ends: pa.ChunkedArray, name: str, marks: Marks) -> None:
        """Replace the rows that have the keys of `rows`, or remove them where `ends` is true.

        `rows`: in the order of their keys; `name`: as for `write_rows`. Raises what `Table.commit`
        raises, and OSError if a file can't be read or written: then no new file is left.
        """
        live = self.table.live()
        written: list[AddAction] = []
        try:
            with ThreadPoolExecutor(THREADS) as threads:
                # Read the spans of files that others have written.
                unknown = [path for path in live.files if path not in self._spans]
                self._spans |= zip(unknown, threads.map(self._read_span, unknown), strict=True)

                # Rewrite each group of files that has one of the keys, or is to get it.
                groups = build_groups({path: self._spans[path] for path in live.files})
                changes = rows.append_column("ends", ends)

                def rewrite(part: tuple[Group, int, int]) -> RewrittenGroup | None:
                    group, start, count = part
                    return self._rewrite(group, changes.slice(start, count), name, written)

                results = list(threads.map(rewrite, assign_rows(_keys(rows), groups)))
        except BaseException:
            self._remove(written)  # the threads have ended
            raise
        rewritten = [result for result in results if result is not None]
        new: dict[str, Span | None] = {
            path: span for group in rewritten for path, span in group.new
        }
        old = {path for group in rewritten for path in group.old}
        self.table.commit(written, marks, replaced=live.select(lambda path, _: path in old))
        kept = {
            path: span
            for path, span in self._spans.items()
            if path in live.files and path not in old
        }
        self._spans = kept | new

    def _remove(self, files: Iterable[AddAction]) -> None:
        """Remove files that no commit names. Those that can't be removed are left to upkeep."""
        for file in files:
            with suppress(OSError):
                self.table.store.delete(file.path)

    def _read_span(self, path: str) -> Span | None:
        with self._open(path) as source:
            return read_span(pq.read_metadata(source))

    def _open(self, path: str) -> pa.NativeFile:
        """Open a file; one in a far store is read whole, by one request."""
        store = self.table.store
        return pa.BufferReader(store.get(path)) if store.local is None else store.open(path)

    def _rewrite(
        self, group: Group, changes: pa.Table, name: str, written: list[AddAction]
    ) -> RewrittenGroup | None:
        """Write a group's files with these changes; None if that changes no row.

        `written` gets the new files at once, so that they can be removed after a failure.
        """
        old = pa.concat_tables([self.spec.schema.empty_table(), *map(self._read, group.paths)])

        # The row of `old` that has the key of each change; -1: none has.
        at = np.array(
            pc.index_in(
                _joined_keys(changes), value_set=_joined_keys(old).combine_chunks()
            ).fill_null(-1)
        )
        ends, exists = changes["ends"].to_numpy(), at >= 0
        added = ~exists & ~ends
        if not (exists | added).any():
            return None

        # Replace and remove rows of `old`, and append the new ones.
        order = np.arange(len(old))
        order[at[exists]] = len(old) + np.flatnonzero(exists)
        kept = np.delete(order, at[exists & ends])
        order = np.append(kept, len(old) + np.flatnonzero(added))
        both = pa.concat_tables([old, changes.select(old.column_names)])
        rows = both.combine_chunks().take(order)
        if added.any() or not group.in_order:
            rows = rows.sort_by([(column, "ascending") for column in KEY])
        return RewrittenGroup(group.paths, tuple(self._write(rows, name, written)))

    def _read(self, path: str) -> pa.Table:
        """Return a file's rows with the table's columns."""
        with self._open(path) as source:
            rows = pq.ParquetFile(source).read(use_threads=False)  # files are read side by side
        return rows.select(self.spec.schema.names).cast(self.spec.schema)

    def _write(
        self, rows: pa.Table, name: str, written: list[AddAction]
    ) -> Iterator[tuple[str, Span]]:
        """Write sorted rows to files of equal size, and yield each path and span."""
        cuts = np.linspace(0, len(rows), -(-len(rows) // ROWS) + 1).astype(int).tolist()
        for start, end in pairwise(cuts):
            part = rows.slice(start, end - start)
            first, last = _keys(part.take([0, len(part) - 1]))
            span = Span(first, last, len(part))
            file = write_rows(
                self.table, part.replace_schema_metadata({SPAN: json.dumps(span)}), name
            )
            written.append(file)
            yield file.path, span


def read_span(footer: pq.FileMetaData) -> Span | None:
    """Return the span in a file's metadata.

    None if there is none, or if it belongs to other rows: metadata may have been copied.
    """
    first, last, rows = json.loads((footer.metadata or {}).get(SPAN, b"[[], [], -1]"))
    return Span((first[0], first[1]), (last[0], last[1]), rows) if rows == footer.num_rows else None


def build_groups(spans: Mapping[str, Span | None]) -> list[Group]:
    """Return groups of files in the order of their keys.

    Files whose keys overlap are in one group, and so are small neighbours. If a file has no span
    (a rebuild wrote it) all files are one group: once they are rewritten, each has a span.
    """
    known = {path: span for path, span in spans.items() if span is not None}
    if len(known) < len(spans):
        return [Group(("", ""), tuple(sorted(spans)), in_order=False)]
    found: list[tuple[Span, list[str]]] = []
    for path, span in sorted(known.items(), key=lambda item: (item[1], item[0])):
        if found and _belong_together(found[-1][0], span):
            before, paths = found.pop()
            last, rows = max(before.last, span.last), before.rows + span.rows
            found.append((Span(before.first, last, rows), [*paths, path]))
        else:
            found.append((span, [path]))
    return [Group(span.first, tuple(paths), len(paths) == 1) for span, paths in found]


def _belong_together(before: Span, after: Span) -> bool:
    return after.first <= before.last or after.rows + before.rows < ROWS // 2


def assign_rows(keys: Iterable[Key], groups: list[Group]) -> list[tuple[Group, int, int]]:
    """Return which rows belong to which group, as (group, start, count).

    A new key belongs to the group with the next lower key. `keys`: of the rows, in order.
    """
    firsts = [group.first for group in groups[1:]]
    found, start = [], 0
    for number, positions in groupby(bisect_right(firsts, key) for key in keys):
        count = len(list(positions))
        found.append((groups[number] if groups else Group(("", ""), ()), start, count))
        start += count
    return found


def _keys(rows: pa.Table) -> list[Key]:
    return list(zip(*(rows[column].to_pylist() for column in KEY), strict=True))


def _joined_keys(rows: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*(rows[column] for column in KEY), "\0")
