"""What is said of a Delta table: its name, columns, partition, how long rows are kept; and its
DDL."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lb_stream.contracts.columns.comments import comment
from lb_stream.contracts.columns.times import SUFFIX, view_columns


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: its name (also its folder), columns, partition column if any, and what a row is.

    `kept_by`: the column with a row's time (ms since the epoch), by which old rows are deleted;
    None: the table holds the present. `from_log`: whether `lbctl tables rebuild` can write it anew
    from the log.
    """

    name: str
    row: str
    schema: pa.Schema
    partition_by: str | None = None
    kept_by: str | None = None
    from_log: bool = False


def texts(*names: str) -> list[pa.Field]:
    """Columns of text."""
    return [pa.field(name, pa.string()) for name in names]


def counts(*names: str) -> list[pa.Field]:
    """Columns of whole numbers."""
    return [pa.field(name, pa.int64()) for name in names]


def reals(*names: str) -> list[pa.Field]:
    """Columns of real numbers."""
    return [pa.field(name, pa.float64()) for name in names]


_SQL_TYPES = {
    "string": "STRING",
    "int64": "BIGINT",
    "int32": "INT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
}


def sql_type(kind: pa.DataType) -> str:
    """A column's type in Spark's SQL."""
    if pa.types.is_list(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    return _SQL_TYPES[str(kind)]


def columns_ddl(spec: TableSpec) -> str:
    """A table's columns as Spark reads a schema."""
    return ", ".join(f"`{field.name}` {sql_type(field.type)}" for field in spec.schema)


def ddl(spec: TableSpec) -> str:
    """CREATE TABLE statement of one table, for readers in Spark's SQL."""
    columns = ",\n".join(
        f"  `{field.name}` {sql_type(field.type)} COMMENT {_text(comment(spec.name, field.name))}"
        for field in spec.schema
    )
    partitioned = f"\nPARTITIONED BY (`{spec.partition_by}`)" if spec.partition_by else ""
    return f"-- {spec.row}\nCREATE TABLE {spec.name} (\n{columns}\n) USING DELTA{partitioned};\n"


def view_ddl(spec: TableSpec) -> str:
    """CREATE VIEW statement of the view beside a table in which times are timestamps, for readers
    in Spark's SQL."""
    columns = ",\n".join(f"  {column}" for column in view_columns(spec.schema, "`"))
    return f"CREATE OR REPLACE VIEW {spec.name}{SUFFIX} AS SELECT\n{columns}\nFROM {spec.name};\n"


def _text(text: str) -> str:
    """A literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
