"""The command line of a job: Java, jars, properties, Python.

It is what spark-submit would run, without the JVM that only writes that command line, and without
Spark's machine learning: each session would load its functions, which takes a second.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pyspark

from lb_stream.io.local.jars import default_folder, spark_jars
from lb_stream.io.local.java import Java, find_java
from lb_stream.io.local.native_libraries import library_path
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
"""Of the JVM with which spark-submit only writes down the command line of the job's JVM."""
SPARK_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang",
            "java.base/java.lang.invoke",
            "java.base/java.lang.reflect",
            "java.base/java.io",
            "java.base/java.net",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/sun.nio.cs",
            "java.base/sun.security.action",
            "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""What spark-submit of Spark 4.2 gives to each JVM; a test compares."""
UNUSED_JARS = "spark-mllib_"
"""Prefix of Spark's jars that no job needs: Spark finds functions in them, and registers them."""
SUBMIT_VARIABLES = (
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_SUBMIT_OPTS",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
)
"""Where one of them is set, spark-submit itself starts the job, as it knows what they mean."""
DEFAULTS = CONF / "spark-defaults.conf"
JOB = Path(__file__).with_name("balance.py")
BACKTEST = Path(__file__).parents[1] / "backtest" / "main.py"
PYSPARK = Path(pyspark.__file__).parent


def archive_path(java: Java, pyspark: Path, class_path: Iterable[Path]) -> Path:
    """Return the path of the archive of Java's classes for a class path; it may not exist.

    Java can write the classes that a process has loaded to a file, and map that file at the next
    start (application class data sharing); lb_stream.kit.record_classes has it do so. An archive
    fits one Java and one class path, and its name has a hash of both. `pyspark`: the package's
    folder. `class_path`: the driver's jars, in their order.
    """
    seen = [f"{java.path.resolve()} {java.version}"]
    for jar in class_path:
        stat = jar.stat()
        seen.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")
    return default_folder() / f"{archive_prefix(pyspark)}{_digest(seen)}.jsa"


def archive_prefix(pyspark: Path) -> str:
    """Return the prefix of the names of all archives for this installation of PySpark."""
    return f"classes-{_digest([str(pyspark)])}-"


def _digest(lines: Iterable[str]) -> str:
    """Return a short hash of these lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def driver_class_path(jars: Iterable[Path], pyspark: Path, direct: bool) -> list[Path]:
    """Return all jars of the driver's JVM; Java archives classes of this path only.

    `jars`: the connectors. `direct`: without UNUSED_JARS, and with the order that spark-submit has.
    """
    own = sorted((pyspark / "jars").glob("*.jar"))
    if direct:
        own = [jar for jar in own if not jar.name.startswith(UNUSED_JARS)]
        own.sort(key=lambda jar: not jar.name.startswith("slf4j-api-"))
    return [*jars, *own]


def job_archive() -> Path:
    """Return the path of the job's archive of Java's classes. Raises JarsError, JavaUnfit."""
    jars = driver_class_path(spark_jars(), PYSPARK, _is_direct(spark_master()))
    return archive_path(find_java(), PYSPARK, jars)


def spark_master() -> str:
    """Return where Spark runs its tasks: on this machine, unless LB_SPARK_MASTER says otherwise."""
    return os.environ.get("LB_SPARK_MASTER", "local[2,4]")


def _is_direct(master: str) -> bool:
    """Return whether the job's JVM is started without spark-submit."""
    return master.startswith("local") and not any(map(os.environ.get, SUBMIT_VARIABLES))


def submit_command(
    arguments: list[str],
    driver_memory: str = "3g",
    program: Path = JOB,
    record: Path | None = None,
    short_lived: bool = False,
    direct: bool = True,
) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that run a program of this package.

    `record`: the file to which the JVM writes its classes when it ends; without it, the JVM uses
    the archive of classes that fits, if there is one. `short_lived`: the job ends within minutes,
    for which Java's slower, better compiler does not pay. `direct`: without spark-submit, where
    that is possible. Settings with secrets are handed on in the environment. Raises JarsError if
    jars are missing, JavaUnfit if there is no fitting Java.
    """
    java, jars, master = find_java(), spark_jars(), spark_master()
    direct = direct and _is_direct(master)
    class_path = driver_class_path(jars, PYSPARK, direct)
    options = [*JVM_OPTIONS, *([QUICK_COMPILER] if short_lived else [])]
    if record is not None:
        # Java warns of hundreds of classes that no archive can hold.
        options += [f"-XX:ArchiveClassesAtExit={record}", "-Xlog:disable"]
    elif (archive := archive_path(java, PYSPARK, class_path)).exists():
        options.append(f"-XX:SharedArchiveFile={archive}")
    if direct:
        path = os.pathsep.join(map(str, class_path))
        start = [str(java.path), "-cp", path, f"-Xmx{driver_memory}", *options, *SPARK_OPTIONS]
        start.append("org.apache.spark.deploy.SparkSubmit")
    else:
        start = [str(PYSPARK / "bin" / "spark-submit"), "--driver-memory", driver_memory]
        start += ["--driver-java-options", " ".join(options)]
        # The archive holds only classes of this path.
        start += ["--driver-class-path", os.pathsep.join(map(str, jars))]
    command = [*start, "--master", master, "--properties-file", str(DEFAULTS)]
    if not master.startswith("local"):
        command += ["--jars", ",".join(map(str, jars))]  # for the executors
    environment = {
        **os.environ,
        **library_path(),
        "SPARK_HOME": str(PYSPARK),
        "JAVA_HOME": str(java.path.resolve().parent.parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # As spark-submit sets it: all workers of a job give a text the same hash.
        "PYTHONHASHSEED": "0",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", " ".join(LAUNCHER_OPTIONS)),
    }
    arguments, environment = hide_secret_arguments(arguments, environment)
    return [*command, str(program), *arguments], environment
