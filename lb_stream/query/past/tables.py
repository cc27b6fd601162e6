"""Load a cluster's past from the tables, as columns from which a scenario is made.

The queries run in DuckDB and in Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lb_stream.io.messages.times import utc
from lb_stream.query import QueryError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lb_stream.query.lake import Lake, Row

RunQuery = Callable[[str, dict[str, object]], pa.Table]
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
"""The tables that the queries read."""
BACK_MS = 3_600_000
"""How far back a bundle's last row may be."""
MOVES_MEASURED = 100
"""The time that a move takes is the median of this many last moves, however long ago they were."""

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
        ) received
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
_TOPICS = """
    SELECT bundle, topic_hashes, topic_shares FROM bundle_averages
    WHERE cluster = :cluster AND topic_shares IS NOT NULL ORDER BY bundle
"""
_FIRST_ROUND = """
    SELECT coalesce(max(CASE WHEN now_ms <= :from_ms THEN log_seq END),
                    min(CASE WHEN now_ms > :from_ms THEN log_seq END)) AS log_seq
    FROM rounds WHERE cluster = :cluster AND seq > 0 AND memory <> ''
"""
_ROUND = "SELECT memory, inputs FROM rounds WHERE cluster = :cluster AND log_seq = :log_seq"


def build_lake_query(lake: Lake) -> RunQuery:
    """Return a function that runs queries on open tables."""
    from lb_stream.query.lake import query_columns
    from lb_stream.query.sql_file import convert_parameters

    def ask(query: str, values: dict[str, object]) -> pa.Table:
        return query_columns(lake, *convert_parameters(query, values))

    return ask


def load_recorded_times(ask: RunQuery) -> dict[str, tuple[int, int]]:
    """Return cluster → begin (ms) of the first and of the last slot of its history."""
    return {
        row["cluster"]: (row["first_ms"], row["last_ms"]) for row in ask(_CLUSTERS, {}).to_pylist()
    }


def require_recorded_cluster(ask: RunQuery, cluster: str | None) -> str:
    """Return the named cluster, or the only one that has history.

    Raises QueryError (exit code 2) where the named one has none, or where several have some and
    none was named.
    """
    known = sorted(load_recorded_times(ask))
    if cluster is None and len(known) == 1:
        return known[0]
    if cluster not in known:
        nothing = "none: stream.history_resolution_ms is 0, or no job of this version has run"
        names = ", ".join(known) or nothing
        raise QueryError(
            f"--cluster {cluster or 'is needed'}: expected one that bundle_history has: {names}", 2
        )
    return cluster


def load_recent_history(ask: RunQuery, cluster: str | None) -> Row:
    """Return the last slot of a cluster's history (None: of the only one), as `load_history` does.

    Raises QueryError.
    """
    name = require_recorded_cluster(ask, cluster)
    return load_history(ask, name, load_recorded_times(ask)[name][1])


def load_history(
    ask: RunQuery, cluster: str, from_ms: int | None = None, to_ms: int | None = None
) -> Row:
    """Return a cluster's past from `from_ms` until before `to_ms`: fields of `LoadHistory`.

    None: from the first slot on, until the last one. Raises QueryError (exit code 2) where there is
    no slot.
    """
    first_ms, last_ms = load_recorded_times(ask)[cluster]
    from_ms = first_ms if from_ms is None else from_ms
    # A bundle's last row before `from_ms` counts too, so that slots begin earlier.
    end_ms = last_ms + 1 if to_ms is None else to_ms
    before: dict[str, object] = {
        "cluster": cluster,
        "since_ms": from_ms - BACK_MS,
        "to_ms": end_ms,
    }
    slots = ask(_SLOTS, before)["slot_ms"].to_numpy()
    if not len(slots) or end_ms <= from_ms:
        raise QueryError(
            f"bundle_history has nothing of {cluster} then: expected a time from {utc(first_ms)} "
            f"to {utc(last_ms)}",
            2,
        )
    step_ms = find_resolution_ms(slots)
    to_ms = last_ms + step_ms if to_ms is None else to_ms
    within: dict[str, object] = {"cluster": cluster, "from_ms": from_ms, "to_ms": to_ms}
    late_ms = max(from_ms, to_ms - BACK_MS)
    (interval,) = ask(
        _INTERVAL, {"cluster": cluster, "late_ms": late_ms, "to_ms": to_ms}
    ).to_pylist()
    (took,) = ask(_TOOK, {"cluster": cluster, "to_ms": to_ms}).to_pylist()
    memory, settings = _load_first_round(ask, cluster, from_ms)
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
        "report_interval_s": _to_seconds(interval["interval_ms"]),
        "release_s": _to_seconds(took["release_ms"]),
        "acquire_s": _to_seconds(took["acquire_ms"]),
    }


def load_topic_shares(ask: RunQuery, cluster: str) -> pa.Table:
    """Return the last reported shares of topics: bundle, topic_hashes, topic_shares.

    Only the current ones are recorded, of the few bundles whose owners report them.
    """
    return ask(_TOPICS, {"cluster": cluster})


def find_resolution_ms(slots: NDArray[np.int64]) -> int:
    """Return the greatest common divisor of the distances between slots; a minute for one slot."""
    return int(np.gcd.reduce(np.diff(slots))) if len(slots) > 1 else 60_000


def _load_first_round(
    ask: RunQuery, cluster: str, from_ms: int
) -> tuple[str | None, Mapping[str, object]]:
    """Return memory and settings of the round at `from_ms`, or else of the first one after it."""
    (first,) = ask(_FIRST_ROUND, {"cluster": cluster, "from_ms": from_ms}).to_pylist()
    if first["log_seq"] is None:
        return None, {}
    (row,) = ask(_ROUND, {"cluster": cluster, "log_seq": first["log_seq"]}).to_pylist()
    return row["memory"], json.loads(row["inputs"])["settings"]


def _to_seconds(ms: float | None) -> float | None:
    return None if ms is None else float(ms) / 1000
