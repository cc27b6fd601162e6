"""The tables that follow from the log.

Each commit carries the batch's number in the log, so that nothing is projected twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction

from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import (
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
    SHADOW_DECISIONS,
    SHADOW_ROUNDS,
)
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
from lb_stream.stream.task.crash import crash_point

logger = logging.getLogger(__name__)

Rows = list[dict[str, Any]]

MARK_EVERY = 100
"""All tables are marked as being up to date after so many batches: what a start must read of the
log for one without rows is bounded."""


def _decisions(logged: Logged) -> Rows:
    rows = _entries(logged, DECISIONS.name)
    return [row | {"explain": json.dumps(row["explain"], sort_keys=True)} for row in rows]


def _commands(logged: Logged) -> Rows:
    rows = [row for row in _entries(logged, "results") if not row["repeated"]]
    return [row | {"arguments": json.dumps(row["arguments"], sort_keys=True)} for row in rows]


def _proposals(logged: Logged) -> Rows:
    return [
        row | {"explain": json.dumps(row["explain"], sort_keys=True)}
        for row in _entries(logged, PROPOSALS.name)
    ]


def _shadow_decisions(logged: Logged) -> Rows:
    of_rounds = [row for row in _entries(logged, "shadows") if row.get("decisions")]
    return [
        row | one | {"number": number}
        for row in of_rounds
        for number, one in enumerate(row["decisions"])
    ]


def _entries(logged: Logged, column: str) -> Rows:
    """All entries of one of the batch's columns, with their round's cluster, number and time."""
    rows: Rows = []
    places = logged.rounds.select(["cluster", "seq", "now_ms"]).to_pylist()
    for row, entries in zip(places, logged.entries(column), strict=True):
        rows += [entry | row | {"log_seq": logged.log_seq} for entry in entries]
    return rows


ROW_TABLES: tuple[tuple[TableSpec, Callable[[Logged], Rows]], ...] = (
    (DECISIONS, _decisions),
    (OUTCOMES, lambda logged: _entries(logged, OUTCOMES.name)),
    (REFUSALS, lambda logged: _entries(logged, REFUSALS.name)),
    (COMMANDS, _commands),
    (PROPOSALS, _proposals),
    (SHADOW_ROUNDS, lambda logged: _entries(logged, "shadows")),
    (SHADOW_DECISIONS, _shadow_decisions),
)
FILE_TABLES: tuple[TableSpec, ...] = (BROKER_LOADS, REJECTED_REPORTS)


@dataclass(frozen=True, slots=True)
class LatestRowTable:
    """A table that holds the present: of each bundle the last row that the log has.

    The log's column has the table's name. Where the table's column `by` says `end`, there is none.
    """

    spec: TableSpec
    by: str
    end: str

    def last(self, logged: Logged) -> dict[tuple[str, str], dict[str, Any]]:
        """Cluster and bundle → the last row that a batch has of it; those that are none are among
        them."""
        rows = _entries(logged, self.spec.name)
        return {(row["cluster"], row["bundle"]): row for row in rows}


PRESENT_TABLES = (
    LatestRowTable(OWNERSHIP, "state", "Init"),
    LatestRowTable(MERGE_ADVICE, "owner", ""),
)
_PRESENT_SPECS = tuple(table.spec for table in PRESENT_TABLES)


def named_files(spec: TableSpec, logged: Logged) -> list[dict[str, Any]]:
    """The figures' files (stream.figures.File) that a batch's rounds name for a table."""
    return [files[spec.name] for files in logged.files if spec.name in files]


def _bounds(file: Mapping[str, Any]) -> dict[str, Any]:
    """Delta's statistics of a file of history: its slots."""
    if "slots" not in file:
        return {}
    first, last = file["slots"]
    return {
        "minValues": {"slot_ms": first},
        "maxValues": {"slot_ms": last},
        "nullCount": {"slot_ms": 0},
    }


class Projections:
    """Writer of all tables but the log. Handles stay open from batch to batch."""

    def __init__(self, root: Store, pipeline: str) -> None:
        self._app, self._batches, self._catching_up = pipeline, 0, True
        specs = [spec for spec, _ in ROW_TABLES] + [
            *FILE_TABLES,
            *_PRESENT_SPECS,
            BUNDLE_AVERAGES,
            *HISTORY_TABLES,
        ]
        self._tables = {spec.name: open_table(root, spec) for spec in specs}
        self._keyed = {
            spec.name: KeyedTable(self._tables[spec.name], spec) for spec in _PRESENT_SPECS
        }

    def project(self, logged: Logged) -> None:
        """Bring every table up to this batch; a table that has it already stays as it is."""
        for spec, rows_of in ROW_TABLES:
            rows = rows_of(logged)
            if rows:
                self._append(spec, pa.Table.from_pylist(rows, spec.schema), logged.log_seq)
        crash_point("between_projections")
        for spec in FILE_TABLES:
            if files := named_files(spec, logged):
                self._commit(spec, files, (self._app, logged.log_seq))
        for present in PRESENT_TABLES:
            self._project_present(present, logged)
        if len(logged.rounds):
            self._run_upkeep(logged.log_seq)

    def ownership_versions(self, clusters: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """The ownership records of some clusters: cluster → bundle → version."""
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
        self, app: str, batch_id: int, files: Mapping[str, Mapping[str, Mapping[str, Any]]]
    ) -> None:
        """Put these files (part → table → file) in the place of those parts of `bundle_averages`,
        and add them to the tables of history.

        They follow from the batch, not from the log: a cluster may be sliced anew in a batch
        without a round.
        """

        def of(spec: TableSpec) -> Rows:
            return [
                dict(files[part][spec.name]) for part in sorted(files) if spec.name in files[part]
            ]

        self._commit(BUNDLE_AVERAGES, of(BUNDLE_AVERAGES), (app, batch_id), replaced=sorted(files))
        for spec in HISTORY_TABLES:
            if written := of(spec):
                self._commit(spec, written, (app, batch_id))

    def clear_averages(self) -> None:
        """Empty `bundle_averages`, for a new state: clusters may be cut into other parts than the
        old ones, which nobody would replace, and a bundle would be there twice. Each cluster's rows
        come back with its next reports."""
        table = self._tables[BUNDLE_AVERAGES.name]
        table.refresh()
        if table.file_uris():
            table.delete()
            table.refresh()

    @property
    def newest(self) -> int | None:
        """Number in the log of the newest batch that any table has; None before the first.

        What is projected was published before.
        """
        return max(
            (
                version
                for table in self._tables.values()
                if (version := read_mark(table, self._app)) is not None
            ),
            default=None,
        )

    def catch_up(self, since: Callable[[int], Iterable[Logged]]) -> int:
        """Project what an earlier run has logged and not projected any more.

        Returns how many batches that were.

        Each table goes on from the batch that it has itself: one that was rebuilt or lost may lag
        behind the others, or be ahead.
        """
        self._catching_up = True
        versions = {spec.name: read_mark(table, self._app) for spec, table in self._following()}
        newest = self.newest
        if newest is not None and (
            missing := [name for name, version in versions.items() if version is None]
        ):
            logger.info(
                "the whole log is read again for what is not there yet: %s", ", ".join(missing)
            )
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
        files: Iterable[Mapping[str, Any]],
        mark: Mark,
        replaced: list[str] | None = None,
    ) -> None:
        """Make files that are there already part of their table.

        `replaced`: the partitions whose earlier files they replace.
        """
        table = self._tables[spec.name]
        actions = [
            AddAction(
                path=file["path"],
                size=file["bytes"],
                partition_values={spec.partition_by: file["partition"]}
                if spec.partition_by
                else {},
                modification_time=0,
                data_change=True,
                # Bounds of all columns that have statistics, or of none: delta-rs's dataset takes a
                # column without any for one that no filter matches.
                stats=json.dumps({"numRecords": file["rows"]} | _bounds(file)),
            )
            for file in self._found(table, spec, files)
        ]
        commit_once(table, mark, lambda marks: add_files(table, spec, actions, marks, replaced))

    def _found(
        self, table: Table, spec: TableSpec, files: Iterable[Mapping[str, Any]]
    ) -> Iterable[Mapping[str, Any]]:
        """Those files that are there: a table that names a missing one can't be read any more.

        They are, unless a table was lost, or power; those of the batch under way have just been
        written.
        """
        for file in files:
            if not self._catching_up or table.store.stat(file["path"]) is not None:
                yield file
            else:
                logger.warning(
                    "%s lacks %d rows: the file %s is gone", spec.name, file["rows"], file["path"]
                )

    def _run_upkeep(self, log_seq: int) -> None:
        """What keeps the cost of batches and starts from growing with their number; the tables take
        turns."""
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
        """The tables that follow from the log alone."""
        return [
            (spec, self._tables[spec.name])
            for spec in (*(spec for spec, _ in ROW_TABLES), *FILE_TABLES, *_PRESENT_SPECS)
        ]

    def _mark(self, spec: TableSpec, table: Table, log_seq: int) -> None:
        """Note that a table has all of the log up to this batch, rows or not."""
        commit_once(table, (self._app, log_seq), lambda marks: add_files(table, spec, (), marks))

    def _project_present(self, present: LatestRowTable, logged: Logged) -> None:
        """Put the last row of each bundle in the place of its earlier one; a bundle of which it is
        the end has none."""
        last, spec, keyed = present.last(logged), present.spec, self._keyed[present.spec.name]
        if not last:
            return
        data = pa.Table.from_pylist([last[key] for key in sorted(last)], spec.schema)
        ends = pc.equal(data[present.by], present.end)
        commit_once(
            self._tables[spec.name],
            (self._app, logged.log_seq),
            lambda marks: keyed.put(data, ends, f"{logged.log_seq:012d}", marks),
        )
