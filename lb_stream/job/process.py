"""The job as a process: starts it by spark-submit, ends it with all processes of its session."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lb_stream.io.local import processes
from lb_stream.job.submit import submit_command

GRACE_S = 15.0
"""How long the job may take to finish its batch and end."""
SECOND_GRACE_S = 3.0
"""How long the job's remaining processes may take to end after SIGTERM."""


class Job:
    """One run of the job, for a demo of some minutes.

    Its output goes to the file `log`. Its pid goes to the file `state`, so that a later demo can
    end it if this one is killed.
    """

    def __init__(self, arguments: list[str], log: Path, state: Path) -> None:
        command = submit_command(arguments, driver_memory="1g", short_lived=True)
        self._command, self._environment = command
        self._log, self._state = log, state
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the job in a session of its own, so that Ctrl-C reaches only the demo."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        processes.write_running(self._state, self._process.pid)

    def exit_code(self) -> int | None:
        """Return the exit code; None while the job runs, or before it is started."""
        return None if self._process is None else self._process.poll()

    def stop(self) -> None:
        """Send SIGTERM, SIGKILL after a while, and return once no process is left."""
        if self._process is not None:
            end_session(self._process.pid, self._process.poll)
            self._process.wait()
            self._state.unlink(missing_ok=True)

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the job's output."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return "\n".join(text.rstrip().splitlines()[-lines:])


def end_leftover(state: Path) -> bool:
    """End the job that a killed demo has left. Returns whether there was one."""
    found = processes.read_running(state)
    if found is not None:
        end_session(found[0], lambda: None)
    state.unlink(missing_ok=True)
    return found is not None


def end_session(
    leader: int,
    reap: Callable[[], object],
    grace_s: float | None = None,
    hurry: Callable[[], bool] = lambda: False,
) -> None:
    """End every process of the session that `leader` began: JVM, Python driver, Python workers.

    The driver gets the first signal: it finishes the running batch and ends Spark. It has `grace_s`
    for that (None: GRACE_S), or less if `hurry` returns True. `reap` collects the leader once it
    has ended.
    """
    for number, wait_s, list_targets in (
        (signal.SIGTERM, GRACE_S if grace_s is None else grace_s, _driver),
        (signal.SIGTERM, SECOND_GRACE_S, _members),
        (signal.SIGKILL, 10.0, _members),
    ):
        for pid in list_targets(leader) or _members(leader):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + wait_s
        while _members(leader) and time.monotonic() < deadline:
            if list_targets is _driver and hurry():
                break
            reap()
            time.sleep(0.05)
        if not _members(leader):
            return


def _driver(leader: int) -> list[int]:
    """Return the Python process that runs the job, a child of the JVM."""
    return [
        pid
        for pid in _members(leader)
        if _stat(pid)[1:2] == [str(leader)] and b"balance.py" in _arguments(pid)
    ]


def _members(leader: int) -> list[int]:
    """Return the ids of a session's running processes.

    Spark's Python workers leave the JVM's process group, but not its session.
    """
    if not Path("/proc/self/stat").exists():
        return _members_by_ps(leader)
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [
        pid
        for pid in pids
        if (stat := _stat(pid)) and stat[3] == str(leader) and stat[0] not in "ZX"
    ]


def _members_by_ps(leader: int) -> list[int]:
    """Return the ids of the group's running processes, for systems without /proc (macOS).

    Python workers are not in the group, but end with their JVM.
    """
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=False
    ).stdout
    rows = [line.split() for line in listing.splitlines()]
    return [
        int(pid) for pid, group, state in rows if group == str(leader) and not state.startswith("Z")
    ]


def _stat(pid: int) -> list[str]:
    """Return a process's state, parent, group, session and so on; empty: it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _arguments(pid: int) -> bytes:
    """Return a process's command line; empty: it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
