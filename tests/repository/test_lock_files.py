"""requirements*.lock install anywhere: hashes for everything, no index, no path."""

import re
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
LOCK = (PROJECT / "requirements.lock").read_text()
BESIDE = {
    name: (PROJECT / f"requirements-{name}.lock").read_text() for name in ("pulsar", "kubernetes")
}


def test_no_line_names_an_index_or_a_path() -> None:
    for line in "".join([LOCK, *BESIDE.values()]).splitlines():
        assert re.fullmatch(
            r"[a-z0-9-]+==[\w.]+( ; [\w .<>='!]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line
        ), line


def test_every_direct_dependency_is_locked_at_its_pinned_version() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    direct = project["dependencies"] + project["optional-dependencies"]["dev"]
    assert len(direct) > 15
    for requirement in direct:
        assert f"\n{requirement} " in f"\n{LOCK}", requirement


@pytest.mark.parametrize("name", BESIDE)
def test_the_optional_package_is_locked_beside_and_at_its_pinned_version(name: str) -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    (pinned,) = project["optional-dependencies"][name]
    assert f"\n{pinned} " in f"\n{BESIDE[name]}" and pinned not in LOCK


def test_pandas_is_older_than_3() -> None:
    assert "\npandas==2." in LOCK  # PySpark 4.2 asks for it, and breaks with 3
