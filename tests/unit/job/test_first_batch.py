"""What is done before the first batch. Without Spark."""

import subprocess
import sys
from unittest.mock import Mock

from lb_stream.job.first_batch import prepare_first_batch, start_workers
from lb_stream.stream.task.imports import STREAM, import_stream

STAGES = {f"lb_stream.stream.{name}" for name in ("decode", "averages", "decide", "figures")}


def test_workers_are_started_for_all_cores_without_a_session() -> None:
    context = Mock()
    context.defaultParallelism = 3
    start_workers(context).join()
    context.parallelize.assert_called_once_with(range(3), 3)
    started = context.parallelize().mapPartitions
    started.assert_called_once_with(import_stream)
    started().collect.assert_called_once_with()


def test_a_task_is_run_on_all_cores_and_the_stores_library_is_loaded() -> None:
    spark = Mock()
    spark.sparkContext.defaultParallelism = 3
    prepare_first_batch(spark).join()
    spark.range.assert_called_once_with(0, 3, 1, 3)
    (function, _), _ = spark.range().mapInArrow.call_args
    assert function is import_stream
    spark._jvm.org.rocksdb.RocksDB.loadLibrary.assert_called_once()


def test_a_session_that_ends_meanwhile_is_no_error() -> None:
    spark = Mock()
    spark.range.side_effect = RuntimeError("the session is stopped")
    thread = prepare_first_batch(spark)
    thread.join()
    assert not thread.is_alive()


def test_a_worker_that_is_prepared_has_imported_every_stage() -> None:
    program = (
        "import sys; from lb_stream.stream.task.imports import import_stream; "
        f"before = {STREAM!r} in sys.modules; given = [object()]; "
        "assert list(import_stream(given)) == given; print(before, *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    before, *imported = done.stdout.split()
    assert before == "False"
    assert set(imported) >= STAGES
