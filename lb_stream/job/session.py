"""The Spark session of the job.

Its properties are in conf/spark-defaults.conf. This module sets those that depend on the job's
settings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.clients import TOKEN_FILE
from lb_stream.io.kafka.options import token_url
from lb_stream.settings.signing import is_loopback
from lb_stream.store import Store, checkpoint_of, tables_of
from lb_stream.stream.ports import FatalError
from lb_stream.stream.task.crash import arm

DAEMON_NUMBER = "LB_DAEMON_NUMBER"
EXECUTORS = "spark.executor.extraJavaOptions"
TOKENS_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""Property of the JVM with the URLs from which Kafka's Java client may read tokens."""


def spark_session(
    settings: Settings, on_context: Callable[[SparkContext], object] = lambda _: None
) -> SparkSession:
    """Return the Spark session. Its workers run this Python, which has the packages.

    `on_context` is called as soon as Spark can run tasks, before the session is there. Raises
    SettingError if executors on other machines can't reach the driver or the folders.
    """
    given = SparkConf()
    given.setAppName(settings.stream.pipeline_id)
    given.set("spark.pyspark.python", sys.executable)
    given.set("spark.pyspark.driver.python", sys.executable)
    given.set("spark.sql.shuffle.partitions", str(settings.stream.shuffle_partitions))
    stores = (
        tables_of(settings.stream).hadoop_options | checkpoint_of(settings.stream).hadoop_options
    )
    for name, value in stores.items():
        given.set(f"spark.hadoop.{name}", value)
    if (manager := checkpoint_of(settings.stream).checkpoint_manager) is not None:
        given.set("spark.sql.streaming.checkpointFileManagerClass", manager)
    for name, value in arm(settings.stream.crash_at).items():
        given.set(f"spark.executorEnv.{name}", value)
    if (token := settings.kafka.options.get(TOKEN_FILE)) is not None:
        allowed = f"-D{TOKENS_ALLOWED}={token_url(str(token))}"
        given.set(EXECUTORS, f"{given.get(EXECUTORS, '')} {allowed}".strip())
    on_context(SparkContext.getOrCreate(given))
    session = SparkSession.builder.config(conf=given).getOrCreate()
    conf = session.sparkContext.getConf()
    try:
        require_reachable(
            settings, conf.get("spark.master") or "", conf.get("spark.driver.host") or ""
        )
    except SettingError:
        session.stop()
        raise
    if token is not None:
        assert session._jvm is not None
        # The driver's JVM runs already, and was started without the property.
        session._jvm.java.lang.System.setProperty(TOKENS_ALLOWED, token_url(str(token)))
    require_file_system(session, checkpoint_of(settings.stream))
    return session


def renew_daemon(spark: SparkSession) -> None:
    """Make Spark start another daemon for the next query's Python workers.

    Spark keeps using a daemon that has ended while it started, and every worker fails. It has one
    daemon for each environment, so another value of a variable makes it start a new one.
    """
    environment = spark.sparkContext.environment
    environment[DAEMON_NUMBER] = str(int(environment.get(DAEMON_NUMBER, "0")) + 1)


def require_reachable(settings: Settings, master: str, driver: str) -> None:
    """Raise SettingError if executors on other machines can't reach the folders or the driver."""
    if master.startswith("local"):
        return
    for name, folder in (
        ("tables", settings.stream.tables),
        ("checkpoint", settings.stream.checkpoint),
    ):
        if "://" not in folder and not folder.startswith("/"):
            raise SettingError(
                f"stream.{name}",
                folder,
                "an absolute path or an address that the driver and all executors reach: on a "
                "Spark cluster each of them has its own current folder",
            )
    if is_loopback(driver) and not is_loopback(
        master.rpartition("//")[2].partition(",")[0].rpartition(":")[0]
    ):
        raise SettingError(
            "spark.driver.host",
            driver,
            f"an address of this machine that executors of {master} reach: --conf "
            "spark.driver.host=ADDRESS "
            "(`hostname -I` lists this machine's) and --conf spark.driver.bindAddress=0.0.0.0 over "
            "those of conf/spark-defaults.conf",
        )


def require_file_system(spark: SparkSession, checkpoint: Store) -> None:
    """Raise FatalError if Spark has no file system for the checkpoint's address."""
    scheme = checkpoint.for_hadoop.partition("://")[0] if checkpoint.local is None else "file"
    context: Any = spark.sparkContext
    try:
        context._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
            scheme, context._jsc.hadoopConfiguration()
        )
    except Py4JJavaError as error:
        raise FatalError(
            f"stream.checkpoint = {checkpoint}: Spark has no file system for {scheme}:// on its "
            "class path. Add Hadoop's module for it "
            "(for s3a: `lbctl jars fetch --with s3`, on every machine), or keep the checkpoint in "
            "a folder that the driver and all "
            f"executors reach; stream.tables may stay where they are"
        ) from error
