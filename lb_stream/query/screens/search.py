"""Find a cluster, a broker, a bundle, a namespace or a decision by a part of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lb_stream.query.lake import Row, records, run

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

MOST = 20
"""Names of each kind at most."""

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
    """Return kind → rows of `cluster` and `name` that match, for each kind with any."""
    if not text.strip():
        return {}
    found: dict[str, tuple[Row, ...]] = {}
    for kind, query in _QUERIES.items():
        first = f"SELECT * FROM ({query}) ORDER BY name, cluster LIMIT {MOST}"
        if rows := records(run(lake, first, [text.strip().lower()])):
            found[kind] = tuple(rows)
    return found
