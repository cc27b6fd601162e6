"""Finding Java, with scripts that pretend to be one."""

import subprocess
import sys
from pathlib import Path

import pytest

from lb_stream.io.local import java
from lb_stream.io.local.java import JavaUnfit, find_java, major_version
from tests.support.wordings import check_wording


def pretend_java(folder: Path, says: str, code: int = 0) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return path


def on_path(path: Path) -> dict[str, str]:
    return {"PATH": f"{path.parent}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("21", 21), ("1.8.0_422", 8), ("25-ea", 25), ("11.0.2.1", 11)],
)
def test_the_major_version_is_read_from_every_numbering(version: str, major: int) -> None:
    assert major_version(version) == major


def test_text_without_a_number_is_not_a_version() -> None:
    with pytest.raises(ValueError) as error:
        major_version("unknown")
    check_wording(error.value)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.3", "25"])
def test_a_fit_java_on_the_path_is_found(tmp_path: Path, version: str) -> None:
    path = pretend_java(tmp_path, f'openjdk version "{version}" 2025-04-15')
    found = find_java(on_path(path))
    assert (found.path, found.version) == (path, version)


def test_lines_before_the_version_do_not_matter(tmp_path: Path) -> None:
    path = pretend_java(tmp_path, 'Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "17.0.1"')
    assert find_java(on_path(path)).major == 17


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    home = pretend_java(tmp_path / "home", 'openjdk version "21"')
    other = pretend_java(tmp_path / "other", 'openjdk version "17"')
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), **on_path(other)}).path == home


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_422", "26"])
def test_an_unfit_version_is_named_with_what_to_install(tmp_path: Path, version: str) -> None:
    path = pretend_java(tmp_path, f'openjdk version "{version}"')
    with pytest.raises(JavaUnfit) as caught:
        find_java(on_path(path))
    message = str(caught.value)
    assert f"Found Java {version}" in message and "install" in message and "\n" not in message


def test_an_unfit_java_home_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    # Spark's own scripts would run it.
    good = pretend_java(tmp_path, 'openjdk version "17"')
    with pytest.raises(JavaUnfit, match="JAVA_HOME=/nowhere"):
        find_java({"JAVA_HOME": "/nowhere", **on_path(good)})


@pytest.mark.parametrize(("says", "code"), [("Segmentation fault", 139), ("hello", 0)])
def test_a_java_that_does_not_run_is_said_so(tmp_path: Path, says: str, code: int) -> None:
    with pytest.raises(JavaUnfit, match="does not run"):
        find_java(on_path(pretend_java(tmp_path, says, code)))


def test_without_java_the_script_prints_one_line_and_exits_2() -> None:
    result = subprocess.run(
        [sys.executable, "-I", java.__file__],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("No Java found")
