"""`lbctl namespaces list`, `bundles` and `merge-advice`. Core's operations add other commands."""

from __future__ import annotations

from typing import Annotated

import typer

from lb_stream.cli.inspect.load_groups import list_namespaces
from lb_stream.cli.shared.command_lines import OperatorGroup
from lb_stream.cli.shared.completion import complete_namespaces
from lb_stream.cli.shared.output import emit_rich, note, styled, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options

app = typer.Typer(
    name="namespaces",
    cls=OperatorGroup,
    help="List namespaces and their bundles; unload, split and merge bundles; create and isolate "
    "namespaces.",
    no_args_is_help=True,
)

Namespace = Annotated[
    str,
    typer.Argument(
        metavar="TENANT/NAMESPACE", help="The namespace.", autocompletion=complete_namespaces
    ),
]


@app.callback()
def _group() -> None:
    """List namespaces and their bundles; change them."""


app.command("list", epilog="Example: lbctl namespaces list --tenant shop --sort traffic")(
    list_namespaces
)
_BUNDLES = """
    SELECT coalesce(averages.bundle, records.bundle) AS bundle,
           coalesce(records.state, if(averages.owner IS NULL, 'unowned', 'Owned')) AS state,
           coalesce(records.owner, averages.owner) AS owner, topics,
           long_rate_in_msgs_per_s + long_rate_out_msgs_per_s AS long_msgs_per_s,
           long_throughput_in_bytes_per_s + long_throughput_out_bytes_per_s AS long_bytes_per_s
    FROM (FROM {bundles} WHERE starts_with(bundle, $2 || '/0x')) AS averages
    FULL JOIN (
        FROM ownership
        WHERE cluster = $1 AND starts_with(bundle, $2 || '/0x') AND state NOT IN ('Deleted', 'Init')
    ) AS records USING (bundle)
    ORDER BY bundle
"""


@app.command(epilog="Example: lbctl namespaces bundles shop/orders")
@with_read_options()
def bundles(namespace: Namespace, options: ReadOptions) -> None:
    """Show a namespace's bundles: state, owner, topics and long-term averages of traffic."""
    from lb_stream.core.observing.known_bundles import build_ring
    from lb_stream.query.cluster_state import require_single_cluster_in
    from lb_stream.query.lake import build_loaded_bundles_query, records, run
    from lb_stream.query.past.names import describe_similar_namespaces

    lake = options.open_lake()
    here = require_single_cluster_in(lake, options.cluster)
    query = _BUNDLES.format(bundles=build_loaded_bundles_query(lake, here.cluster))
    rows = records(run(lake, query, [here.cluster, namespace]))
    if not rows and namespace in here.operator_state.namespaces:
        empty = {
            "state": "unowned",
            "owner": None,
            "topics": None,
            "long_msgs_per_s": None,
            "long_bytes_per_s": None,
        }
        rows = [
            {"bundle": name} | empty
            for name in build_ring(namespace, here.operator_state.namespaces[namespace]).names
        ]
    if not rows:
        near = describe_similar_namespaces(lake, namespace, here.cluster)
        note(f"no bundle of a namespace {namespace} is known in {here.cluster}{near}")
        raise typer.Exit(1)
    if options.emit_rows(rows, "bundle"):
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
    FROM merge_advice
    WHERE ($1 IS NULL OR cluster = $1) AND ($2 IS NULL OR namespace = $2)
    ORDER BY cluster, bundle
"""
_RATIOS = ("topics_ratio", "sessions_ratio", "rate_ratio", "bandwidth_ratio")


@app.command("merge-advice", epilog="Example: lbctl namespaces merge-advice shop/orders")
@with_read_options()
def merge_advice(
    namespace: Annotated[
        str | None,
        typer.Argument(metavar="[TENANT/NAMESPACE]", help="Only bundles of this namespace."),
    ] = None,
    *,
    options: ReadOptions,
) -> None:
    """Show merge advice: pairs of bundles that could be one, their owner, and their joint load.

    Load is in percent of the limits of splits. `lbctl namespaces merge` merges bundles of brokers
    that can. Pulsar can't: create the namespace anew with fewer bundles.
    """
    from lb_stream.io.messages.times import ago
    from lb_stream.query.cluster_state import read_cluster_states
    from lb_stream.query.lake import records, run

    lake, cluster = options.open_lake(), options.cluster
    rows = records(run(lake, _MERGES, [cluster, namespace]))
    if options.emit_rows(rows, "bundle"):
        return
    if not rows:
        if any(
            standing.config.splitting.merge_advice_enabled
            for standing in read_cluster_states(lake, cluster)
        ):
            note("there is no merge advice now")
        else:
            note("merge advice is off: lbctl config set merge_advice_enabled true")
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
            f"{name}, pairs of bundles that could be one: {len(cells)}. Their joint load, in "
            "percent of each limit:"
        )
        emit_rich(table(columns, cells, right=columns[1:5]))


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f} %"
