"""Upkeep of the tables, once or every so often: `python jobs/maintain.py --config conf/default.toml [--every 1h]`.

Deletes rows that are older than the settings [upkeep] say, puts small files together, and removes files from the disk that no table
names any more. Run it beside the streaming job or without it, from any machine that reaches the tables' folder: every ten minutes
for a busy pipeline, once a day for a small one. It needs no Spark and no Kafka; spark-submit runs it, too.

What the job still needs stays, however old: each cluster's last round (its memory), rounds that may not have been published or
projected yet, files that only the log names. When the job and upkeep meet at one table, the job's commit goes first and the rest is
left for the next time; what that was is told on stderr.

Begin with --dry-run: it says what would be done. Exit codes: 0 done, 1 no tables there or they can't be read or written, 2 a wrong setting.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import typer

from lb_stream.cli.shared.output import emit, emit_rich, note, table
from lb_stream.contracts.settings import Settings
from lb_stream.io.local.configuration import load
from lb_stream.io.local.signals import StopRequest
from lb_stream.io.messages.secrets import hide
from lb_stream.io.messages.troubles import told
from lb_stream.io.tables.upkeep import MaintenanceResult, maintain

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> int:
    """A length of time as 90s, 30m, 1h or 1d."""
    found = re.fullmatch(r"([1-9]\d*)([smhd])", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number and a unit, such as 30m, 1h or 1d")
    return int(found[1]) * UNITS[found[2]]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML, as conf/default.toml: [stream] tables, [upkeep]")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one setting: stream.tables=FOLDER, upkeep.keep_rounds_hours=24"
    )
    often = parser.add_mutually_exclusive_group()
    often.add_argument("--once", action="store_true", help="keep the tables once, then end (the default)")
    often.add_argument("--every", type=seconds, metavar="TIME", help="again and again until Ctrl-C, e.g. 30m, 1h, 1d")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, say what would be done")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object a table and pass on stdout, nothing else")
    return parser.parse_args()


def main() -> int:
    """Keep the tables; the exit code. Only what nobody foresaw keeps its trace."""
    options = arguments()
    try:
        return upkeep(options)
    except Exception as error:
        if (found := told(error)) is None:
            raise
        note(f"maintain.py: {hide(found[0])}")
        return found[1]


def upkeep(options: argparse.Namespace) -> int:
    """One pass, or one after the other until a stop is asked for; the exit code."""
    settings = load(options.config, arguments=options.set).settings
    if not options.every:
        try:
            return keep(settings, options)
        except typer.Exit:  # whoever read our output has gone
            return 0
    with StopRequest() as stop:
        while not stop:
            keep(settings, options)
            end = time.monotonic() + options.every
            while not stop and time.monotonic() < end:
                time.sleep(0.5)
    return 0


def keep(settings: Settings, options: argparse.Namespace) -> int:
    """One pass over all tables; the exit code."""
    done = []
    for one in maintain(settings.stream.tables, settings.upkeep, time.time_ns() // 1_000_000, options.dry_run):
        done.append(one)
        if options.json:
            emit(json.dumps(asdict(one) | {"dry_run": options.dry_run}) + "\n")
    if not done:
        note(f"maintain.py: no tables in {settings.stream.tables} yet: the job writes them; --set stream.tables=FOLDER names others")
        return 1
    if not options.json:
        show(done, options.dry_run)
    return 0


def show(done: Sequence[MaintenanceResult], dry_run: bool) -> None:
    """What was done, for people."""
    total = MaintenanceResult("all")
    cells = []
    for one in done:
        cells.append(_cells(one))
        for field in fields(MaintenanceResult):
            if field.name not in ("table", "left"):
                setattr(total, field.name, getattr(total, field.name) + getattr(one, field.name))
    columns = ("table", "rows deleted", "files", "MB", "files removed", "MB", "s")
    emit_rich(table(columns, [*cells, _cells(total)], right=columns[1:]))
    for one in done:
        if one.left:
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


if __name__ == "__main__":
    sys.exit(main())
