"""The command line of spark-submit, and the archive of Java's classes that it names."""

import os
import subprocess
from pathlib import Path

import pytest

from lb_stream.io.local.java import Java
from lb_stream.job import submit
from lb_stream.job.submit import archive_path, archive_prefix, submit_command
from lb_stream.kit.record_classes import record_classes

JAVA = Java(Path("/usr/bin/java"), "17.0.15")


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    """A jar of the driver's, beside a PySpark with one of its own."""
    (tmp_path / "pyspark" / "jars").mkdir(parents=True)
    (tmp_path / "pyspark" / "jars" / "spark.jar").write_bytes(b"spark")
    jar = tmp_path / "delta.jar"
    jar.write_bytes(b"delta")
    return jar


def test_another_java_or_another_jar_has_another_archive(jar: Path) -> None:
    pyspark = jar.parent / "pyspark"

    def path(version: str = JAVA.version) -> Path:
        return archive_path(Java(JAVA.path, version), pyspark, [jar])

    first = path()
    assert path() == first
    assert path("21.0.7") != first
    os.utime(jar, ns=(1, 1))
    of_a_newer_jar = path()
    assert of_a_newer_jar != first
    (pyspark / "jars" / "another.jar").write_bytes(b"")
    assert path() not in (first, of_a_newer_jar)
    assert path().name.startswith(archive_prefix(pyspark))


def test_archives_of_two_installations_are_kept_apart(jar: Path) -> None:
    assert archive_prefix(jar.parent / "pyspark") != archive_prefix(jar.parent / "another")


def java_options(command: list[str]) -> list[str]:
    return command[command.index("--driver-java-options") + 1].split()


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the archive, which isn't there."""
    path = tmp_path / "classes.jsa"
    monkeypatch.setattr(submit, "archive_path", lambda *_: path)
    return path


def test_an_archive_is_used_once_it_is_there(archive: Path) -> None:
    option = f"-XX:SharedArchiveFile={archive}"
    assert option not in java_options(submit_command([])[0])
    archive.touch()
    assert option in java_options(submit_command([])[0])


def test_a_job_that_records_its_classes_uses_no_archive(archive: Path) -> None:
    archive.touch()
    options = java_options(submit_command([], record=archive.with_suffix(".new"))[0])
    assert f"-XX:ArchiveClassesAtExit={archive.with_suffix('.new')}" in options
    assert f"-XX:SharedArchiveFile={archive}" not in options


def test_only_a_short_lived_job_does_without_the_better_compiler() -> None:
    quick = "-XX:TieredStopAtLevel=1"
    assert quick in java_options(submit_command([], short_lived=True)[0])
    assert quick not in java_options(submit_command([])[0])


@pytest.mark.parametrize(
    ("master", "given"), [("local[2,4]", False), ("spark://master:7077", True)]
)
def test_executors_elsewhere_are_given_the_jars(
    master: str, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LB_SPARK_MASTER", master)
    command, _ = submit_command(["--once"])
    assert ("--jars" in command) is given
    assert command[-2:] == [str(submit.JOB), "--once"]


@pytest.mark.jvm
def test_java_takes_spark_and_its_connectors_out_of_the_archive(tmp_path: Path) -> None:
    record_classes()  # set-up has made it, unless that failed
    program, loaded = tmp_path / "program.py", tmp_path / "loaded.txt"
    program.write_text(
        "from pyspark.java_gateway import launch_gateway\n"
        "jvm = launch_gateway().jvm\n"
        "jvm.java.lang.Class.forName('org.apache.spark.sql.kafka010.KafkaSourceProvider')\n"
    )
    command, environment = submit_command([], program=program)
    at = command.index("--driver-java-options") + 1
    command[at] += f" -Xlog:class+load:file={loaded}"
    subprocess.run(command, env=environment, check=True, capture_output=True)
    shared = {
        line.split("]")[-1].split()[0]
        for line in loaded.read_text().splitlines()
        if "shared objects file (top)" in line
    }
    assert shared >= {
        "org.apache.spark.deploy.SparkSubmit",
        "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    }
