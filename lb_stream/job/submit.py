"""The spark-submit command line of a job: jars, properties, Python."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pyspark

from lb_stream.io.local.jars import default_folder, spark_jars
from lb_stream.io.local.java import Java, find_java
from lb_stream.settings.files import CONF
from lb_stream.settings.handing_on import hide_secret_arguments

JVM_OPTIONS = (
    # This collector stops the JVM while it runs. G1 runs beside it, on cores that the Python
    # workers need.
    "-XX:+UseParallelGC",
    # A batch's garbage fills whatever it may: a third of the heap by itself.
    "-XX:MaxNewSize=256m",
    # Otherwise Spark goes on without the thread that has failed, and a batch waits for ever.
    "-XX:+ExitOnOutOfMemoryError",
    f"-Dlog4j2.configurationFile={(CONF / 'log4j2.properties').as_uri()}",
)
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
LAUNCHER_OPTIONS = (QUICK_COMPILER, "-XX:+UseSerialGC")
"""Of the JVM that only writes down the command line of the job's JVM, then ends."""
DEFAULTS = CONF / "spark-defaults.conf"
JOB = Path(__file__).with_name("balance.py")
BACKTEST = Path(__file__).parents[1] / "backtest" / "main.py"
PYSPARK = Path(pyspark.__file__).parent


def archive_path(java: Java, pyspark: Path, jars: Iterable[Path]) -> Path:
    """Return the path of the archive of Java's classes for a class path; it may not exist.

    Java can write the classes that a process has loaded to a file, and map that file at the next
    start (application class data sharing); lb_stream.kit.record_classes has it do so. An archive
    fits one Java and one class path, and its name has a hash of both. `pyspark`: the package's
    folder. `jars`: the driver's, in the order of the class path.
    """
    seen = [f"{java.path.resolve()} {java.version}"]
    for jar in [*jars, *sorted((pyspark / "jars").glob("*.jar"))]:
        stat = jar.stat()
        seen.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")
    return default_folder() / f"{archive_prefix(pyspark)}{_digest(seen)}.jsa"


def archive_prefix(pyspark: Path) -> str:
    """Return the prefix of the names of all archives for this installation of PySpark."""
    return f"classes-{_digest([str(pyspark)])}-"


def _digest(lines: Iterable[str]) -> str:
    """Return a short hash of these lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def job_archive() -> Path:
    """Return the path of the job's archive of Java's classes. Raises JarsError, JavaUnfit."""
    return archive_path(find_java(), PYSPARK, spark_jars())


def submit_command(
    arguments: list[str],
    driver_memory: str = "3g",
    program: Path = JOB,
    record: Path | None = None,
    short_lived: bool = False,
) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that run a program of this package.

    `record`: the file to which the JVM writes its classes when it ends; without it, the JVM uses
    the archive of classes that fits, if there is one. `short_lived`: the job ends within minutes,
    for which Java's slower, better compiler does not pay. Settings with secrets are handed on in the
    environment. Raises JarsError if jars are missing,
    JavaUnfit if there is no fitting Java.
    """
    java, jars = find_java(), spark_jars()
    master = os.environ.get("LB_SPARK_MASTER", "local[2,4]")
    options = [*JVM_OPTIONS, *([QUICK_COMPILER] if short_lived else [])]
    if record is not None:
        # Java warns of hundreds of classes that no archive can hold.
        options += [f"-XX:ArchiveClassesAtExit={record}", "-Xlog:disable"]
    elif (archive := archive_path(java, PYSPARK, jars)).exists():
        options.append(f"-XX:SharedArchiveFile={archive}")
    command = [
        str(PYSPARK / "bin" / "spark-submit"),
        "--master",
        master,
        "--properties-file",
        str(DEFAULTS),
        "--driver-memory",
        driver_memory,
        "--driver-java-options",
        " ".join(options),
        # The archive holds only classes of this path.
        "--driver-class-path",
        os.pathsep.join(map(str, jars)),
    ]
    if not master.startswith("local"):
        command += ["--jars", ",".join(map(str, jars))]  # for the executors
    environment = {
        **os.environ,
        "SPARK_HOME": str(PYSPARK),
        "JAVA_HOME": str(java.path.resolve().parent.parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", " ".join(LAUNCHER_OPTIONS)),
    }
    arguments, environment = hide_secret_arguments(arguments, environment)
    return [*command, str(program), *arguments], environment
