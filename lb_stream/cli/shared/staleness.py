"""A warning where the tables don't show how things are now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lb_stream.cli.shared.output import note

if TYPE_CHECKING:
    import duckdb

    from lb_stream.cli.shared.options import CliSettings


def warn_if_stale(given: CliSettings, lake: duckdb.DuckDBPyConnection) -> str | None:
    """Say so on stderr; returns what was said."""
    from lb_stream.query.status_facts import describe_staleness

    said = describe_staleness(lake, given.settings, given.tables)
    if said:
        note(said)
    return said
