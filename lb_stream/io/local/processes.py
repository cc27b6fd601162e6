"""Processes of this machine, and locks that they share.

A process is known by its id and its start: another one with a reused id is never touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def start_mark(pid: int) -> str | None:
    """Return a text that only this very process has, from its start; None if it doesn't run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _started_at_by_ps(pid)
    except (OSError, ProcessLookupError):
        return None
    # Behind the command's name, which may have spaces: state is field 0, start time field 19.
    fields = stat.rpartition(")")[2].split()
    # The first thread may end before the others, which may still hold ports and files.
    ended = fields[0] in "ZX" and threads <= 1
    return None if ended else f"{_boot_id()}:{fields[19]}"


def started_ms(pid: int) -> int | None:
    """Return when a process started, ms since the epoch; None if it doesn't run."""
    if (mark := start_mark(pid)) is None:
        return None
    if not Path("/proc/uptime").exists():
        return int(time.mktime(time.strptime(mark)) * 1000)  # ps prints a date
    booted_s = time.time() - float(Path("/proc/uptime").read_text().split()[0])
    return int((booted_s + int(mark.rpartition(":")[2]) / os.sysconf("SC_CLK_TCK")) * 1000)


def _boot_id() -> str:
    """Return the id of the machine's last boot: start times count from there."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started_at_by_ps(pid: int) -> str | None:
    """Return the start on a machine without /proc (macOS)."""
    result = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = result.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


_LIBC = ctypes.CDLL(None)
"""Opened at import: between fork and exec no lock may be taken that another thread may hold."""


def end_with_parent() -> None:
    """Make a new process end when its parent is gone, even by kill -9; for `preexec_fn`.

    Only Linux can do that: the process gets SIGTERM.
    """
    if sys.platform == "linux":
        _LIBC.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG; exec keeps it


def write_running(path: Path, pid: int) -> None:
    """Keep a process's pid and start mark in a file, so that a later program finds it."""
    path.write_text(json.dumps({"pid": pid, "started": start_mark(pid)}))


def read_running(path: Path) -> tuple[int, str] | None:
    """Return pid and start mark of a file of `write_running`; None: that process has ended."""
    try:
        known = json.loads(path.read_text())
        pid, started = int(known["pid"]), str(known["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (pid, started) if start_mark(pid) == started else None


def end(pid: int, mark: str, grace_s: float = 15) -> bool:
    """End a process by SIGTERM, and by SIGKILL after `grace_s`; return once it is gone.

    `mark`: of `start_mark`. Returns False if that very process doesn't run. Raises TimeoutError if
    it survives SIGKILL for ten seconds, because it is stuck in the kernel.
    """
    if start_mark(pid) != mark:
        return False
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if _gone(pid, mark, wait_s):
            return True
    raise TimeoutError(f"process {pid} did not end on SIGKILL")


def _gone(pid: int, mark: str, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while start_mark(pid) == mark:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # a child of this process would stay a zombie
    return True


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file, which is created if it doesn't exist.

    `wait`: wait while another process has the lock; else raise BlockingIOError.
    """
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
