"""Spark may hold on to a daemon of Python workers that has ended: the next query's workers come
from another one."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lb_stream.job.session import DAEMON_NUMBER, renew_daemon

pytestmark = pytest.mark.jvm


def daemons(spark: SparkSession) -> set[int]:
    """Return the parents of the workers that a new query uses."""

    def parent(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"pid": [os.getppid()]})

    return {row.pid for row in spark.range(3).mapInArrow(parent, "pid long").collect()}


def test_after_a_renewal_workers_come_from_another_daemon(spark: SparkSession) -> None:
    environment = spark.sparkContext.environment
    first = daemons(spark)
    assert daemons(spark) == first
    try:
        for number in ("1", "2"):
            renew_daemon(spark)
            assert environment[DAEMON_NUMBER] == number
            found = daemons(spark)
            assert len(found) == 1 and not found & first
            first |= found
    finally:
        del environment[DAEMON_NUMBER]
