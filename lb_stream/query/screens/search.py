"""Find a cluster, a broker, a bundle, a namespace or a decision by a part of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lb_stream.query.lake import Row, records, run

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

MOST = 20
"""Of each kind."""

_QUERIES = {
    "cluster": "SELECT DISTINCT cluster, cluster AS name FROM rounds WHERE "
    "contains(lower(cluster), $1)",
    "broker": """
        SELECT cluster, broker AS name FROM broker_loads
        SEMI JOIN (SELECT cluster, max(log_seq) AS log_seq FROM broker_loads GROUP BY cluster)
        USING (cluster, log_seq)
        WHERE contains(lower(broker), $1)""",
    "namespace": """
        SELECT DISTINCT cluster, regexp_replace(bundle, '/[^/]*$', '') AS name FROM bundle_averages
        WHERE contains(lower(regexp_replace(bundle, '/[^/]*$', '')), $1)""",
    "bundle": "SELECT cluster, bundle AS name FROM bundle_averages WHERE contains(lower(bundle), "
    "$1)",
    "decision": "SELECT cluster, decision_id AS name FROM decisions WHERE lower(decision_id) = $1",
    "command": "SELECT DISTINCT cluster, id AS name FROM commands WHERE starts_with(lower(id), $1)",
}


def find_by_name(lake: Lake, text: str) -> dict[str, tuple[Row, ...]]:
    """Kind → `cluster` and `name` of each that matches, in their order; kinds without one are left
    out. Of each MOST at most."""
    if not text.strip():
        return {}
    asked = [text.strip().lower()]
    found = {
        kind: tuple(
            records(
                run(lake, f"SELECT * FROM ({query}) ORDER BY name, cluster LIMIT {MOST}", asked)
            )
        )
        for kind, query in _QUERIES.items()
    }
    return {kind: rows for kind, rows in found.items() if rows}
