"""The spark-submit command line of a job: jars, properties, Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark

from lb_stream.io.local.jars import spark_jars
from lb_stream.io.local.java import find_java
from lb_stream.io.local.resources import CONF

JVM_OPTIONS = (
    "-XX:+UseParallelGC",  # its work is done while the job stands still; G1's goes on beside it, on cores that Python's workers need
    "-XX:+ExitOnOutOfMemoryError",  # else Spark goes on without the thread that it has ended, and a batch waits for that one for ever
    f"-Dlog4j2.configurationFile={(CONF / 'log4j2.properties').as_uri()}",
)
DEFAULTS = CONF / "spark-defaults.conf"
JOB = Path(__file__).with_name("balance.py")
BACKTEST = Path(__file__).parents[1] / "backtest" / "main.py"


def submit_command(arguments: list[str], driver_memory: str = "3g", program: Path = JOB) -> tuple[list[str], dict[str, str]]:
    """The whole command and its environment for a program of ours with `arguments`, on this machine.

    Raises JarsError when the jars aren't there and JavaUnfit when there is no fitting Java.
    """
    java = find_java()
    jars = ",".join(str(path) for path in spark_jars())
    home = Path(pyspark.__file__).parent
    command = [
        str(home / "bin" / "spark-submit"),
        "--master", os.environ.get("LB_SPARK_MASTER", "local[2,4]"),
        "--properties-file", str(DEFAULTS),
        "--driver-memory", driver_memory,
        "--driver-java-options", " ".join(JVM_OPTIONS),
        "--jars", jars,
        str(program),
        *arguments,
    ]  # fmt: skip
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java.path.resolve().parent.parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return command, environment
