"""`lbctl top`: what carries most now, brokers by usage and bundles by traffic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import Format
from lb_stream.cli.shared.output import CommandError, emit_rich, note, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake, Row


class Kind(StrEnum):
    """What is listed."""

    brokers = "brokers"
    bundles = "bundles"
    namespaces = "namespaces"
    tenants = "tenants"


NAMES = {Kind.brokers: "broker", Kind.bundles: "bundle"}
"""The column with the name; that of namespaces and tenants is `name`."""
_BOTH = (Kind.brokers, Kind.bundles)


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("top", epilog="Example: lbctl top tenants --last 5 --watch 5")(top)


@with_read_options()
def top(
    kind: Annotated[
        Kind | None, typer.Argument(help="What is listed. Default: brokers, then bundles.")
    ] = None,
    last: Annotated[
        int,
        typer.Option("--last", "-n", metavar="N", min=1, help="How many of each cluster, at most."),
    ] = 10,
    *,
    options: ReadOptions,
) -> None:
    """Show the heaviest of each cluster first: brokers, bundles, namespaces or tenants.

    Brokers are sorted by usage as the last round saw it, all others by their short-term average of
    traffic, with their share of the cluster's.
    """
    options.check_settings()
    if kind is None and options.output is not Format.table:
        raise CommandError(f"rows for programs are of one kind: lbctl top {'|'.join(Kind)}", 2)
    wanted = _BOTH if kind is None else (kind,)
    lists = _load(options, wanted, last)
    for kind_, rows in zip(wanted, lists, strict=True):
        if options.emit_rows(rows, NAMES.get(kind_, "name")):
            continue
        if not rows:
            note(f"no {kind_} are known yet{options.in_cluster}")
            continue
        columns = _COLUMNS[kind_]
        emit_rich(table(columns, [_build_cells(kind_, row) for row in rows], right=_RIGHT), "")


def _load(options: ReadOptions, kinds: Iterable[Kind], last: int) -> list[list[Row]]:
    """Return the first `last` rows of each cluster, for each kind."""
    from lb_stream.query.cluster_state import list_known_clusters

    with options.open_lake() as lake:
        clusters = [options.cluster] if options.cluster else list_known_clusters(lake)
        return [
            [row for name in clusters for row in _read_rows(lake, name, kind, last)]
            for kind in kinds
        ]


def _read_rows(lake: Lake, cluster: str, kind: Kind, last: int) -> Iterator[Row]:
    """Yield the first `last` rows of one cluster, each with the cluster."""
    from lb_stream.query.screens.brokers import list_brokers
    from lb_stream.query.screens.lists import ListRequest
    from lb_stream.query.screens.load_shares import list_bundles, list_groups

    request = ListRequest(page_rows=last)
    if kind is Kind.brokers:
        page = list_brokers(lake, cluster, request)
    elif kind is Kind.bundles:
        page = list_bundles(lake, cluster, request)
    else:
        page = list_groups(lake, cluster, kind.removesuffix("s"), request)
    for row in page.rows:
        yield {"cluster": cluster} | row


_FIGURES = ("MB/s", "msg/s")
_COLUMNS = {
    Kind.brokers: ("cluster", "broker", "usage", *_FIGURES, "bundles"),
    Kind.bundles: ("cluster", "bundle", "share", *_FIGURES, "owner"),
    Kind.namespaces: ("cluster", "namespace", "share", *_FIGURES, "bundles"),
    Kind.tenants: ("cluster", "tenant", "share", *_FIGURES, "bundles"),
}
_RIGHT = ("usage", "share", *_FIGURES, "bundles")


def _build_cells(kind: Kind, row: Row) -> tuple[str, ...]:
    ratio = row["usage_ratio" if kind is Kind.brokers else "share"]
    end = row["owner"] or "-" if kind is Kind.bundles else str(row["bundles"])
    return (
        row["cluster"],
        row[NAMES.get(kind, "name")],
        "-" if ratio is None else f"{ratio:.0%}",
        f"{(row['bytes_per_s'] or 0) / 1e6:.2f}",
        f"{row['msgs_per_s'] or 0:.0f}",
        end,
    )
