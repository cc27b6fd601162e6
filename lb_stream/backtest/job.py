"""The back-test's Spark job: reads history from Delta tables, runs one task for each trial.

The rows go to the Delta table `backtests`.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark import Broadcast, SparkContext
from pyspark.sql import SparkSession

from lb_stream.backtest.trial import BacktestRow, TrialWindow, append_backtests, run_name, run_trial
from lb_stream.contracts.table_spec import columns_ddl
from lb_stream.contracts.tables import TABLES
from lb_stream.io.tables.delta import existing_table
from lb_stream.query.past.tables import TABLES as HISTORY_TABLES
from lb_stream.query.past.tables import RunQuery
from lb_stream.sim.simulation import Policy
from lb_stream.store import Store

OnProgress = Callable[[int, int], None]

SPARK = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A day of history is some megabytes: the defaults of 50 and 200 tasks only cost time.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    # With the default of 25, Spark warns of each plan that it doesn't print whole.
    "spark.sql.debug.maxToStringFields": "1000",
}
"""Settings of the Spark session."""
POLL_INTERVAL_S = 1.0
_PARAMETER = re.compile(r":([a-z_]+)\b")


def spark_query(spark: SparkSession, root: Store) -> RunQuery:
    """Return a function that queries the Delta tables through Spark. A missing table is empty."""
    for spec in TABLES:
        if spec.name in HISTORY_TABLES:
            exists = existing_table(root, spec) is not None
            rows = (
                spark.read.format("delta").load((root / spec.name).for_hadoop)
                if exists
                else spark.createDataFrame([], columns_ddl(spec))
            )
            rows.createOrReplaceTempView(spec.name)

    def ask(query: str, values: dict[str, Any]) -> pa.Table:
        return spark.sql(_PARAMETER.sub(lambda found: _literal(values[found[1]]), query)).toArrow()

    return ask


def _literal(value: str | int) -> str:
    """Return a value as a literal of Spark's SQL. Delta's extensions leave parameters unbound."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(int(value))


def broadcast_windows(
    spark: SparkSession, windows: Sequence[TrialWindow]
) -> list[Broadcast[TrialWindow]]:
    """Send the windows to Spark's workers, once for all trials."""
    return [spark.sparkContext.broadcast(window) for window in windows]


def run_trials(
    spark: SparkSession,
    windows: Sequence[Broadcast[TrialWindow]],
    policies: Sequence[Policy],
    on_progress: OnProgress = lambda *_: None,
) -> list[BacktestRow]:
    """Run a trial for each window and policy, and return their rows in that order.

    `on_progress` is called with the number of trials done, and of all trials.
    """
    context, group = spark.sparkContext, f"backtest-{uuid.uuid4()}"
    trials = [(number, policy) for number in range(len(windows)) for policy in policies]
    found: list[BacktestRow] = []
    failed: list[BaseException] = []

    def collect() -> None:
        try:
            context.setJobGroup(group, "trials of a back-test")
            rows = (
                context.parallelize(trials, len(trials))
                .map(lambda trial: run_trial(windows[trial[0]].value, trial[1]))
                .collect()
            )
            found.extend(rows)
        except BaseException as error:
            failed.append(error)

    collecting = threading.Thread(target=collect, daemon=True)
    collecting.start()
    on_progress(reported := 0, len(trials))
    while collecting.is_alive():
        collecting.join(POLL_INTERVAL_S)
        if (done := _count_done(context, group)) > reported:
            on_progress(reported := done, len(trials))
    if failed:
        raise failed[0]
    return found


def _count_done(context: SparkContext, group: str) -> int:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [stage for job in jobs if job is not None for stage in job.stageIds]
    infos = [tracker.getStageInfo(stage) for stage in stages]
    return sum(info.numCompletedTasks for info in infos if info is not None)


def append_run(
    root: Store,
    windows: Sequence[TrialWindow],
    policies: Sequence[Policy],
    rows: Sequence[BacktestRow],
) -> list[BacktestRow]:
    """Append a run's rows to `backtests`. Returns them with the run's name and time."""
    name = run_name(windows, policies)
    return append_backtests(root, [{"run": name} | row for row in rows])
