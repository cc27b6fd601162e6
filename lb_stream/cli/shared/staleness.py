"""A warning if the tables don't show the present."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lb_stream.cli.shared.output import note

if TYPE_CHECKING:
    import duckdb

    from lb_stream.cli.shared.options import CliSettings


def warn_if_stale(given: CliSettings, lake: duckdb.DuckDBPyConnection) -> str | None:
    """Warn on stderr if the tables don't show the present; return the warning, if any."""
    from lb_stream.query.status_facts import describe_staleness

    warning = describe_staleness(lake, given.settings, given.tables)
    if warning:
        note(warning)
    return warning
