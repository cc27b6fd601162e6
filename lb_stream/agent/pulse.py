"""Heartbeats, in a thread of their own, so that a broker that is busy with a long unload isn't taken for dead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable


class Pulse:
    """Calls `beat` for each broker every `interval_s` seconds, the first time at once."""

    def __init__(
        self, brokers: Iterable[str], beat: Callable[[str], None], interval_s: float
    ) -> None:
        self._brokers, self._beat, self._interval_s = list(brokers), beat, interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lb-agent-pulse", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End; no call is made after that, unless one takes longer than the time-out."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            for broker in self._brokers:
                if self._stop.is_set():
                    return
                self._beat(broker)
            if self._stop.wait(self._interval_s):
                return
