"""Empty environments, made by uv, with the wheel of this tree and what its extras bring."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
UV = PROJECT / ".make" / "uv" / "bin" / "uv"
SOURCES = ("lb_stream", "conf", "pyproject.toml", "README.md", "LICENSE")


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Return what a command prints that sees no setting and no package of this environment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LB_") and name not in ("PYTHONPATH", "VIRTUAL_ENV", "UV_OFFLINE")
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def copy_sources(folder: Path) -> None:
    """Copy what a build reads, because it leaves its own folders beside the sources."""
    for name in SOURCES:
        if (PROJECT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(PROJECT / name, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(PROJECT / name, folder)


def build(source: Path, out: Path, *kinds: str, **environment: str) -> list[Path]:
    """Build `--wheel` or `--sdist` from a folder, with the build tools of this environment."""
    run(
        (
            *(UV, "build", "-q", "--no-build-isolation", "--python", sys.executable),
            *kinds,
            *("--out-dir", out, source),
        ),
        source,
        **environment,
    )
    return sorted(path for path in out.iterdir() if path.suffix in (".whl", ".gz"))


@dataclass(frozen=True)
class Environment:
    """An environment of its own and an empty folder to work in."""

    folder: Path
    work: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *command: str | Path, **environment: str) -> str:
        """Return what a program of this environment prints; the first word is its name in bin."""
        return run((self.folder / "bin" / command[0], *command[1:]), self.work, **environment)

    def megabytes(self) -> float:
        """Return its size on disk, MB."""
        paths = [path for path in self.folder.rglob("*") if not path.is_symlink()]
        return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def make_environment(folder: Path, archive: Path, extras: Sequence[str] = ()) -> Environment:
    """Install a wheel or an sdist with some extras, at the versions of requirements-dev.lock.

    The hashes of what comes from a registry must be those of the lock file. PySpark is the one
    package that comes as source; its wheel is built with locked tools.
    """
    made = Environment(folder / "env", folder / "work")
    made.work.mkdir(parents=True)
    run((UV, "venv", "-q", "--python", sys.executable, made.folder), folder)
    named = f"lb_stream[{','.join(extras)}] @ {archive.as_uri()}" if extras else str(archive)
    install = (UV, "pip", "install", "-q", "--python", made.python)
    locked = PROJECT / "requirements-dev.lock"
    if "job" in extras or archive.suffix != ".whl":
        run((*install, "-c", locked, "setuptools", "wheel"), folder)
        install = (*install, "--no-build-isolation")
    run((*install, "-c", locked, named), folder)
    return made
