"""Writes the tables that follow from the log.

Each commit carries the batch's number in the log, so that no batch is projected twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction

from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import (
    AUDIT,
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    COMMANDS,
    DECISIONS,
    HISTORY_TABLES,
    MERGE_ADVICE,
    OUTCOMES,
    OWNERSHIP,
    PROPOSALS,
    REFUSALS,
    REJECTED_REPORTS,
    ROLLOUTS,
    SHADOW_DECISIONS,
    SHADOW_ROUNDS,
)
from lb_stream.io.tables.audit import AuditTable, audit_rows
from lb_stream.io.tables.commits import Mark, Marks, Table
from lb_stream.io.tables.compaction import COMPACT_EVERY, compact_small_files
from lb_stream.io.tables.delta import (
    add_files,
    commit_once,
    dataset,
    open_table,
    read_mark,
    write_rows,
)
from lb_stream.io.tables.keyed import KeyedTable
from lb_stream.store import Store
from lb_stream.stream.ports import Logged
from lb_stream.stream.rows import FigureFile
from lb_stream.stream.task.crash import crash_point

logger = logging.getLogger(__name__)

Row = dict[str, Any]
"""A row as the log has it: a value of JSON in each column."""
Rows = list[Row]

MARK_EVERY = 100
"""Batches after which a table without new rows is marked as up to date.

A start has to read the log only from the last mark on.
"""


def _decisions(logged: Logged) -> Rows:
    rows = _entries(logged, DECISIONS.name)
    return [row | {"explain": json.dumps(row["explain"], sort_keys=True)} for row in rows]


def _commands(logged: Logged) -> Rows:
    entries = _entries(logged, "results")
    rows = [row for row in entries if row["id"] and not row["repeated"]]
    return [row | {"arguments": json.dumps(row["arguments"], sort_keys=True)} for row in rows]


def _proposals(logged: Logged) -> Rows:
    return [
        row | {"explain": json.dumps(row["explain"], sort_keys=True)}
        for row in _entries(logged, PROPOSALS.name)
    ]


def _shadow_decisions(logged: Logged) -> Rows:
    rounds = [row for row in _entries(logged, "shadows") if row.get("decisions")]
    return [
        row | decision | {"number": number}
        for row in rounds
        for number, decision in enumerate(row["decisions"])
    ]


def _entries(logged: Logged, column: str) -> Rows:
    """Return all entries of a column, with cluster, number and time of their round."""
    rows: Rows = []
    places = logged.rounds.select(["cluster", "seq", "now_ms"]).to_pylist()
    for row, entries in zip(places, logged.entries(column), strict=True):
        rows += [entry | row | {"log_seq": logged.log_seq} for entry in entries]
    return rows


_Project = Callable[[Logged], Rows]
ROW_TABLES: tuple[tuple[TableSpec, _Project], ...] = (
    (DECISIONS, _decisions),
    (OUTCOMES, lambda logged: _entries(logged, OUTCOMES.name)),
    (REFUSALS, lambda logged: _entries(logged, REFUSALS.name)),
    (COMMANDS, _commands),
    (PROPOSALS, _proposals),
    (ROLLOUTS, lambda logged: _entries(logged, "rollout")),
    (SHADOW_ROUNDS, lambda logged: _entries(logged, "shadows")),
    (SHADOW_DECISIONS, _shadow_decisions),
)
"""Tables whose rows are in the log, each with the function that gives a batch's rows."""
FILE_TABLES: tuple[TableSpec, ...] = (BROKER_LOADS, REJECTED_REPORTS)
"""Tables whose files the log names."""


@dataclass(frozen=True, slots=True)
class LatestRowTable:
    """A table that has the last row of each bundle, from the log's column of the table's name.

    A row whose column `by` has the value `end` removes the bundle's row.
    """

    spec: TableSpec
    by: str
    end: str

    def last(self, logged: Logged) -> dict[tuple[str, str], Row]:
        """Return (cluster, bundle) → the last row in a batch, also of a row that removes."""
        rows = _entries(logged, self.spec.name)
        return {(row["cluster"], row["bundle"]): row for row in rows}


PRESENT_TABLES = (
    LatestRowTable(OWNERSHIP, "state", "Init"),
    LatestRowTable(MERGE_ADVICE, "owner", ""),
)
_PRESENT_SPECS = tuple(table.spec for table in PRESENT_TABLES)


def named_files(spec: TableSpec, logged: Logged) -> list[FigureFile]:
    """Return the files that a batch's rounds name for a table."""
    return [files[spec.name] for files in logged.files if spec.name in files]


def _files_of(spec: TableSpec, files: Mapping[str, Mapping[str, FigureFile]]) -> list[FigureFile]:
    """Return a table's files, in the order of the parts. `files`: part → table → file."""
    return [files[part][spec.name] for part in sorted(files) if spec.name in files[part]]


def _slot_bounds(file: FigureFile) -> dict[str, object]:
    """Return Delta's statistics of a file of history, the min and max slot; empty for others."""
    if "slots" not in file:
        return {}
    first, last = file["slots"]
    return {
        "minValues": {"slot_ms": first},
        "maxValues": {"slot_ms": last},
        "nullCount": {"slot_ms": 0},
    }


class Projections:
    """The writer of all tables but the log. Tables stay open from batch to batch."""

    def __init__(self, root: Store, pipeline: str) -> None:
        self._app, self._batches = pipeline, 0
        self._catching_up = True  # whether the batches may be older than some of their files
        specs = [spec for spec, _ in ROW_TABLES] + [
            AUDIT,
            *FILE_TABLES,
            *_PRESENT_SPECS,
            BUNDLE_AVERAGES,
            *HISTORY_TABLES,
        ]
        self._tables = {spec.name: open_table(root, spec) for spec in specs}
        self._audit = AuditTable(self._tables[AUDIT.name])
        self._keyed = {
            spec.name: KeyedTable(self._tables[spec.name], spec) for spec in _PRESENT_SPECS
        }

    def project(self, logged: Logged) -> None:
        """Write a batch to every table that follows from the log and doesn't have it yet."""
        for spec, project in ROW_TABLES:
            rows = project(logged)
            if rows:
                self._append(spec, pa.Table.from_pylist(rows, spec.schema), logged.log_seq)
        if answers := audit_rows(logged):
            self._audit.append(answers, (self._app, logged.log_seq))
        crash_point("between_projections")
        for spec in FILE_TABLES:
            if files := named_files(spec, logged):
                self._commit(spec, files, (self._app, logged.log_seq))
        for present in PRESENT_TABLES:
            self._project_present(present, logged)
        if len(logged.rounds):
            self._run_upkeep(logged.log_seq)

    def ownership_versions(self, clusters: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """Return cluster → bundle → version of its ownership record, for some clusters."""
        found: dict[str, dict[str, int]] = {}
        wanted = pc.field("cluster").isin(sorted(clusters))
        for row in (
            dataset(self._tables[OWNERSHIP.name])
            .to_table(["cluster", "bundle", "version"], wanted)
            .to_pylist()
        ):
            found.setdefault(row["cluster"], {})[row["bundle"]] = row["version"]
        return found

    def replace_parts(
        self, app: str, batch_id: int, files: Mapping[str, Mapping[str, FigureFile]]
    ) -> None:
        """Replace parts of `bundle_averages`, and add to the tables of history.

        `files`: part → table → file. They follow from the batch, not from the log: a cluster may be
        cut into other parts in a batch without a round.
        """
        averages = _files_of(BUNDLE_AVERAGES, files)
        self._commit(BUNDLE_AVERAGES, averages, (app, batch_id), replaced=sorted(files))
        self.add_history(app, batch_id, files)

    def add_history(
        self, app: str, batch_id: int, files: Mapping[str, Mapping[str, FigureFile]]
    ) -> None:
        """Add files to the tables of history. `files`: as for `replace_parts`."""
        for spec in HISTORY_TABLES:
            if written := _files_of(spec, files):
                self._commit(spec, written, (app, batch_id))

    def clear_averages(self) -> None:
        """Empty `bundle_averages`, for a new state; each cluster's rows return with its reports.

        With the new state clusters may be cut into other parts. The old parts would stay, and a
        bundle would have two rows.
        """
        table = self._tables[BUNDLE_AVERAGES.name]
        table.refresh()
        if table.file_uris():
            table.delete()
            table.refresh()

    @property
    def newest(self) -> int | None:
        """Return the number in the log of the newest batch that any table has; None before any.

        A batch is published before it is projected.
        """
        numbers = [read_mark(table, self._app) for table in self._tables.values()]
        return max((number for number in numbers if number is not None), default=None)

    def catch_up(self, since: Callable[[int], Iterable[Logged]]) -> int:
        """Project what an earlier run has logged and not projected; return the number of batches.

        `since`: gives the logged batches from a number on. Each table goes on from its own last
        batch: one that was rebuilt or lost may be ahead of the others, or behind them.
        """
        self._catching_up = True
        versions = {spec.name: read_mark(table, self._app) for spec, table in self._following()}
        newest = self.newest
        if newest is not None and (
            missing := [name for name, version in versions.items() if version is None]
        ):
            logger.info("the whole log is read for tables that are empty: %s", ", ".join(missing))
        count, last = 0, -1
        for logged in since(
            min(-1 if version is None else version for version in versions.values()) + 1
        ):
            last = logged.log_seq
            count += newest is None or last > newest
            self.project(logged)
        for spec, table in self._following() if last >= 0 else ():
            self._mark(spec, table, last)
        self._catching_up = False
        return count

    def _append(self, spec: TableSpec, rows: pa.Table, log_seq: int) -> None:
        table = self._tables[spec.name]
        written: list[AddAction] = []

        def put(marks: Marks) -> None:
            if not written:  # a commit that is refused is tried again with the same file
                written.append(write_rows(table, rows, f"{log_seq:012d}"))
            add_files(table, spec, written, marks)

        commit_once(table, (self._app, log_seq), put)

    def _commit(
        self,
        spec: TableSpec,
        files: Iterable[FigureFile],
        mark: Mark,
        replaced: list[str] | None = None,
    ) -> None:
        """Add files that tasks have written to their table.

        `replaced`: the partitions whose earlier files are removed.
        """
        table, column = self._tables[spec.name], spec.partition_by
        actions = [
            AddAction(
                path=file["path"],
                size=file["bytes"],
                partition_values={column: file["partition"]} if column else {},
                modification_time=0,
                data_change=True,
                # Bounds of all columns that have statistics, or of none: in delta-rs's dataset no
                # filter matches a file that lacks the bounds of a named column.
                stats=json.dumps({"numRecords": file["rows"]} | _slot_bounds(file)),
            )
            for file in self._existing(table, spec, files)
        ]
        commit_once(table, mark, lambda marks: add_files(table, spec, actions, marks, replaced))

    def _existing(
        self, table: Table, spec: TableSpec, files: Iterable[FigureFile]
    ) -> Iterator[FigureFile]:
        """Yield the files that exist: a table that names a missing file can't be read any more.

        Files are missing only after a table was lost, or after a power failure. Those of the
        current batch have just been written.
        """
        for file in files:
            if not self._catching_up or table.store.stat(file["path"]) is not None:
                yield file
            else:
                logger.warning(
                    "%s lacks %d rows: the file %s is gone", spec.name, file["rows"], file["path"]
                )

    def _run_upkeep(self, log_seq: int) -> None:
        """Compact and mark some tables, in turns, so that batches and starts stay quick."""
        self._batches += 1
        for number, (spec, table) in enumerate(self._following()):
            turn = self._batches + 11 * number
            if turn % COMPACT_EVERY == 0 and spec.name not in self._keyed:
                compact_small_files(table)
            if turn % MARK_EVERY == 0:
                self._mark(spec, table, log_seq)
        for number, spec in enumerate(HISTORY_TABLES):
            if (self._batches + 50 + number) % COMPACT_EVERY == 0:
                compact_small_files(self._tables[spec.name])

    def _following(self) -> list[tuple[TableSpec, Table]]:
        """Return the tables that follow from the log alone."""
        specs = (*(spec for spec, _ in ROW_TABLES), *FILE_TABLES, *_PRESENT_SPECS, AUDIT)
        return [(spec, self._tables[spec.name]) for spec in specs]

    def _mark(self, spec: TableSpec, table: Table, log_seq: int) -> None:
        """Note that a table has all rows of the log up to this batch."""
        commit_once(table, (self._app, log_seq), lambda marks: add_files(table, spec, (), marks))

    def _project_present(self, present: LatestRowTable, logged: Logged) -> None:
        """Replace the row of each bundle by its last one in the batch, or remove it."""
        last, spec = present.last(logged), present.spec
        keyed = self._keyed[spec.name]
        if not last:
            return
        data = pa.Table.from_pylist([last[key] for key in sorted(last)], spec.schema)
        ends = pc.equal(data[present.by], present.end)
        commit_once(
            self._tables[spec.name],
            (self._app, logged.log_seq),
            lambda marks: keyed.put(data, ends, f"{logged.log_seq:012d}", marks),
        )
