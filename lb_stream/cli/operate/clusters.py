"""`lbctl clusters`: which there are, whether their decisions are published, pauses, limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    ConfigFile,
    Format,
    Json,
    Output,
    Set,
    effective,
)
from lb_stream.cli.shared.outlook import Preview, show_preview
from lb_stream.cli.shared.output import CommandError, emit_rich, emit_rows, note
from lb_stream.cli.shared.sending import Sending, sends

if TYPE_CHECKING:
    import duckdb

    from lb_stream.query.health import ClusterFacts

app = typer.Typer(name="clusters", help="Clusters: list, mode, pause, limit.", no_args_is_help=True)


class Mode(StrEnum):
    """What becomes of a cluster's decisions."""

    observe = "observe"
    approve = "approve"
    act = "act"


Named = Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster.")]


NamedOrAll = Annotated[
    str | None,
    typer.Argument(metavar="[CLUSTER]", help="The cluster; not needed where there is only one."),
]


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
    given = effective(config, broker_conf, set_)
    from lb_stream.cli.inspect.status import clusters_table
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.query.lake import open_lake
    from lb_stream.query.status_facts import cluster_facts

    lake = open_lake(given.tables)
    warn_if_stale(given, lake)
    found = cluster_facts(lake)
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


@app.command(epilog="Example: lbctl clusters enable eu-1")
@sends(cluster=Named)
def enable(preview: Preview = False, *, send: Sending) -> None:
    """End a cluster's dry run: from now on its decisions are published to its brokers.

    What is to wait for approval still does.
    """
    if preview:
        from lb_stream.sim.simulation.outlook import WhatIf

        show_preview(send, WhatIf({"dry_run": False}))
    else:
        send("dry-run", on=False)


@app.command(epilog="Example: lbctl clusters disable eu-1")
@sends(cluster=Named)
def disable(send: Sending) -> None:
    """Only watch a cluster again: its decisions are made and logged, and not published."""
    send("dry-run", on=True)


@app.command(epilog="Example: lbctl clusters mode eu-1 approve")
@sends(cluster=Named)
def mode(
    wanted: Annotated[
        Mode,
        typer.Argument(
            metavar="observe|approve|act",
            help="Decisions are logged only; wait for approval; go out.",
        ),
    ],
    preview: Preview = False,
    *,
    send: Sending,
) -> None:
    """Say whether a cluster's decisions are only logged, wait for approval where balancing wants
    them, or are published."""
    _set(send, {"mode": wanted.value}, preview)


@app.command(epilog="Example: lbctl clusters pause eu-1 · lbctl clusters pause --all-clusters")
@sends(all_clusters=True, cluster=NamedOrAll)
def pause(send: Sending) -> None:
    """Shed and split nothing until it is resumed.

    Orders are obeyed, and bundles that lose their owner get one.
    """
    send("pause-cluster")


@app.command(epilog="Example: lbctl clusters resume eu-1 · lbctl clusters resume --all-clusters")
@sends(all_clusters=True, cluster=NamedOrAll)
def resume(preview: Preview = False, *, send: Sending) -> None:
    """End a pause."""
    if preview:
        from lb_stream.query.cluster_state import require_single_cluster
        from lb_stream.sim.simulation.outlook import WhatIf

        now = require_single_cluster(send.given.tables, send.cluster)
        if not now.orders.paused:
            raise CommandError(f"{now.cluster} is not paused: nothing would change")
        show_preview(send, WhatIf(resumes=True))
    else:
        send("resume-cluster")


@app.command("declare-dead", epilog="Example: lbctl clusters declare-dead eu-1")
@sends(cluster=Named)
def declare_dead(
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="HOST:PORT", help="This one only.")
    ] = None,
    preview: Preview = False,
    *,
    send: Sending,
) -> None:
    """Take brokers that have fallen silent for dead now: ends the wait when many have vanished at
    once."""
    broker = None if broker is None else send.broker(broker)
    if preview:
        from lb_stream.sim.simulation.outlook import WhatIf

        show_preview(send, WhatIf(silent=_silent(send, broker)))
    else:
        send("declare-dead", broker=broker)


def _silent(send: Sending, broker: str | None) -> tuple[str, ...]:
    """The silent brokers, or the one that is named.

    Raises CommandError where it isn't silent, or nobody is: the balancer would refuse.
    """
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake
    from lb_stream.query.status_facts import cluster_facts

    with open_lake(send.given.tables) as lake:
        require_cluster(lake, send.cluster)
        (silent,) = [
            fact.silent for fact in cluster_facts(lake) if fact.cluster == send.cluster
        ] or [()]
    if not silent or broker not in (None, *silent):
        told = ", ".join(silent) or "nobody"
        raise CommandError(
            f"it would be refused (speaks): {broker or 'every broker'} has been heard lately; "
            f"silent is {told}"
        )
    return silent if broker is None else (broker,)


@app.command(epilog="Example: lbctl clusters forget eu-l")
@sends(cluster=Named)
def forget(*, send: Sending) -> None:
    """Forget a cluster that doesn't report any more, a mistyped one say.

    Its state, its orders and its ownership records end.
    """
    from lb_stream.query.cluster_state import known_clusters, unknown_cluster

    known = known_clusters(send.given.tables)
    if known and send.cluster not in known:
        raise CommandError(unknown_cluster(str(send.cluster), known), 2)
    send("forget-cluster")


@app.command(epilog="Example: lbctl clusters limit eu-1 --in-flight 50 --per-minute 100")
@sends(cluster=Named)
def limit(
    in_flight: Annotated[
        int | None,
        typer.Option("--in-flight", metavar="N", min=0, help="Moves under way at one time."),
    ] = None,
    per_broker: Annotated[
        int | None,
        typer.Option("--in-flight-per-broker", metavar="N", min=0, help="... out of one broker."),
    ] = None,
    per_minute: Annotated[
        int | None, typer.Option("--per-minute", metavar="N", min=0, help="Moves in a minute.")
    ] = None,
    mb_per_minute: Annotated[
        float | None,
        typer.Option(
            "--mb-per-minute",
            metavar="MB/S",
            min=0,
            help="Traffic of the bundles that move in a minute.",
        ),
    ] = None,
    dwell_s: Annotated[
        float | None,
        typer.Option(
            "--dwell",
            metavar="S",
            min=0,
            help="How long a bundle stays where it came to before it is shed.",
        ),
    ] = None,
    preview: Preview = False,
    *,
    send: Sending,
) -> None:
    """Change the limits on moves."""
    given = {
        "max_moves_in_flight": in_flight,
        "max_moves_in_flight_per_broker": per_broker,
        "max_moves_per_minute": per_minute,
        "max_moved_mb_per_minute": mb_per_minute,
        "min_dwell_ms": None if dwell_s is None else round(dwell_s * 1000),
    }
    values = {name: value for name, value in given.items() if value is not None}
    if not values:
        raise CommandError("which limit? See lbctl clusters limit --help", 2)
    _set(send, values, preview)


def _set(send: Sending, values: dict[str, Any], preview: bool) -> None:
    if preview:
        from lb_stream.sim.simulation.outlook import WhatIf

        show_preview(send, WhatIf(values))
    else:
        send("set-config", values=values)
