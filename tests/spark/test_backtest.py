"""The back-test on Spark: the same rows as without, the same questions as DuckDB's answers, results
in their table."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lb_stream.backtest.job import append_run, broadcast_windows, run_trials
from lb_stream.backtest.main import main
from lb_stream.backtest.search_space import read_space
from lb_stream.backtest.suggest import describe_suggestion, search
from lb_stream.backtest.trial import TrialWindow, compare_policies, run_name, run_trial
from lb_stream.query.lake import open_lake
from lb_stream.query.past.reports import build_history
from lb_stream.query.past.tables import build_lake_query, load_history
from lb_stream.sim.scenario.from_history import LoadHistory, build_from_history
from lb_stream.sim.simulation import read_policy
from lb_stream.store import Store
from tests.support.past_tables import write_past

pytestmark = pytest.mark.jvm
CAPTURED = Path(__file__).parents[1] / "data" / "modular-load-reports.jsonl.gz"
LBCTL = Path(sys.executable).with_name("lbctl")
POLICIES = ("none", "AvgShedder")


def window() -> TrialWindow:
    """Two minutes of three real brokers."""
    past = build_history(CAPTURED, "lab")
    past |= {"to_ms": past["from_ms"] + 120_000}
    return TrialWindow(
        "lab", past["from_ms"], past["to_ms"], build_from_history(LoadHistory(**past)).scenario
    )


def test_each_trial_is_a_task_and_its_row_is_that_of_one_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    windows = [window()]
    policies = [read_policy(name) for name in POLICIES]
    progress: list[tuple[int, int]] = []
    rows = run_trials(
        spark,
        broadcast_windows(spark, windows),
        policies,
        lambda done, total: progress.append((done, total)),
    )
    assert rows == [run_trial(windows[0], policy) for policy in policies]
    assert (progress[0], {total for _, total in progress}) == ((0, 2), {2})
    first, again = (append_run(Store.at(tmp_path), windows, policies, rows) for _ in range(2))
    assert first[0]["run"] == again[0]["run"]
    kept = (
        DeltaTable(str(tmp_path / "backtests"))
        .to_pyarrow_table()
        .select(["policy", "measures"])
        .to_pylist()
    )
    assert kept == [{name: row[name] for name in ("policy", "measures")} for row in (*rows, *rows)]


def test_spark_makes_the_scenario_that_duckdb_makes_of_the_tables_and_plays_it_alike(
    tmp_path: Path,
) -> None:
    """The whole command: Delta tables with all that a past consists of, asked through Spark,
    played, kept. Here without any of that."""
    tables = tmp_path / "tables"
    write_past(tables)
    past = load_history(build_lake_query(open_lake(Store.at(tables), require_columns=False)), "eu")
    windows = [
        TrialWindow(
            "eu",
            past["from_ms"],
            past["to_ms"],
            build_from_history(LoadHistory(**past), 30.0).scenario,
        )
    ]
    policies = [read_policy(name) for name in POLICIES]
    expected = [
        run_trial(windows[0], policy) | {"run": run_name(windows, policies)} for policy in policies
    ]
    assert [row["error"] for row in expected] == [None, None]
    asked = ["--cluster", "eu", *(part for name in POLICIES for part in ("--policy", name))]
    command = [str(LBCTL), "backtest", "--tables", "tables", "--driver-memory", "1g", *asked]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr
    kept = (
        DeltaTable(str(tables / "backtests")).to_pyarrow_table().drop_columns("made_ms").to_pylist()
    )
    assert [{name: row[name] for name in expected[0]} for row in kept] == expected


def test_a_search_plays_its_trials_on_spark_and_finds_what_one_process_finds(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("lb_stream.backtest.main._build_windows", lambda *_: [window()])
    monkeypatch.setattr("lb_stream.backtest.job.SPARK", {})
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)  # the session is all tests'
    searched = ["low_threshold_points=2|15", "hit_count_low=1..8", "min_unload_msgs_per_s=1..1000"]
    options = [part for name in searched for part in ("--search", name)]
    assert (
        main(
            [
                "--tables",
                str(tmp_path),
                "--policy",
                "AvgShedder",
                "--suggest",
                *options,
                "--trials",
                "10",
                "--seed",
                "3",
            ]
        )
        == 0
    )
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    made = result["suggestion"]
    assert made["trials"] == len(result["rows"]) == 10
    space = read_space(read_policy("AvgShedder"), searched)
    here = search(
        space,
        lambda policies: compare_policies([run_trial(window(), policy) for policy in policies]),
        10,
        seed=3,
    )
    assert made == describe_suggestion(space, here, "moves", 5)
    kept = DeltaTable(str(tmp_path / "backtests")).to_pyarrow_table().to_pylist()
    assert sorted(row["policy"] for row in kept) == sorted(trial.policy.name for trial in here)
    assert {row["run"] for row in kept} == {result["run"]}
