"""The bundles that carry a cluster's load: those of `bundle_averages` that are not gone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lb_stream.core.model.names import is_system_bundle, namespace_of
from lb_stream.core.observing.gone import gone_bundles
from lb_stream.query.lake import records, run

if TYPE_CHECKING:
    import duckdb

    Lake = duckdb.DuckDBPyConnection

_MEMORY = """
    SELECT CAST(json_extract(memory, '$.dead') AS VARCHAR) AS dead,
           CAST(json_extract(memory, '$.orders.deleted') AS VARCHAR) AS deleted
    FROM rounds
    WHERE cluster = $1 AND log_seq = (
        SELECT max(log_seq) FROM rounds WHERE cluster = $1 AND seq > 0 AND memory <> ''
    )
"""
_LEFT = """
    SELECT bundle, owner, owner_since_ms FROM bundle_averages
    WHERE cluster = $1 AND (owner IS NULL OR list_contains($2, owner))
"""
_SERVED = """
    SELECT bundle FROM bundle_averages
    WHERE cluster = $1 AND owner IS NOT NULL
      AND list_contains($2, regexp_replace(bundle, '/[^/]*$', ''))
"""
_DELETED = """
    SELECT bundle FROM ownership
    WHERE cluster = $1 AND state = 'Deleted' AND list_contains($2, bundle)
"""


def loaded_bundles(lake: Lake, cluster: str) -> str:
    """The rows of bundle_averages that are load, to select from; the cluster is the query's $1.

    A bundle that was split, merged or deleted is none, although its averages are kept for a while,
    nor is a system bundle of a dead broker.
    """
    names = ", ".join("'" + name.replace("'", "''") + "'" for name in sorted(find_gone(lake, cluster)))
    without = f" AND bundle NOT IN ({names})" if names else ""
    return f"(SELECT * FROM bundle_averages WHERE cluster = $1{without})"


def find_gone(lake: Lake, cluster: str) -> frozenset[str]:
    """The bundles of a cluster that bundle_averages still has, and that no broker will serve again."""
    last = next(iter(records(run(lake, _MEMORY, [cluster]))), {"dead": None, "deleted": None})
    dead, deleted = (json.loads(last[name] or "[]") for name in ("dead", "deleted"))
    left = records(run(lake, _LEFT, [cluster, dead]))
    if not left:
        return frozenset()
    unowned = {row["bundle"]: _since(row) for row in left if row["owner"] is None}
    namespaces = sorted({namespace_of(name) for name in unowned})
    served = [row["bundle"] for row in records(run(lake, _SERVED, [cluster, namespaces]))]
    recorded = [row["bundle"] for row in records(run(lake, _DELETED, [cluster, list(unowned)]))]
    ended = (row["bundle"] for row in left if is_system_bundle(row["bundle"]))
    return gone_bundles(unowned, served, deleted) | frozenset(recorded) | frozenset(ended)


def _since(row: dict[str, Any]) -> int:
    return row["owner_since_ms"] or 0
