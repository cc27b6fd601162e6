"""Time limits for the work on one cluster: endless work fails a round or a shadow, not the job."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from lb_stream.contracts.base import canonical_json
from lb_stream.core.shadow.evaluate import Entry, ShadowInput, ShadowMemory
from lb_stream.core.shadow.evaluate_all import (
    Attempt,
    Evaluate,
    Settings,
    ShadowColumns,
    evaluate_shadows,
    failed,
)


class TimeLimitExceeded(Exception):
    """Work has taken longer than its limit."""


@contextmanager
def time_limit(limit_ms: int, setting: str) -> Iterator[None]:
    """Raise TimeLimitExceeded inside the block once `limit_ms` have passed; 0: no limit.

    `setting`: the key of the limit, for the message. Only a process's main thread can be
    interrupted; Spark's Python workers work there.
    """
    if not limit_ms or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise TimeLimitExceeded(f"it took longer than {limit_ms / 1000:g} s ({setting})")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, limit_ms / 1000)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


MIN_S = 0.2
"""Time of all shadows of one task in one batch (s), even if its rounds take no time."""
SKIPPED: Entry = {
    "outcome": "skipped",
    "detail": "it would take more than the shadows' share of the round's time "
    "(stream.shadow_time_percent)",
}


@dataclass(slots=True)
class ShadowBudget:
    """The time that shadows may still take in one task of a batch.

    `share`: the part of each round's time that is added. `left_s`: the time left, MIN_S at first.
    """

    share: float
    left_s: float

    @staticmethod
    def from_percent(share_percent: int) -> ShadowBudget:
        """Return the budget before the first round; with a share of 0 it stays empty."""
        return ShadowBudget(share_percent / 100.0, MIN_S if share_percent else 0.0)

    def earn(self, seconds: float) -> None:
        """Add the shadows' share of a round that took this long."""
        self.left_s += self.share * seconds

    def evaluate(
        self, shadow_input: ShadowInput, shadows: Settings, remembered: str
    ) -> ShadowColumns:
        """Return the log's columns of a cluster's shadows in a round, made within the budget.

        `remembered`: the column `shadow_memory` of the last row. The shadows share the time left
        equally. Raises nothing: shadows whose memory can't be read begin anew in the next round.
        """
        try:
            return evaluate_shadows(shadow_input, shadows, remembered, self._attempt(len(shadows)))
        except Exception as error:
            entries = [failed(error) | {"policy": name} for name in sorted(shadows)]
            return ShadowColumns(canonical_json(entries))

    def _attempt(self, shadows: int) -> Attempt:
        """Return the function that evaluates one of this many shadows, within its share."""
        waiting = shadows

        def attempt(_name: str, evaluate: Evaluate) -> tuple[ShadowMemory | None, Entry]:
            nonlocal waiting
            begin = time.perf_counter()
            limit_ms = int(1000 * self.left_s / waiting)
            waiting -= 1
            try:
                if limit_ms < 1:
                    raise TimeLimitExceeded
                with time_limit(limit_ms, "stream.shadow_time_percent"):
                    memory, entry = evaluate()
                    # A result that can't be logged is a failure.
                    canonical_json([memory, entry])
                return memory, entry
            except TimeLimitExceeded:
                return None, SKIPPED
            except (Exception, SystemExit) as error:
                return None, failed(error)
            finally:
                self.left_s -= time.perf_counter() - begin

        return attempt
