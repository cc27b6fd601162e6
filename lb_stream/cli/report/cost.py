"""`lbctl cost`: what moves have cost clients."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lb_stream.cli.shared.output import emit_line, emit_rich, note, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.cli.shared.spans import parse_duration

if TYPE_CHECKING:
    from lb_stream.query.lake import Row

By = Literal["tenant", "namespace", "bundle", "reason", "total"]
Each = Literal["day", "week", "total"]
_RIGHT = ("moves", "unserved", "clients", "client-s", "MB/s moved")


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("cost", epilog="Example: lbctl cost --by tenant --each week --since 28d")(cost)


@with_read_options()
def cost(
    by: Annotated[By, typer.Option("--by", help="By what moves are grouped.")] = "tenant",
    each: Annotated[
        Each, typer.Option("--each", help="Into which spans of time (UTC) moves are grouped.")
    ] = "week",
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="TIME", help="Only moves of the last 12h or 28d, for example."
        ),
    ] = "28d",
    *,
    options: ReadOptions,
) -> None:
    """Add up the cost of moves for clients: moves, time unserved, clients disturbed, traffic.

    Clients and traffic are those of bundle_history, which is kept for
    upkeep.keep_bundle_history_hours (7 days).
    """
    begin_ms = time.time_ns() // 1_000_000 - parse_duration("--since", since, least=1)
    from lb_stream.query.costs import load_move_costs

    with options.open_lake(may_be_stale=True) as lake:
        rows = load_move_costs(lake, options.cluster, begin_ms, by, each)
    if options.emit_rows(rows, "cluster" if by == "total" else "whose"):
        return
    if not rows:
        note(f"no move has been confirmed within {since}{options.in_cluster}")
        return
    columns = (
        "cluster",
        *((each,) if each != "total" else ()),
        *((by,) if by != "total" else ()),
        *_RIGHT,
    )
    emit_rich(table(columns, [_cells(row, by, each) for row in rows], right=_RIGHT), "")
    if text := describe_unknown(rows):
        emit_line(text)


def describe_unknown(rows: Sequence[Row]) -> str:
    """Describe for how many moves clients and traffic are unknown; empty if for none."""
    moves = sum(row["moves"] for row in rows)
    unknown = moves - sum(row["known"] for row in rows)
    if not unknown:
        return ""
    return f"bundle_history lacks clients and traffic of {unknown} of {moves} moves."


def _cells(row: Row, by: By, each: Each) -> tuple[str, ...]:
    named = (
        row["cluster"],
        *((row["span"],) if each != "total" else ()),
        *((row["whose"],) if by != "total" else ()),
    )
    return (*named, *cost_cells(row))


def cost_cells(row: Row) -> tuple[str, ...]:
    """Return the texts of moves, time unserved, clients, client-seconds and MB/s moved."""
    clients, client_s, moved = (row[name] for name in ("clients", "client_s", "bytes_per_s"))
    figures = (
        "-" if row["unserved_s"] is None else f"{row['unserved_s']:.1f} s",
        "-" if clients is None else f"{clients:,}",
        "-" if client_s is None else f"{client_s:,.0f}",
        "-" if moved is None else f"{moved / 1e6:,.2f}",
    )
    return (f"{row['moves']:,}", *figures)
