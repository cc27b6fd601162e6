"""A limit for the work on one cluster: what never ends ends one cluster's round, not the job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooLong(Exception):
    """The work took longer than it may."""


@contextmanager
def within(limit_ms: int, name: str) -> Iterator[None]:
    """Raise TooLong inside when it takes longer; `name`: the setting that says so. 0: never.

    Only a process' main thread can be interrupted, and that is where Spark's Python workers work.
    """
    if not limit_ms or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TooLong(f"it took longer than {limit_ms / 1000:g} s ({name})")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_ms / 1000)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
