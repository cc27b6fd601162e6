"""The Spark session of the job. Its settings are in conf/spark-defaults.conf; what depends on the job's own settings is set here."""

from __future__ import annotations

import sys

from pyspark import SparkConf
from pyspark.sql import SparkSession

from lb_stream.access.clients import TOKEN_FILE
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import token_url
from lb_stream.stream.task.crash import arm

EXECUTORS = "spark.executor.extraJavaOptions"
TOKENS_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""Where Kafka's client in Java may take tokens from: a property of the JVM, without which it takes none."""


def spark_session(settings: Settings) -> SparkSession:
    """Get or make the session. Workers run this very Python: another one would lack the packages."""
    builder = SparkSession.builder.appName(settings.stream.pipeline_id)
    builder = builder.config("spark.pyspark.python", sys.executable).config("spark.pyspark.driver.python", sys.executable)
    builder = builder.config("spark.sql.shuffle.partitions", str(settings.stream.shuffle_partitions))
    for name, value in arm(settings.stream.crash_at).items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    if (token := settings.kafka.options.get(TOKEN_FILE)) is not None:
        allowed = f"-D{TOKENS_ALLOWED}={token_url(str(token))}"
        given = SparkConf().get(EXECUTORS, "")
        builder = builder.config(EXECUTORS, f"{given} {allowed}".strip())
    session = builder.getOrCreate()
    if token is not None:
        assert session._jvm is not None
        session._jvm.java.lang.System.setProperty(TOKENS_ALLOWED, token_url(str(token)))  # this JVM has been started before us
    return session
