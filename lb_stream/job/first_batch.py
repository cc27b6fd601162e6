"""Prepares the first batch in threads, while the driver asks Kafka and opens its tables."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lb_stream.stream.task.imports import import_stream

logger = logging.getLogger(__name__)


def start_workers(context: SparkContext) -> Thread:
    """Start Python workers that import the stream; Spark's session is not needed for that.

    The work is done in the thread that is returned. A failure only makes the first batch slower.
    """
    return _in_thread(lambda: _start_workers(context), "workers")


def prepare_first_batch(spark: SparkSession) -> Thread:
    """Run a task as the first batch has them, and load the library of the state's store.

    Java has then loaded classes and generated code. The work is done in the thread that is
    returned.
    """
    return _in_thread(lambda: _prepare(spark), "first-batch")


def _start_workers(context: SparkContext) -> None:
    tasks = context.defaultParallelism
    context.parallelize(range(tasks), tasks).mapPartitions(import_stream).collect()


def _prepare(spark: SparkSession) -> None:
    tasks = spark.sparkContext.defaultParallelism
    spark.range(0, tasks, 1, tasks).mapInArrow(import_stream, "id bigint").collect()
    assert spark._jvm is not None
    spark._jvm.org.rocksdb.RocksDB.loadLibrary()


def _in_thread(work: Callable[[], None], name: str) -> Thread:
    """Do the work in a new thread, and return that."""

    def run() -> None:
        try:
            work()
        except Exception as error:
            # The session may have been stopped meanwhile.
            logger.debug("the first batch is not prepared: %s", error)

    thread = Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
