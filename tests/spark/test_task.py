"""What a task knows of itself, and does for those after it."""

import gc

import pytest
from pyspark.sql import SparkSession

from lb_stream.stream.task.current_task import current_task

pytestmark = pytest.mark.jvm


def test_a_worker_puts_its_modules_aside_and_the_driver_does_not(spark: SparkSession) -> None:
    def put_aside(_: int) -> int:
        current_task()
        return gc.get_freeze_count()

    (in_worker,) = spark.sparkContext.parallelize([0], 1).map(put_aside).collect()
    assert in_worker > 10_000  # objects of some hundred modules
    before = gc.get_freeze_count()
    assert current_task() == (0, 0, 0)
    assert gc.get_freeze_count() == before
