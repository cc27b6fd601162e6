"""Spark as the job has it, and what Spark alone does with the same topic."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lb_stream.contracts.settings import Settings
from lb_stream.job.compiler import lower_compiler_priority
from lb_stream.job.session import spark_session
from lb_stream.job.submit import submit_command
from tests.bench.stream.feed import Feed, Offsets

_USAGE = "struct<usage: double, `limit`: double>"
_STATS = (
    "struct<msgRateIn: double, msgThroughputIn: double, msgRateOut: double, msgThroughputOut: "
    "double, "
    "consumerCount: bigint, producerCount: bigint, topics: bigint, cacheSize: bigint>"
)
REPORT_DDL = (
    "webServiceUrl string, pulsarServiceUrl string, persistentTopicsEnabled boolean, "
    "nonPersistentTopicsEnabled boolean, "
    "brokerVersionString string, protocols map<string, string>, advertisedListeners map<string, "
    "string>, loadManagerClassName string, "
    f"startTimestamp bigint, cpu {_USAGE}, memory {_USAGE}, directMemory {_USAGE}, bandwidthIn "
    f"{_USAGE}, bandwidthOut {_USAGE}, "
    "msgThroughputIn double, msgThroughputOut double, msgRateIn double, msgRateOut double, "
    "lastUpdate bigint, "
    f"lastStats map<string, {_STATS}>, numTopics bigint, numBundles bigint, numConsumers bigint, "
    "numProducers bigint, "
    "bundles array<string>, lastBundleGains array<string>, lastBundleLosses array<string>, "
    "maxResourceUsage double, loadReportType string"
)
"""The modular load report as Spark's JSON reader is told it."""


def spark_environment(cores: int = 0) -> dict[str, str]:
    """Environment in which a Python process gets the very Spark that `lbctl balance` submits its
    job to: jars, properties, memory.

    `cores`: of its executors; 0: as many as the job has by itself.
    """
    # PySpark itself calls spark-submit, with these options.
    command, environment = submit_command([], direct=False)
    options = [*command[1:-1], "--conf", "spark.ui.showConsoleProgress=false"]
    options += ["--master", f"local[{cores},4]"] if cores else []  # the last one counts
    return environment | {"PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"])}


_SHORT_CACHES = (
    "spark.kafka.consumer.fetchedData.cache.timeout=5s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval=2s",
)
"""Each batch query has consumers of its own, whose last fetch nobody reads again. Spark would keep
50 MB of it for each partition and query for five minutes."""


def session() -> SparkSession:
    """A session in this process, with the job's settings."""
    os.environ.update(spark_environment())
    for cache in _SHORT_CACHES:
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--conf {cache} {os.environ['PYSPARK_SUBMIT_ARGS']}"
    spark = spark_session(Settings())
    lower_compiler_priority(jvm_pid(spark))
    return spark


def jvm_pid(spark: SparkSession) -> int:
    """Return the number of the process that a session's JVM is."""
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


def read_kafka(spark: SparkSession, feed: Feed, begin: Offsets, end: Offsets) -> DataFrame:
    """One generation of reports, by Spark's own reader with the options that the job gives it."""
    topic = feed.topics.reports
    offsets = {
        name: f'{{"{topic}": '
        f"{{{', '.join(f'{chr(34)}{number}{chr(34)}: {at}' for number, at in sorted(places.items()))}}}}}"
        for name, places in (("startingOffsets", begin), ("endingOffsets", end))
    }
    reader = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", feed.bootstrap)
        .option("subscribe", topic)
    )
    reader = reader.option("kafka.fetch.max.wait.ms", "10").option(
        "kafka.max.partition.fetch.bytes", str(10 * 1024 * 1024)
    )
    return reader.options(**offsets).load()


def hand_to_python(records: DataFrame) -> DataFrame:
    """No row, once Python functions have got all records as Arrow batches."""

    def ignore(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield from ()

    return records.mapInArrow(ignore, "rows bigint")


def explode_json(records: DataFrame) -> DataFrame:
    """One row for each bundle of each report, as one writes it with Spark alone."""
    report = f.from_json(f.col("value").cast("string"), REPORT_DDL).alias("report")
    reports = records.select(f.col("key").cast("string").alias("broker"), report)
    bundles = reports.select(
        "broker", "report.lastUpdate", f.explode("report.lastStats").alias("bundle", "stats")
    )
    return bundles.select("broker", "lastUpdate", "bundle", "stats.*")


def seconds_to_noop(frame: DataFrame) -> float:
    """How long Spark takes to make every row of a frame and throw it away."""
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin
