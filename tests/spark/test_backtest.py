"""The back-test on Spark: the same rows as without, the same questions as DuckDB's answers, results in their table."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lb_stream.backtest.job import keep, try_all
from lb_stream.backtest.trial import Window, tried
from lb_stream.query.past.reports import past_of_reports
from lb_stream.sim.play import read_policy
from lb_stream.sim.scenario.from_history import History, scenario_of

pytestmark = pytest.mark.jvm
CAPTURED = Path(__file__).parents[1] / "data" / "modular-load-reports.jsonl.gz"


def test_each_trial_is_a_task_and_its_row_is_that_of_one_process(spark: SparkSession, tmp_path: Path) -> None:
    past = past_of_reports(CAPTURED, "lab")
    past |= {"to_ms": past["from_ms"] + 120_000}
    windows = [Window("lab", past["from_ms"], past["to_ms"], scenario_of(History(**past)).scenario)]
    policies = [read_policy("none"), read_policy("AvgShedder")]
    rows = try_all(spark, windows, policies)
    assert rows == [tried(windows[0], policy) for policy in policies]
    first, again = (keep(str(tmp_path), windows, policies, rows) for _ in range(2))
    assert first[0]["run"] == again[0]["run"]
    kept = DeltaTable(str(tmp_path / "backtests")).to_pyarrow_table().select(["policy", "measures"]).to_pylist()
    assert kept == [{name: row[name] for name in ("policy", "measures")} for row in (*rows, *rows)]
