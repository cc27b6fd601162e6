"""Spark's daemon of Python workers: what of a worker's end is module."""

import subprocess
import sys
from pathlib import Path

import pytest

from lb_stream.job.python_workers import daemon, print_exc


@pytest.mark.parametrize(
    "error",
    [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(104, "Connection reset by peer")],
)
def test_a_worker_whose_task_is_over_says_nothing(
    capfd: pytest.CaptureFixture[str], error: Exception
) -> None:
    try:
        raise error
    except OSError:
        print_exc()
    assert capfd.readouterr() == ("", "")


def test_every_other_end_keeps_its_trace(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("unforeseen")
    except ValueError:
        print_exc()
    assert capfd.readouterr().err.endswith("ValueError: unforeseen\n")


def test_sparks_daemon_tells_it_so() -> None:
    module = vars(daemon)["traceback"]
    assert module.print_exc is print_exc and module.format_exc


DAEMON = """
import os, sys
from lb_stream.job.python_workers import LATE, STREAM, preload
preload()
from pyspark.testing.utils import have_numpy
print(len(os.listdir("/proc/self/task")), {STREAM, *LATE} <= sys.modules.keys(), have_numpy)
print("pandas" in sys.modules)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_workers_are_forked_with_the_stream_and_lose_no_thread_by_that() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DAEMON], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "True", "True", "False"]
