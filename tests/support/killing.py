"""A job's processes, and ways to kill one of them that do not depend on luck."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import wait_until

WORKERS = "lb_stream.job.python_workers"
"""Python workers and their daemon have this in their command line."""


def processes(leader: int) -> set[int]:
    """Return a process, its descendants, and, when it leads a session, all of that session.

    Python workers outlive the daemon that forked them. They are children of process 1 then, and in
    a process group of their own, but the session is still the job's.
    """
    parents: dict[int, int] = {}
    found = {leader}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(fields[1])
                if int(fields[3]) == leader:
                    found.add(int(folder.name))
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def workers(job: int) -> list[int]:
    """Return the living Python workers of a job and their daemon, the oldest first."""
    found = []
    for pid in sorted(processes(job)):
        with suppress(OSError):
            if WORKERS in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
    return found


def kill_worker(job: int, chance: random.Random) -> bool:
    """Kill a Python worker or the daemon; False when there was none to kill, or it ended first."""
    found = workers(job)
    if not found:
        return False
    try:
        os.kill(chance.choice(found), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_kafka(broker: EmbeddedKafka) -> None:
    """Kill Kafka and wait for its end."""
    assert broker.pid, "Kafka has ended by itself"
    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: broker.pid is None, "Kafka's end", timeout_s=30)
