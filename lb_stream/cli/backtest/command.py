"""`lbctl backtest`: tries other policies on a cluster's past."""

from __future__ import annotations

import json as json_
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lb_stream.cli.backtest import suggestion
from lb_stream.cli.backtest.open_loop import compare_decisions
from lb_stream.cli.shared.options import Json
from lb_stream.cli.shared.output import INTERRUPTED, CommandError, emit_json, emit_rich, note, table
from lb_stream.io.messages.times import utc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Policies = Annotated[
    list[str],
    typer.Option(
        "--policy",
        "-p",
        metavar="NAME|FILE",
        help="Shedder+Placement, one name for both, none, a settings file.",
    ),
]
Clusters = Annotated[
    list[str] | None,
    typer.Option("--cluster", metavar="NAME", help="May be given again; default: the only one."),
]
OpenLoop = Annotated[
    bool,
    typer.Option(
        "--open-loop",
        help="Only compare decisions, in logged rounds whose views are kept; without Spark.",
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="FOLDER",
        help="The job's, for --open-loop; default: beside the tables.",
    ),
]
_DONE = re.compile(r"(\d+) of (\d+) trials\n")


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    example = (
        "lbctl backtest --tables .lb/tables --cluster eu-1 --policy AvgShedder --policy "
        "TransferShedder --window 6"
    )
    search = (
        "lbctl backtest --policy AvgShedder --suggest --search hit_count_low=1..12 --out "
        "better.toml"
    )
    codes = "Exit codes: 0 all trials done, 1 one failed, 2 wrong usage."
    app.command("backtest", epilog=f"Example: {example} · {search} · {codes}")(backtest)


def backtest(
    policy: Policies,
    tables: Annotated[
        str,
        typer.Option(
            "--tables",
            metavar="FOLDER",
            help="The folder of the job's tables, in which results are written, too.",
        ),
    ] = ".lb/tables",
    reports: Annotated[
        Path | None,
        typer.Option(
            "--reports", metavar="FILE", help="Load reports instead of the tables' history."
        ),
    ] = None,
    cluster: Clusters = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Begin, as 2026-11-21T13:00. Default: where history begins.",
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End. Default: where history ends.")
    ] = None,
    window: Annotated[
        float,
        typer.Option(
            "--window", metavar="HOURS", help="Cut the time into windows; 0: one.", min=0.0
        ),
    ] = 0.0,
    tick: Annotated[
        float, typer.Option("--tick", metavar="SECONDS", help="Length of a tick.")
    ] = 30.0,
    driver_memory: Annotated[
        str, typer.Option("--driver-memory", metavar="SIZE", help="Heap of Spark's JVM.")
    ] = "2g",
    open_loop: OpenLoop = False,
    checkpoint: Checkpoint = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a page with pictures, as one HTML file."
        ),
    ] = None,
    suggest: suggestion.Suggest = False,
    search: suggestion.Search = None,
    trials: suggestion.Trials = 48,
    seed: suggestion.Seed = 0,
    choose: suggestion.ChooseBy = suggestion.Choose.moves,
    within: suggestion.Within = 5.0,
    out: suggestion.Out = None,
    json: Json = False,
) -> None:
    """Try other policies on a cluster's past, on Spark, and compare them.

    Loads, limits, dead brokers, drains and rules come from the tables (docs/backtest.md); notes say
    what is inferred and assumed. Each policy is simulated in each window of each cluster, one Spark
    task for each. Its measures become a row of the table backtests.

    --suggest tries one policy with settings that an optimiser asks for. It shows those that no
    other one beats in imbalance, moves and time lost.
    """
    from lb_stream.cli.shared.options import parse_time_range
    from lb_stream.job.submit import BACKTEST, submit_command
    from lb_stream.sim.simulation import read_policy

    suggestion.require_possible(
        suggest, [read_policy(name_or_file) for name_or_file in policy], search or (), out
    )
    between = parse_time_range(from_, to)
    if open_loop:
        _only_closed(
            {"--reports": reports, "--window": window, "--html": html, "--suggest": suggest}
        )
        raise typer.Exit(
            compare_decisions(tables, checkpoint, cluster or [], policy, between, json)
        )
    _check_past(tables, reports, cluster or [None])
    given = {
        "--tables": tables,
        "--reports": reports,
        "--from": from_,
        "--to": to,
        "--window": window,
        "--tick": tick,
    }
    given |= {"--trials": trials, "--seed": seed, "--choose": choose.value, "--within": within}
    arguments = ["--suggest"] * suggest + [
        part
        for option, value in given.items()
        if value is not None
        for part in (option, str(value))
    ]
    lists = {"--cluster": cluster or (), "--policy": policy, "--search": search or ()}
    arguments += [
        part for option, values in lists.items() for value in values for part in (option, value)
    ]
    result, code = _run(*submit_command(arguments, driver_memory, BACKTEST))
    if result is not None:
        _show(result, out, json)
        if html is not None:
            _write(html, result)
    raise typer.Exit(code)


def _only_closed(given: Mapping[str, object]) -> None:
    """Require that no option of a simulation is given. Raises CommandError."""
    for option, value in given.items():
        if value:
            raise CommandError(f"{option} is not for --open-loop: nothing is simulated there", 2)


def _check_past(tables: str, reports: Path | None, clusters: Sequence[str | None]) -> None:
    """Require a past to simulate, before Spark starts. Raises CommandError, QueryError."""
    from lb_stream.contracts.tables import BUNDLE_HISTORY
    from lb_stream.io.tables.delta import existing_table
    from lb_stream.query.lake import open_lake
    from lb_stream.query.past.reports import read_reports
    from lb_stream.query.past.tables import build_lake_query, require_recorded_cluster
    from lb_stream.store import Store

    if reports is not None:
        read_reports(reports)
        return
    folder = Store.at(tables, setting="--tables")
    if existing_table(folder, BUNDLE_HISTORY) is None:
        raise CommandError(
            f"{tables} has no bundle_history: expected a job's tables in --tables FOLDER, or "
            "--reports FILE",
            2,
        )
    with open_lake(folder, require_columns=False) as lake:
        for cluster in clusters:
            require_recorded_cluster(build_lake_query(lake), cluster)


def _run(
    command: list[str], environment: dict[str, str]
) -> tuple[suggestion.JsonObject | None, int]:
    """Run the program in a session of its own, and show its progress.

    Returns its result, None if there is none, and its exit code. Ctrl-C ends it with all its
    processes, without Spark's many lines, and raises typer.Exit.
    """
    from lb_stream.io.local.processes import end_with_parent
    from lb_stream.io.local.progress import progress
    from lb_stream.io.local.signals import StopRequest
    from lb_stream.job.process import end_session

    result = None
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509 (it takes no lock)
    )
    try:
        with progress("simulating", every=1) as show_progress:
            for line in process.stdout or ():  # spark-submit puts the program's stderr there, too
                if done := _DONE.fullmatch(line):
                    show_progress("", int(done[1]), int(done[2]))
                elif line.startswith('{"run": '):
                    result = json_.loads(line)
                else:
                    note(line.rstrip())
        code = process.wait()
    except KeyboardInterrupt:
        with StopRequest() as stop:
            end_session(process.pid, process.poll, hurry=lambda: bool(stop))
        note("stopped: no row of this run is kept")
        raise typer.Exit(INTERRUPTED) from None
    code = code if code >= 0 else 128 - code
    return result, code if result is not None else code or 1


def _write(html: Path, result: suggestion.JsonObject) -> None:
    from lb_stream.cli.backtest.page import page

    html.write_text(page(result["run"], result["rows"]), encoding="utf-8")
    note(f"wrote {html}")


def _show(result: suggestion.JsonObject, out: Path | None, json: bool) -> None:
    if "suggestion" in result:
        suggestion.show(result, out, json)
        return
    from lb_stream.backtest.trial import compare_policies
    from lb_stream.cli.backtest.page import SHOWN, cells, describe_windows

    rows = result["rows"]
    if json:
        for row in rows:
            emit_json(
                row | {name: json_.loads(row[name] or "null") for name in ("measures", "settings")}
            )
        return
    heads = tuple(SHOWN.values())
    emit_rich(
        table(
            ("policy", *heads),
            [(row["policy"], *cells(row)) for row in compare_policies(rows)],
            right=heads,
        )
    )
    note(f"run {result['run']} in the table backtests; means over {describe_windows(rows)}")
    for row in rows:
        if row["error"] is not None:
            note(
                f"{row['policy']}, {row['cluster']} from {utc(row['from_ms'])}: "
                f"{row['error'].splitlines()[-1]}"
            )
