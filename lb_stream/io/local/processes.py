"""Processes of this machine: known by id and start time, so that a process that got a reused id is
never touched; locks that they share."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def start_mark(pid: int) -> str | None:
    """An opaque mark of when process `pid` started, equal only for one and the same process; None
    if it is not running."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _started_at_by_ps(pid)
    except (OSError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[
        2
    ].split()  # after the command's name, which may hold spaces: state is field 0, start time 19
    # The first thread ends before the others, which may still hold ports and files: only the last
    # one's end counts.
    ended = fields[0] in "ZX" and threads <= 1
    return None if ended else f"{_boot_id()}:{fields[19]}"


def started_ms(pid: int) -> int | None:
    """When process `pid` began, ms since the epoch; None if it is not running."""
    if (mark := start_mark(pid)) is None:
        return None
    if not Path("/proc/uptime").exists():
        return int(time.mktime(time.strptime(mark)) * 1000)  # ps says it in words
    booted_s = time.time() - float(Path("/proc/uptime").read_text().split()[0])
    return int((booted_s + int(mark.rpartition(":")[2]) / os.sysconf("SC_CLK_TCK")) * 1000)


def _boot_id() -> str:
    try:
        return (
            Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        )  # start times count from boot
    except OSError:
        return ""


def _started_at_by_ps(pid: int) -> str | None:
    """Where there is no /proc (macOS)."""
    result = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = result.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


_LIBC = ctypes.CDLL(None)
"""Opened here: between fork and exec no lock may be asked for that another thread may hold."""


def end_with_parent() -> None:
    """For `preexec_fn`: on Linux the new process gets SIGTERM when the one that started it is gone,
    by kill -9 even."""
    if sys.platform == "linux":
        _LIBC.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG; exec keeps it


def end(pid: int, mark: str, grace_s: float = 15) -> bool:
    """SIGTERM, then SIGKILL after `grace_s`.

    True when that very process was running; returns once it is gone.

    Raises TimeoutError when it survives even SIGKILL for ten seconds (stuck in the kernel).
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
        os.waitpid(pid, os.WNOHANG)  # a child of ours would stay a zombie
    return True


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the file's lock.

    Raises BlockingIOError when another process has it and `wait` is False.
    """
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
