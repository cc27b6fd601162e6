"""What takes seconds is computed beside the pages that wait for it: one at a time, kept for a
while."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from lb_stream.contracts.keys import SettingError
from lb_stream.query import QueryError
from lb_stream.sim.scenario.errors import ScenarioError

KEPT_S = 60.0
"""An answer is given again for so long; whoever asks later has it computed anew."""
AT_ONCE_S = 1.0
"""A page waits so long for an answer before it is shown without."""
MOST_KEPT = 50
"""Answers at one time: the oldest one goes when there are more."""
MOST_OPEN = 8
"""Trials that are computed or wait for their turn."""

Compute = Callable[[Callable[[float], None]], Any]
"""Computes the answer; is given what to tell the part to that is done (0 to 1).

Raises QueryError, SettingError, ScenarioError.
"""

_log = logging.getLogger(__name__)


class TooManyTrials(Exception):
    """As many trials as may be are open."""


@dataclass(slots=True)
class Trial:
    """One question.

    When `ended` is set there is an answer in `found`, or `trouble` says why there is none.
    """

    part: float = 0.0
    found: Any = None
    trouble: str = ""
    ended_s: float | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def over(self) -> bool:
        """Whether there is an answer, or why there is none."""
        return self.ended.is_set()


class Trials:
    """Answers by their questions."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._trials: dict[Hashable, Trial] = {}
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def known(self, key: Hashable) -> Trial | None:
        """The trial of a question that somebody has put lately."""
        with self._lock:
            self._forget()
            return self._trials.get(key)

    def put(self, key: Hashable, compute: Compute) -> Trial:
        """The trial of a question, begun now if there is none.

        Waits a moment for its answer. Raises TooMany.
        """
        with self._lock:
            self._forget()
            trial = self._trials.get(key)
            if trial is None:
                if sum(other.ended_s is None for other in self._trials.values()) >= MOST_OPEN:
                    raise TooManyTrials
                trial = self._trials[key] = Trial()
                threading.Thread(
                    target=self._run, args=(trial, compute), name="trial", daemon=True
                ).start()
        trial.ended.wait(AT_ONCE_S)
        return trial

    def _forget(self) -> None:
        now_s = self._clock()
        self._trials = {
            key: trial
            for key, trial in self._trials.items()
            if trial.ended_s is None or now_s - trial.ended_s < KEPT_S
        }
        ended = [key for key, trial in self._trials.items() if trial.ended_s is not None]
        for key in ended[: max(0, len(ended) - MOST_KEPT)]:
            del self._trials[key]

    def _run(self, trial: Trial, compute: Compute) -> None:
        def tell(part: float) -> None:
            trial.part = part

        try:
            with self._turn:
                trial.found = compute(tell)
        except (QueryError, SettingError, ScenarioError) as error:
            trial.trouble = str(error)
        except Exception as error:
            _log.exception("a trial failed")
            trial.trouble = f"{type(error).__name__}: the console's log says more"
        trial.ended_s = self._clock()
        trial.ended.set()
