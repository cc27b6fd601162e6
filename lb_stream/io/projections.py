"""The tables that follow from the log. Each commit carries the batch's number in the log, so that nothing is projected twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from lb_stream.contracts.tables import (
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    DECISIONS,
    OUTCOMES,
    OWNERSHIP,
    REFUSALS,
    REJECTED_REPORTS,
    TableSpec,
)
from lb_stream.io.delta import committed, open_table, transaction
from lb_stream.stream.crash import crash_point
from lb_stream.stream.ports import Logged

Rows = list[dict[str, Any]]


def _decisions(logged: Logged) -> Rows:
    rows = _entries(logged, "decisions")
    return [row | {"explain": json.dumps(row["explain"], sort_keys=True)} for row in rows]


def _entries(logged: Logged, column: str) -> Rows:
    """All entries of one JSON column, with their round's cluster, number and time."""
    rows: Rows = []
    for row in logged.rounds.select(["cluster", "seq", "now_ms", column]).to_pylist():
        round_of = {name: row[name] for name in ("cluster", "seq", "now_ms")} | {"log_seq": logged.log_seq}
        rows += [entry | round_of for entry in json.loads(row[column])]
    return rows


_ROW_TABLES: tuple[tuple[TableSpec, Callable[[Logged], Rows]], ...] = (
    (DECISIONS, _decisions),
    (OUTCOMES, lambda logged: _entries(logged, "outcomes")),
    (REFUSALS, lambda logged: _entries(logged, "refusals")),
)
_FILE_TABLES: tuple[TableSpec, ...] = (BROKER_LOADS, REJECTED_REPORTS)


class Projections:
    """Writer of all tables but the log. Handles stay open from batch to batch."""

    def __init__(self, root: str, pipeline: str) -> None:
        self._app = pipeline
        specs = [spec for spec, _ in _ROW_TABLES] + [*_FILE_TABLES, OWNERSHIP, BUNDLE_AVERAGES]
        self._tables = {spec.name: open_table(root, spec) for spec in specs}

    def project(self, logged: Logged) -> None:
        """Bring every table up to this batch; a table that has it already stays as it is."""
        for spec, rows_of in _ROW_TABLES:
            rows = rows_of(logged)
            if rows and (table := self._due(spec, logged.log_seq)):
                data = pa.Table.from_pylist(rows, spec.schema)
                write_deltalake(table, data, mode="append", commit_properties=transaction((self._app, logged.log_seq)))
        crash_point("between_projections")
        for spec in _FILE_TABLES:
            files = [files[spec.name] for files in map(json.loads, logged.rounds["files"].to_pylist()) if spec.name in files]
            if files and (table := self._due(spec, logged.log_seq)):
                self._commit(table, spec, files, logged.log_seq)
        self._project_ownership(logged)

    def put_averages(self, log_seq: int, files: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Put these files in the place of those parts of `bundle_averages`; None: the part is empty now."""
        if table := self._due(BUNDLE_AVERAGES, log_seq):
            self._commit(table, BUNDLE_AVERAGES, [file for file in files.values() if file is not None], log_seq, replaced=sorted(files))

    @property
    def newest(self) -> int | None:
        """Number in the log of the newest batch that any table has; None before the first. What is projected was published before."""
        return max((version for table in self._tables.values() if (version := committed(table, self._app)) is not None), default=None)

    def catch_up(self, since: Callable[[int], Iterable[Logged]]) -> int:
        """Project what an earlier run has logged and not projected any more. Returns how many batches that were.

        Tables are written in the order of the log and a failure ends the job: none can lag behind the newest by more than one batch.
        """
        newest = self.newest
        missed = list(since(0 if newest is None else newest))
        for logged in missed:
            self.project(logged)
        return sum(newest is None or logged.log_seq > newest for logged in missed)

    def _due(self, spec: TableSpec, log_seq: int) -> DeltaTable | None:
        table = self._tables[spec.name]
        version = committed(table, self._app)
        return table if version is None or version < log_seq else None

    def _commit(
        self, table: DeltaTable, spec: TableSpec, files: Iterable[Mapping[str, Any]], log_seq: int, replaced: list[str] | None = None
    ) -> None:
        """Make files that are there already part of their table. `replaced`: the partitions whose earlier files they replace."""
        actions = [
            AddAction(
                path=file["path"],
                size=file["bytes"],
                partition_values={spec.partition_by: file["partition"]} if spec.partition_by else {},
                modification_time=0,
                data_change=True,
                stats=json.dumps({"numRecords": file["rows"]}),
            )
            for file in files
        ]
        table.create_write_transaction(
            actions,
            mode="append" if replaced is None else "overwrite",
            schema=spec.schema,
            partition_by=[spec.partition_by] if spec.partition_by else None,
            partition_filters=None if replaced is None or spec.partition_by is None else [(spec.partition_by, "in", replaced)],
            commit_properties=transaction((self._app, log_seq)),
        )
        table.update_incremental()

    def _project_ownership(self, logged: Logged) -> None:
        """Put the last record of each bundle in the place of its earlier one."""
        last = {(row["cluster"], row["bundle"]): row for row in _entries(logged, "ownership")}
        if not last or (table := self._due(OWNERSHIP, logged.log_seq)) is None:
            return
        data = pa.Table.from_pylist([last[key] for key in sorted(last)], OWNERSHIP.schema)
        if not table.file_uris():
            write_deltalake(table, data, mode="append", commit_properties=transaction((self._app, logged.log_seq)))
            return
        (
            table.merge(
                data,
                predicate="t.cluster = s.cluster AND t.bundle = s.bundle",
                source_alias="s",
                target_alias="t",
                commit_properties=transaction((self._app, logged.log_seq)),
            )
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )
