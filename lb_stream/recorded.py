"""Decide on recorded load, a file of load reports or a job's tables, without a JVM or Kafka."""

from __future__ import annotations

from pathlib import Path

from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.query import QueryError
from lb_stream.query.lake import open_lake, run
from lb_stream.query.past.reports import decode_reports, read_reports, require_accepted
from lb_stream.query.present.view import load_present_view
from lb_stream.settings.resolve import cluster_config
from lb_stream.store import Store

_CLUSTERS = "SELECT DISTINCT cluster FROM broker_loads ORDER BY cluster"


def load_reports(
    file: str | Path, cluster: str = "recorded", broker: str | None = None, **settings: object
) -> ClusterView:
    """Return the view of a cluster after all reports of a file.

    `file` holds one report on a line, in the format of `lbctl reports send`, plain or gzipped.
    `broker` is the sender of reports that name none. Of `settings` only those of averages count.

    Raises QueryError for a line that is no report, or that the job would reject; SettingError for
    a setting.
    """
    config = cluster_config(settings)
    path = Path(file)
    reports = read_reports(path, broker)
    batch = decode_reports(path, cluster, reports)
    now_ms = max(batch.reports["append_ms"].to_pylist(), default=0)
    shard, refused = fold(Shard.empty(), batch, now_ms, config.fold)
    require_accepted(path, reports, refused)
    return view_of(cluster, [shard], now_ms, config.balancer.weights)


def load_tables(folder: str | Path, cluster: str | None = None, **settings: object) -> ClusterView:
    """Return the view of a cluster that the job's tables in `folder` hold now.

    It has limits and clients if the job keeps history. With one cluster, `cluster` may be None.
    Raises QueryError for a cluster that the tables don't have.
    """
    config = cluster_config(settings)
    lake = open_lake(Store.at(folder))
    names = [name for (name,) in run(lake, _CLUSTERS).fetchall()]
    if (cluster is None and len(names) != 1) or (cluster is not None and cluster not in names):
        raise QueryError(
            f"cluster = {cluster!r}: expected one of "
            f"{', '.join(names) or 'none: the tables have no load yet'}"
        )
    return load_present_view(lake, cluster or names[0], config.balancer.weights)


def ask(view: ClusterView, memory: Memory | None = None, **settings: object) -> Round:
    """Return the round of a cluster with these settings: decisions and refusals. Changes nothing.

    `settings` have this project's names or Pulsar's. `memory` is that of an earlier round, for a
    strategy that waits for some rounds in a row. Raises SettingError.
    """
    return decide(view, memory or Memory(), Inbox(), cluster_config(settings))
