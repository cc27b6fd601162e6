"""`lbctl commands`: the last commands and their results, from the tables."""

from __future__ import annotations

import json as json_
from typing import TYPE_CHECKING, Annotated, cast

import typer

from lb_stream.cli.shared.completion import complete_commands
from lb_stream.cli.shared.output import emit_rich, note, styled, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.io.messages.times import clock

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from lb_stream.query.lake import Row

_COMMANDS = """
    FROM (
        FROM commands WHERE ($1 IS NULL OR cluster = $1) AND ($2 IS NULL OR id = $2)
        QUALIFY row_number() OVER (PARTITION BY cluster, id ORDER BY log_seq DESC) = 1
        ORDER BY at_ms DESC LIMIT $3
    ) ORDER BY at_ms, cluster
"""


WIDEST_ID = 40
"""Columns for ids: a UUID has 36. Longer ids are folded."""


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("commands", epilog="Example: lbctl commands --last 5")(commands)


@with_read_options()
def commands(
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", help="How many commands are shown.", min=0)
    ] = 20,
    command_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Only the command with this id, or that alone begins so.",
            autocompletion=complete_commands,
        ),
    ] = None,
    *,
    options: ReadOptions,
) -> None:
    """Show the last commands: who sent each and when, its result, and why."""
    from lb_stream.query.lake import records, run
    from lb_stream.query.past.names import describe_similar_commands, find_command

    lake, cluster = options.open_lake(), options.cluster
    if command_id is not None:
        command_id = find_command(lake, command_id, cluster) or command_id
    rows = records(run(lake, _COMMANDS, [cluster, command_id, last]))
    rows = [row | {"arguments": json_.loads(row["arguments"] or "{}")} for row in rows]
    if not options.emit_rows(rows, "id"):
        if rows:
            emit_rich(_build_table(rows))
        else:
            with_id = f" with the id {command_id}" if command_id else ""
            by_cluster = f" by {cluster}" if cluster else ""
            near = describe_similar_commands(lake, command_id, cluster) if command_id else ""
            note(f"no command{with_id} has been answered yet{by_cluster}{near}")
    if command_id and not rows:
        raise typer.Exit(1)


def _build_table(rows: list[Row]) -> Table:
    """Build the table. Ids stay on one line: `lbctl undo` and `lbctl commands --id` take them."""
    cells = [
        (
            styled(row["id"], f"{row['kind']} {_describe_arguments(row['arguments'])}".rstrip()),
            styled(clock(row["at_ms"]), row["cluster"], f"by {row['by'] or 'unknown'}"),
            _format_result(row),
        )
        for row in rows
    ]
    built = cast("Table", table(("id, command", "sent", "result"), cells))
    built.columns[0].min_width = min(max(len(row["id"]) for row in rows), WIDEST_ID)
    return built


def _describe_arguments(arguments: Row) -> str:
    text = " ".join(
        f"{name}={value if isinstance(value, str) else json_.dumps(value)}"
        for name, value in arguments.items()
    )
    return text if len(text) <= 120 else text[:119] + "…"


def _format_result(row: Row) -> Text:
    colour = {"done": "green", "accepted": "yellow"}.get(row["outcome"], "red")
    return styled((row["outcome"], colour), row["text"] or "")
