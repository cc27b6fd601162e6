"""The native libraries of Spark's jars, unpacked once."""

import ctypes
import os
import platform
from pathlib import Path

import pytest

from lb_stream.io.local.native_libraries import LIBRARIES, library_path, unpack_libraries

KNOWN = (platform.system(), platform.machine()) in LIBRARIES and platform.libc_ver()[0] == "glibc"


@pytest.mark.skipif(not KNOWN, reason="each JVM writes its own on this machine")
def test_libraries_are_written_once_and_java_is_told_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert library_path(tmp_path) == {}
    written = unpack_libraries(tmp_path)
    assert {path.name.partition("-")[0] for path in written} == {"librocksdbjni", "liblz4"}
    for path in written:
        ctypes.CDLL(str(path))  # whole, and for this machine
        assert path.parent.parent == tmp_path / "native"
        assert list(path.parent.iterdir()) == [path]
    folders = [str(path.parent) for path in written]
    assert library_path(tmp_path) == {"LD_LIBRARY_PATH": ":".join(folders)}
    monkeypatch.setenv("LD_LIBRARY_PATH", "/srv/lib")
    assert library_path(tmp_path) == {"LD_LIBRARY_PATH": ":".join([*folders, "/srv/lib"])}
    for path in written:
        os.utime(path, ns=(1, 1))
    assert unpack_libraries(tmp_path) == written
    assert {path.stat().st_mtime_ns for path in written} == {1}


def test_a_machine_without_known_libraries_has_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert unpack_libraries(tmp_path) == []
    assert library_path(tmp_path) == {}
