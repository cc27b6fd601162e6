"""What a strategy would do with recorded load: a file of load reports, or the tables of a job.

Without a JVM, Kafka or a cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.query import QueryError
from lb_stream.query.lake import open_lake, run
from lb_stream.query.past.reports import decode_reports, read_reports, require_accepted
from lb_stream.query.present.view import present_view
from lb_stream.settings.resolve import cluster_config
from lb_stream.store import Store

_CLUSTERS = "SELECT DISTINCT cluster FROM broker_loads ORDER BY cluster"


def load_reports(
    file: str | Path, cluster: str = "recorded", broker: str | None = None, **settings: Any
) -> ClusterView:
    """The cluster after all reports of a file: one report on a line, as `lbctl reports send` reads
    them, also gzipped.

    `broker` is whose a report is that doesn't say itself; `settings` are the cluster's, as far as
    the averages need them. Raises QueryError, naming the line and what is wrong with it, also where
    the job would reject the report; SettingError for a setting.
    """
    config, path = cluster_config(settings), Path(file)
    reports = read_reports(path, broker)
    batch = decode_reports(path, cluster, reports)
    now_ms = max(batch.reports["append_ms"].to_pylist(), default=0)
    shard, refused = fold(Shard.empty(), batch, now_ms, config.fold)
    require_accepted(path, reports, refused)
    return view_of(cluster, [shard], now_ms, config.balancer.weights)


def load_tables(folder: str | Path, cluster: str | None = None, **settings: Any) -> ClusterView:
    """A cluster as the tables of a job have it now: each broker's last load, each bundle's
    averages.

    Limits and clients are known where history is kept. `cluster` may be left out when there is one.
    Raises QueryError.
    """
    config, lake = cluster_config(settings), open_lake(Store.at(folder))
    names = [name for (name,) in run(lake, _CLUSTERS).fetchall()]
    if (cluster is None and len(names) != 1) or (cluster is not None and cluster not in names):
        raise QueryError(
            f"cluster = {cluster!r}: expected one of "
            f"{', '.join(names) or 'none: the tables have no load yet'}"
        )
    return present_view(lake, cluster or names[0], config.balancer.weights)


def ask(view: ClusterView, memory: Memory | None = None, **settings: Any) -> Round:
    """What a cluster with these settings (ours or Pulsar's names) would decide now, and what it
    refuses. Nothing is changed.

    `memory` is that of an earlier answer, for a strategy that waits for some rounds in a row.
    Raises SettingError.
    """
    return decide(view, memory or Memory(), Inbox(), cluster_config(settings))
