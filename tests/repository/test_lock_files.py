"""requirements*.lock install anywhere: hashes for everything, no index, no path."""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2]
LOCK = (PROJECT / "requirements.lock").read_text()
PULSAR_LOCK = (PROJECT / "requirements-pulsar.lock").read_text()


def test_no_line_names_an_index_or_a_path() -> None:
    for line in (LOCK + PULSAR_LOCK).splitlines():
        assert re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; [\w .<>='!]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line), line


def test_every_direct_dependency_is_locked_at_its_pinned_version() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    direct = project["dependencies"] + project["optional-dependencies"]["dev"]
    assert len(direct) > 15
    for requirement in direct:
        assert f"\n{requirement} " in f"\n{LOCK}", requirement


def test_the_optional_package_is_locked_beside_and_at_its_pinned_version() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    (pinned,) = project["optional-dependencies"]["pulsar"]
    assert f"\n{pinned} " in f"\n{PULSAR_LOCK}" and pinned not in LOCK


def test_pandas_is_older_than_3() -> None:
    assert "\npandas==2." in LOCK  # PySpark 4.2 asks for it, and breaks with 3
