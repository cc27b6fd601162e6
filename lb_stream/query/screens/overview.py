"""Load a row for each cluster: how evenly it is loaded now, and its recent moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES
from lb_stream.query.health import ClusterFacts
from lb_stream.query.lake import LAST_LOADS, Row, build_last_loads_query, records, run

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

HOUR_MS = 3_600_000

_LOADS = """
    SELECT cluster, count(*) FILTER (WHERE alive) AS alive, count(*) AS brokers,
           max(usage_ratio) FILTER (WHERE active) AS usage_max,
           avg(usage_ratio) FILTER (WHERE active) AS usage_mean,
           sum(bytes_per_s) FILTER (WHERE alive) AS bytes_per_s,
           sum(msgs_per_s) FILTER (WHERE alive) AS msgs_per_s,
           max(bytes_per_s) FILTER (WHERE active)
               / nullif(avg(bytes_per_s) FILTER (WHERE active), 0) AS max_over_mean
    FROM (
        SELECT cluster, alive, active, usage_ratio,
               latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s AS bytes_per_s,
               latest_rate_in_msgs_per_s + latest_rate_out_msgs_per_s AS msgs_per_s
        FROM {rows}
    )
    GROUP BY cluster
"""
_MOVES = f"""
    SELECT decisions.cluster, count(*) AS moves
    FROM decisions
    JOIN (SELECT unnest($clusters) AS cluster, unnest($since_ms) AS since_ms) AS last
    ON decisions.cluster = last.cluster
    LEFT JOIN outcomes USING (decision_id)
    WHERE kind IN {MOVES} AND NOT dry_run AND issued_ms > {{first_ms}} AND issued_ms > since_ms
      AND coalesce(outcome, '') NOT IN ('refused', 'expired', 'failed')
    GROUP BY decisions.cluster
"""


def load_overview(lake: Lake, facts: Sequence[ClusterFacts]) -> tuple[Row, ...]:
    """Return a row for each cluster of `facts`. A figure is None where it isn't known.

    - `facts`: the cluster's own.
    - `usage_max`, `usage_mean`: ratios, of active brokers.
    - `max_over_mean`: of active brokers' throughput, as in `lbctl monitor`.
    - `bytes_per_s`, `msgs_per_s`: of all alive brokers together.
    - `moves`: begun in the hour before the last round, without those that were not carried out. An
      assignment back to the source, after refusals, is none.
    """
    only = [facts[0].cluster] if len(facts) == 1 else []
    rows = build_last_loads_query(lake, only[0]) if only else LAST_LOADS
    query = _LOADS.format(rows=rows)
    loads = {row["cluster"]: row for row in records(run(lake, query, only))}
    since_ms = {cluster.cluster: cluster.last_round_ms - HOUR_MS for cluster in facts}
    asked: dict[str, object] = {
        "clusters": list(since_ms),
        "since_ms": list(since_ms.values()),
    }
    query = _MOVES.format(first_ms=min(since_ms.values(), default=0))
    moves = {row["cluster"]: row["moves"] for row in records(run(lake, query, asked))}
    empty = dict.fromkeys(
        (
            "alive",
            "brokers",
            "usage_max",
            "usage_mean",
            "bytes_per_s",
            "msgs_per_s",
            "max_over_mean",
        )
    )
    return tuple(
        {
            **empty,
            **loads.get(cluster.cluster, {}),
            "moves": moves.get(cluster.cluster, 0),
            "facts": cluster,
        }
        for cluster in facts
    )
