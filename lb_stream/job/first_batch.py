"""Prepares the first batch in a thread, while the driver asks Kafka and opens its tables."""

from __future__ import annotations

import logging
from threading import Thread

from pyspark.sql import SparkSession

from lb_stream.stream.task.imports import import_stream

logger = logging.getLogger(__name__)


def prepare_first_batch(spark: SparkSession) -> Thread:
    """Start Python workers that import the stream, and load the library of the state's store.

    The work is done in the thread that is returned. A failure only makes the first batch slower.
    """
    thread = Thread(target=_prepare, args=(spark,), name="first-batch", daemon=True)
    thread.start()
    return thread


def _prepare(spark: SparkSession) -> None:
    try:
        tasks = spark.sparkContext.defaultParallelism
        spark.range(0, tasks, 1, tasks).mapInArrow(import_stream, "id bigint").collect()
        assert spark._jvm is not None
        spark._jvm.org.rocksdb.RocksDB.loadLibrary()
    except Exception as error:
        # The session may have been stopped meanwhile.
        logger.debug("the first batch is not prepared: %s", error)
