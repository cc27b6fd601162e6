"""Helpers of the killing tests: a job's Python workers are found whoever is their parent."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.pipeline import wait_until
from tests.support.killing import WORKERS, kill_worker, processes, workers

DAEMON = """
import os, time
os.setpgid(0, 0)  # as Spark's daemon does
for _ in range(2):
    if not os.fork():
        break
time.sleep(600)
"""
JOB = """
import os, subprocess, sys
subprocess.run([sys.executable, "-c", os.environ["DAEMON"], os.environ["WORKERS"]])
input()
"""


@pytest.fixture
def job() -> Iterator["subprocess.Popen[bytes]"]:
    """A process in the place of a job's JVM, whose child is in the place of the workers' daemon."""
    environment = os.environ | {"DAEMON": DAEMON, "WORKERS": WORKERS}
    command = [sys.executable, "-c", JOB]
    leader = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, start_new_session=True
    )
    yield leader
    for pid in processes(leader.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    leader.communicate()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def daemon_of(leader: int) -> int:
    """Return the daemon, once it has forked both workers."""
    wait_until(lambda: len(workers(leader)) >= 3, "the daemon's workers")
    return next(pid for pid in workers(leader) if parent(pid) == leader)


def test_workers_are_found_after_their_daemon_was_killed(job: "subprocess.Popen[bytes]") -> None:
    daemon = daemon_of(job.pid)
    forked = [pid for pid in workers(job.pid) if pid != daemon]
    os.kill(daemon, signal.SIGKILL)
    wait_until(
        lambda: all(parent(pid) != daemon for pid in forked), "the workers to have another parent"
    )
    assert workers(job.pid) == forked


def test_a_kill_counts_only_when_there_was_a_worker(job: "subprocess.Popen[bytes]") -> None:
    daemon_of(job.pid)
    chance = random.Random(1)
    for left in (2, 1, 0):
        assert kill_worker(job.pid, chance)
        wait_until(lambda least=left: len(workers(job.pid)) == least, "the worker's end")
    assert not kill_worker(job.pid, chance)
