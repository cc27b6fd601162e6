"""One small Spark session for all tests that need one."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

DEFAULTS = Path(__file__).parents[2] / "conf" / "spark-defaults.conf"


def _of_the_job(name: str) -> str:
    """What the job's properties say."""
    lines = (
        line.split(None, 1)
        for line in DEFAULTS.read_text().splitlines()
        if line and not line.startswith("#")
    )
    return dict((key, value.strip()) for key, value in lines)[name]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark on one core, with this Python for its workers. Tests that use it are marked jvm."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").appName("tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.broadcast.UDFCompressionThreshold": _of_the_job(
            "spark.broadcast.UDFCompressionThreshold"
        ),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
