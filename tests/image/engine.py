"""The container engine of this machine: docker, or podman.

As root on a machine whose control groups podman can't use (two versions of them side by side),
podman runs in a mount namespace of its own, which has none.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
NAMES = ("docker", "podman")
MIXED_GROUPS = Path("/sys/fs/cgroup/unified")
HIDE_GROUPS = 'umount -R /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup; exec "$@"'
ADVICE = (
    "image: no container engine answers: install docker, or podman (Debian, Ubuntu: apt-get install "
    "podman crun)"
)


class EngineError(RuntimeError):
    """A command of the engine failed; the text says which."""


@dataclass(frozen=True)
class Engine:
    """An engine that answers: its command line up to the subcommand, its options for a run."""

    name: str
    command: tuple[str, ...]
    run_options: tuple[str, ...] = ()

    def call(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a subcommand; return what it printed on stdout. Raises EngineError."""
        run = subprocess.run(
            [*self.command, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        if check and run.returncode != 0:
            shown = " ".join((self.name, *arguments[:2]))
            raise EngineError(f"{shown}: exit code {run.returncode}: {run.stderr.strip()[-2000:]}")
        return run

    def inspect(self, image: str) -> dict[str, Any]:
        """Return what the engine knows of an image."""
        (found,) = json.loads(self.call("image", "inspect", image).stdout)
        return dict(found)

    def has(self, image: str) -> bool:
        """Return whether the image is on this machine."""
        return self.call("image", "inspect", image, check=False).returncode == 0

    @contextmanager
    def files(self, image: str) -> Iterator[tarfile.TarFile]:
        """Yield the files of an image's root, one after another. Raises EngineError."""
        container = self.call("create", image, "true").stdout.strip()
        try:
            with (
                subprocess.Popen(
                    [*self.command, "export", container], stdout=subprocess.PIPE
                ) as export,
                tarfile.open(fileobj=export.stdout, mode="r|") as archive,
            ):
                yield archive
        finally:
            self.call("rm", container, check=False)

    def build(
        self, file: Path, tag: str, arguments: Mapping[str, str], secrets: Mapping[str, Path]
    ) -> None:
        """Build an image from the project's folder; the engine prints its progress."""
        command = [*self.command, "build", "--network=host", "--file", str(file), "--tag", tag]
        if self.name == "podman":
            command += ["--isolation=chroot"]
        for name, value in arguments.items():
            command += ["--build-arg", f"{name}={value}"]
        for name, path in secrets.items():
            command += ["--secret", f"id={name},src={path}"]
        if subprocess.run([*command, "."], cwd=PROJECT, check=False).returncode != 0:
            raise EngineError(f"{self.name} build of {tag} failed")


def find_engine() -> Engine | None:
    """Return the first engine that answers; None: there is none."""
    for name in NAMES:
        if shutil.which(name):
            engine = _of_name(name)
            if engine.call("info", check=False).returncode == 0:
                return engine
    return None


def _of_name(name: str) -> Engine:
    if name != "podman" or os.geteuid() != 0 or not MIXED_GROUPS.exists():
        return Engine(name, (name,))
    files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 16384)
    limits = (f"--ulimit=nofile={files}:{files}", "--ulimit=nproc=16384:16384")
    hidden = ("unshare", "--mount", "sh", "-c", HIDE_GROUPS, "sh", name)
    return Engine(name, hidden, ("--cgroups=disabled", *limits))


def import_base(engine: Engine, archive: Path, name: str) -> None:
    """Make an image of an archive of a root."""
    engine.call("import", str(archive), name)


def slim_debian(suite: str, archive: Path) -> Sequence[str]:
    """Return the command that makes such an archive as Debian's slim images are: no manuals."""
    left_out = ("man", "info", "locale", "doc")
    options = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in left_out]
    return (
        "mmdebstrap",
        "--variant=minbase",
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        *options,
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        suite,
        str(archive),
    )
