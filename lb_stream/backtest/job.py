"""The back-test as a Spark job: history out of the Delta tables, one task for each trial, results
into the Delta table `backtests`."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import SparkSession

from lb_stream.backtest.trial import TrialWindow, keep_rows, run_name, run_trial
from lb_stream.contracts.table_spec import columns_ddl
from lb_stream.contracts.tables import TABLES
from lb_stream.io.tables.delta import existing_table
from lb_stream.query.past.tables import TABLES as ASKED
from lb_stream.query.past.tables import RunQuery
from lb_stream.sim.simulation import Policy
from lb_stream.store import Store

OnProgress = Callable[[int, int], None]

SPARK = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A day of history is some megabytes: the 50 and 200 tasks that are the defaults only wait for
    # each other.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    # below it Spark warns of each plan that it doesn't print whole
    "spark.sql.debug.maxToStringFields": "1000",
}
"""Settings of the session."""
LOOK_S = 1.0
_PARAMETER = re.compile(r":([a-z_]+)\b")


def spark_query(spark: SparkSession, root: Store) -> RunQuery:
    """Asks the Delta tables through Spark; one that isn't there is empty."""
    for spec in TABLES:
        if spec.name in ASKED:
            there = existing_table(root, spec) is not None
            rows = (
                spark.read.format("delta").load((root / spec.name).for_hadoop)
                if there
                else spark.createDataFrame([], columns_ddl(spec))
            )
            rows.createOrReplaceTempView(spec.name)

    def ask(query: str, values: dict[str, Any]) -> pa.Table:
        return spark.sql(_PARAMETER.sub(lambda found: _literal(values[found[1]]), query)).toArrow()

    return ask


def _literal(value: str | int) -> str:
    """A value as Spark's SQL writes it: with Delta's extensions Spark leaves parameters unbound."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(int(value))


def send(spark: SparkSession, windows: Sequence[TrialWindow]) -> list[Broadcast[TrialWindow]]:
    """Give the windows to Spark's workers, once for all that is tried with them."""
    return [spark.sparkContext.broadcast(window) for window in windows]


def run_trials(
    spark: SparkSession,
    sent: Sequence[Broadcast[TrialWindow]],
    policies: Sequence[Policy],
    on_progress: OnProgress = lambda *_: None,
) -> list[dict[str, Any]]:
    """A row for each window and policy, in their order.

    `on_progress`: trials done, trials in all.
    """
    context, group = spark.sparkContext, f"backtest-{uuid.uuid4()}"
    trials = [(number, policy) for number in range(len(sent)) for policy in policies]
    found: list[dict[str, Any]] = []
    failed: list[BaseException] = []

    def collect() -> None:
        try:
            context.setJobGroup(group, "trials of a back-test")
            rows = (
                context.parallelize(trials, len(trials))
                .map(lambda trial: run_trial(sent[trial[0]].value, trial[1]))
                .collect()
            )
            found.extend(rows)
        except BaseException as error:
            failed.append(error)

    waiting = threading.Thread(target=collect, daemon=True)
    waiting.start()
    on_progress(told := 0, len(trials))
    while waiting.is_alive():
        waiting.join(LOOK_S)
        if (done := _done(context, group)) > told:
            on_progress(told := done, len(trials))
    if failed:
        raise failed[0]
    return found


def _done(context: Any, group: str) -> int:
    tracker = context.statusTracker()
    infos = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup(group)
        for stage in tracker.getJobInfo(job).stageIds
    ]
    return sum(info.numCompletedTasks for info in infos if info is not None)


def keep(
    root: Store,
    windows: Sequence[TrialWindow],
    policies: Sequence[Policy],
    rows: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Append the rows to `backtests`. Returns them with the run's name and time."""
    run = run_name(windows, policies)
    return keep_rows(root, [{"run": run} | row for row in rows])
