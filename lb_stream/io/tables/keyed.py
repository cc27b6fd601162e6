"""Tables with one row of each bundle.

What a batch puts into one costs the files that its bundles are in, not the whole table.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
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
"""A file with more rows is cut in two or more; neighbours that have less than half as many together
become one when either changes."""
THREADS = 4
"""Files that are read and written at one time: that many are in memory, and a far store's answers
are waited for together."""
SPAN = b"lb.span"
"""Where a file tells its span and its rows.

The bounds of its columns tell less: a cluster may go on in the next file.
"""

Key = tuple[str, str]


class Span(NamedTuple):
    """What keys a file has: none below the first, none above the last, and they are in order."""

    first: Key
    last: Key
    rows: int


class Group(NamedTuple):
    """Files that are written anew together: nearly always it is one."""

    first: Key
    paths: tuple[str, ...]
    in_order: bool = True  # it is one file, and its rows are in the order of their keys


class RewrittenGroup(NamedTuple):
    """New files, each with its span, in the place of the old ones."""

    old: tuple[str, ...]
    new: tuple[tuple[str, Span], ...]


@dataclass(slots=True)
class KeyedTable:
    """A table that has at most one row of each cluster and bundle, and its only writer."""

    table: Table
    spec: TableSpec
    _spans: dict[str, Span | None] = field(
        default_factory=dict
    )  # file → what was read in it, or written

    def put(self, rows: pa.Table, ends: pa.ChunkedArray, name: str, marks: Marks) -> None:
        """Put rows, in the order of their keys, in the place of those with the same keys; where
        `ends` says so, leave none.

        `name` as for `write_rows`. Raises what `Table.commit` does, and OSError if a file can't be
        read or written: nothing is left then.
        """
        live = self.table.live()
        written: list[AddAction] = []
        try:
            with ThreadPoolExecutor(THREADS) as threads:
                unknown = [path for path in live.files if path not in self._spans]
                self._spans |= zip(unknown, threads.map(self._span, unknown), strict=True)
                groups = build_groups({path: self._spans[path] for path in live.files})
                given = rows.append_column("ends", ends)
                work = [
                    (group, given.slice(start, count))
                    for group, start, count in assign_rows(_keys(rows), groups)
                ]
                done = list(
                    filter(
                        None,
                        threads.map(lambda one: self._renew(one[0], one[1], name, written), work),
                    )
                )
        except BaseException:
            self._remove(written)  # the threads have ended
            raise
        new: dict[str, Span | None] = dict(chain.from_iterable(one.new for one in done))
        old = set(chain.from_iterable(one.old for one in done))
        self.table.commit(written, marks, replaced=live.select(lambda path, _: path in old))
        self._spans = {
            path: span
            for path, span in self._spans.items()
            if path in live.files and path not in old
        } | new

    def _remove(self, files: Iterable[AddAction]) -> None:
        """Remove files that no commit names. What can't be removed is left to upkeep."""
        for file in files:
            with suppress(OSError):
                self.table.store.delete(file.path)

    def _span(self, path: str) -> Span | None:
        with self._open(path) as source:
            return read_span(pq.read_metadata(source))

    def _open(self, path: str) -> pa.NativeFile:
        """A far store is asked once: a file is read piece by piece elsewhere."""
        store = self.table.store
        return pa.BufferReader(store.get(path)) if store.local is None else store.open(path)

    def _renew(
        self, group: Group, changes: pa.Table, name: str, written: list[AddAction]
    ) -> RewrittenGroup | None:
        """Write a group's files anew with these changes; None: there is nothing to change."""
        old = pa.concat_tables([self.spec.schema.empty_table(), *map(self._read, group.paths)])
        at = np.array(
            pc.index_in(_joined(changes), value_set=_joined(old).combine_chunks()).fill_null(-1)
        )
        ends, there = changes["ends"].to_numpy(), at >= 0
        added = ~there & ~ends
        if not (there | added).any():
            return None
        order = np.arange(len(old))
        order[at[there]] = len(old) + np.flatnonzero(there)
        order = np.append(np.delete(order, at[there & ends]), len(old) + np.flatnonzero(added))
        rows = (
            pa.concat_tables([old, changes.select(old.column_names)]).combine_chunks().take(order)
        )
        if added.any() or not group.in_order:
            rows = rows.sort_by([(column, "ascending") for column in KEY])
        return RewrittenGroup(group.paths, tuple(self._write(rows, name, written)))

    def _read(self, path: str) -> pa.Table:
        """A file's rows with the table's columns."""
        with self._open(path) as source:
            rows = pq.ParquetFile(source).read(use_threads=False)  # files are read side by side
        return rows.select(self.spec.schema.names).cast(self.spec.schema)

    def _write(
        self, rows: pa.Table, name: str, written: list[AddAction]
    ) -> Iterator[tuple[str, Span]]:
        """Write sorted rows, as many in each file."""
        cuts = np.linspace(0, len(rows), -(-len(rows) // ROWS) + 1).astype(int).tolist()
        for start, end in pairwise(cuts):
            part = rows.slice(start, end - start)
            first, last = _keys(part.take([0, len(part) - 1]))
            told = part.replace_schema_metadata({SPAN: json.dumps([first, last, len(part)])})
            file = write_rows(self.table, told, name)
            written.append(file)
            yield file.path, Span(first, last, len(part))


def read_span(footer: pq.FileMetaData) -> Span | None:
    """What a file tells of its keys.

    None: nothing, or its rows aren't those that were told of, because somebody copied the words.
    """
    first, last, rows = json.loads((footer.metadata or {}).get(SPAN, b"[[], [], -1]"))
    return Span((first[0], first[1]), (last[0], last[1]), rows) if rows == footer.num_rows else None


def build_groups(spans: Mapping[str, Span | None]) -> list[Group]:
    """Files in the order of their keys, together those that overlap and small neighbours.

    If one tells nothing (a rebuild wrote it), all are one group: they are written anew once, and
    tell then.
    """
    told = {path: span for path, span in spans.items() if span is not None}
    if len(told) < len(spans):
        return [Group(("", ""), tuple(sorted(spans)), in_order=False)]
    found: list[tuple[Span, list[str]]] = []
    for path, span in sorted(told.items(), key=lambda one: (one[1], one[0])):
        if found and (span.first <= found[-1][0].last or span.rows + found[-1][0].rows < ROWS // 2):
            before, paths = found.pop()
            found.append(
                (
                    Span(before.first, max(before.last, span.last), before.rows + span.rows),
                    [*paths, path],
                )
            )
        else:
            found.append((span, [path]))
    return [Group(span.first, tuple(paths), len(paths) == 1) for span, paths in found]


def assign_rows(keys: Iterable[Key], groups: list[Group]) -> list[tuple[Group, int, int]]:
    """Which rows belong in which group, as start and count: a new key comes behind the one that is
    next below it. `keys`: in order."""
    firsts = [group.first for group in groups[1:]]
    found, start = [], 0
    for number, some in groupby(bisect_right(firsts, key) for key in keys):
        count = len(list(some))
        found.append((groups[number] if groups else Group(("", ""), ()), start, count))
        start += count
    return found


def _keys(rows: pa.Table) -> list[Key]:
    return list(zip(*(rows[column].to_pylist() for column in KEY), strict=True))


def _joined(rows: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*(rows[column] for column in KEY), "\0")
