"""Limits for the work on one cluster: what never ends ends one cluster's round or its shadows, not
the job."""

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
    """The work took longer than it may."""


@contextmanager
def time_limit(limit_ms: int, name: str) -> Iterator[None]:
    """Raise TimeLimitExceeded inside when it takes longer; `name`: the setting that says so. 0: never.

    Only a process' main thread can be interrupted, and that is where Spark's Python workers work.
    """
    if not limit_ms or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeLimitExceeded(f"it took longer than {limit_ms / 1000:g} s ({name})")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_ms / 1000)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


MIN_S = 0.2
"""For all shadows of one task in one batch, however quick its rounds are."""
SKIPPED: Entry = {
    "outcome": "skipped",
    "detail": "it would have taken more than shadows' share of the round "
    "(stream.shadow_time_percent)",
}


@dataclass(slots=True)
class ShadowBudget:
    """What is left of the shadows' time in one task of a batch: a share of what its rounds have
    taken so far, and MIN_S."""

    share: float
    left_s: float

    @staticmethod
    def from_percent(share_percent: int) -> ShadowBudget:
        """Before the first round. A share of 0: no time at all."""
        return ShadowBudget(share_percent / 100.0, MIN_S if share_percent else 0.0)

    def earn(self, seconds: float) -> None:
        """A round has taken so long."""
        self.left_s += self.share * seconds

    def evaluate(self, looked: ShadowInput, shadows: Settings, remembered: str) -> ShadowColumns:
        """Let a cluster's shadows look at a round, as `evaluate_shadows`, each for its part of what is
        left. Raises nothing.

        Shadows whose memory can't be read begin anew with the next round.
        """
        try:
            return evaluate_shadows(looked, shadows, remembered, self._attempt(len(shadows)))
        except Exception as error:
            entries = [failed(error) | {"policy": name} for name in sorted(shadows)]
            return ShadowColumns(canonical_json(entries))

    def _attempt(self, shadows: int) -> Attempt:
        waiting = shadows

        def attempt(_name: str, evaluate: Evaluate) -> tuple[ShadowMemory | None, Entry]:
            nonlocal waiting
            limit_ms, begin = int(1000 * self.left_s / waiting), time.perf_counter()
            waiting -= 1
            try:
                if limit_ms < 1:
                    raise TimeLimitExceeded
                with time_limit(limit_ms, "stream.shadow_time_percent"):
                    memory, entry = evaluate()
                    canonical_json([memory, entry])  # what can't be logged has failed
                return memory, entry
            except TimeLimitExceeded:
                return None, SKIPPED
            except (Exception, SystemExit) as error:
                return None, failed(error)
            finally:
                self.left_s -= time.perf_counter() - begin

        return attempt
