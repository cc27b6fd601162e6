"""`lbctl lookup`: which broker serves a topic, from the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.admin_access import AdminAccess, with_admin_access
from lb_stream.cli.shared.output import CommandError, emit_line, note
from lb_stream.cli.shared.reading import ReadOptions, with_read_options

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake, Row

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


@with_admin_access
@with_read_options()
def lookup(
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="The topic's name, with or without persistent://."),
    ],
    access: AdminAccess,
    admin_url: Annotated[
        str | None,
        typer.Option(
            "--admin-url",
            metavar="URL",
            help="Any broker's admin API, http(s)://HOST:PORT; only for a scalable topic "
            "(topic://…), whose segments Pulsar names.",
        ),
    ] = None,
    *,
    options: ReadOptions,
) -> None:
    """Show a topic's bundle and its owner in each cluster that has the topic's namespace.

    For a scalable topic (Pulsar 5.0) it shows those of each of its segments. -o name prints owners.
    """
    options.check_settings()
    from lb_stream.core.model.topics import full_topic_name, namespace_of_topic
    from lb_stream.query.past.names import describe_similar_namespaces

    try:
        full, namespace = full_topic_name(topic), namespace_of_topic(topic)
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    topics = _find_topics(full, access, admin_url)
    lake, cluster = options.open_lake(), options.cluster
    found = [row for name in topics for row in _look_up(lake, name, cluster)]
    if not found:
        near = describe_similar_namespaces(lake, namespace, cluster)
        in_cluster = f" in {cluster}" if cluster else ""
        note(f"no bundle of {namespace} is known{in_cluster}{near}")
        raise typer.Exit(1)
    found.sort(key=lambda row: str(row["cluster"]))
    if options.emit_rows(found, "owner"):
        return
    for row in found:
        owner = f"{row['owner']} has" if row["owner"] else "no broker has"
        held = f" with {row['topic']}" if len(topics) > 1 or topics[0] != full else ""
        emit_line(
            f"{row['cluster']}: {owner} {row['bundle']}{held} ({row['state']}, hash "
            f"0x{row['hash']:08x})"
        )


def _find_topics(full: str, access: AdminAccess, admin_url: str | None) -> list[str]:
    """Return the topics that are in bundles: the topic itself, or a scalable topic's segments.

    Raises CommandError if Pulsar doesn't name them.
    """
    from lb_stream.core.model.topics import is_scalable

    if not is_scalable(full):
        return [full]
    from lb_stream.agent.adapter import BrokerError
    from lb_stream.agent.pulsar.scalable import UnknownTopic, read_segments

    if admin_url is None:
        raise CommandError(
            f"{full} is a scalable topic: it is in no bundle, its segments are. Give --admin-url, "
            "so that Pulsar names them, or look up segment://…",
            2,
        )
    try:
        return [
            segment.topic for segment in read_segments(access.connect(admin_url), full).segments
        ]
    except BrokerError as error:
        raise CommandError(str(error), 2 if isinstance(error, UnknownTopic) else 1) from None


def _look_up(lake: Lake, topic: str, cluster: str | None) -> list[Row]:
    """Return the bundle of a topic in each cluster that has its namespace."""
    from lb_stream.core.model.names import parse_bundle
    from lb_stream.core.model.topics import namespace_of_topic, topic_hash
    from lb_stream.query.lake import records, run

    hash_value = topic_hash(topic)
    best: dict[str, tuple[tuple[bool, int, int], Row]] = {}
    for row in records(run(lake, _LOOKUP, [namespace_of_topic(topic), cluster])):
        _, lower, upper = parse_bundle(row["bundle"])
        if lower <= hash_value < upper or hash_value == upper == 0xFFFFFFFF:
            # owned bundles first, then ownership records; a child before the bundle that was split
            rank = (row["owner"] is None, row.pop("rank"), upper - lower)
            if row["cluster"] not in best or rank < best[row["cluster"]][0]:
                best[row["cluster"]] = (rank, row)
    return [
        {"cluster": name, "topic": topic, "hash": hash_value}
        | {key: row[key] for key in ("bundle", "state", "owner", "since_ms")}
        for name, (_, row) in best.items()
    ]
