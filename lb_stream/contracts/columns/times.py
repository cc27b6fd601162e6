"""Which columns are times, and the views that show them as timestamps."""

from __future__ import annotations

import pyarrow as pa

SUFFIX = "_at"
"""Suffix of a table's view, and of the timestamps in it: `issued_ms` becomes `issued_at`."""
_MS = "_ms"
DURATIONS = frozenset(
    (
        "took_ms",
        "whole_ms",
        "offsets_ms",
        "planning_ms",
        "wal_ms",
        "decide_ms",
        "log_ms",
        "publish_ms",
        "project_ms",
        "averages_ms",
        "next_ms",
        "commit_ms",
        "state_updates_ms",
        "state_commit_ms",
    )
)
"""Columns that hold durations in ms. The view shows them as they are."""
_RENAMED = {"at_ms": "happened_at"}
"""Columns whose name in the view is not derived: `at` is a keyword of DuckDB's."""


def is_time(column: str) -> bool:
    """Whether a column holds ms since the epoch."""
    return column.endswith(_MS) and column not in DURATIONS


def shown_as(column: str) -> str:
    """Return a column's name in the view."""
    if column in _RENAMED:
        return _RENAMED[column]
    return column.removesuffix(_MS) + SUFFIX if is_time(column) else column


def view_columns(schema: pa.Schema, quote: str) -> list[str]:
    """Return the expressions that the view of a table selects, one for each column.

    `quote` stands around names: ` in Spark; " in DuckDB, which needs a macro timestamp_millis.
    """
    columns = []
    for name in schema.names:
        column = f"{quote}{name}{quote}"
        if is_time(name):
            column = f"timestamp_millis({column}) AS {quote}{shown_as(name)}{quote}"
        columns.append(column)
    return columns
