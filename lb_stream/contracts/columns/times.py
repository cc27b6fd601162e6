"""Which columns are times, and the views that show them as timestamps."""

from __future__ import annotations

import pyarrow as pa

SUFFIX = "_at"
"""Of the view beside a table, and of a timestamp in it: `issued_ms` becomes `issued_at`."""
_MS = "_ms"
DURATIONS = frozenset(
    {
        *(
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
        ),
        *("next_ms", "commit_ms", "state_updates_ms", "state_commit_ms"),
    }
)
"""Columns in ms that are no moments: they stay as they are."""


_ALONE = {"at_ms": "happened_at"}
"""`at` is a word of DuckDB's own."""


def is_time(column: str) -> bool:
    """Whether a column holds ms since the epoch."""
    return column.endswith(_MS) and column not in DURATIONS


def shown_as(column: str) -> str:
    """A column's name in the view."""
    return _ALONE.get(column) or (column.removesuffix(_MS) + SUFFIX if is_time(column) else column)


def view_columns(schema: pa.Schema, quote: str) -> list[str]:
    """What the view of a table selects.

    `quote` stands around names: ` in Spark; " in DuckDB, which needs a macro timestamp_millis.
    """
    columns = []
    for name in schema.names:
        column = f"{quote}{name}{quote}"
        columns.append(
            f"timestamp_millis({column}) AS {quote}{shown_as(name)}{quote}"
            if is_time(name)
            else column
        )
    return columns
