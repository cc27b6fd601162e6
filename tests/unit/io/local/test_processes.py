"""Ending processes by id and start time."""

import os
import subprocess
import sys
import time

import pytest

from lb_stream.io.local import processes


def sleeping(program: str = "import time; time.sleep(60)") -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    return process


def test_a_running_process_is_ended() -> None:
    with sleeping() as process:
        mark = processes.start_mark(process.pid)
        assert mark is not None
        assert processes.end(process.pid, mark) is True
        assert processes.start_mark(process.pid) is None


def test_a_process_that_got_the_id_later_is_left_alone() -> None:
    with sleeping() as process:
        assert processes.end(process.pid, "another start") is False
        assert processes.start_mark(process.pid) is not None
        process.kill()


def test_one_that_ignores_sigterm_is_killed() -> None:
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', "
        "flush=True); time.sleep(60)"
    )
    with sleeping(program) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert (
            processes.end(process.pid, processes.start_mark(process.pid) or "", grace_s=0.1) is True
        )


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="zombies are told apart by /proc")
def test_a_zombie_does_not_count_as_running() -> None:
    with sleeping("pass") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert processes.start_mark(process.pid) is None


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process of its parent's end"
)
def test_one_that_is_to_end_with_its_parent_does_so_after_kill_9() -> None:
    mine = (
        "import subprocess, sys, time; from lb_stream.io.local.processes import end_with_parent "
        "as e; "
    )
    mine += (
        "print(subprocess.Popen(['sleep', '60'], start_new_session=True, preexec_fn=e).pid, "
        "flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", mine], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert processes.start_mark(child) is not None
        parent.kill()
    deadline = time.monotonic() + 10
    while processes.start_mark(child) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes.start_mark(child) is None
