"""Keeps the native libraries of Spark's jars in the folder of jars.

Java can only load a library from a file. Without one in its library path, each JVM writes those of
RocksDB (15 MB) and LZ4 to the folder of temporary files, and leaves them there if it is killed.
"""

from __future__ import annotations

import os
import platform
import zipfile
from pathlib import Path

import pyspark

from lb_stream.io.local.jars import default_folder

LIBRARIES = {
    ("Linux", "x86_64"): {
        "rocksdbjni": "librocksdbjni-linux64.so",
        "lz4-java": "net/jpountz/util/linux/amd64/liblz4-java.so",
    },
    ("Linux", "aarch64"): {
        "rocksdbjni": "librocksdbjni-linux-aarch64.so",
        "lz4-java": "net/jpountz/util/linux/aarch64/liblz4-java.so",
    },
}
"""Machine → the jar's name → the library in it. On other machines each JVM writes its own."""
VARIABLE = "LD_LIBRARY_PATH"


def unpack_libraries(folder: Path | None = None) -> list[Path]:
    """Write the libraries of this machine that are missing; return all that are there now."""
    found = []
    for jar, member, path in _libraries(folder or default_folder()):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}")
            with zipfile.ZipFile(jar) as content:
                draft.write_bytes(content.read(member))
            # Whoever sees the file sees all of it.
            draft.replace(path)
        found.append(path)
    return found


def library_path(folder: Path | None = None) -> dict[str, str]:
    """Return the variable that makes Java find the libraries that are there; empty: none is."""
    folders = {
        str(path.parent.absolute()): None
        for _, _, path in _libraries(folder or default_folder())
        if path.exists()
    }
    if not folders:
        return {}
    given = os.environ.get(VARIABLE)
    return {VARIABLE: os.pathsep.join([*folders, *([given] if given else [])])}


def _libraries(folder: Path) -> list[tuple[Path, str, Path]]:
    """Return each library's jar, its name in the jar, and its file, one folder for each jar."""
    # The libraries for other C libraries have other names.
    if platform.system() == "Linux" and platform.libc_ver()[0] != "glibc":
        return []
    found = []
    wanted = LIBRARIES.get((platform.system(), platform.machine()), {})
    for name, member in wanted.items():
        for jar in (Path(pyspark.__file__).parent / "jars").glob(f"{name}-*.jar"):
            found.append((jar, member, folder / "native" / jar.stem / Path(member).name))
    return found
