"""Notes requests to stop, so that a program can end in order."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_Handler = Callable[[int, FrameType | None], object] | int | None
"""What Python knows as a signal's handler."""


class StopRequest:
    """Notes Ctrl-C, SIGTERM and a closed terminal while it is entered; True once one has come.

    None of them ends the process then. Under nohup a closed terminal doesn't count. It works only
    in the main thread. It has no lock (threading.Event has one): the code that the handler
    interrupts may hold it.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.times = 0
        self._before: dict[signal.Signals, _Handler] = {}

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
