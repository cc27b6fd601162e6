"""Compiles our Scala source for Spark's JVM, by the Scala compiler inside PySpark: no JDK is
needed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

from lb_stream.io.local.jars import compiled_jar
from lb_stream.io.local.java import find_java


class CompileError(RuntimeError):
    """The source can't be compiled. The text is the compiler's."""


def pyspark_class_path() -> str:
    """Return a class path of all jars inside PySpark.

    Raises ModuleNotFoundError without PySpark.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pyspark")
    return str(Path(spec.submodule_search_locations[0]) / "jars" / "*")


def compile_jar(folder: Path, source: Path) -> Path:
    """Compile `source` into `folder`, unless that is done. Raises CompileError, JavaUnfit."""
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
