"""`lbctl clusters list`. Core's operations add the other commands of the group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from lb_stream.cli.shared.command_lines import OperatorGroup
from lb_stream.cli.shared.output import emit_rich, note
from lb_stream.cli.shared.reading import ReadOptions, with_read_options

if TYPE_CHECKING:
    import duckdb

    from lb_stream.query.health import ClusterFacts

app = typer.Typer(
    name="clusters",
    cls=OperatorGroup,
    help="List clusters; change a cluster's mode, pause it, limit its moves.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """List clusters; change a cluster's mode, pause it, limit its moves."""


@app.command("list", epilog="Example: lbctl clusters list")
@with_read_options(cluster=False)
def list_(options: ReadOptions) -> None:
    """Show each cluster: its mode, whether it is suspended or paused, its brokers and bundles."""
    from lb_stream.cli.inspect.status import clusters_table
    from lb_stream.query.status_facts import load_cluster_facts

    lake = options.open_lake()
    found = load_cluster_facts(lake)
    if options.emit_rows(_rows(lake, found)):
        return
    if not found:
        note("no cluster has had a round yet")
    else:
        emit_rich(clusters_table(found))


def _rows(
    lake: duckdb.DuckDBPyConnection, found: Sequence[ClusterFacts]
) -> Iterator[dict[str, object]]:
    """Yield rows for programs, with the load manager, which needs all strategies imported."""
    from lb_stream.query.cluster_state import read_cluster_states

    managers = {
        state.cluster: state.config.balancer.load_manager for state in read_cluster_states(lake)
    }
    for facts in found:
        yield {
            "cluster": facts.cluster,
            "load_manager": managers[facts.cluster],
            "state": facts.state,
            "mode": facts.mode,
            "dry_run": facts.dry_run,
            "paused": facts.paused,
            "suspended_by": facts.suspended_by,
            "error": facts.error,
            "drained": facts.drained,
            "silent": facts.silent,
            "gone": facts.gone,
            "restarting": facts.restarting,
            "brokers_alive": facts.brokers_alive,
            "brokers": facts.brokers,
            "bundles": facts.bundles,
            "pending": facts.pending,
            "proposals": facts.proposals,
            "last_round_ms": facts.last_round_ms,
            "profile": asdict(facts.profile),
            "rollout": None if facts.rollout is None else asdict(facts.rollout),
        }
