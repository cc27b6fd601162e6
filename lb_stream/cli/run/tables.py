"""`lbctl tables`: the tables that follow from the log."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lb_stream.cli.run.take_over import take_over
from lb_stream.cli.run.upkeep import maintain
from lb_stream.cli.shared.options import BrokerConf, ConfigFile, Json, Set, load_cli_settings
from lb_stream.cli.shared.output import CommandError, emit_json, emit_rich, note, table

app = typer.Typer(name="tables", help="The Delta tables.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """The Delta tables."""


app.command(epilog="Example: lbctl tables maintain --every 1h")(maintain)
app.command(
    name="take-over",
    epilog="Example: lbctl tables take-over eu-1 --from /srv/lb-east/tables --config west.toml",
)(take_over)


@app.command(epilog="Example: lbctl tables rebuild ownership decisions")
def rebuild(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="Which ones; all that follow from the log."),
    ] = None,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Write tables anew from the log `rounds`, each in one commit: readers see the old one or the
    new one.

    For a table that was lost, damaged, or written by another version. Stop the job first: a table
    that it writes to meanwhile is refused and stays as it is. What upkeep has deleted from the log
    is taken over from the table as it was.
    """
    from dataclasses import asdict

    from lb_stream.io.tables.rebuild import rebuild as rebuilt
    from lb_stream.io.tables.rebuild import rebuildable_tables

    wanted = _checked(names or rebuildable_tables(), rebuildable_tables())
    folder = load_cli_settings(config, broker_conf, set_).tables
    done = []
    with _progress(json) as report:
        for one in rebuilt(folder, wanted, report):
            done.append(one)
            if json:
                emit_json(asdict(one))
    if not json:
        columns = ("table", "rows", "batches of the log", "taken over", "lost", "s")
        cells = [
            (one.table, one.rows, one.batches, one.taken_over, one.lost, f"{one.seconds:.1f}")
            for one in done
        ]
        emit_rich(table(columns, cells, right=columns[1:]))
    if any(rebuilt.lost for rebuilt in done):
        note(
            "lost: rows that the log names, whose files are gone and that were not in the table "
            "either"
        )


def _checked(names: list[str], known: list[str]) -> list[str]:
    reasons = {
        "rounds": "it is the log itself",
        "bundle_averages": "it follows from the stream's state: the job writes each cluster's part "
        "with its next reports",
    }
    for name in names:
        if name not in known:
            why = reasons.get(name, "it does not follow from the log")
            raise CommandError(
                f"{name} can't be rebuilt ({why}); those that can: {', '.join(known)}", code=2
            )
    return names


def _progress(json: bool) -> Any:
    """A bar for each table on a terminal's stderr."""
    from collections.abc import Iterator
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    @contextmanager
    def bars() -> Iterator[Any]:
        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("batches"),
            TimeElapsedColumn(),
        )
        with Progress(
            *columns, console=console, transient=True, disable=json or not console.is_terminal
        ) as shown:
            tasks: dict[str, Any] = {}

            def report(name: str, done: int, total: int) -> None:
                if name not in tasks:
                    tasks[name] = shown.add_task(name, total=total)
                shown.update(tasks[name], completed=done)

            yield report

    return bars()
