"""Answers that take seconds: computed beside the pages, one at a time, and kept for a while."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from lb_stream.contracts.keys import SettingError
from lb_stream.query import QueryError
from lb_stream.sim.scenario.errors import ScenarioError

T = TypeVar("T")

RETENTION_S = 60.0
"""Time for which an answer is kept; a request after that has it computed again."""
PAGE_WAIT_S = 1.0
"""Time for which a page waits for an answer before it is shown without the answer."""
MAX_KEPT = 50
"""Answers that are kept; the oldest goes when there are more."""
MAX_OPEN = 8
"""Computations that run or wait."""

ReportProgress = Callable[[float], None]
"""Takes the part of a computation that is done, 0 to 1."""

logger = logging.getLogger(__name__)


class TooManyComputations(Exception):
    """MAX_OPEN computations run or wait."""


@dataclass(slots=True)
class Computation(Generic[T]):
    """One computation. `progress`: the part that is done, 0 to 1.

    Once `ended` is set, the answer is in `result`, or `error` says why there is none.
    """

    progress: float = 0.0
    result: T | None = None
    error: str = ""
    ended_s: float | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def is_done(self) -> bool:
        """Return whether there is an answer, or an error."""
        return self.ended.is_set()


class Computations:
    """Computations by their keys. A key says what is computed, and so the type of its answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._computations: dict[Hashable, Computation[object]] = {}
        self._lock, self._running = threading.Lock(), threading.Lock()

    def find(self, key: Hashable) -> Computation[object] | None:
        """Return a computation that runs, waits, or ended less than RETENTION_S ago."""
        with self._lock:
            self._drop_old()
            return self._computations.get(key)

    def find_or_start(
        self, key: Hashable, compute: Callable[[ReportProgress], T]
    ) -> Computation[T]:
        """Return a computation, started now if there is none, after PAGE_WAIT_S at most.

        `compute` may raise QueryError, SettingError and ScenarioError. Raises TooManyComputations.
        """
        with self._lock:
            self._drop_old()
            found = cast("Computation[T] | None", self._computations.get(key))
            computation: Computation[T] = Computation() if found is None else found
            if found is None:
                if sum(other.ended_s is None for other in self._computations.values()) >= MAX_OPEN:
                    raise TooManyComputations
                self._computations[key] = cast("Computation[object]", computation)
                threading.Thread(
                    target=self._run, args=(computation, compute), name="computation", daemon=True
                ).start()
        computation.ended.wait(PAGE_WAIT_S)
        return computation

    def _drop_old(self) -> None:
        now_s = self._clock()
        self._computations = {
            key: computation
            for key, computation in self._computations.items()
            if computation.ended_s is None or now_s - computation.ended_s < RETENTION_S
        }
        ended = [
            key
            for key, computation in self._computations.items()
            if computation.ended_s is not None
        ]
        for key in ended[: max(0, len(ended) - MAX_KEPT)]:
            del self._computations[key]

    def _run(self, computation: Computation[T], compute: Callable[[ReportProgress], T]) -> None:
        def report_progress(part: float) -> None:
            computation.progress = part

        try:
            with self._running:
                computation.result = compute(report_progress)
        except (QueryError, SettingError, ScenarioError) as error:
            computation.error = str(error)
        except Exception as error:
            logger.exception("a computation for a page failed")
            computation.error = f"{type(error).__name__}: see the console's log"
        computation.ended_s = self._clock()
        computation.ended.set()
