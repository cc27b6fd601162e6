"""`lbctl tables maintain`: upkeep of the tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.shared.options import BrokerConf, ConfigFile, Json, Set, load_cli_settings
from lb_stream.cli.shared.output import CommandError, emit_json, emit_rich, note, table
from lb_stream.cli.shared.spans import parse_duration

if TYPE_CHECKING:
    from lb_stream.contracts.settings import UpkeepSettings
    from lb_stream.io.tables.upkeep import MaintenanceResult
    from lb_stream.store import Store


def maintain(
    once: Annotated[
        bool, typer.Option("--once", help="Maintain the tables once, then end (the default).")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", metavar="TIME", help="Repeat it until Ctrl-C at this interval: 30m, 1h, 1d."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: show what would be done.")
    ] = False,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Delete old rows of tables, merge small files, and remove files that no table names.

    The settings \\[upkeep] say how long rows are kept. Run it beside the job or without it, on any
    machine that reaches the tables' folder: every ten minutes for a busy pipeline, once a day for a
    small one. It needs no Spark and no Kafka. Start with --dry-run.

    What the job still needs is kept: each cluster's last round (its memory), rounds that may not
    have been published or projected yet, files that only the log names. If the job writes to a
    table at the same time, the job's commit wins, and the rest of the upkeep is left for the next
    run; stderr shows what was left. --json prints one object per table and run.
    """
    from lb_stream.io.local.signals import StopRequest

    if once and every:
        raise CommandError("expected --once or --every, both are given", code=2)
    pause_s = parse_duration("--every", every, least=1) // 1_000 if every else 0
    given = load_cli_settings(config, broker_conf, set_)
    tables, settings = given.tables, given.settings.upkeep
    if not every:
        maintain_once(tables, settings, dry_run, json)
        return
    with StopRequest() as stop:
        while not stop:
            try:
                maintain_once(tables, settings, dry_run, json)
            except (NoTablesYet, UpkeepFailed) as error:
                note(f"lbctl: {error}")
            end = time.monotonic() + pause_s
            while not stop and time.monotonic() < end:
                time.sleep(0.5)


class NoTablesYet(CommandError):
    """The job has written no tables yet."""


class UpkeepFailed(CommandError):
    """A table could not be written: the disk is full, or this user may not write."""


def maintain_once(folder: Store, settings: UpkeepSettings, dry_run: bool, json: bool) -> None:
    """Maintain all tables once, and print what was done.

    Raises NoTablesYet, and UpkeepFailed after the output.
    """
    from dataclasses import asdict

    from lb_stream.io.tables.upkeep import maintain as maintain_tables

    results = []
    for result in maintain_tables(folder, settings, time.time_ns() // 1_000_000, dry_run):
        results.append(result)
        if json:
            emit_json(asdict(result) | {"dry_run": dry_run})
    if not results:
        raise NoTablesYet(
            f"no tables in {folder} yet: the job writes them; --set stream.tables=FOLDER names "
            "others"
        )
    if not json:
        _show(results, dry_run)
    if failed := [result for result in results if result.failed]:
        raise UpkeepFailed(f"{', '.join(result.table for result in failed)}: {failed[0].left}")


def _show(results: Sequence[MaintenanceResult], dry_run: bool) -> None:
    """Print what was done, for people."""
    from dataclasses import fields

    from lb_stream.io.tables.upkeep import MaintenanceResult

    total = MaintenanceResult("all")
    cells = []
    for result in results:
        cells.append(_cells(result))
        for field in fields(MaintenanceResult):
            if field.name not in ("table", "left", "failed"):
                setattr(total, field.name, getattr(total, field.name) + getattr(result, field.name))
    columns = ("table", "rows deleted", "files", "MB", "files removed", "MB", "s")
    emit_rich(table(columns, [*cells, _cells(total)], right=columns[1:]))
    for result in results:
        if result.left and not result.failed:
            note(f"{result.table}: {result.left}")
    if dry_run:
        note("(a dry run: nothing was changed)")


def _cells(result: MaintenanceResult) -> tuple[str, ...]:
    return (
        result.table,
        str(result.rows_deleted),
        f"{result.files_before} → {result.files_after}",
        f"{result.bytes_before / 1e6:.1f} → {result.bytes_after / 1e6:.1f}",
        str(result.files_removed),
        f"{result.bytes_removed / 1e6:.1f}",
        f"{result.seconds:.1f}",
    )
