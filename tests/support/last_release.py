"""The code of the last release, from which upgrades are tested."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

PROJECT = Path(__file__).parents[2]
LAST_RELEASE = "b801803e10eb6651a5a4133e434c2a9389894d0d"
"""The commit of the last release's tag; as long as there is none, one from before it.

A commit, because clones may lack tags.
"""


def check_out_last_release(folder: Path) -> Path:
    """Write its files that run into a new folder, and return the folder, for PYTHONPATH.

    It runs with this environment's packages.
    """
    git = ("git", "-C", PROJECT, "archive", "--format=tar", LAST_RELEASE, "--", "lb_stream", "conf")
    done = subprocess.run(git, capture_output=True, check=False)
    assert done.returncode == 0, (
        f"the last release, commit {LAST_RELEASE}, is not in this clone; `git fetch --unshallow` "
        f"brings it: {done.stderr.decode()}"
    )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder
