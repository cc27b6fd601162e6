"""The Spark session of the job. Its settings are in conf/spark-defaults.conf; what depends on the job's own settings is set here."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from lb_stream.contracts.settings import Settings
from lb_stream.stream.task.crash import arm


def spark_session(settings: Settings) -> SparkSession:
    """Get or make the session. Workers run this very Python: another one would lack the packages."""
    builder = SparkSession.builder.appName(settings.stream.pipeline_id)
    builder = builder.config("spark.pyspark.python", sys.executable).config("spark.pyspark.driver.python", sys.executable)
    builder = builder.config("spark.sql.shuffle.partitions", str(settings.stream.shuffle_partitions))
    for name, value in arm(settings.stream.crash_at).items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    return builder.getOrCreate()
