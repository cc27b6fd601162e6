"""`lbctl backtest`: what other policies would have done with what a cluster has carried."""

from __future__ import annotations

import json as json_
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lb_stream.cli.shared.options import Json
from lb_stream.cli.shared.output import CommandError, emit_json, emit_rich, note, table
from lb_stream.io.messages.times import utc

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADS = {
    "policy": "policy",
    "max_over_bound_median": "max/bound",
    "max_over_bound_p95": "(p95)",
    "balanced_share": "balanced",
    "moves": "moves",
    "client_seconds_lost": "client-s lost",
    "overload_s_85": "broker-s > 85%",
    "violation_count": "rules broken",
}
"""Measure → head of its column."""


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    example = "lbctl backtest --tables .lb/tables --cluster eu-1 --policy AvgShedder --policy TransferShedder --window 6"
    codes = "Exit codes: 0 all trials done, 1 one failed, 2 wrong usage."
    app.command("backtest", epilog=f"Example: {example} · {codes}")(backtest)


def backtest(
    policy: Annotated[
        list[str], typer.Option("--policy", "-p", metavar="NAME|FILE", help="Shedder+Placement, one name for both, none, a settings file.")
    ],
    tables: Annotated[Path, typer.Option("--tables", metavar="FOLDER", help="The job's tables; results go there.")] = Path(".lb/tables"),
    reports: Annotated[Path | None, typer.Option("--reports", metavar="FILE", help="Load reports instead of the tables' history.")] = None,
    cluster: Annotated[
        list[str] | None, typer.Option("--cluster", metavar="NAME", help="May be given again; default: the only one.")
    ] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="As 2026-11-21T13:00; default: where history begins.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Default: where history ends.")] = None,
    window: Annotated[float, typer.Option("--window", metavar="HOURS", help="Cut the time into windows; 0: one.", min=0.0)] = 0.0,
    tick: Annotated[float, typer.Option("--tick", metavar="SECONDS", help="Length of a tick.")] = 30.0,
    driver_memory: Annotated[str, typer.Option("--driver-memory", metavar="SIZE", help="Heap of Spark's JVM.")] = "2g",
    json: Json = False,
) -> None:
    """Play what a cluster has carried with other policies, on Spark, and compare them.

    Loads, limits, deaths, drains and rules come from the tables (docs/backtest.md); what was inferred and assumed is printed. Each policy
    is played in each window of each cluster, one Spark task for each, and its measures become a row of the table backtests.
    """
    from lb_stream.cli.shared.options import time_given
    from lb_stream.job.submit import BACKTEST, submit_command
    from lb_stream.sim.play import read_policy

    for one in policy:
        read_policy(one)
    for text in (from_, to):
        time_given(text)
    if reports is None and not tables.exists():
        raise CommandError(f"no tables in {tables}: name the job's with --tables FOLDER, or load reports with --reports FILE", 2)
    given = {"--tables": tables, "--reports": reports, "--from": from_, "--to": to, "--window": window, "--tick": tick}
    arguments = [part for option, value in given.items() if value is not None for part in (option, str(value))]
    lists = {"--cluster": cluster or (), "--policy": policy}
    arguments += [part for option, values in lists.items() for value in values for part in (option, value)]
    command, environment = submit_command(arguments, driver_memory, BACKTEST)
    result = None
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():  # spark-submit puts the program's stderr there, too
            if line.startswith('{"run": '):
                result = json_.loads(line)
            else:
                note(line.rstrip())
    if result is not None:
        _show(result, json)
    raise typer.Exit(process.returncode if result is not None else process.returncode or 1)


def _show(result: dict[str, Any], json: bool) -> None:
    from lb_stream.backtest.trial import compared

    rows = result["rows"]
    if json:
        for row in rows:
            emit_json(row | {name: json_.loads(row[name] or "null") for name in ("measures", "settings")})
        return
    emit_rich(table(tuple(HEADS.values()), [_cells(one) for one in compared(rows)], right=tuple(HEADS.values())[1:]))
    spans = sorted({(row["cluster"], row["from_ms"], row["to_ms"]) for row in rows})
    note(f"run {result['run']} in the table backtests; means over {_windows(spans)}")
    for row in rows:
        if row["error"] is not None:
            note(f"{row['policy']}, {row['cluster']} from {utc(row['from_ms'])}: {row['error'].splitlines()[-1]}")


def _windows(spans: Sequence[tuple[str, int, int]]) -> str:
    clusters = ", ".join(sorted({cluster for cluster, _, _ in spans}))
    return f"{len(spans)} windows of {clusters}, {utc(min(begin for _, begin, _ in spans))} to {utc(max(end for _, _, end in spans))}"


def _cells(one: dict[str, Any]) -> list[str]:
    def shown(value: Any) -> str:
        return "-" if value is None else value if isinstance(value, str) else f"{value:,.3f}" if abs(value) < 10 else f"{value:,.0f}"

    return [shown(one[name]) for name in HEADS]
