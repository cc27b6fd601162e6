"""Which of a process's threads get a lower priority. No JVM: its threads' names are enough."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lb_stream.job.compiler import BETTER_COMPILER, NICENESS, lower_compiler_priority

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")


@contextmanager
def thread_named(name: str) -> Iterator[int]:
    """Run a thread that has this name in the system; give its id."""
    started, end = threading.Event(), threading.Event()

    def wait() -> None:
        Path("/proc/thread-self/comm").write_text(name)
        started.set()
        end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    assert thread.native_id is not None
    try:
        yield thread.native_id
    finally:
        end.set()
        thread.join()


def niceness(thread: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread)


def test_only_the_better_compiler_yields() -> None:
    before = niceness(threading.get_native_id())
    with thread_named("C1 CompilerThre") as quick, thread_named(BETTER_COMPILER) as better:
        assert lower_compiler_priority(os.getpid()) == 1
        assert niceness(better) == max(before, NICENESS)
        assert niceness(quick) == niceness(threading.get_native_id()) == before


def test_a_process_that_is_gone_has_no_compiler() -> None:
    assert lower_compiler_priority(2**30) == 0
