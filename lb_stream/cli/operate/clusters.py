"""`lbctl clusters`: which there are. Its other commands follow from lb_stream/operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from lb_stream.cli.shared.command_lines import OperatorGroup
from lb_stream.cli.shared.options import (
    BrokerConf,
    ConfigFile,
    Format,
    Json,
    Output,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import emit_rich, emit_rows, note

if TYPE_CHECKING:
    import duckdb

    from lb_stream.query.health import ClusterFacts

app = typer.Typer(
    name="clusters",
    cls=OperatorGroup,
    help="Clusters: list, mode, pause, limit.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Clusters."""


@app.command("list", epilog="Example: lbctl clusters list")
def list_(
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
    output: Output = Format.table,
) -> None:
    """Show each cluster: whether its decisions are published, what is suspended, paused and
    drained, its brokers and bundles."""
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.cli.inspect.status import clusters_table
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.query.lake import open_lake
    from lb_stream.query.status_facts import load_cluster_facts

    lake = open_lake(given.tables)
    warn_if_stale(given, lake)
    found = load_cluster_facts(lake)
    if emit_rows(_rows(lake, found), output, json):
        return
    if not found:
        note("no cluster has had a round yet")
    else:
        emit_rich(clusters_table(found))


def _rows(
    lake: duckdb.DuckDBPyConnection, found: Sequence[ClusterFacts]
) -> Iterator[dict[str, Any]]:
    """The rows for programs: with the load manager, for which all strategies are imported."""
    from lb_stream.query.cluster_state import read_cluster_states

    managers = {
        standing.cluster: standing.config.balancer.load_manager
        for standing in read_cluster_states(lake)
    }
    for cluster in found:
        yield _fields(cluster, managers[cluster.cluster])


def _fields(one: ClusterFacts, manager: str) -> dict[str, Any]:
    told = {
        name: getattr(one, name)
        for name in (
            "mode",
            "dry_run",
            "paused",
            "suspended_by",
            "error",
            "drained",
            "silent",
            "gone",
        )
    }
    figures = {
        name: getattr(one, name)
        for name in ("brokers", "bundles", "pending", "proposals", "last_round_ms")
    }
    alive = one.brokers - len(one.silent) - len(one.gone)
    return {
        "cluster": one.cluster,
        "load_manager": manager,
        "state": one.state,
        **told,
        "brokers_alive": alive,
        **figures,
    }
