"""The archive of Java's classes that lets a job's JVM start quicker.

A job's JVM loads and verifies some twenty thousand classes. Java can write them to a file when a
process ends and map that file at the next start (application class data sharing). An archive
belongs to one Java and one class path. Its name is a hash of both, so one that has become unfit
isn't found, and the job starts without it. `lb_stream.job.record_classes` makes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from lb_stream.io.local.jars import default_folder
from lb_stream.io.local.java import Java


def archive_path(java: Java, pyspark: Path, jars: Iterable[Path]) -> Path:
    """Return where the archive for a job on this class path is or would be.

    `pyspark`: the package's folder. `jars`: the driver's own, in the order of the class path.
    """
    class_path = [*jars, *sorted((pyspark / "jars").glob("*.jar"))]
    seen = [f"{java.path.resolve()} {java.version}"]
    for jar in class_path:
        stat = jar.stat()
        seen.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")
    return default_folder() / f"{archive_prefix(pyspark)}{_digest(seen)}.jsa"


def archive_prefix(pyspark: Path) -> str:
    """Return what the names of all archives for this installation of PySpark begin with."""
    return f"classes-{_digest([str(pyspark)])}-"


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
