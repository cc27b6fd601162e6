"""`lbctl leader`, `lbctl lookup` and `lbctl commands`: who leads, who has a topic, what was ordered. From the tables."""

from __future__ import annotations

import json as json_
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.shared.options import BrokerConf, Cluster, ConfigFile, Json, Set, effective
from lb_stream.cli.shared.output import CommandError, ago, clock, emit_json, emit_line, emit_rich, note, styled, table

if TYPE_CHECKING:
    from rich.text import Text

_LEADER = """
    SELECT pipeline, epoch, host, pid, since_ms, (SELECT max(now_ms) FROM rounds) AS last_round_ms
    FROM leaders ORDER BY since_ms DESC, epoch DESC LIMIT 1
"""
_LOOKUP = """
    SELECT cluster, bundle, state, owner, since_ms, 0 AS rank FROM ownership
    WHERE starts_with(bundle, $1 || '/0x') AND state NOT IN ('Deleted', 'Init') AND ($2 IS NULL OR cluster = $2)
    UNION ALL
    SELECT cluster, bundle, if(owner IS NULL, 'unowned', 'Owned') AS state, owner, owner_since_ms, 1 AS rank FROM bundle_averages
    WHERE starts_with(bundle, $1 || '/0x') AND ($2 IS NULL OR cluster = $2)
"""
_COMMANDS = """
    FROM (
        FROM commands WHERE ($1 IS NULL OR cluster = $1) AND ($2 IS NULL OR id = $2)
        QUALIFY row_number() OVER (PARTITION BY cluster, id ORDER BY log_seq DESC) = 1
        ORDER BY at_ms DESC LIMIT $3
    ) ORDER BY at_ms, cluster
"""


def register(app: typer.Typer) -> None:
    """Add the commands to lbctl."""
    app.command("leader", epilog="Example: lbctl leader")(leader)
    app.command("lookup", epilog="Example: lbctl lookup persistent://shop/orders/new")(lookup)
    app.command("commands", epilog="Example: lbctl commands --last 5")(commands)


def leader(config: ConfigFile = None, broker_conf: BrokerConf = None, set_: Set = None, json: Json = False) -> None:
    """Show who leads: the job that was started last, its epoch, host and process, and since when."""
    given = effective(config, broker_conf, set_)
    from lb_stream.query.lake import open_lake, records, run
    from lb_stream.query.status_facts import warn_if_stale

    lake = open_lake(given.tables)
    rows = records(run(lake, _LEADER))
    if not rows:
        note("no job has been started yet")
        raise typer.Exit(1)
    row, dead = rows[0], warn_if_stale(given, lake)
    if json:
        emit_json(row)
        return
    who = f"{row['host']} (process {row['pid']})"
    emit_line(f"{who} {'led' if dead else 'leads'} {row['pipeline']}, epoch {row['epoch']}, since {clock(row['since_ms'])}")
    note(f"its last logged round: {ago(row['last_round_ms'])}")


def lookup(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its name, with or without persistent://.")],
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show which bundle a topic is in and which broker owns that, in each cluster that has its namespace."""
    given = effective(config, broker_conf, set_)
    from lb_stream.core.model.names import parse_bundle
    from lb_stream.core.model.topics import full_topic_name, namespace_of_topic, topic_hash
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake, records, run
    from lb_stream.query.status_facts import warn_if_stale

    try:
        full, namespace, hashed = full_topic_name(topic), namespace_of_topic(topic), topic_hash(topic)
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    best: dict[str, tuple[Any, dict[str, Any]]] = {}
    lake = open_lake(given.tables)
    require_cluster(lake, cluster)
    warn_if_stale(given, lake)
    for row in records(run(lake, _LOOKUP, [namespace, cluster])):
        _, lower, upper = parse_bundle(row["bundle"])
        if lower <= hashed < upper or hashed == upper == 0xFFFFFFFF:
            rank = (row["owner"] is None, row.pop("rank"), upper - lower)  # of a split bundle's remains and its child the child
            if row["cluster"] not in best or rank < best[row["cluster"]][0]:
                best[row["cluster"]] = (rank, row)
    if not best:
        note(f"no bundle of {namespace} is known" + (f" in {cluster}" if cluster else ""))
        raise typer.Exit(1)
    for name, (_, row) in sorted(best.items()):
        if json:
            emit_json(
                {"cluster": name, "topic": full, "hash": hashed} | {key: row[key] for key in ("bundle", "state", "owner", "since_ms")}
            )
        else:
            emit_line(f"{name}: {row['owner'] or 'nobody'} has {row['bundle']} ({row['state']}, hash 0x{hashed:08x})")


def commands(
    last: Annotated[int, typer.Option("--last", "-n", metavar="N", help="How many.", min=0)] = 20,
    command_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Only the command with this id.")] = None,
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show the last commands: who sent each and when, and what came of it, or why not."""
    given = effective(config, broker_conf, set_)
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake, records, run
    from lb_stream.query.status_facts import warn_if_stale

    lake = open_lake(given.tables)
    require_cluster(lake, cluster)
    warn_if_stale(given, lake)
    rows = records(run(lake, _COMMANDS, [cluster, command_id, last]))
    rows = [row | {"arguments": json_.loads(row["arguments"] or "{}")} for row in rows]
    if json:
        for row in rows:
            emit_json(row)
    elif not rows:
        note(f"no command{f' with the id {command_id}' if command_id else ''} has been answered yet{f' by {cluster}' if cluster else ''}")
    else:
        cells = [
            (clock(row["at_ms"]), row["cluster"], row["by"], f"{row['kind']} {_shown(row['arguments'])}", _outcome(row)) for row in rows
        ]
        emit_rich(table(("sent", "cluster", "by", "command", "outcome"), cells))
    if command_id and not rows:
        raise typer.Exit(1)


def _shown(arguments: dict[str, Any]) -> str:
    text = " ".join(f"{name}={value if isinstance(value, str) else json_.dumps(value)}" for name, value in arguments.items())
    return text if len(text) <= 120 else text[:119] + "…"


def _outcome(row: dict[str, Any]) -> Text:
    colour = {"done": "green", "accepted": "yellow"}.get(row["outcome"], "red")
    return styled((row["outcome"], colour), row["text"] or "")
