"""Requests to stop, noted where they can be met in order."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """While it is entered, Ctrl-C, SIGTERM and a closed terminal are noted instead of ending the
    process. True once one came. Under nohup a closed terminal stays none.

    Only in the main thread. A plain attribute on purpose: a lock (threading.Event has one) may be
    held by the very code that the handler interrupts.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.times = 0
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.number is not None

    def __enter__(self) -> Self:
        nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._before = {
            number: signal.signal(number, self._note)
            for number in NUMBERS
            if not (nohup and number == signal.SIGHUP)
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.number, self.times = number, self.times + 1
