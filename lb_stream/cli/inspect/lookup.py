"""`lbctl lookup`: which broker serves a topic, from the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Json,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import CommandError, emit_json, emit_line, note

if TYPE_CHECKING:
    from lb_stream.query.lake import Row

_LOOKUP = """
    SELECT cluster, bundle, state, owner, since_ms, 0 AS rank FROM ownership
    WHERE starts_with(bundle, $1 || '/0x') AND state NOT IN ('Deleted', 'Init')
          AND ($2 IS NULL OR cluster = $2)
    UNION ALL
    SELECT cluster, bundle, if(owner IS NULL, 'unowned', 'Owned') AS state, owner, owner_since_ms,
           1 AS rank
    FROM bundle_averages
    WHERE starts_with(bundle, $1 || '/0x') AND ($2 IS NULL OR cluster = $2)
"""


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("lookup", epilog="Example: lbctl lookup persistent://shop/orders/new")(lookup)


def lookup(
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="The topic's name, with or without persistent://."),
    ],
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show a topic's bundle and its owner in each cluster that has the topic's namespace."""
    given = load_cli_settings(config, broker_conf, set_)
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.core.model.names import parse_bundle
    from lb_stream.core.model.topics import full_topic_name, namespace_of_topic, topic_hash
    from lb_stream.query.cluster_state import require_cluster
    from lb_stream.query.lake import open_lake, records, run
    from lb_stream.query.past.names import describe_similar_namespaces

    try:
        full, namespace = full_topic_name(topic), namespace_of_topic(topic)
        hash_value = topic_hash(topic)
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    best: dict[str, tuple[tuple[bool, int, int], Row]] = {}
    lake = open_lake(given.tables)
    require_cluster(lake, cluster)
    warn_if_stale(given, lake)
    for row in records(run(lake, _LOOKUP, [namespace, cluster])):
        _, lower, upper = parse_bundle(row["bundle"])
        if lower <= hash_value < upper or hash_value == upper == 0xFFFFFFFF:
            # owned bundles first, then ownership records; a child before the bundle that was split
            rank = (row["owner"] is None, row.pop("rank"), upper - lower)
            if row["cluster"] not in best or rank < best[row["cluster"]][0]:
                best[row["cluster"]] = (rank, row)
    if not best:
        near = describe_similar_namespaces(lake, namespace, cluster)
        in_cluster = f" in {cluster}" if cluster else ""
        note(f"no bundle of {namespace} is known{in_cluster}{near}")
        raise typer.Exit(1)
    for name, (_, row) in sorted(best.items()):
        if json:
            emit_json(
                {"cluster": name, "topic": full, "hash": hash_value}
                | {key: row[key] for key in ("bundle", "state", "owner", "since_ms")}
            )
        else:
            owner = f"{row['owner']} has" if row["owner"] else "no broker has"
            emit_line(f"{name}: {owner} {row['bundle']} ({row['state']}, hash 0x{hash_value:08x})")
