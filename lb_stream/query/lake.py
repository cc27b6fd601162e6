"""The Delta tables as DuckDB views, read without a JVM."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from lb_stream.query import NoTables, QueryError
from lb_stream.query.sql_file import MACROS

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from lb_stream.contracts.table_spec import TableSpec
    from lb_stream.store import Store

READ_ONLY = (
    "SET temp_directory = ''",  # .tmp here otherwise, for what doesn't fit into memory
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""A query reads the tables and no other file, and writes none: no COPY TO, ATTACH, EXPORT,
INSTALL."""


def open_lake(folder: Store, whole: bool = True) -> duckdb.DuckDBPyConnection:
    """A connection that sees every table of `contracts.tables` under its name, as of now.

    A table that doesn't exist yet is empty. Raises NoTables when there is none at all; QueryError
    when one can't be read, and, where a `whole` one is needed, when one lacks columns.
    """
    import duckdb

    from lb_stream.contracts.tables import TABLES

    existing = {
        spec.name: rows for spec in TABLES if (rows := _readable_rows(folder, spec)) is not None
    }
    if not existing:
        raise NoTables(
            f"no tables in {folder} yet: run `lbctl demo` or `lbctl balance`, or name theirs: "
            "--set stream.tables=FOLDER"
        )
    lake = duckdb.connect()
    lake.execute(
        "SET python_enable_replacements = false"
    )  # or a misspelt table might be a variable of this program
    lake.execute("SET TimeZone = 'UTC'")
    for macro in MACROS:
        lake.execute(macro)
    for spec in TABLES:
        rows = existing.get(spec.name, spec.schema.empty_table())
        if (
            missing := [name for name in spec.schema.names if name not in rows.schema.names]
            if whole
            else []
        ):
            raise QueryError(
                f"{folder / spec.name} has no column {', '.join(missing)}: another version wrote "
                f"it; {_describe_repair(spec)}"
            )
        lake.register(spec.name, rows)
    for setting in READ_ONLY:
        lake.execute(setting)
    return lake


def add_views(lake: duckdb.DuckDBPyConnection) -> None:
    """Let an open lake have a view beside each table (`decisions_at`) in which times are timestamps
    (`issued_at`)."""
    import pyarrow as pa

    from lb_stream.contracts.columns.times import SUFFIX, view_columns
    from lb_stream.contracts.tables import TABLES

    for spec in TABLES:
        there = {
            row[0] for row in lake.execute(f"DESCRIBE {spec.name}").fetchall()
        }  # what another version wrote may lack some
        schema = pa.schema([field for field in spec.schema if field.name in there])
        selected = ", ".join(view_columns(schema, '"'))
        lake.execute(f"CREATE VIEW {spec.name}{SUFFIX} AS SELECT {selected} FROM {spec.name}")


def table_columns(table: str) -> list[tuple[str, str, str]]:
    """Column, type and meaning of each column of a table, or of the view beside one.

    Raises QueryError (exit code 2) for another name.
    """
    from lb_stream.contracts.columns.times import SUFFIX, is_time, shown_as
    from lb_stream.contracts.table_spec import sql_type
    from lb_stream.contracts.tables import TABLES

    name = table.lower().removesuffix(SUFFIX)
    spec = next((spec for spec in TABLES if spec.name == name), None)
    if spec is None:
        raise QueryError(f"there is no table {table}\n{_tables()}", code=2)
    if name == table.lower():
        return [
            (field.name, sql_type(field.type), spec.comment(field.name)) for field in spec.schema
        ]
    rows = [
        (
            field.name,
            "TIMESTAMP" if is_time(field.name) else sql_type(field.type),
            spec.comment(field.name),
        )
        for field in spec.schema
    ]
    return [(shown_as(column), kind, comment) for column, kind, comment in rows]


def _readable_rows(folder: Store, spec: TableSpec) -> Any:
    """None where there is no such table. Raises QueryError when it is damaged."""
    try:
        return _rows(folder, spec)
    except PermissionError:
        raise
    except (
        Exception
    ) as error:  # what delta-rs and pyarrow raise for a damaged file has no common ancestor
        raise QueryError(
            f"{folder / spec.name} can't be read ({str(error).splitlines()[0]}): {_describe_repair(spec)}"
        ) from error


def _describe_repair(spec: TableSpec) -> str:
    from lb_stream.io.tables.rebuild import rebuildable_tables

    if spec.name in rebuildable_tables():
        return f"stop the job, then `lbctl tables rebuild {spec.name}` writes it anew from the log"
    return "restore it from a backup, or give the job new tables: stream.tables"


def _rows(folder: Store, spec: TableSpec) -> Any:
    """What DuckDB can scan: as a dataset it reads only the columns and files that a query needs."""
    import pyarrow as pa

    from lb_stream.io.tables.delta import dataset, existing_table

    delta = existing_table(folder, spec)
    if delta is None:
        return None
    if delta.protocol().min_reader_version == 1:
        return dataset(delta)
    # The dataset would silently read a table with column mapping as nulls; delta-rs's own scan
    # knows it, and deletion vectors too.
    return pa.table(delta.scan())


def run(
    lake: duckdb.DuckDBPyConnection,
    query: str,
    parameters: list[Any] | dict[str, Any] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Execute a query.

    Raises QueryError (exit code 2) that names the tables or columns there are.
    """
    import duckdb

    try:
        return lake.execute(query, parameters or [])
    except duckdb.Error as error:
        raise QueryError(_explain(query, error), code=2) from None


def build_last_loads_query(lake: duckdb.DuckDBPyConnection, cluster: str) -> str:
    """The rows of broker_loads of a cluster's last round with a report, to select from; the cluster
    is the query's $1.

    The round's number stands in it: of the large files, which say what they hold, only the one is
    read that has it.
    """
    (last,) = records(
        run(lake, "SELECT max(log_seq) AS log_seq FROM broker_loads WHERE cluster = $1", [cluster])
    )
    return (
        "(SELECT * FROM broker_loads WHERE cluster = $1 AND log_seq = "
        f"{-1 if last['log_seq'] is None else int(last['log_seq'])})"
    )


_LAST_ROUNDS = "(SELECT cluster, max(log_seq) AS log_seq FROM broker_loads GROUP BY cluster)"
LAST_LOADS = f"(SELECT * FROM broker_loads JOIN {_LAST_ROUNDS} USING (cluster, log_seq))"
"""The same of every cluster."""


_WELL_FORMED = r"/0x[0-9a-f]{8}_0x[0-9a-f]{8}$"
_WHO_IS_GONE = """
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


def build_loaded_bundles_query(lake: duckdb.DuckDBPyConnection, cluster: str) -> str:
    """The rows of bundle_averages that are load, to select from; the cluster is the query's $1.

    A bundle that was split, merged or deleted is none, although its averages are kept for a while,
    nor is a system bundle of a dead broker.
    """
    quoted = (
        "'" + name.replace("'", "''") + "'" for name in sorted(find_ended_bundles(lake, cluster))
    )
    names = ", ".join(quoted)
    without = f" AND bundle NOT IN ({names})" if names else ""
    return f"(SELECT * FROM bundle_averages WHERE cluster = $1{without})"


def find_ended_bundles(lake: duckdb.DuckDBPyConnection, cluster: str) -> frozenset[str]:
    """The bundles of a cluster that bundle_averages still has, and no broker will serve again."""
    from lb_stream.core.model.names import is_system_bundle, namespace_of
    from lb_stream.core.observing.gone import find_gone_bundles

    last = next(iter(records(run(lake, _WHO_IS_GONE, [cluster]))), {"dead": None, "deleted": None})
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


def query_columns(
    lake: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, Any]
) -> pa.Table:
    """What a query finds, as columns. Raises QueryError as `run` does."""
    import duckdb

    try:
        return lake.sql(query, params=parameters or None).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(_explain(query, error), code=2) from None


def _explain(query: str, error: Exception) -> str:
    """DuckDB's own words, and the columns of the tables that the query names, or the tables when it
    names none."""
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
        return "\n".join([text, *map(_columns, named)])
    return f"{text}\n{_tables()}"


def _columns(name: str) -> str:
    return (
        f"{name} has: {', '.join(column for column, *_ in table_columns(name))} (what each is: "
        f"lbctl sql --describe {name})"
    )


def _tables() -> str:
    from lb_stream.contracts.columns.times import SUFFIX
    from lb_stream.contracts.tables import TABLES

    rows = (f"  {spec.name:<17} {spec.row}" for spec in TABLES)
    return "\n".join(
        ["The tables:", *rows, f"Beside each a view NAME{SUFFIX} with its times as timestamps."]
    )


def records(result: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """All rows as dicts, in the order of the columns."""
    names = [column[0] for column in result.description or []]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
