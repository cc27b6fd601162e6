"""`lbctl namespaces list` and `lbctl tenants list`: all of them, with what they carry."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.output import emit_rich, note, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake, Row


class Order(StrEnum):
    """By what rows are sorted: `name` upwards, all others downwards."""

    name = "name"
    traffic = "traffic"
    messages = "messages"
    bundles = "bundles"
    topics = "topics"


Sort = Annotated[
    Order, typer.Option("--sort", help="By what rows are sorted, in each cluster for itself.")
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="How many of each cluster, at most."),
]
Containing = Annotated[
    str,
    typer.Option(
        "--containing", metavar="TEXT", help="Only names with this text, in any case of letters."
    ),
]
_ALL = 10**9
_COLUMNS = ("bundles", "topics", "brokers", "share", "MB/s", "msg/s")

app = typer.Typer(name="tenants", help="List tenants.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """List tenants."""


@app.command("list", epilog="Example: lbctl tenants list --sort traffic --limit 10")
@with_read_options()
def list_tenants(
    sort: Sort = Order.name,
    limit: Limit = None,
    containing: Containing = "",
    *,
    options: ReadOptions,
) -> None:
    """List each cluster's tenants: bundles, topics, brokers that serve them, share of the traffic.

    Traffic is the short-term average. lbctl top shows the heaviest alone.
    """
    _show(options, "tenant", (sort, limit, containing), None)


@with_read_options()
def list_namespaces(
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="TENANT", help="Only this tenant's.")
    ] = None,
    sort: Sort = Order.name,
    limit: Limit = None,
    containing: Containing = "",
    *,
    options: ReadOptions,
) -> None:
    """List each cluster's namespaces: bundles, topics, brokers that serve them, share of traffic.

    Namespaces are those of reports, and those that lbctl namespaces create has made. Traffic is the
    short-term average. The share is that of the cluster's traffic, with --tenant of the tenant's.
    """
    _show(options, "namespace", (sort, limit, containing), tenant)


def _show(
    options: ReadOptions, by: str, wanted: tuple[Order, int | None, str], tenant: str | None
) -> None:
    """Show a list. `wanted`: its order, its length for each cluster, a text in each name."""
    with options.open_lake() as lake:
        rows = list(_read_rows(lake, options.cluster, by, wanted, tenant))
    if options.emit_rows(rows, "name"):
        return
    if not rows:
        note(f"no {by} is known{' with that name' if wanted[2] else ''}{options.in_cluster}")
        return
    emit_rich(
        table(("cluster", by, *_COLUMNS), [_build_cells(row) for row in rows], right=_COLUMNS)
    )


def _read_rows(
    lake: Lake,
    cluster: str | None,
    by: str,
    wanted: tuple[Order, int | None, str],
    tenant: str | None,
) -> Iterator[Row]:
    """Yield the rows of the named cluster, or of all, each with its cluster."""
    from lb_stream.query.cluster_state import list_known_clusters, read_cluster_states
    from lb_stream.query.screens.lists import ListRequest
    from lb_stream.query.screens.load_shares import list_groups

    sort, limit, containing = wanted
    request = ListRequest(text=containing, sort=sort, page_rows=limit or _ALL)
    created = {
        state.cluster: list(state.operator_state.namespaces)
        for state in read_cluster_states(lake, cluster)
    }
    for name in [cluster] if cluster else list_known_clusters(lake):
        page = list_groups(lake, name, by, request, tenant=tenant, created=created.get(name, ()))
        for row in page.rows:
            yield {"cluster": name} | row


def _build_cells(row: Row) -> tuple[str, ...]:
    return (
        row["cluster"],
        row["name"],
        str(row["bundles"]),
        str(row["topics"] or 0),
        str(row["brokers"]),
        "-" if row["share"] is None else f"{row['share']:.0%}",
        f"{(row['bytes_per_s'] or 0) / 1e6:.2f}",
        f"{row['msgs_per_s'] or 0:.0f}",
    )
