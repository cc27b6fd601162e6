"""What of ours runs in Spark's JVM: compiled once where it is needed, by the Scala compiler inside PySpark. No JDK is needed for that."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
from importlib.metadata import version
from pathlib import Path

from lb_stream.io.local.java import find_java

SOURCE = "checkpoints.scala"
NAME = "lb-checkpoints"


class CompileError(RuntimeError):
    """It can't be compiled; the compiler's own words."""


def classes_of_pyspark() -> str:
    """A class path of all jars inside PySpark. Raises ModuleNotFoundError when it isn't installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pyspark")
    return str(Path(spec.submodule_search_locations[0]) / "jars" / "*")


def compiled_jar(folder: Path, source: Path) -> Path:
    """Where it is in `folder`. Another source, or another Spark, has another jar."""
    digest = hashlib.sha256(source.read_bytes() + version("pyspark").encode()).hexdigest()
    return folder / f"{NAME}-{digest[:12]}.jar"


def compile_jar(folder: Path, source: Path) -> Path:
    """Make it, unless it is there. Raises CompileError or JavaUnfit."""
    jar = compiled_jar(folder, source)
    if jar.exists():
        return jar
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"draft-{os.getpid()}.jar"
    command = [
        *(
            str(find_java().path),
            "-Xshare:auto",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            classes_of_pyspark(),
            "scala.tools.nsc.Main",
        ),
        *("-usejavacp", "-d", str(draft), str(source)),
    ]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            raise CompileError(
                f"{source.name} could not be compiled: {done.stdout.strip()[-2000:]}"
            )
        draft.replace(jar)
    finally:
        draft.unlink(missing_ok=True)
    return jar
