"""What keeps a cluster from balancing now, and until when: the checks of `lbctl explain --why-not` that concern it as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lb_stream.query import checks
from lb_stream.query.checks import Check
from lb_stream.query.why_not import recent_refusals, situation

if TYPE_CHECKING:
    import duckdb

    Lake = duckdb.DuckDBPyConnection


def blockers(lake: Lake, cluster: str) -> tuple[Check, ...]:
    """Those that keep it, in order of precedence; empty: nothing does. Raises QueryError, SettingError."""
    now = situation(lake, cluster)
    refusals = recent_refusals(lake, now, "broker IS NULL AND len(subjects) = 0", [])
    checked = (
        *checks.operators(now, False),
        *checks.windows(now, None, False),
        *checks.suspension(now),
        *(one for one in checks.limits(now, None, None) if not one.name.endswith("of its broker")),
        *checks.of_last_pass(now, refusals, False),
    )
    return tuple(one for one in checked if one.keeps)
