"""`lbctl tables maintain`: old rows, small files and replaced ones."""

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
        bool, typer.Option("--once", help="Keep the tables once, then end (the default).")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", metavar="TIME", help="Again and again until Ctrl-C, e.g. 30m, 1h, 1d."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing, say what would be done.")
    ] = False,
    config: ConfigFile = None,
    broker_conf: BrokerConf = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Delete rows older than the settings \\[upkeep] say, put small files together, remove files
    that no table names any more.

    Run it beside the job or without it, from any machine that reaches the tables' folder: every ten
    minutes for a busy pipeline, once a day for a small one. It needs no Spark and no Kafka. Begin
    with --dry-run.

    What the job still needs stays, however old: each cluster's last round (its memory), rounds that
    may not have been published or projected yet, files that only the log names. When the job and
    upkeep meet at one table, the job's commit goes first and the rest is left for the next time;
    what that was is told on stderr. With --json: one object a table and pass.
    """
    from lb_stream.io.local.signals import StopRequest

    if once and every:
        raise CommandError("--once and --every exclude each other", code=2)
    pause_s = parse_duration("--every", every, least=1) // 1_000 if every else 0
    given = load_cli_settings(config, broker_conf, set_)
    tables, settings = given.tables, given.settings.upkeep
    if not every:
        keep(tables, settings, dry_run, json)
        return
    with StopRequest() as stop:
        while not stop:
            try:
                keep(tables, settings, dry_run, json)
            except (NoTablesYet, NotKept) as trouble:
                note(f"lbctl: {trouble}")
            end = time.monotonic() + pause_s
            while not stop and time.monotonic() < end:
                time.sleep(0.5)


class NoTablesYet(CommandError):
    """The job has written none yet."""


class NotKept(CommandError):
    """The disk is full, or this user may not write."""


def keep(folder: Store, settings: UpkeepSettings, dry_run: bool, json: bool) -> None:
    """One pass over all tables. Raises NoTables, and NotKept once what was done is shown."""
    from dataclasses import asdict

    from lb_stream.io.tables.upkeep import maintain as maintained

    done = []
    for result in maintained(folder, settings, time.time_ns() // 1_000_000, dry_run):
        done.append(result)
        if json:
            emit_json(asdict(result) | {"dry_run": dry_run})
    if not done:
        raise NoTablesYet(
            f"no tables in {folder} yet: the job writes them; --set stream.tables=FOLDER names "
            "others"
        )
    if not json:
        show(done, dry_run)
    if failed := [one for one in done if one.failed]:
        raise NotKept(f"{', '.join(result.table for result in failed)}: {failed[0].left}")


def show(done: Sequence[MaintenanceResult], dry_run: bool) -> None:
    """What was done, for people."""
    from dataclasses import fields

    from lb_stream.io.tables.upkeep import MaintenanceResult

    total = MaintenanceResult("all")
    cells = []
    for result in done:
        cells.append(_cells(result))
        for field in fields(MaintenanceResult):
            if field.name not in ("table", "left", "failed"):
                setattr(total, field.name, getattr(total, field.name) + getattr(result, field.name))
    columns = ("table", "rows deleted", "files", "MB", "files removed", "MB", "s")
    emit_rich(table(columns, [*cells, _cells(total)], right=columns[1:]))
    for one in done:
        if one.left and not one.failed:
            note(f"{one.table}: {one.left}")
    if dry_run:
        note("(a dry run: nothing was changed)")


def _cells(one: MaintenanceResult) -> tuple[str, ...]:
    return (
        one.table,
        str(one.rows_deleted),
        f"{one.files_before} → {one.files_after}",
        f"{one.bytes_before / 1e6:.1f} → {one.bytes_after / 1e6:.1f}",
        str(one.files_removed),
        f"{one.bytes_removed / 1e6:.1f}",
        f"{one.seconds:.1f}",
    )
