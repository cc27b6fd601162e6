"""The calendar of a simulation: what happens when, and in which order at the same time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum


class Phase(IntEnum):
    """The order of events that happen at the same time."""

    EVENT = 0
    EFFECT = 1
    REPORT = 2
    ARRIVAL = 3
    ROUND = 4


@dataclass(slots=True)
class Calendar:
    """Actions by time (s), then by phase, then in the order in which they were added."""

    now_s: float = 0.0
    _actions: list[tuple[float, int, int, Callable[[], None]]] = field(default_factory=list)
    _number: int = 0
    _rounds_at: set[float] = field(default_factory=set)

    def add(self, t_s: float, phase: Phase, do: Callable[[], None]) -> None:
        """Add an action. Times are rounded to microseconds."""
        heapq.heappush(self._actions, (round(t_s, 6), phase, self._number, do))
        self._number += 1

    def add_round(self, t_s: float, do: Callable[[], None]) -> None:
        """Add a round, at most one for each time."""
        if (t_s := round(t_s, 6)) not in self._rounds_at:
            self._rounds_at.add(t_s)
            self.add(t_s, Phase.ROUND, do)

    def run_next(self, until_s: float) -> bool:
        """Run the next action, if there is one up to `until_s`. Returns whether there was."""
        if not self._actions or self._actions[0][0] > until_s:
            return False
        self.now_s, _, _, act = heapq.heappop(self._actions)
        act()
        return True
