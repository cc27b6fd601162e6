"""What a strategy would do with recorded load: a file of load reports, or the tables of a job. Without a JVM, Kafka or a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.config.cluster_config import cluster_config
from lb_stream.core.model.blocks import BROKER_SCHEMA, BUNDLE_SCHEMA, RESOURCES, Shard, with_all_columns
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.query import QueryError
from lb_stream.query.lake import open_lake, records, run
from lb_stream.query.past.reports import decoded, read_reports

_CLUSTERS = "SELECT DISTINCT cluster FROM broker_loads ORDER BY cluster"
_BROKERS = """
    SELECT * FROM broker_loads WHERE cluster = $1 AND log_seq = (SELECT max(log_seq) FROM broker_loads WHERE cluster = $1) ORDER BY broker
"""
_BUNDLES = "SELECT * FROM bundle_averages WHERE cluster = $1 ORDER BY bundle"


def load_reports(file: str | Path, cluster: str = "recorded", broker: str | None = None, **settings: Any) -> ClusterView:
    """The cluster after all reports of a file: one report on a line, as `lbctl reports send` reads them, also gzipped.

    `broker` is whose a report is that doesn't say itself; `settings` are the cluster's, as far as the averages need them.
    Raises QueryError, naming the line and what is wrong with it, and SettingError for a setting.
    """
    config, path = cluster_config(settings), Path(file)
    batch = decoded(cluster, read_reports(path, broker))
    now_ms = max(batch.reports["append_ms"].to_pylist(), default=0)
    shard, _ = fold(Shard.empty(), batch, now_ms, config.fold)
    return view_of(cluster, [shard], now_ms, config.balancer.weights)


def load_tables(folder: str | Path, cluster: str | None = None, **settings: Any) -> ClusterView:
    """A cluster as the tables of a job have it now: each broker's last load, each bundle's averages.

    Usages are known as ratios only, of sessions nothing. `cluster` may be left out when there is one. Raises QueryError.
    """
    config, lake = cluster_config(settings), open_lake(Path(folder))
    names = [name for (name,) in run(lake, _CLUSTERS).fetchall()]
    if (cluster is None and len(names) != 1) or (cluster is not None and cluster not in names):
        raise QueryError(f"cluster = {cluster!r}: expected one of {', '.join(names) or 'none: the tables have no load yet'}")
    brokers, bundles = (records(run(lake, query, [cluster or names[0]])) for query in (_BROKERS, _BUNDLES))
    shard = _shard(brokers, bundles)
    return view_of(cluster or names[0], [shard], brokers[0]["now_ms"], config.balancer.weights)


def ask(view: ClusterView, memory: Memory | None = None, **settings: Any) -> Round:
    """What a cluster with these settings (ours or Pulsar's names) would decide now, and what it refuses. Nothing is changed.

    `memory` is that of an earlier answer, for a strategy that waits for some rounds in a row. Raises SettingError.
    """
    return decide(view, memory or Memory(), Inbox(), cluster_config(settings))


def _shard(brokers: list[dict[str, Any]], bundles: list[dict[str, Any]]) -> Shard:
    rows = {row["broker"]: place for place, row in enumerate(brokers)}
    known = [
        {"name": row["broker"], "heartbeats": False, "left": False, "sampled": True, "persistent_topics": True}
        | {"non_persistent_topics": True, "seen_ms": row["seen_ms"], "reported_ms": row["reported_ms"]}
        | {f"{name}_usage": 100 * row[f"{name}_ratio"] for name in RESOURCES}
        | {f"{name}_limit": 100.0 for name in RESOURCES}
        | {name: value for name, value in row.items() if name in BROKER_SCHEMA.names}
        for row in brokers
    ]
    named = [
        {"name": row["bundle"], "reported_ms": row["now_ms"], "gained": False, "appeared": False}
        | {"system": is_system_bundle(row["bundle"]), "producers": 0, "consumers": 0, "cache_size_bytes": 0, "place": place}
        | {name: value for name, value in row.items() if name in BUNDLE_SCHEMA.names}
        | {"owner": rows.get(row["owner"], -1)}
        for place, row in enumerate(bundles)
    ]
    blocks = zip((known, named), (BROKER_SCHEMA, BUNDLE_SCHEMA), strict=True)
    return Shard(*(with_all_columns(pa.Table.from_pylist(block, schema), schema) for block, schema in blocks))
