"""Tables with one row of each bundle. What a batch puts into one costs the files that its bundles are in, not the whole table."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from lb_stream.contracts.table_spec import TableSpec
from lb_stream.io.tables.commits import LiveFile, Marks, Table
from lb_stream.io.tables.delta import write_rows

KEY = ("cluster", "bundle")
ROWS = 1 << 16
"""A file with more rows is cut in two or more."""
THREADS = 4
"""Files that are read and written at one time: that many are in memory, and a far store's answers are waited for together."""
WHOLE_BYTES = 1 << 20
"""A file in a far store is read by one request if it is no larger."""
SPAN = b"lb.span"
"""Where a file tells its span and its rows. The bounds of its columns tell less: a cluster may go on in the next file."""
END = "\U0010ffff"
"""Above all names."""

Key = tuple[str, str]


class Span(NamedTuple):
    """What keys a file has: none below the first, none above the last."""

    first: Key
    last: Key
    told: bool = False  # by the file itself, whose rows are in the order of their keys then


class Group(NamedTuple):
    """Files whose spans overlap. Nearly always it is one: others may have mixed keys (an earlier version, a rebuild)."""

    first: Key
    paths: tuple[str, ...]


class Renewed(NamedTuple):
    """New files, each with its span, in the place of the old ones."""

    old: tuple[str, ...]
    new: tuple[tuple[AddAction, Span], ...]


@dataclass(slots=True)
class KeyedTable:
    """A table that has at most one row of each cluster and bundle, and its only writer."""

    table: Table
    spec: TableSpec
    _spans: dict[str, Span] = field(default_factory=dict)  # file → what was read in it, or written

    def put(self, rows: pa.Table, ends: pa.ChunkedArray, name: str, marks: Marks) -> None:
        """Put rows, in the order of their keys, in the place of those with the same keys; where `ends` says so, leave none.

        `name` as for `write_rows`. Raises what `Table.commit` does.
        """
        live = self.table.live()
        with ThreadPoolExecutor(THREADS) as threads:
            unknown = [path for path in live.files if path not in self._spans]
            self._spans |= zip(unknown, threads.map(lambda path: self._span(path, live.files[path]), unknown), strict=True)
            groups = grouped({path: self._spans[path] for path in live.files})
            given = rows.append_column("ends", ends)
            work = [(group, given.slice(start, count)) for group, start, count in shared_out(_keys(rows), groups)]
            done = list(filter(None, threads.map(lambda one: self._renew(one[0], live.files, one[1], name), work)))
        new = dict(chain.from_iterable(((file.path, span) for file, span in one.new) for one in done))
        old = set(chain.from_iterable(one.old for one in done))
        self.table.commit([file for one in done for file, _ in one.new], marks, replaced=live.some(lambda path, _: path in old))
        self._spans = {path: span for path, span in self._spans.items() if path in live.files and path not in old} | new

    def _span(self, path: str, file: LiveFile) -> Span:
        with self._open(path, file) as source:
            return span_of(pq.read_metadata(source))

    def _open(self, path: str, file: LiveFile) -> pa.NativeFile:
        store = self.table.store
        return pa.BufferReader(store.get(path)) if store.local is None and file.size <= WHOLE_BYTES else store.open(path)

    def _renew(self, group: Group, files: Mapping[str, LiveFile], changes: pa.Table, name: str) -> Renewed | None:
        """Write a group's files anew with these changes; None: there is nothing to change."""
        old = pa.concat_tables([self.spec.schema.empty_table(), *(self._read(path, files[path]) for path in group.paths)])
        at = np.array(pc.index_in(_joined(changes), value_set=_joined(old).combine_chunks()).fill_null(-1))
        ends, there = changes["ends"].to_numpy(), at >= 0
        added = ~there & ~ends
        if not (there | added).any():
            return None
        order = np.arange(len(old))
        order[at[there]] = len(old) + np.flatnonzero(there)
        order = np.append(np.delete(order, at[there & ends]), len(old) + np.flatnonzero(added))
        rows = pa.concat_tables([old, changes.select(old.column_names)]).combine_chunks().take(order)
        if added.any() or len(group.paths) != 1 or not self._spans[group.paths[0]].told:
            rows = rows.sort_by([(column, "ascending") for column in KEY])
        return Renewed(group.paths, tuple(self._write(rows, name)))

    def _read(self, path: str, file: LiveFile) -> pa.Table:
        """A file's rows with the table's columns: one that was added since is empty."""
        with self._open(path, file) as source:
            rows = pq.ParquetFile(source).read(use_threads=False)  # files are read side by side
        there = set(rows.column_names)
        columns = [rows[one.name].cast(one.type) if one.name in there else pa.nulls(len(rows), one.type) for one in self.spec.schema]
        return pa.table(columns, self.spec.schema)

    def _write(self, rows: pa.Table, name: str) -> Iterable[tuple[AddAction, Span]]:
        """Write sorted rows, as many in each file."""
        cuts = np.linspace(0, len(rows), -(-len(rows) // ROWS) + 1).astype(int).tolist()
        for start, end in pairwise(cuts):
            part = rows.slice(start, end - start)
            first, last = _keys(part.take([0, len(part) - 1]))
            span = Span(first, last, told=True)
            told = part.replace_schema_metadata({SPAN: json.dumps([first, last, len(part)])})
            yield write_rows(self.table, told, name), span


def span_of(footer: pq.FileMetaData) -> Span:
    """What a file tells of its keys: its span, or bounds of both columns, or nothing."""
    first, last, rows = json.loads((footer.metadata or {}).get(SPAN, b"[[], [], -1]"))
    if rows == footer.num_rows:  # else whoever has written these rows has copied what others tell
        return Span((first[0], first[1]), (last[0], last[1]), told=True)
    clusters, bundles = (_bounds(footer, column) for column in KEY)
    if clusters is None or bundles is None:
        return Span(("", ""), (END, END))
    (low, high), (lowest, highest) = clusters, bundles
    return Span((low, lowest), (high, highest)) if low == high else Span((low, ""), (high, END))


def _bounds(footer: pq.FileMetaData, column: str) -> tuple[str, str] | None:
    """The least and the greatest text of a column, if all parts of the file tell them."""
    at = footer.schema.names.index(column)
    parts = [footer.row_group(number).column(at).statistics for number in range(footer.num_row_groups)]
    if not parts or not all(one is not None and one.has_min_max for one in parts):
        return None
    return min(one.min for one in parts), max(one.max for one in parts)


def grouped(spans: Mapping[str, Span]) -> list[Group]:
    """Files in the order of their keys, those with overlapping spans together."""
    found: list[tuple[Key, Key, list[str]]] = []
    for path, span in sorted(spans.items(), key=lambda one: (one[1], one[0])):
        if found and span.first <= found[-1][1]:
            first, last, paths = found.pop()
            found.append((first, max(last, span.last), [*paths, path]))
        else:
            found.append((span.first, span.last, [path]))
    return [Group(first, tuple(paths)) for first, _, paths in found]


def shared_out(keys: Iterable[Key], groups: list[Group]) -> list[tuple[Group, int, int]]:
    """Which rows belong in which group, as start and count: a new key comes behind the one that is next below it. `keys`: in order."""
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
