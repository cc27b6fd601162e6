"""`lbctl namespaces`: unload, split and merge bundles, make namespaces, say where they may live."""

from __future__ import annotations

import json as json_
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from lb_stream.cli.shared.aliases import also
from lb_stream.cli.shared.options import (
    BrokerConf,
    Cluster,
    ConfigFile,
    Format,
    Json,
    Output,
    Set,
    effective,
)
from lb_stream.cli.shared.outlook import Preview, preview_orders
from lb_stream.cli.shared.output import CommandError, emit_rich, emit_rows, note, styled, table
from lb_stream.cli.shared.sending import Sending, sends
from lb_stream.cli.shared.spans import span_ms

app = typer.Typer(
    name="namespaces",
    help="Namespaces and their bundles: unload, split, merge, make, isolate.",
    no_args_is_help=True,
)

Namespace = Annotated[str, typer.Argument(metavar="TENANT/NAMESPACE", help="The namespace.")]
OptionalNamespace = Annotated[
    str | None, typer.Argument(metavar="[TENANT/NAMESPACE]", help="The namespace, for its group.")
]


@app.callback()
def _group() -> None:
    """Namespaces and their bundles."""


@app.command(
    epilog="Example: lbctl namespaces unload shop/orders -b 0x00000000_0x40000000 -d "
    "broker-2.eu:8080"
)
@sends()
def unload(
    namespace: Namespace,
    bundle: Annotated[
        str | None,
        typer.Option(
            "--bundle",
            "-b",
            metavar="RANGE",
            help="0xLLLLLLLL_0xHHHHHHHH; without it every bundle of the namespace.",
        ),
    ] = None,
    destination: Annotated[
        str | None,
        typer.Option(
            "--destinationBroker",
            "--destination",
            "-d",
            metavar="BROKER",
            help="Who takes it; only with --bundle.",
        ),
    ] = None,
    queue: Annotated[
        bool,
        typer.Option(
            "--queue",
            help="What limits on moves have no room for waits for it; else it is refused.",
        ),
    ] = False,
    preview: Preview = False,
    *,
    send: Sending,
) -> None:
    """Have a bundle leave its broker, or every bundle of a namespace; waits until reports show
    it."""
    if destination is not None and bundle is None:
        raise CommandError("-d names the destination of one bundle: name the bundle with -b", 2)
    destination = None if destination is None else send.broker(destination)
    fields = {
        "namespace": namespace,
        "bundle": bundle,
        "destination": destination,
        "queue": queue or None,
    }
    if preview:
        preview_orders(send, "unload", [fields])
    else:
        send("unload", **fields)


@also(app, "split-bundle", of="namespaces split")
@app.command(
    "split",
    epilog="Example: lbctl namespaces split -b LARGEST -san topic_count_equally_divide -u "
    "shop/orders",
)
@sends()
def split_bundle(
    namespace: Namespace,
    bundle: Annotated[
        str | None,
        typer.Option(
            "--bundle", "-b", metavar="RANGE", help="0xLLLLLLLL_0xHHHHHHHH, LARGEST or HOT."
        ),
    ] = None,
    bundle_type: Annotated[
        str | None,
        typer.Option(
            "--bundle-type",
            "-bt",
            metavar="TYPE",
            help="LARGEST: with most topics; HOT: with most traffic. Instead of --bundle.",
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="The bundle that this topic is in. Instead of --bundle.",
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--split-algorithm-name",
            "-san",
            metavar="NAME",
            help="How; without it the cluster's own algorithm.",
        ),
    ] = None,
    boundaries: Annotated[
        str | None,
        typer.Option(
            "--split-boundaries",
            "-sb",
            metavar="N,N…",
            help="Where, for specified_positions_divide: hashes, decimal or 0x…",
        ),
    ] = None,
    unload_: Annotated[
        bool, typer.Option("--unload", "-u", help="Unload the children afterwards.")
    ] = False,
    *,
    send: Sending,
) -> None:
    """Split a bundle; waits until reports show its children.

    Thresholds and the namespace's maximum of bundles don't count.
    """
    if [bundle, bundle_type, topic].count(None) != 2:
        raise CommandError(
            "which bundle? One of -b RANGE, -b LARGEST, -b HOT, -bt LARGEST, -bt HOT, --topic TOPIC",
            2,
        )
    fields: dict[str, Any] = {
        "bundle": bundle,
        "bundle_type": bundle_type,
        "topic": topic,
        "algorithm": algorithm,
    }
    send("split", namespace=namespace, boundaries=_numbers(boundaries), unload=unload_, **fields)


def _numbers(text: str | None) -> list[int]:
    try:
        return [int(part, 0) for part in (text or "").replace(",", " ").split()]
    except ValueError:
        raise CommandError(
            f"-sb {text}: expected numbers with commas between, such as 0x20000000,0x40000000", 2
        ) from None


@also(app, "merge-bundles", of="namespaces merge")
@app.command("merge", epilog="Example: lbctl namespaces merge shop/orders --advised 10")
@sends()
def merge_bundles(
    namespace: Namespace,
    bundles: Annotated[
        list[str] | None,
        typer.Option(
            "--bundle",
            "-b",
            metavar="RANGE",
            help="0xLLLLLLLL_0xHHHHHHHH; given twice, for two neighbours.",
        ),
    ] = None,
    advised: Annotated[
        int | None,
        typer.Option(
            "--advised",
            metavar="N",
            min=1,
            max=100,
            help="Instead: N of the pairs that merge-advice shows, at most.",
        ),
    ] = None,
    *,
    send: Sending,
) -> None:
    """Make one bundle of two neighbours at one broker; waits until reports show it.

    Pulsar's brokers can't do that.
    """
    if len(bundles or ()) != (2 if advised is None else 0):
        raise CommandError("which bundles? Two of them, -b RANGE -b RANGE, or --advised N", 2)
    send("merge", namespace=namespace, bundles=bundles or None, advised=advised)


@also(app, "pin-bundle", of="namespaces pin")
@app.command(
    "pin", epilog="Example: lbctl namespaces pin shop/orders -b 0x00000000_0x40000000 --for 2h"
)
@sends()
def pin_bundle(
    namespace: Namespace,
    bundle: Annotated[
        str, typer.Option("--bundle", "-b", metavar="RANGE", help="0xLLLLLLLL_0xHHHHHHHH.")
    ],
    span: Annotated[
        str,
        typer.Option("--for", metavar="TIME", help="How long, e.g. 30m, 2h, 1d; 0s: no longer."),
    ] = "1h",
    *,
    send: Sending,
) -> None:
    """Have balancing leave a bundle where it is for a while.

    Your own orders, drains and dead brokers move it all the same.
    """
    send("pin-bundles", bundles=[f"{namespace}/{bundle}"], for_ms=span_ms("--for", span))


@app.command(epilog="Example: lbctl namespaces create shop/orders --bundles 16")
@sends(all_clusters=True)
def create(
    namespace: Namespace,
    bundles: Annotated[
        int | None,
        typer.Option(
            "--bundles",
            "-b",
            metavar="N",
            min=1,
            help="How many; without it namespace_default_bundles.",
        ),
    ] = None,
    *,
    send: Sending,
) -> None:
    """Make a namespace of equal bundles, which get owners like all others."""
    send("create-namespace", namespace=namespace, bundles=bundles)


@app.command(epilog="Example: lbctl namespaces delete shop/orders")
@sends(all_clusters=True)
def delete(namespace: Namespace, *, send: Sending) -> None:
    """Have a namespace without topics leave its brokers, and forget it."""
    send("delete-namespace", namespace=namespace)


@app.command("import", epilog="Example: lbctl namespaces import namespaces.json --cluster eu-1")
@sends()
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="What `lbctl agent namespaces` prints; - reads it from stdin."
        ),
    ],
    *,
    send: Sending,
) -> None:
    """Take over namespaces, isolation policies, anti-affinity groups and failure domains of a
    cluster that has them already."""
    try:
        content = json_.loads(sys.stdin.read() if str(file) == "-" else file.read_text())
    except (OSError, ValueError) as error:
        raise CommandError(f"{file}: {error}", 2) from None
    send("import-namespaces", content=content)


@app.command(
    "set-policies",
    epilog="Example: lbctl namespaces set-policies shop/orders --anti-affinity-group payment",
)
@sends(all_clusters=True)
def set_policies(
    namespace: OptionalNamespace = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--anti-affinity-group",
            "-g",
            metavar="GROUP",
            help='Keep it apart from the others of the group; "": of none.',
        ),
    ] = None,
    isolation: Annotated[
        str | None,
        typer.Option(
            "--isolation", metavar="POLICY", help="Set the isolation policy of this name."
        ),
    ] = None,
    namespaces: Annotated[
        list[str] | None,
        typer.Option(
            "--namespaces", metavar="REGEX", help="... for these namespaces; may be given again."
        ),
    ] = None,
    primary: Annotated[
        list[str] | None,
        typer.Option(
            "--primary",
            metavar="REGEX",
            help="... who use these hosts or, with a colon, host:port; may be given again.",
        ),
    ] = None,
    secondary: Annotated[
        list[str] | None,
        typer.Option(
            "--secondary", metavar="REGEX", help="... and these when too few of them are there."
        ),
    ] = None,
    min_available: Annotated[
        int, typer.Option("--min-available", metavar="N", min=0, help="... that is, fewer than N.")
    ] = 1,
    remove_isolation: Annotated[
        list[str] | None,
        typer.Option("--remove-isolation", metavar="POLICY", help="Take an isolation policy away."),
    ] = None,
    failure_domain: Annotated[
        list[str] | None,
        typer.Option(
            "--failure-domain",
            metavar="BROKER=DOMAIN",
            help="Put a broker into a domain; BROKER= takes it out. May be given again.",
        ),
    ] = None,
    *,
    send: Sending,
) -> None:
    """Say where namespaces may live: isolation policies, anti-affinity groups, failure domains.

    What isn't named stays as it is.
    """
    if (group is None) != (namespace is None):
        raise CommandError("a namespace and its --anti-affinity-group go together", 2)
    fields: dict[str, Any] = {}
    if namespace is not None:
        fields["anti_affinity"] = {namespace: group or None}
    if isolation is not None:
        if not namespaces or not primary:
            raise CommandError("--isolation needs --namespaces and --primary", 2)
        policy = {
            "name": isolation,
            "namespaces": namespaces,
            "primary": primary,
            "secondary": secondary or [],
        }
        fields["isolation"] = [policy | {"min_available": min_available}]
    elif namespaces or primary or secondary:
        raise CommandError(
            "--namespaces, --primary and --secondary are parts of the policy that --isolation names",
            2,
        )
    if failure_domain:
        fields["failure_domains"] = {
            send.broker(broker): domain for broker, domain in map(_domain, failure_domain)
        }
    send("set-policies", **fields, remove_isolation=remove_isolation or None)


def _domain(text: str) -> tuple[str, str | None]:
    broker, equals, domain = text.partition("=")
    if not equals or not broker:
        raise CommandError(f"--failure-domain {text}: expected BROKER=DOMAIN", 2)
    return broker, domain or None


_BUNDLES = """
    SELECT coalesce(averages.bundle, records.bundle) AS bundle,
           coalesce(records.state, if(averages.owner IS NULL, 'unowned', 'Owned')) AS state,
           coalesce(records.owner, averages.owner) AS owner, topics,
           long_rate_in_msgs_per_s + long_rate_out_msgs_per_s AS long_msgs_per_s,
           long_throughput_in_bytes_per_s + long_throughput_out_bytes_per_s AS long_bytes_per_s
    FROM (FROM {bundles} WHERE starts_with(bundle, $2 || '/0x')) AS averages
    FULL JOIN (
        FROM ownership WHERE cluster = $1 AND starts_with(bundle, $2 || '/0x') AND state NOT IN ('Deleted', 'Init')
    ) AS records USING (bundle)
    ORDER BY bundle
"""


@app.command(epilog="Example: lbctl namespaces bundles shop/orders")
def bundles(
    namespace: Namespace,
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
    output: Output = Format.table,
) -> None:
    """Show a namespace's bundles: state, owner, topics and traffic (long-term)."""
    given = effective(config, broker_conf, set_)
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.core.observing.known_bundles import ring_of
    from lb_stream.query.cluster_state import require_single_cluster
    from lb_stream.query.lake import loaded_bundles, open_lake, records, run
    from lb_stream.query.past.names import similar_namespaces

    here = require_single_cluster(given.tables, cluster)
    lake = open_lake(given.tables)
    warn_if_stale(given, lake)
    query = _BUNDLES.format(bundles=loaded_bundles(lake, here.cluster))
    rows = records(run(lake, query, [here.cluster, namespace]))
    if not rows and namespace in here.orders.namespaces:
        empty = {
            "state": "unowned",
            "owner": None,
            "topics": None,
            "long_msgs_per_s": None,
            "long_bytes_per_s": None,
        }
        rows = [
            {"bundle": name} | empty
            for name in ring_of(namespace, here.orders.namespaces[namespace]).names
        ]
    if not rows:
        near = similar_namespaces(lake, namespace, here.cluster)
        note(f"no bundle of a namespace {namespace} is known in {here.cluster}{near}")
        raise typer.Exit(1)
    if emit_rows(rows, output, json):
        return
    cells = [
        (
            row["bundle"].rpartition("/")[2],
            row["state"],
            row["owner"] or "-",
            row["topics"] or 0,
            f"{row['long_msgs_per_s'] or 0:.0f}",
            f"{(row['long_bytes_per_s'] or 0) / 1e6:.2f}",
        )
        for row in rows
    ]
    columns = ("bundle", "state", "owner", "topics", "msg/s", "MB/s")
    emit_rich(table(columns, cells, right=columns[3:]))


_MERGES = """
    FROM merge_advice WHERE ($1 IS NULL OR cluster = $1) AND ($2 IS NULL OR namespace = $2) ORDER BY cluster, bundle
"""
_RATIOS = ("topics_ratio", "sessions_ratio", "rate_ratio", "bandwidth_ratio")


@app.command("merge-advice", epilog="Example: lbctl namespaces merge-advice shop/orders")
def merge_advice(
    namespace: Annotated[
        str | None,
        typer.Argument(metavar="[TENANT/NAMESPACE]", help="Only bundles of this namespace."),
    ] = None,
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
    output: Output = Format.table,
) -> None:
    """Show neighbouring bundles that could be one: who has them, and how much of each split limit
    they come to together.

    `merge` merges them where agents can. Pulsar merges no bundles: make the namespace anew with
    fewer of them.
    """
    given = effective(config, broker_conf, set_)
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.io.messages.times import ago
    from lb_stream.query.cluster_state import read_cluster_states, require_cluster
    from lb_stream.query.lake import open_lake, records, run

    lake = open_lake(given.tables)
    require_cluster(lake, cluster)
    warn_if_stale(given, lake)
    rows = records(run(lake, _MERGES, [cluster, namespace]))
    if emit_rows(rows, output, json):
        return
    if not rows:
        if any(
            standing.config.splitting.merge_advice_enabled
            for standing in read_cluster_states(lake, cluster)
        ):
            note("no bundles are advised to be merged")
        else:
            note("nobody looks for any: lbctl config set merge_advice_enabled true")
        return
    for name in dict.fromkeys(row["cluster"] for row in rows):
        cells = [
            (
                styled(row["bundle"], row["neighbour"], row["owner"]),
                *map(_percent, (row[ratio] for ratio in _RATIOS)),
                ago(row["since_ms"]),
            )
            for row in rows
            if row["cluster"] == name
        ]
        columns = ("bundles, owner", "topics", "sessions", "msg/s", "MB/s", "since")
        emit_rich(
            f"{name}, pairs of bundles that could be one: {len(cells)}. Of each limit they come to "
            "so much together:"
        )
        emit_rich(table(columns, cells, right=columns[1:5]))


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f} %"
