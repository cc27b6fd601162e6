"""`lbctl top`: what carries most now, brokers by usage and bundles by traffic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import (
    BrokerConf,
    CliSettings,
    Cluster,
    ConfigFile,
    Format,
    Json,
    Output,
    Set,
    load_cli_settings,
)
from lb_stream.cli.shared.output import CommandError, emit_rich, emit_rows, note, table
from lb_stream.cli.shared.watching import with_watch

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


@with_watch
def top(
    kind: Annotated[
        Kind | None, typer.Argument(help="What is listed. Default: brokers, then bundles.")
    ] = None,
    last: Annotated[
        int,
        typer.Option("--last", "-n", metavar="N", min=1, help="How many of each cluster, at most."),
    ] = 10,
    cluster: Cluster = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
    output: Output = Format.table,
) -> None:
    """Show the heaviest of each cluster first: brokers, bundles, namespaces or tenants.

    Brokers are sorted by usage as the last round saw it, all others by their short-term average of
    traffic, with their share of the cluster's.
    """
    given = load_cli_settings(config, broker_conf, set_)
    if kind is None and (json or output is not Format.table):
        raise CommandError(f"rows for programs are of one kind: lbctl top {'|'.join(Kind)}", 2)
    wanted = _BOTH if kind is None else (kind,)
    lists = _load(given, cluster, wanted, last)
    for kind_, rows in zip(wanted, lists, strict=True):
        if emit_rows(rows, output, json, name=NAMES.get(kind_, "name")):
            continue
        if not rows:
            note(f"no {kind_} are known yet" + (f" in cluster {cluster}" if cluster else ""))
            continue
        columns = _COLUMNS[kind_]
        emit_rich(table(columns, [_build_cells(kind_, row) for row in rows], right=_RIGHT), "")


def _load(
    given: CliSettings, cluster: str | None, kinds: Iterable[Kind], last: int
) -> list[list[Row]]:
    """Return the first `last` rows of each cluster, for each kind."""
    from lb_stream.cli.shared.staleness import warn_if_stale
    from lb_stream.query.cluster_state import list_known_clusters, require_cluster
    from lb_stream.query.lake import open_lake

    with open_lake(given.tables) as lake:
        require_cluster(lake, cluster)
        warn_if_stale(given, lake)
        clusters = [cluster] if cluster else list_known_clusters(lake)
        return [
            [row for name in clusters for row in _read_rows(lake, name, kind, last)]
            for kind in kinds
        ]


def _read_rows(lake: Lake, cluster: str, kind: Kind, last: int) -> Iterator[Row]:
    """Yield the first `last` rows of one cluster, each with the cluster."""
    from lb_stream.query.screens.brokers import list_brokers
    from lb_stream.query.screens.lists import ListRequest
    from lb_stream.query.screens.load_shares import list_bundles, list_groups

    left, number = last, 1
    while left > 0:
        request = ListRequest(page=number)
        if kind is Kind.brokers:
            page = list_brokers(lake, cluster, request)
        elif kind is Kind.bundles:
            page = list_bundles(lake, cluster, request)
        else:
            page = list_groups(lake, cluster, kind.removesuffix("s"), request)
        for row in page.rows[:left]:
            yield {"cluster": cluster} | row
        left, number = left - len(page.rows), number + 1
        if number > page.pages:
            return


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
