"""Reads the figures of `lbctl monitor` from the tables, all of one moment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lb_stream.query.health import ClusterFacts
from lb_stream.query.lake import Row, open_lake, records, run

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake
    from lb_stream.store import Store

Rows = list[Row]

REFUSALS_SINCE_MS = 600_000
"""Refusals of this time before the last round are counted."""
DECISIONS = 50
"""Number of the last decisions that are listed."""
BATCHES = 100
"""Number of the last batches of which medians are taken."""

_LOADS = """
    SELECT cluster, broker, alive, active, usage_ratio,
           cpu_ratio, memory_ratio, direct_memory_ratio, bandwidth_in_ratio, bandwidth_out_ratio,
           bundles, topics, seen_ms,
           latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s
               AS latest_bytes_per_s,
           short_throughput_in_bytes_per_s + short_throughput_out_bytes_per_s AS short_bytes_per_s,
           long_throughput_in_bytes_per_s + long_throughput_out_bytes_per_s AS long_bytes_per_s,
           latest_rate_in_msgs_per_s + latest_rate_out_msgs_per_s AS latest_msgs_per_s,
           short_rate_in_msgs_per_s + short_rate_out_msgs_per_s AS short_msgs_per_s,
           long_rate_in_msgs_per_s + long_rate_out_msgs_per_s AS long_msgs_per_s
    FROM broker_loads JOIN (
        SELECT cluster, max(log_seq) AS log_seq FROM broker_loads
        WHERE $1 IS NULL OR cluster = $1 GROUP BY cluster
    ) USING (cluster, log_seq)
    ORDER BY cluster, broker
"""
_CLUSTERS = """
    SELECT cluster, max(seq) AS seq, max(now_ms) AS now_ms, arg_max_null(error, log_seq) AS error,
           count(*) FILTER (WHERE error IS NOT NULL) AS failed
    FROM rounds WHERE $1 IS NULL OR cluster = $1 GROUP BY cluster ORDER BY cluster
"""
_DECISIONS = f"""
    SELECT decision_id, decisions.cluster, decisions.seq, kind, decisions.bundle, source,
           destination, reason, rule, strategy, issued_ms,
           expires_ms, dry_run, outcome, detail, took_ms
    FROM decisions LEFT JOIN outcomes USING (decision_id)
    WHERE $1 IS NULL OR decisions.cluster = $1
    ORDER BY issued_ms DESC, decisions.seq DESC,
        TRY_CAST(string_split(decision_id, ':')[-1] AS INT) DESC
    LIMIT {DECISIONS}
"""
_PENDING = """
    SELECT decision_id, cluster, kind, bundle, source, destination, issued_ms, expires_ms
    FROM decisions ANTI JOIN outcomes USING (decision_id)
    WHERE NOT dry_run AND ($1 IS NULL OR cluster = $1)
    ORDER BY issued_ms, decision_id
"""
_REFUSALS = f"""
    SELECT rule, sum("count")::BIGINT AS times,
           count(DISTINCT (cluster, broker)) FILTER (WHERE broker IS NOT NULL) AS brokers,
           arg_max(broker, now_ms) AS last_broker, arg_max(cluster, now_ms) AS last_cluster,
           count(DISTINCT cluster) AS clusters,
           arg_max("limit", now_ms) AS "limit", min(least) AS least, max(greatest) AS greatest,
           any_value(unit) AS unit
    FROM refusals
    WHERE ($1 IS NULL OR cluster = $1)
      AND now_ms > (
          SELECT max(now_ms) FROM rounds WHERE $1 IS NULL OR cluster = $1
      ) - {REFUSALS_SINCE_MS}
    GROUP BY rule ORDER BY times DESC, rule
"""
PHASES = (
    "offsets",
    "planning",
    "wal",
    "decide",
    "log",
    "publish",
    "project",
    "averages",
    "next",
    "commit",
)
"""The phases of a batch, in their order."""
_TIMINGS = f"""
    SELECT count(*) AS batches, max(started_ms) AS started_ms,
           arg_max(lag_records, started_ms) AS lag_records,
           arg_max(input_records, started_ms) AS input_records, median(whole_ms) AS whole,
           max(whole_ms) AS whole_max,
           {", ".join(f"median({phase}_ms) AS {phase}" for phase in PHASES)}
    FROM (SELECT * FROM batches ORDER BY started_ms DESC LIMIT {BATCHES})
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tables at one moment.

    `timings`: medians of the last batches in ms, and `lag_records` of the last batch; empty: there
    was no batch.
    """

    clusters: Rows
    brokers: Rows
    pending: Rows
    decisions: Rows
    refusals: Rows
    timings: Row
    trouble: str | None = None  # why these figures are not up to date
    states: tuple[ClusterFacts, ...] = ()  # what is suspended, paused, drained

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        return asdict(self)


def load_snapshot(tables: Store, cluster: str | None = None) -> Snapshot:
    """Return the tables as they are now. Raises QueryError if there are none."""
    with open_lake(tables) as lake:
        return read_snapshot(lake, cluster)


def read_snapshot(lake: Lake, cluster: str | None) -> Snapshot:
    """Return the snapshot of open tables. `cluster` None: of all clusters."""
    queries = [_CLUSTERS, _LOADS, _PENDING, _DECISIONS, _REFUSALS]
    clusters, brokers, pending, decisions, refusals = (
        records(run(lake, query, [cluster])) for query in queries
    )
    (timings,) = records(run(lake, _TIMINGS))
    return Snapshot(
        clusters, brokers, pending, decisions, refusals, timings if timings["batches"] else {}
    )


def measure_imbalance(brokers: Rows) -> float | None:
    """Return max ÷ mean throughput of the active brokers; None: they have no throughput."""
    rates = [row["latest_bytes_per_s"] or 0.0 for row in brokers if row["active"]]
    return max(rates) * len(rates) / sum(rates) if sum(rates) else None
