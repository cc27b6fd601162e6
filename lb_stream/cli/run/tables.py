"""`lbctl tables`: what they hold; rebuilding, upkeep and taking over of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from lb_stream.cli.run.take_over import take_over
from lb_stream.cli.run.upkeep import maintain
from lb_stream.cli.shared.options import BrokerConf, ConfigFile, Json, Set, load_cli_settings
from lb_stream.cli.shared.output import CommandError, emit_json, emit_rich, note, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options
from lb_stream.io.messages.times import ago

app = typer.Typer(
    name="tables", help="List, rebuild and maintain the Delta tables.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """List, rebuild and maintain the Delta tables."""


app.command(epilog="Example: lbctl tables maintain --every 1h")(maintain)
app.command(
    name="take-over",
    epilog="Example: lbctl tables take-over eu-1 --from /srv/lb-east/tables --config west.toml",
)(take_over)


@app.command("list", epilog="Example: lbctl tables list -o csv")
@with_read_options(cluster=False)
def list_(options: ReadOptions) -> None:
    """List the Delta tables: rows, files, size, and when each was last written to.

    lbctl sql --describe TABLE shows a table's columns; docs/tables.md says what each is for.
    """
    from dataclasses import asdict

    from lb_stream.io.tables.listing import list_tables

    folder = options.given.tables
    rows = [asdict(found) for found in list_tables(folder)]
    if options.emit_rows(rows, "table"):
        return
    cells = [
        (
            row["table"],
            *("-" if row[name] is None else f"{row[name]:,}" for name in ("rows", "files")),
            "-" if row["size_bytes"] is None else f"{row['size_bytes'] / 1e6:.1f}",
            "never" if row["written_ms"] is None else ago(row["written_ms"]),
        )
        for row in rows
    ]
    columns = ("table", "rows", "files", "MB", "written")
    emit_rich(str(folder), table(columns, cells, right=columns[1:4]))


@app.command(epilog="Example: lbctl tables rebuild ownership decisions")
def rebuild(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE", help="Which tables. Default: all that follow from the log."
        ),
    ] = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Rebuild tables from the log `rounds`: lost, damaged, or written by another version.

    Each table is replaced in one commit: readers see the old one or the new one. Stop the job
    first: a table that it writes to meanwhile is not rebuilt. Rows that upkeep has deleted from the
    log are copied from the old table.
    """
    from dataclasses import asdict

    from lb_stream.io.tables.rebuild import rebuild as rebuild_tables
    from lb_stream.io.tables.rebuild import rebuildable_tables

    known = rebuildable_tables()
    wanted = names or known
    _require_rebuildable(wanted, known)
    folder = load_cli_settings(config, broker_conf, set_).tables
    results = []
    with _progress(json) as report:
        for result in rebuild_tables(folder, wanted, report):
            results.append(result)
            if json:
                emit_json(asdict(result))
    if not json:
        columns = ("table", "rows", "batches of the log", "copied", "lost", "s")
        cells = [
            (
                result.table,
                result.rows,
                result.batches,
                result.taken_over,
                result.lost,
                f"{result.seconds:.1f}",
            )
            for result in results
        ]
        emit_rich(table(columns, cells, right=columns[1:]))
    if any(result.lost for result in results):
        note("lost: rows whose files are missing, and that the old table didn't have either")


def _require_rebuildable(names: list[str], known: list[str]) -> None:
    """Raise CommandError if a table can't be rebuilt."""
    reasons = {
        "rounds": "it is the log itself",
        "bundle_averages": "it follows from the stream's state: the job writes each cluster's part "
        "with its next reports",
    }
    for name in names:
        if name not in known:
            why = reasons.get(name, "it does not follow from the log")
            raise CommandError(
                f"{name} can't be rebuilt ({why}); expected one of {', '.join(known)}", code=2
            )


@contextmanager
def _progress(json: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for each table on a terminal's stderr; yield what reports progress.

    It takes a table, and how many of how many batches are done.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("batches"),
        TimeElapsedColumn(),
    )
    is_shown = console.is_terminal and not json
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as bars:
        tasks: dict[str, TaskID] = {}

        def report(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done)

        yield report
