"""Removes from an installation what no program of this project uses: `slim.py SITE_PACKAGES`.

The images run it in their first stage. It needs only the standard library and strip. What it
removes is shown to be unused by `make image`, which runs the whole loop in the finished images.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

UNUSED = {
    "tests, and what only compilers and type checkers read": (
        "**/tests",
        "**/*.pyi",
        "**/*.pyx",
        "**/*.pxd",
        "**/*.pxi",
        "**/*.a",
        "pyarrow/include",
        "numpy/_core/include",
        "pyarrow/src",
        "numpy/f2py",
        "numpy/distutils",
        "numpy/_core/*_tests.*.so",
        "numpy/_core/_simd.*.so",
        "pyspark/examples",
    ),
    "bytecode: import_all.py has it written for what is imported": ("**/__pycache__",),
    "colours for code; a traceback needs only Python's": (
        "pygments/lexers/[a-oq-z]*.py",
        "pygments/lexers/p[!y]*.py",
    ),
    "Arrow's Flight and file systems: tables are read by delta-rs and obstore": (
        "pyarrow/*flight*",
        "pyarrow/libarrow_s3.*",
        "pyarrow/_s3fs.*",
        "pyarrow/_gcsfs.*",
        "pyarrow/_azurefs.*",
        "pyarrow/_pyarrow_cpp_tests.*",
    ),
    "Arrow's formats that no table has": (
        "pyarrow/_orc.*",
        "pyarrow/_dataset_orc.*",
        "pyarrow/_feather.*",
        "pyarrow/_hdfs.*",
        "pyarrow/_substrait.*",
        "pyarrow/*parquet_encryption.*",
    ),
    "second copies of a library": (
        "pyarrow/libarrow_python*.so",
        "pyarrow/libarrow_python*.so.*.*.*",
    ),
    "measurements": ("kafka/benchmarks",),
    "zstandard for PyPy": ("zstandard/_cffi.*", "zstandard/backend_cffi.py"),
    "Spark's machine learning and graphs": (
        "pyspark/jars/spark-mllib*",
        "pyspark/jars/spark-graphx*",
        "pyspark/jars/*breeze*",
        "pyspark/jars/*spire*",
        "pyspark/jars/cats-kernel*",
        "pyspark/jars/algebra_*",
        "pyspark/jars/*lapack*",
        "pyspark/jars/arpack*",
        "pyspark/jars/blas-*",
        "pyspark/jars/JTransforms*",
        "pyspark/jars/JLargeArrays*",
    ),
    "Hive: tables have no metastore": (
        "pyspark/jars/spark-hive*",
        "pyspark/jars/hive-[!s]*",
        "pyspark/jars/hive-se*",
        "pyspark/jars/hive-shims*",
        "pyspark/jars/datanucleus*",
        "pyspark/jars/derby*",
        "pyspark/jars/*jdo*",
    ),
    "Spark's shell and its server for remote sessions": (
        "pyspark/jars/spark-repl*",
        "pyspark/jars/spark-connect_*",
        "pyspark/jars/connect-repl",
        "pyspark/jars/spark-pipelines*",
        "pyspark/jars/scala-compiler*",
        "pyspark/jars/jline*",
    ),
    "other systems": ("pyspark/jars/*-osx-*", "pyspark/jars/*-windows-*"),
}
"""Why → what, relative to site-packages."""

WITH_LIBRARIES = ("rocksdbjni-*.jar", "zstd-jni-*.jar", "snappy-java-*.jar")
"""Jars with a native library for each system and processor."""

LIBRARY = re.compile(r"\.(so|dll|dylib|jnilib)$")
OWN_LIBRARY = {
    "x86_64": re.compile(r"linux64\.so$|linux/(amd64|x86_64)/", re.IGNORECASE),
    "aarch64": re.compile(r"linux-aarch64\.so$|linux/aarch64/", re.IGNORECASE),
}
"""Processor → what the names of its libraries for Debian hold."""


def remove_unused(packages: Path) -> dict[str, int]:
    """Remove what UNUSED lists; return why → bytes."""
    freed = {}
    for reason, patterns in UNUSED.items():
        found = {path for pattern in patterns for path in packages.glob(pattern)}
        freed[reason] = sum(size_of(path) for path in found if path.exists())
        for path in found:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    return freed


def remove_other_libraries(jar: Path, machine: str) -> int:
    """Write a jar anew without the libraries of other systems; return the bytes freed.

    A jar without a library for this machine stays as it is.
    """
    own, before = OWN_LIBRARY.get(machine), jar.stat()
    with zipfile.ZipFile(jar) as whole:
        entries = whole.infolist()
        libraries = [entry for entry in entries if LIBRARY.search(entry.filename)]
        kept = {entry.filename for entry in libraries if own and own.search(entry.filename)}
        if not kept:
            return 0
        draft = jar.with_suffix(".draft")
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as small:
            for entry in entries:
                if entry not in libraries or entry.filename in kept:
                    small.writestr(entry, whole.read(entry))
    draft.chmod(before.st_mode)
    draft.replace(jar)
    return before.st_size - jar.stat().st_size


def strip_symbols(packages: Path) -> int:
    """Remove debug symbols from compiled modules and Arrow's libraries; return the bytes freed.

    Not from folders *.libs: numpy's library, which has been patched, can't be loaded afterwards.
    """
    paths = [
        path
        for pattern in ("**/*.so", "pyarrow/*.so.*")
        for path in packages.glob(pattern)
        if ".libs/" not in str(path)
    ]
    before = sum(path.stat().st_size for path in paths)
    if paths:
        subprocess.run(["strip", "--strip-unneeded", *paths], check=True)
    return before - sum(path.stat().st_size for path in paths)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return sum(file.lstat().st_size for file in files_in(path))


def files_in(path: Path) -> Iterator[Path]:
    """Yield the file itself, or all files in a folder."""
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)


def main(arguments: list[str]) -> int:
    """Slim one folder of packages, and say how much each reason freed."""
    (packages,) = map(Path, arguments)
    freed = remove_unused(packages)
    freed["libraries of other systems in jars"] = sum(
        remove_other_libraries(jar, platform.machine())
        for pattern in WITH_LIBRARIES
        for jar in (packages / "pyspark" / "jars").glob(pattern)
    )
    freed["debug symbols"] = strip_symbols(packages)
    for reason, size in sorted(freed.items(), key=lambda row: -row[1]):
        print(f"{size / 1e6:6.1f} MB freed: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
