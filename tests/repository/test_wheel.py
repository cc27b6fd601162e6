"""The wheel works outside of the clone: in an empty folder, with nothing of this project beside it.

Without network and JVM.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lb_stream import __version__
from tests.support.pages import blocks, lines, words

PROJECT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@dataclass(frozen=True)
class Installed:
    """Where the wheel was installed, an empty folder to work in, what it has left in its clone."""

    packages: Path
    folder: Path
    left: str

    def run(self, *arguments: str | Path) -> str:
        """What a program of the installed package prints."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("LB_")
        } | {"PYTHONPATH": str(self.packages)}
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def lbctl(self, *arguments: str) -> str:
        return self.run(self.packages / "bin" / "lbctl", *arguments)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    names = ("source", "packages", "empty")
    source, packages, folder = (tmp_path_factory.mktemp(name) for name in names)
    for name in (
        "lb_stream",
        "conf",
    ):  # a copy, because the build leaves its folders beside the sources
        shutil.copytree(
            PROJECT / name,
            source / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for name in ("pyproject.toml", "LICENSE", ".gitignore"):
        shutil.copy(PROJECT / name, source)
    git = ("git", "-C", source, "-c", "user.name=test", "-c", "user.email=test@example.org")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "A clone")):
        run((*git, *arguments))
    printed_lines = [line for block in blocks("docs/getting-started.md") for line in lines(block)]
    (printed,) = (words(line) for line in printed_lines if line.startswith("pip wheel"))
    run((*PIP, *printed[1:], "--no-build-isolation", "--no-index"), source)
    left = run((*git, "status", "--porcelain"))
    wheels = (source / "dist").glob("lb_stream-*.whl")
    run((*PIP, "install", "--no-deps", "--no-index", "--target", packages, *wheels))
    shutil.rmtree(source)
    return Installed(packages, folder, left)


def run(command: Sequence[str | Path], folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_readmes_line_that_makes_a_wheel_leaves_nothing_that_git_sees(
    installed: Installed,
) -> None:
    assert installed.left == ""


def test_lbctl_says_its_version_its_settings_and_how_to_fetch_jars(installed: Installed) -> None:
    assert installed.lbctl("--version") == f"lbctl {__version__}\n"
    assert 'tables = ".lb/tables"' in installed.lbctl("config", "show")
    assert "shedding_strategy" in installed.lbctl("config", "explain", "shedding_strategy")
    assert "LB_JARS_DIR" in installed.lbctl("jars", "fetch", "--help")


def test_the_files_that_ship_are_those_of_the_clone(installed: Installed) -> None:
    shipped = installed.packages / "lb_stream" / "conf"
    needed = {
        "default.toml",
        "local.toml",
        "spark-defaults.conf",
        "log4j2.properties",
        "kafka-log4j2.properties",
        "ivy.xml",
    }
    names = {path.name for path in shipped.iterdir()}
    assert names == {path.name for path in (PROJECT / "conf").iterdir() if path.is_file()}
    assert names >= needed | {"ivysettings.xml", "jars.sha256"}
    assert all(
        (shipped / name).read_bytes() == (PROJECT / "conf" / name).read_bytes() for name in names
    )


def test_every_file_is_found_from_an_empty_folder_and_the_jars_belong_there(
    installed: Installed,
) -> None:
    code = (
        "import json, lb_stream.kit.demo.run as demo\n"
        "from lb_stream.io.local import jars\n"
        "from lb_stream.kit import embedded_kafka\n"
        "from lb_stream.job import submit\n"
        "lock = jars.JarsLock()\n"
        "option = embedded_kafka.EmbeddedKafka(embedded_kafka.Path('.lb'))._logging()[0]\n"
        "files = [lock.ivy, lock.settings, lock.hashes, demo.CONFIG, option.partition('=')[2], "
        "submit.JOB]\n"
        "files += [submit.DEFAULTS, submit.JVM_OPTIONS[-1].partition('=file://')[2]]\n"
        "print(json.dumps([list(map(str, files)), str(jars.default_folder()), "
        "len(lock.expected())]))"
    )
    files, jars, count = json.loads(installed.run("-c", code))
    assert [
        file
        for file in files
        if not Path(file).is_file() or not file.startswith(str(installed.packages))
    ] == []
    assert jars == str(installed.folder / ".jars") and count > 50


def test_the_job_begins_as_spark_submit_would_start_it(installed: Installed) -> None:
    assert "--take-over" in installed.run(
        installed.packages / "lb_stream" / "job" / "balance.py", "--help"
    )
