"""The back-test's program, which `lbctl backtest` and jobs/backtest.py run.

Simulates what clusters have carried (the history in a job's tables, or a file of load reports) with
each policy, and appends the measures to the Delta table `backtests`. The last line on stdout is one
JSON object: the run's name and its rows. Exit codes: 0 all trials done, 1 one failed, 2 wrong
usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from lb_stream.backtest.search_space import Space
from lb_stream.backtest.suggest import (
    CHOICES,
    TRIALS,
    WITHIN,
    describe_suggestion,
    require_space,
    search,
)
from lb_stream.backtest.trial import (
    BacktestRow,
    PolicyMeans,
    TrialWindow,
    compare_policies,
    cut_time,
)
from lb_stream.io.messages.errors import describe_error
from lb_stream.query import QueryError
from lb_stream.query.past.reports import build_history
from lb_stream.query.past.tables import RunQuery, load_history, require_recorded_cluster
from lb_stream.sim.scenario.from_history import LoadHistory, ScenarioWithNotes, build_from_history
from lb_stream.sim.simulation import Policy, read_policy
from lb_stream.store import Store

LoadPast = Callable[[int | None, int | None], dict[str, Any]]
"""Loads the fields of a `LoadHistory` between two times; None: where the history begins or ends."""
Trials = Callable[[Sequence[Policy], Callable[[int, int], None]], list[BacktestRow]]
"""Runs policies in all windows; its second argument is called with trials done and all trials."""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="backtest.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--tables",
        default=".lb/tables",
        metavar="FOLDER",
        help="the job's tables; results go there, too",
    )
    parser.add_argument(
        "--reports", type=Path, metavar="FILE", help="load reports instead of the tables' history"
    )
    parser.add_argument(
        "--cluster",
        action="append",
        default=[],
        metavar="NAME",
        help="may be given again; default: the only one",
    )
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        required=True,
        metavar="NAME|FILE",
        help="may be given again",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        type=_parse_ms,
        metavar="TIME",
        help="as 2026-11-21T13:00; default: where history begins",
    )
    parser.add_argument(
        "--to", dest="end", type=_parse_ms, metavar="TIME", help="default: where history ends"
    )
    parser.add_argument(
        "--window",
        type=float,
        default=0.0,
        metavar="HOURS",
        help="cut the time into windows, each a simulation of its own",
    )
    parser.add_argument(
        "--tick", type=float, default=30.0, metavar="SECONDS", help="length of a tick"
    )
    group = parser.add_argument_group("search for better settings of one policy")
    group.add_argument("--suggest", action="store_true", help="search")
    group.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="low..high or one|other; may be given again",
    )
    group.add_argument(
        "--trials", type=int, default=TRIALS, metavar="NUMBER", help="policies to try"
    )
    group.add_argument("--seed", type=int, default=0, metavar="NUMBER", help="seed of the search")
    group.add_argument(
        "--choose",
        choices=list(CHOICES),
        default="moves",
        help="the measure that the chosen policy has least of",
    )
    group.add_argument(
        "--within",
        type=float,
        default=WITHIN,
        metavar="PERCENT",
        help="how far the chosen policy may be above the least imbalance",
    )
    return parser


def _parse_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program, and return its exit code.

    Known errors are printed as one line; unknown ones keep their traceback.
    """
    options = build_parser().parse_args(arguments)
    try:
        return backtest(options)
    except QueryError as error:
        return _print_error(str(error), error.code)
    except Exception as error:
        if (found := describe_error(error)) is None:
            raise
        return _print_error(*found)


def _print_error(line: str, code: int) -> int:
    print(f"backtest.py: {line}", file=sys.stderr, flush=True)
    return code


def backtest(options: argparse.Namespace) -> int:
    """Read the policies and the past, then have Spark try each policy in each window.

    Returns the exit code.
    """
    # what can fail before Spark starts
    policies = [read_policy(name) for name in options.policy]
    tables = Store.at(options.tables, setting="--tables")
    space = require_space(options.suggest, policies, options.search)

    from pyspark.sql import SparkSession  # noqa: PLC0415

    from lb_stream.backtest.job import (  # noqa: PLC0415
        SPARK,
        append_run,
        broadcast_windows,
        run_trials,
        spark_query,
    )

    # the session
    builder = SparkSession.builder.appName("backtest").config(
        "spark.pyspark.python", sys.executable
    )
    for name, value in SPARK.items():
        builder = builder.config(name, value)
    for name, value in tables.hadoop_options.items():
        builder = builder.config(f"spark.hadoop.{name}", value)
    spark = builder.getOrCreate()
    # trials
    try:
        windows = _build_windows(options, None if options.reports else spark_query(spark, tables))
        trials = partial(run_trials, spark, broadcast_windows(spark, windows))
        if space is None:
            result: dict[str, Any] = {"rows": trials(policies, _print_progress)}
        else:
            result, policies = _suggest(options, space, len(windows), trials)
        result["rows"] = append_run(tables, windows, policies, result["rows"])
    finally:
        spark.stop()
    print(json.dumps({"run": result["rows"][0]["run"]} | result), flush=True)
    return int(any(row["error"] is not None for row in result["rows"]))


def _suggest(
    options: argparse.Namespace, space: Space, windows: int, trials: Trials
) -> tuple[dict[str, object], list[Policy]]:
    """Search for a better policy. Returns the suggestion and all rows, and the policies tried."""
    rows: list[BacktestRow] = []
    policies: list[Policy] = []
    total = space.trials(options.trials) * windows

    def try_policies(batch: Sequence[Policy]) -> list[PolicyMeans]:
        before = len(rows)
        tried = trials(batch, lambda done, _: _print_progress(before + done, total))
        rows.extend(tried)
        policies.extend(batch)
        return compare_policies(tried)

    found = search(space, try_policies, options.trials, options.seed)
    return {
        "suggestion": describe_suggestion(space, found, options.choose, options.within),
        "rows": rows,
    }, policies


def _build_windows(options: argparse.Namespace, ask: RunQuery | None) -> list[TrialWindow]:
    if ask is None:
        cluster = options.cluster[0] if options.cluster else "recorded"
        return _build_cluster_windows(
            options,
            cluster,
            lambda begin, end: build_history(options.reports, cluster, from_ms=begin, to_ms=end),
        )
    clusters = [require_recorded_cluster(ask, name) for name in options.cluster or [None]]
    return [
        window
        for cluster in clusters
        for window in _build_cluster_windows(options, cluster, partial(load_history, ask, cluster))
    ]


def _build_cluster_windows(
    options: argparse.Namespace, cluster: str, past: LoadPast
) -> list[TrialWindow]:
    """Build the scenario of each window; the first one's notes are printed."""
    whole = LoadHistory(**past(options.begin, options.end))
    windows: list[TrialWindow] = []
    for from_ms, to_ms in cut_time(whole.from_ms, whole.to_ms, options.window):
        part = (
            whole
            if (from_ms, to_ms) == (whole.from_ms, whole.to_ms)
            else LoadHistory(**past(from_ms, to_ms))
        )
        made: ScenarioWithNotes = build_from_history(part, options.tick)
        for note in made.notes if not windows else ():
            print(f"{cluster}: {note}", file=sys.stderr, flush=True)
        windows.append(TrialWindow(cluster, from_ms, to_ms, made.scenario))
    return windows


def _print_progress(done: int, total: int) -> None:
    """Print the line from which `lbctl backtest` draws its progress bar."""
    print(f"{done} of {total} trials", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
