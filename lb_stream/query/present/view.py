"""Build a cluster's view from the tables: brokers' last loads, bundles' averages, and history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import (
    BROKER_SCHEMA,
    BUNDLE_SCHEMA,
    RESOURCES,
    Shard,
)
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.topic_shares import pack_shares
from lb_stream.core.model.view import ClusterView
from lb_stream.query import QueryError
from lb_stream.query.lake import Row, records, run
from lb_stream.query.past.tables import BACK_MS

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake


_BROKERS = """
    SELECT * FROM broker_loads
    WHERE cluster = $1 AND log_seq = (SELECT max(log_seq) FROM broker_loads WHERE cluster = $1)
    ORDER BY broker
"""
_BUNDLES = """
    SELECT * FROM bundle_averages
    WHERE cluster = $1 AND ($2 IS NULL OR list_contains($2, bundle)) ORDER BY bundle
"""
_LIMITS = f"""
    SELECT broker, {", ".join(f"{name}_limit" for name in RESOURCES)}
    FROM broker_history WHERE cluster = $1
    QUALIFY row_number() OVER (PARTITION BY broker ORDER BY slot_ms DESC) = 1
"""
_CLIENTS = f"""
    SELECT bundle, arg_max(producers, slot_ms) AS producers,
           arg_max(consumers, slot_ms) AS consumers,
           arg_max(cache_size_bytes, slot_ms) AS cache_size_bytes
    FROM bundle_history
    WHERE cluster = $1
    AND slot_ms >= (SELECT max(slot_ms) FROM bundle_history WHERE cluster = $1) - {BACK_MS}
    GROUP BY bundle
"""


def load_present_view(
    lake: Lake,
    cluster: str,
    weights: Mapping[str, float],
    now_ms: int = 0,
    bundles: Sequence[str] | None = None,
) -> ClusterView:
    """Return a cluster's view of its last round with a report, at `now_ms` or later.

    `bundles`: only these; None: all.

    Without `broker_history` limits are unknown, and usages known as ratios only. Without
    `bundle_history` clients are unknown. Raises QueryError where no round has seen a broker.
    """
    brokers, limits, clients = (
        records(run(lake, query, [cluster])) for query in (_BROKERS, _LIMITS, _CLIENTS)
    )
    averages = records(run(lake, _BUNDLES, [cluster, None if bundles is None else list(bundles)]))
    if not brokers:
        raise QueryError(f"no round of {cluster} has seen a broker yet")
    broker_limits = {row["broker"]: row for row in limits}
    bundle_clients = {row["bundle"]: row for row in clients}
    shard = _build_shard(brokers, averages, broker_limits, bundle_clients)
    return view_of(cluster, [shard], max(brokers[0]["now_ms"], now_ms), weights)


def _build_shard(
    brokers: list[Row], bundles: list[Row], limits: Mapping[str, Row], clients: Mapping[str, Row]
) -> Shard:
    """Return one shard with all brokers and bundles.

    `limits`: broker → its row of broker_history. `clients`: bundle → its row of bundle_history.
    """
    places = {row["broker"]: place for place, row in enumerate(brokers)}
    broker_rows = [
        {
            "name": row["broker"],
            "heartbeats": False,
            "left": not row["alive"],  # a round of this view takes it for dead
            "sampled": True,
            "persistent_topics": True,
            "non_persistent_topics": True,
            "seen_ms": 0,
            "reported_ms": 0,
        }
        | _build_resources(row, limits.get(row["broker"], {}))
        | {
            name: value
            for name, value in row.items()
            if name in BROKER_SCHEMA.names and value is not None
        }
        for row in brokers
    ]
    bundle_rows = [
        {
            "name": row["bundle"],
            "reported_ms": row["now_ms"],
            "gained": False,
            "appeared": False,
            "system": is_system_bundle(row["bundle"]),
            "producers": 0,
            "consumers": 0,
            "cache_size_bytes": 0,
            "place": place,
        }
        | {
            name: value
            for name, value in clients.get(row["bundle"], {}).items()
            if name in BUNDLE_SCHEMA.names and value is not None
        }
        | {name: value for name, value in row.items() if name in BUNDLE_SCHEMA.names}
        | {"owner": places.get(row["owner"], -1), "topic_shares": _pack_topics(row)}
        for place, row in enumerate(bundles)
    ]
    return Shard(
        pa.Table.from_pylist(broker_rows, BROKER_SCHEMA),
        pa.Table.from_pylist(bundle_rows, BUNDLE_SCHEMA),
    )


def _pack_topics(row: Row) -> bytes | None:
    """Return the shares of a bundle's topics as blocks hold them; None: they are not known."""
    if not row["topic_hashes"]:
        return None
    hashes, share = np.array(row["topic_hashes"], np.int64), np.array(row["topic_shares"])
    return pack_shares(row["now_ms"], hashes, share)


def _build_resources(load: Row, limits: Mapping[str, float]) -> dict[str, float]:
    """Return usage and limit of each resource; the limit is 100 where it isn't known."""
    found: dict[str, float] = {}
    for name in RESOURCES:
        limit = limits.get(f"{name}_limit") or 0.0
        limit = limit if limit > 0 else 100.0
        found |= {f"{name}_usage": limit * (load[f"{name}_ratio"] or 0.0), f"{name}_limit": limit}
    return found
