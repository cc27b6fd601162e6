"""Query the Delta tables with DuckDB, without a JVM."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from lb_stream.query import NoTables, QueryError
from lb_stream.query.sql_file import MACROS

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyarrow.dataset import Dataset

    from lb_stream.contracts.table_spec import TableSpec
    from lb_stream.store import Store

    Lake = duckdb.DuckDBPyConnection
    """The open tables."""

Row = dict[str, Any]
"""A row of a query's result: column → value. Columns and types depend on the query."""

READ_ONLY = (
    "SET temp_directory = ''",  # else a folder .tmp here takes what doesn't fit into memory
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""Settings that let a query only read the tables: it can't COPY TO, ATTACH, EXPORT or INSTALL."""


def open_lake(
    folder: Store, require_columns: bool = True, only: Collection[str] | None = None
) -> Lake:
    """Return a connection with each table of `contracts.tables` under its name, as of now.

    A missing table is empty. `only`: the names of the tables that are needed; others are left out.
    Raises NoTables if all are missing, QueryError for a table that can't be read, and, with
    `require_columns`, for one that lacks columns.
    """
    import duckdb

    from lb_stream.contracts.tables import TABLES

    wanted = [spec for spec in TABLES if only is None or spec.name in only]
    existing = {
        spec.name: rows
        for spec in wanted
        if (rows := _find_readable_rows(folder, spec)) is not None
    }
    if not existing:
        raise NoTables(
            f"no tables in {folder} yet: run `lbctl demo` or `lbctl balance`, or name theirs: "
            "--set stream.tables=FOLDER"
        )
    lake = duckdb.connect()
    # Otherwise DuckDB takes a misspelt table for a variable of this program.
    lake.execute("SET python_enable_replacements = false")
    lake.execute("SET TimeZone = 'UTC'")
    for macro in MACROS:
        lake.execute(macro)
    for spec in wanted:
        rows = existing.get(spec.name, spec.schema.empty_table())
        missing = [name for name in spec.schema.names if name not in rows.schema.names]
        if missing and require_columns:
            raise QueryError(
                f"{folder / spec.name} has no column {', '.join(missing)}: another version wrote "
                f"it; {_describe_repair(spec)}"
            )
        lake.register(spec.name, rows)
    for setting in READ_ONLY:
        lake.execute(setting)
    return lake


def add_views(lake: Lake) -> None:
    """Add a view beside each table (`decisions_at`) in which times are timestamps (`issued_at`)."""
    import pyarrow as pa

    from lb_stream.contracts.columns.times import SUFFIX, view_columns
    from lb_stream.contracts.tables import TABLES

    for spec in TABLES:
        # A table that another version wrote may lack columns.
        found = {row[0] for row in lake.execute(f"DESCRIBE {spec.name}").fetchall()}
        schema = pa.schema([field for field in spec.schema if field.name in found])
        selected = ", ".join(view_columns(schema, '"'))
        lake.execute(f"CREATE VIEW {spec.name}{SUFFIX} AS SELECT {selected} FROM {spec.name}")


def list_columns(table: str) -> list[tuple[str, str, str]]:
    """Return name, type and meaning of each column of a table, or of the view beside one.

    Raises QueryError (exit code 2) for another name.
    """
    from lb_stream.contracts.columns.times import SUFFIX, is_time, shown_as
    from lb_stream.contracts.table_spec import sql_type
    from lb_stream.contracts.tables import TABLES

    name = table.lower().removesuffix(SUFFIX)
    spec = next((spec for spec in TABLES if spec.name == name), None)
    if spec is None:
        raise QueryError(f"there is no table {table}\n{_describe_tables()}", code=2)
    if name == table.lower():
        return [
            (field.name, sql_type(field.type), spec.comment(field.name)) for field in spec.schema
        ]
    return [
        (
            shown_as(field.name),
            "TIMESTAMP" if is_time(field.name) else sql_type(field.type),
            spec.comment(field.name),
        )
        for field in spec.schema
    ]


def _find_readable_rows(folder: Store, spec: TableSpec) -> Dataset | pa.Table | None:
    """Return a table's rows for DuckDB; None: it doesn't exist. Raises QueryError if damaged."""
    try:
        return _find_rows(folder, spec)
    except PermissionError:
        raise
    # The errors of delta-rs and pyarrow for a damaged file have no class in common.
    except Exception as error:
        raise QueryError(
            f"{folder / spec.name} can't be read ({str(error).splitlines()[0]}): "
            f"{_describe_repair(spec)}"
        ) from error


def _describe_repair(spec: TableSpec) -> str:
    """Describe the remedy for a table that can't be read."""
    from lb_stream.io.tables.rebuild import rebuildable_tables

    if spec.name in rebuildable_tables():
        return f"stop the job, then `lbctl tables rebuild {spec.name}` writes it anew from the log"
    return "restore it from a backup, or give the job new tables: stream.tables"


def _find_rows(folder: Store, spec: TableSpec) -> Dataset | pa.Table | None:
    """Return a table's rows, as a dataset if possible, of which DuckDB reads only needed parts."""
    import pyarrow as pa

    from lb_stream.io.tables.delta import dataset, existing_table

    delta = existing_table(folder, spec)
    if delta is None:
        return None
    if delta.protocol().min_reader_version == 1:
        return dataset(delta)
    # A dataset would silently read the columns of a table with column mapping as nulls. The scan
    # of delta-rs understands column mapping, and deletion vectors too.
    return pa.table(delta.scan())


def run(
    lake: Lake,
    query: str,
    parameters: Sequence[object] | dict[str, object] | None = None,
) -> Lake:
    """Execute a query and return its result.

    Raises QueryError (exit code 2), which names the existing tables or columns.
    """
    import duckdb

    try:
        return lake.execute(query, parameters or [])
    except duckdb.Error as error:
        raise QueryError(_explain_error(query, error), code=2) from None


def build_last_loads_query(lake: Lake, cluster: str) -> str:
    """Return the subquery for rows of broker_loads of a cluster's last round with a report.

    The cluster is its $1. The round's number is part of the text: as files have bounds of their
    numbers, DuckDB reads only the file with this round.
    """
    (last,) = records(
        run(lake, "SELECT max(log_seq) AS log_seq FROM broker_loads WHERE cluster = $1", [cluster])
    )
    log_seq = -1 if last["log_seq"] is None else int(last["log_seq"])
    return f"(SELECT * FROM broker_loads WHERE cluster = $1 AND log_seq = {log_seq})"


_LAST_ROUNDS = "(SELECT cluster, max(log_seq) AS log_seq FROM broker_loads GROUP BY cluster)"
LAST_LOADS = f"(SELECT * FROM broker_loads JOIN {_LAST_ROUNDS} USING (cluster, log_seq))"
"""The subquery for rows of broker_loads of each cluster's last round with a report."""


_WELL_FORMED = r"/0x[0-9a-f]{8}_0x[0-9a-f]{8}$"
_GONE = """
    SELECT CAST(json_extract(memory, '$.dead') AS VARCHAR) AS dead,
           CAST(json_extract(memory, '$.operator_state.deleted') AS VARCHAR) AS deleted
    FROM rounds
    WHERE cluster = $1 AND log_seq = (
        SELECT max(log_seq) FROM rounds WHERE cluster = $1 AND seq > 0 AND memory <> ''
    )
"""
_UNOWNED = """
    SELECT bundle, owner, owner_since_ms FROM bundle_averages
    WHERE cluster = $1 AND (owner IS NULL OR list_contains($2, owner))
      AND regexp_matches(bundle, $3)
"""
_SERVED = """
    SELECT bundle FROM bundle_averages
    WHERE cluster = $1 AND owner IS NOT NULL
      AND list_contains($2, regexp_replace(bundle, '/[^/]*$', '')) AND regexp_matches(bundle, $3)
"""
_DELETED = """
    SELECT bundle FROM ownership
    WHERE cluster = $1 AND state = 'Deleted' AND list_contains($2, bundle)
"""


def build_loaded_bundles_query(lake: Lake, cluster: str) -> str:
    """Return the subquery for rows of bundle_averages that count as load. The cluster is its $1.

    Bundles that were split, merged or deleted don't count, although the table has them for a while.
    System bundles of dead brokers don't count either.
    """
    quoted = (
        "'" + name.replace("'", "''") + "'" for name in sorted(find_ended_bundles(lake, cluster))
    )
    names = ", ".join(quoted)
    without = f" AND bundle NOT IN ({names})" if names else ""
    return f"(SELECT * FROM bundle_averages WHERE cluster = $1{without})"


def find_ended_bundles(lake: Lake, cluster: str) -> frozenset[str]:
    """Return the bundles of bundle_averages that no broker will serve again."""
    from lb_stream.core.model.names import is_system_bundle, namespace_of
    from lb_stream.core.observing.gone import find_gone_bundles

    last = next(iter(records(run(lake, _GONE, [cluster]))), {"dead": None, "deleted": None})
    dead, deleted = (json.loads(last[name] or "[]") for name in ("dead", "deleted"))
    left = records(run(lake, _UNOWNED, [cluster, dead, _WELL_FORMED]))
    if not left:
        return frozenset()
    unowned = {row["bundle"]: row["owner_since_ms"] or 0 for row in left if row["owner"] is None}
    namespaces = sorted({namespace_of(name) for name in unowned})
    found = records(run(lake, _SERVED, [cluster, namespaces, _WELL_FORMED]))
    served = [row["bundle"] for row in found]
    recorded = [row["bundle"] for row in records(run(lake, _DELETED, [cluster, list(unowned)]))]
    ended = (row["bundle"] for row in left if is_system_bundle(row["bundle"]))
    return find_gone_bundles(unowned, served, deleted) | frozenset(recorded) | frozenset(ended)


def query_columns(lake: Lake, query: str, parameters: dict[str, object]) -> pa.Table:
    """Return the result of a query as columns. Raises QueryError as `run` does."""
    import duckdb

    try:
        return lake.sql(query, params=parameters or None).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(_explain_error(query, error), code=2) from None


def _explain_error(query: str, error: Exception) -> str:
    """Return DuckDB's message, with the columns of the tables that the query names.

    If it names none, all tables are listed.
    """
    import duckdb

    from lb_stream.contracts.columns.times import SUFFIX
    from lb_stream.contracts.tables import TABLES

    text = str(error).strip()
    if isinstance(error, duckdb.PermissionException):
        return (
            f"{text.splitlines()[0]}: a query reads the tables, no other file, and writes none "
            "(--format csv prints rows)"
        )
    named = [
        name
        for spec in TABLES
        for name in (spec.name, spec.name + SUFFIX)
        if re.search(rf"\b{name}\b", query, re.IGNORECASE)
    ]
    if isinstance(error, duckdb.CatalogException) and "Table" in text:
        text = text.splitlines()[0]
        named = []
    elif not isinstance(error, duckdb.BinderException | duckdb.CatalogException):
        return text
    if named:
        return "\n".join([text, *map(_describe_columns, named)])
    return f"{text}\n{_describe_tables()}"


def _describe_columns(name: str) -> str:
    columns = ", ".join(column for column, *_ in list_columns(name))
    return f"{name} has: {columns} (what each is: lbctl sql --describe {name})"


def _describe_tables() -> str:
    from lb_stream.contracts.columns.times import SUFFIX
    from lb_stream.contracts.tables import TABLES

    rows = (f"  {spec.name:<17} {spec.row}" for spec in TABLES)
    return "\n".join(
        ["The tables:", *rows, f"Beside each a view NAME{SUFFIX} with its times as timestamps."]
    )


def records(result: Lake) -> list[Row]:
    """Return all rows of a result."""
    names = [column[0] for column in result.description or []]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
