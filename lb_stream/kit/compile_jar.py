"""Compiles Scala source for Spark's JVM with the compiler inside PySpark, without a JDK."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

from lb_stream.io.local.jars import compiled_jar
from lb_stream.io.local.java import find_java


class CompileError(RuntimeError):
    """The source can't be compiled; the text is the compiler's."""


def pyspark_class_path() -> str:
    """Return a class path of all jars inside PySpark.

    Raises ModuleNotFoundError without PySpark.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pyspark")
    return str(Path(spec.submodule_search_locations[0]) / "jars" / "*")


def compile_jar(folder: Path, source: Path) -> Path:
    """Return the jar of `source` in `folder`, compiled if it is missing.

    Raises CompileError, JavaUnfit.
    """
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
            pyspark_class_path(),
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
