import resource
from pathlib import Path

import numpy as np
import pytest

from lb_stream.stream.task.memory import return_memory

MIB = 1 << 20
PIECES = 1_024

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the system doesn't tell a process's memory"
)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@needs_proc
def test_a_large_process_returns_what_it_has_freed() -> None:
    # Pieces of 64 KiB come from the heap. Every second one stays, so the heap can't simply shrink.
    pieces = [np.ones(8_192) for _ in range(PIECES)]
    del pieces[::2]
    before = resident_bytes()

    assert return_memory(large_bytes=before // 2)

    assert resident_bytes() <= before - 24 * MIB


@needs_proc
def test_a_small_process_keeps_what_it_has_freed() -> None:
    assert not return_memory(large_bytes=2 * resident_bytes())
