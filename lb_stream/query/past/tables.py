"""What the tables tell of a cluster's past, as columns that a scenario is made of.

The same queries for DuckDB and for Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lb_stream.io.messages.times import utc
from lb_stream.query import QueryError

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

RunQuery = Callable[[str, dict[str, Any]], pa.Table]
"""Runs a query with parameters (:name)."""

TABLES = (
    "bundle_history",
    "broker_history",
    "broker_loads",
    "commands",
    "decisions",
    "outcomes",
    "rounds",
)
"""The tables that are asked."""
BACK_MS = 3_600_000
"""So far back a bundle's last row may be."""
MOVES_MEASURED = 100
"""How long a move takes is the median of so many of the last ones, however long ago they were."""

_CLUSTERS = (
    "SELECT cluster, min(slot_ms) AS first_ms, max(slot_ms) AS last_ms FROM bundle_history "
    "GROUP BY cluster ORDER BY cluster"
)
_WITHIN = "WHERE cluster = :cluster AND slot_ms >= :since_ms AND slot_ms < :to_ms"
_SLOTS = f"SELECT DISTINCT slot_ms FROM bundle_history {_WITHIN} ORDER BY slot_ms"
_BUNDLES = f"""
    SELECT slot_ms, bundle, owner, rate_in_msgs_per_s, rate_out_msgs_per_s,
           throughput_in_bytes_per_s, throughput_out_bytes_per_s,
           topics, producers, consumers
    FROM bundle_history {_WITHIN} ORDER BY slot_ms, bundle
"""
_BROKERS = f"SELECT * FROM broker_history {_WITHIN} ORDER BY slot_ms, broker"
_ALIVE = """
    SELECT now_ms, broker, alive, seen_ms
    FROM (
        SELECT now_ms, broker, alive, seen_ms,
               lag(alive) OVER (PARTITION BY broker ORDER BY now_ms, seq) AS before
        FROM broker_loads WHERE cluster = :cluster AND now_ms >= :from_ms AND now_ms < :to_ms
    ) lives
    WHERE before IS NULL OR before <> alive ORDER BY now_ms, broker
"""
_INTERVAL = """
    SELECT median(reported_ms - before) AS interval_ms
    FROM (
        SELECT reported_ms,
               lag(reported_ms) OVER (PARTITION BY broker ORDER BY reported_ms) AS before
        FROM (
            SELECT DISTINCT broker, reported_ms FROM broker_loads
            WHERE cluster = :cluster AND now_ms >= :late_ms AND now_ms < :to_ms
        ) told
    ) reports
    WHERE before > 0
"""
_DRAINS = """
    SELECT min(at_ms) AS at_ms, kind, get_json_object(arguments, '$.broker') AS broker
    FROM commands
    WHERE cluster = :cluster AND kind IN ('drain-broker', 'undrain-broker')
    AND outcome IN ('accepted', 'done')
      AND at_ms >= :from_ms AND at_ms < :to_ms
    GROUP BY id, kind, get_json_object(arguments, '$.broker') ORDER BY at_ms, broker
"""
_TOOK = f"""
    SELECT median(CASE WHEN kind = 'assign' THEN took_ms END) AS acquire_ms,
           median(CASE WHEN kind <> 'assign' THEN left_ms END) AS release_ms
    FROM (
        SELECT d.kind, o.took_ms, o.released_ms - d.issued_ms AS left_ms,
               row_number() OVER (PARTITION BY d.kind = 'assign' ORDER BY d.issued_ms DESC) AS place
        FROM decisions d JOIN outcomes o ON d.decision_id = o.decision_id
        WHERE d.cluster = :cluster AND d.kind IN ('assign', 'unload', 'transfer')
          AND o.outcome = 'confirmed' AND NOT d.dry_run AND d.issued_ms < :to_ms
          AND (d.kind = 'assign' OR o.released_ms >= d.issued_ms)
    ) ended
    WHERE place <= {MOVES_MEASURED}
"""
_FIRST_ROUND = """
    SELECT coalesce(max(CASE WHEN now_ms <= :from_ms THEN log_seq END),
                    min(CASE WHEN now_ms > :from_ms THEN log_seq END)) AS log_seq
    FROM rounds WHERE cluster = :cluster AND seq > 0 AND memory <> ''
"""
_ROUND = "SELECT memory, inputs FROM rounds WHERE cluster = :cluster AND log_seq = :log_seq"


def build_lake_query(lake: Lake) -> RunQuery:
    """Asks tables that DuckDB has open."""
    from lb_stream.query.lake import query_columns
    from lb_stream.query.sql_file import convert_parameters

    def ask(query: str, values: dict[str, Any]) -> pa.Table:
        return query_columns(lake, *convert_parameters(query, values))

    return ask


def load_recorded_times(ask: RunQuery) -> dict[str, tuple[int, int]]:
    """Cluster → begin of the first slot that history has of it, and of the last one."""
    return {
        row["cluster"]: (row["first_ms"], row["last_ms"]) for row in ask(_CLUSTERS, {}).to_pylist()
    }


def require_recorded_cluster(ask: RunQuery, cluster: str | None) -> str:
    """The cluster that is meant.

    Raises QueryError (exit code 2) when history has nothing of it, or when several and none was
    named.
    """
    known = sorted(load_recorded_times(ask))
    if cluster is None and len(known) == 1:
        return known[0]
    if cluster not in known:
        there = (
            ", ".join(known)
            or "none: stream.history_resolution_ms is 0, or no job of this version has run"
        )
        raise QueryError(
            f"--cluster {cluster or 'is needed'}: expected one that bundle_history tells of: "
            f"{there}",
            2,
        )
    return cluster


def load_recent_history(ask: RunQuery, cluster: str | None) -> dict[str, Any]:
    """The last slot that history has of a cluster (None: the only one): the fields of a scenario's
    `History`. Raises QueryError."""
    name = require_recorded_cluster(ask, cluster)
    return load_history(ask, name, load_recorded_times(ask)[name][1])


def load_history(
    ask: RunQuery, cluster: str, from_ms: int | None = None, to_ms: int | None = None
) -> dict[str, Any]:
    """What the tables tell of a cluster from `from_ms` on until before `to_ms`: the fields of a
    scenario's `History`.

    None: all that there is. Raises QueryError (exit code 2) when there is nothing.
    """
    first_ms, last_ms = load_recorded_times(ask)[cluster]
    from_ms = first_ms if from_ms is None else from_ms
    before: dict[str, Any] = {
        "cluster": cluster,
        "since_ms": from_ms - BACK_MS,
        "to_ms": last_ms + 1 if to_ms is None else to_ms,
    }
    slots = ask(_SLOTS, before)["slot_ms"].to_numpy()
    if not len(slots) or before["to_ms"] <= from_ms:
        raise QueryError(
            f"bundle_history tells nothing of {cluster} then, only of {utc(first_ms)} to "
            f"{utc(last_ms)}",
            2,
        )
    step_ms = resolution_ms(slots)
    to_ms = last_ms + step_ms if to_ms is None else to_ms
    within = {"cluster": cluster, "from_ms": from_ms, "to_ms": to_ms}
    (interval,) = ask(
        _INTERVAL, {"cluster": cluster, "late_ms": max(from_ms, to_ms - BACK_MS), "to_ms": to_ms}
    ).to_pylist()
    (took,) = ask(_TOOK, {"cluster": cluster, "to_ms": to_ms}).to_pylist()
    memory, settings = _first_round(ask, cluster, from_ms)
    return {
        "cluster": cluster,
        "from_ms": from_ms,
        "to_ms": to_ms,
        "resolution_ms": step_ms,
        "bundles": ask(_BUNDLES, before),
        "brokers": ask(_BROKERS, before),
        "alive": ask(_ALIVE, within),
        "drains": ask(_DRAINS, within),
        "memory": memory,
        "settings": settings,
        "report_interval_s": _seconds(interval["interval_ms"]),
        "release_s": _seconds(took["release_ms"]),
        "acquire_s": _seconds(took["acquire_ms"]),
    }


def resolution_ms(slots: Any) -> int:
    """The greatest length that all distances between slots are multiples of; of a single slot a
    minute."""
    return int(np.gcd.reduce(np.diff(slots))) if len(slots) > 1 else 60_000


def _first_round(ask: RunQuery, cluster: str, from_ms: int) -> tuple[str | None, Mapping[str, Any]]:
    (first,) = ask(_FIRST_ROUND, {"cluster": cluster, "from_ms": from_ms}).to_pylist()
    if first["log_seq"] is None:
        return None, {}
    (row,) = ask(_ROUND, {"cluster": cluster, "log_seq": first["log_seq"]}).to_pylist()
    return row["memory"], json.loads(row["inputs"])["settings"]


def _seconds(ms: Any) -> float | None:
    return None if ms is None else float(ms) / 1000
