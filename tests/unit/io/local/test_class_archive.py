"""Where the archive of Java's classes is looked for."""

import os
from pathlib import Path

import pytest

from lb_stream.io.local.class_archive import archive_path, archive_prefix
from lb_stream.io.local.java import Java

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
