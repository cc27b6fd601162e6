"""`lbctl clusters`: which there are, whether their decisions are published, pauses, limits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lb_stream.cli.command_options import Sending, sends
from lb_stream.cli.options import BrokerConf, ConfigFile, Json, Set, effective
from lb_stream.cli.output import CommandError, ago, emit_json, emit_rich, note, styled, table

app = typer.Typer(name="clusters", help="Clusters: list, enable, pause, limit.", no_args_is_help=True)

Named = Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster.")]

_SEEN = """
    SELECT cluster, count(*) FILTER (alive) AS alive, count(*) AS brokers, CAST(sum(bundles) AS BIGINT) AS bundles FROM (
        FROM broker_loads QUALIFY row_number() OVER (PARTITION BY cluster, broker ORDER BY log_seq DESC) = 1
    ) GROUP BY cluster
"""


@app.callback()
def _group() -> None:
    """Clusters."""


@app.command("list", epilog="Example: lbctl clusters list")
def list_(config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False) -> None:
    """Show each cluster: load manager, whether its decisions are published, what is paused and drained, its brokers and bundles."""
    given = effective(config, broker_conf, set_)
    from lb_stream.cli.lake import open_lake, records, run
    from lb_stream.cli.standing import standing

    seen = {row["cluster"]: row for row in records(run(open_lake(given.tables), _SEEN))}
    rows = []
    for one in standing(given.tables):
        balancer, loads = one.config.balancer, seen.get(one.cluster, {})
        rows.append(
            {
                "cluster": one.cluster,
                "load_manager": balancer.load_manager,
                "dry_run": balancer.dry_run,
                "paused": one.orders.paused,
                "drained": list(one.orders.drained),
                "brokers_alive": loads.get("alive", 0),
                "brokers": loads.get("brokers", 0),
                "bundles": loads.get("bundles", 0),
                "pending": len(one.memory.pending),
                "last_round_ms": one.now_ms,
            }
        )
    if json:
        for row in rows:
            emit_json(row)
    elif not rows:
        note("no cluster has had a round yet")
    else:
        emit_rich(_table(rows))


def _table(rows: list[dict[str, Any]]) -> Any:
    cells = [
        (
            row["cluster"],
            row["load_manager"],
            styled("dry run" if row["dry_run"] else ("paused", "red") if row["paused"] else ("live", "green")),
            f"{row['brokers_alive']}/{row['brokers']}" + (f", {len(row['drained'])} drained" if row["drained"] else ""),
            row["bundles"],
            row["pending"],
            ago(row["last_round_ms"]),
        )
        for row in rows
    ]
    return table(("cluster", "manager", "state", "brokers", "bundles", "pending", "last round"), cells, right=("bundles", "pending"))


@app.command(epilog="Example: lbctl clusters enable eu-1")
@sends(cluster=Named)
def enable(send: Sending) -> None:
    """End a cluster's dry run: from now on its decisions are published to its brokers."""
    send("dry-run", on=False)


@app.command(epilog="Example: lbctl clusters disable eu-1")
@sends(cluster=Named)
def disable(send: Sending) -> None:
    """Only watch a cluster again: its decisions are made and logged, and not published."""
    send("dry-run", on=True)


@app.command(epilog="Example: lbctl clusters pause eu-1")
@sends(cluster=Named)
def pause(send: Sending) -> None:
    """Shed and split nothing until it is resumed. Orders are obeyed, and bundles that lose their owner get one."""
    send("pause-cluster")


@app.command(epilog="Example: lbctl clusters resume eu-1")
@sends(cluster=Named)
def resume(send: Sending) -> None:
    """End a pause."""
    send("resume-cluster")


@app.command(epilog="Example: lbctl clusters limit eu-1 --in-flight 50 --per-minute 100")
@sends(cluster=Named)
def limit(
    in_flight: Annotated[int | None, typer.Option("--in-flight", metavar="N", min=0, help="Moves under way at one time.")] = None,
    per_broker: Annotated[
        int | None, typer.Option("--in-flight-per-broker", metavar="N", min=0, help="... out of one broker.")
    ] = None,
    per_minute: Annotated[int | None, typer.Option("--per-minute", metavar="N", min=0, help="Moves in a minute.")] = None,
    mb_per_minute: Annotated[
        float | None, typer.Option("--mb-per-minute", metavar="MB/S", min=0, help="Traffic of the bundles that move in a minute.")
    ] = None,
    dwell_s: Annotated[
        float | None, typer.Option("--dwell", metavar="S", min=0, help="How long a bundle stays where it came to before it is shed.")
    ] = None,
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
    send("set-config", values=values)
