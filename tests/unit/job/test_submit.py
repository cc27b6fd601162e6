"""The command line of a job, and the archive of Java's classes that it names."""

import os
import subprocess
from pathlib import Path

import pytest

from lb_stream.io.local.java import Java
from lb_stream.job import submit
from lb_stream.job.submit import (
    SUBMIT_VARIABLES,
    archive_path,
    archive_prefix,
    driver_class_path,
    submit_command,
)
from lb_stream.kit.record_classes import record_classes

MAIN = "org.apache.spark.deploy.SparkSubmit"
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
        class_path = driver_class_path([jar], pyspark, direct=True)
        return archive_path(Java(JAVA.path, version), pyspark, class_path)

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
    return command[1 : command.index(MAIN)]


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


@pytest.mark.parametrize("variable", SUBMIT_VARIABLES)
def test_spark_submit_starts_the_job_where_it_alone_knows_the_settings(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert submit_command([])[0][0].endswith("java")
    monkeypatch.setenv(variable, "/srv/conf")
    command, _ = submit_command(["--once"])
    assert command[0].endswith("bin/spark-submit")
    assert command[-2:] == [str(submit.JOB), "--once"]
    monkeypatch.delenv(variable)
    monkeypatch.setenv("LB_SPARK_MASTER", "yarn")
    assert submit_command([])[0][0].endswith("bin/spark-submit")


@pytest.mark.jvm
def test_java_is_started_as_spark_submit_would_but_for_machine_learning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command, environment = submit_command(["--once"], driver_memory="2g")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dlb.test=1")
    through, _ = submit_command(["--once"], driver_memory="2g")
    jars = submit.PYSPARK / "jars"
    written = subprocess.run(
        [command[0], "-cp", f"{jars}/*", "org.apache.spark.launcher.Main", MAIN, *through[1:]],
        env=environment | {"SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    path, *options = written[written.index("-cp") + 1 : written.index(MAIN)]
    ours = java_options(command)

    def plain(given: list[str]) -> list[str]:
        return [option for option in given if not option.startswith("-XX:SharedArchiveFile")]

    assert plain(ours[2:]) == plain(options)
    expected: list[str] = []
    for part in path.split(":"):
        if part.endswith("/*"):
            expected += map(str, sorted(jars.glob("*.jar")))
        elif Path(part).exists():
            expected.append(part)
    classes = ours[1].split(":")
    assert set(expected) - set(classes) == set(map(str, jars.glob("spark-mllib_*.jar")))
    assert classes == [jar for jar in dict.fromkeys(expected) if jar in classes]


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
    command.insert(1, f"-Xlog:class+load:file={loaded}")
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
