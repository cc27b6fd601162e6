"""The declaration of a Delta table, and its DDL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lb_stream.contracts.columns.comments import find_comment
from lb_stream.contracts.columns.times import SUFFIX, view_columns


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: its name (also its folder), what a row is, and its columns.

    `partition_by`: the partition column; None: there is none. `kept_by`: the column with a row's
    time (ms since the epoch), by which old rows are deleted; None: the table holds the present.
    `from_log`: whether `lbctl tables rebuild` can write the table anew from the log. `comments`:
    column → what it holds, where that differs from other tables.
    """

    name: str
    row: str
    schema: pa.Schema
    partition_by: str | None = None
    kept_by: str | None = None
    from_log: bool = False
    comments: Mapping[str, str] = field(default_factory=dict)

    def comment(self, column: str) -> str:
        """Return what a column holds. Raises KeyError for a column without a comment."""
        comment = self.comments.get(column) or find_comment(column)
        if comment is None:
            raise KeyError(
                f"{self.name}.{column}: add a comment in lb_stream/contracts/columns/comments.py"
            )
        return comment


def texts(*names: str) -> list[pa.Field]:
    """Return columns of text."""
    return [pa.field(name, pa.string()) for name in names]


def counts(*names: str) -> list[pa.Field]:
    """Return columns of whole numbers."""
    return [pa.field(name, pa.int64()) for name in names]


def reals(*names: str) -> list[pa.Field]:
    """Return columns of real numbers."""
    return [pa.field(name, pa.float64()) for name in names]


def flags(*names: str) -> list[pa.Field]:
    """Return columns of true and false."""
    return [pa.field(name, pa.bool_()) for name in names]


def lists(*names: str) -> list[pa.Field]:
    """Return columns that hold lists of texts."""
    return [pa.field(name, pa.list_(pa.string())) for name in names]


_SQL_TYPES = {
    "string": "STRING",
    "int64": "BIGINT",
    "int32": "INT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
}


def sql_type(kind: pa.DataType) -> str:
    """Return a column's type in Spark's SQL."""
    if pa.types.is_list(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    return _SQL_TYPES[str(kind)]


def columns_ddl(spec: TableSpec) -> str:
    """Return a table's columns as Spark reads a schema."""
    return ", ".join(f"`{column.name}` {sql_type(column.type)}" for column in spec.schema)


def table_ddl(spec: TableSpec) -> str:
    """Return the CREATE TABLE statement of a table, in Spark's SQL."""
    columns = ",\n".join(
        f"  `{column.name}` {sql_type(column.type)} COMMENT {_literal(spec.comment(column.name))}"
        for column in spec.schema
    )
    partitioned = f"\nPARTITIONED BY (`{spec.partition_by}`)" if spec.partition_by else ""
    return f"-- {spec.row}\nCREATE TABLE {spec.name} (\n{columns}\n) USING DELTA{partitioned};\n"


def view_ddl(spec: TableSpec) -> str:
    """Return the CREATE VIEW statement of a table's view with timestamps, in Spark's SQL."""
    columns = ",\n".join(f"  {column}" for column in view_columns(spec.schema, "`"))
    return f"CREATE OR REPLACE VIEW {spec.name}{SUFFIX} AS SELECT\n{columns}\nFROM {spec.name};\n"


def _literal(text: str) -> str:
    """Return a text as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
