"""The back-test's program, which `lbctl backtest` and jobs/backtest.py run.

Plays what clusters have carried (the history in a job's tables, or a file of load reports) with
each policy, and keeps how that went in the Delta table `backtests`. The last line on stdout is one
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
from lb_stream.backtest.suggest import CHOICES, TRIALS, WITHIN, require_space, search, suggestion
from lb_stream.backtest.trial import TrialWindow, compare_policies, windows_of
from lb_stream.io.messages.errors import describe_error
from lb_stream.query import QueryError
from lb_stream.query.past.reports import history_of_reports
from lb_stream.query.past.tables import RunQuery, history_between, require_recorded_cluster
from lb_stream.sim.scenario.from_history import LoadHistory, ScenarioWithNotes, build_scenario
from lb_stream.sim.simulation import Policy, read_policy
from lb_stream.store import Store

Past = Callable[[int | None, int | None], dict[str, Any]]
Rows = list[dict[str, Any]]
Trials = Callable[[Sequence[Policy], Callable[[int, int], None]], Rows]
"""Plays policies in all windows; told how many trials are done, of how many."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="backtest.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--tables",
        default=".lb/tables",
        metavar="FOLDER",
        help="the job's tables; results go there, too",
    )
    made.add_argument(
        "--reports", type=Path, metavar="FILE", help="load reports instead of the tables' history"
    )
    made.add_argument(
        "--cluster",
        action="append",
        default=[],
        metavar="NAME",
        help="may be given again; default: the only one",
    )
    made.add_argument(
        "--policy",
        action="append",
        default=[],
        required=True,
        metavar="NAME|FILE",
        help="may be given again",
    )
    made.add_argument(
        "--from",
        dest="begin",
        type=_ms,
        metavar="TIME",
        help="as 2026-11-21T13:00; default: where history begins",
    )
    made.add_argument(
        "--to", dest="end", type=_ms, metavar="TIME", help="default: where history ends"
    )
    made.add_argument(
        "--window",
        type=float,
        default=0.0,
        metavar="HOURS",
        help="cut the time into windows, each played by itself",
    )
    made.add_argument(
        "--tick", type=float, default=30.0, metavar="SECONDS", help="length of a tick"
    )
    group = made.add_argument_group("search for better settings of one policy")
    group.add_argument("--suggest", action="store_true", help="search")
    group.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="low..high or one|other; may be given again",
    )
    group.add_argument(
        "--trials", type=int, default=TRIALS, metavar="NUMBER", help="policies to play"
    )
    group.add_argument(
        "--seed", type=int, default=0, metavar="NUMBER", help="begin of the search's chance"
    )
    group.add_argument(
        "--choose",
        choices=list(CHOICES),
        default="moves",
        help="what the chosen one has the least of",
    )
    group.add_argument(
        "--within",
        type=float,
        default=WITHIN,
        metavar="PERCENT",
        help="of the least imbalance, if chosen by another",
    )
    return made


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit code.

    Every error becomes a line here; only what nobody foresaw keeps its trace.
    """
    options = parser().parse_args(arguments)
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
    """Read the policies and the past, then have Spark try each policy in each window."""
    policies = [read_policy(name) for name in options.policy]  # before Spark starts
    tables = Store.at(options.tables, setting="--tables")
    space = require_space(options.suggest, policies, options.search)

    from pyspark.sql import SparkSession  # noqa: PLC0415

    from lb_stream.backtest.job import SPARK, keep, run_trials, send, spark_query  # noqa: PLC0415

    builder = SparkSession.builder.appName("backtest").config(
        "spark.pyspark.python", sys.executable
    )
    for name, value in SPARK.items():
        builder = builder.config(name, value)
    for name, value in tables.hadoop_options.items():
        builder = builder.config(f"spark.hadoop.{name}", value)
    spark = builder.getOrCreate()
    try:
        windows = _windows(options, None if options.reports else spark_query(spark, tables))
        trials = partial(run_trials, spark, send(spark, windows))
        if space is None:
            result: dict[str, Any] = {"rows": trials(policies, _progress)}
        else:
            result, policies = _suggest(options, space, len(windows), trials)
        result["rows"] = keep(tables, windows, policies, result["rows"])
    finally:
        spark.stop()
    print(json.dumps({"run": result["rows"][0]["run"]} | result), flush=True)
    return int(any(row["error"] is not None for row in result["rows"]))


def _suggest(
    options: argparse.Namespace, space: Space, windows: int, trials: Trials
) -> tuple[dict[str, Any], list[Policy]]:
    """What the search suggests, with the rows of all its trials, and the policies that it has
    played."""
    rows: Rows = []
    policies: list[Policy] = []
    in_all = space.trials(options.trials) * windows

    def play(some: Sequence[Policy]) -> Rows:
        before = len(rows)
        played = trials(some, lambda done, _: _progress(before + done, in_all))
        rows.extend(played)
        policies.extend(some)
        return compare_policies(played)

    found = search(space, play, options.trials, options.seed)
    return {
        "suggestion": suggestion(space, found, options.choose, options.within),
        "rows": rows,
    }, policies


def _windows(options: argparse.Namespace, ask: RunQuery | None) -> list[TrialWindow]:
    if ask is None:
        cluster = options.cluster[0] if options.cluster else "recorded"
        return _cut(
            options,
            cluster,
            lambda begin, end: history_of_reports(
                options.reports, cluster, from_ms=begin, to_ms=end
            ),
        )
    clusters = [require_recorded_cluster(ask, name) for name in options.cluster or [None]]
    return [
        window
        for cluster in clusters
        for window in _cut(options, cluster, partial(history_between, ask, cluster))
    ]


def _cut(options: argparse.Namespace, cluster: str, past: Past) -> list[TrialWindow]:
    """The scenario of each window; what was inferred and assumed is said once."""
    whole = LoadHistory(**past(options.begin, options.end))
    windows: list[TrialWindow] = []
    for from_ms, to_ms in windows_of(whole.from_ms, whole.to_ms, options.window):
        part = (
            whole
            if (from_ms, to_ms) == (whole.from_ms, whole.to_ms)
            else LoadHistory(**past(from_ms, to_ms))
        )
        made: ScenarioWithNotes = build_scenario(part, options.tick)
        for note in made.notes if not windows else ():
            print(f"{cluster}: {note}", file=sys.stderr, flush=True)
        windows.append(TrialWindow(cluster, from_ms, to_ms, made.scenario))
    return windows


def _progress(done: int, total: int) -> None:
    """A line that `lbctl backtest` draws its bar from."""
    print(f"{done} of {total} trials", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
