"""RoundRobinBrokerSelector: one candidate after another.

See docs/placement.md "RoundRobinBrokerSelector".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lb_stream.contracts.keys import KeyModel
from lb_stream.core.model.view import ClusterView, Rows
from lb_stream.core.placement.base import Best, PlacementContext, placement

MOST_TURNS = 2**31 - 1


class RoundRobinConfig(KeyModel):
    """RoundRobinBrokerSelector has no settings."""


@dataclass(slots=True)
class RoundRobinMemory:
    """The turn (a count of placements) and the brokers that take turns.

    While a round runs, these are rows of its view.
    """

    turn: int = 0
    before: tuple[str, ...] = ()  # who took turns when the view's first placement came
    _names: tuple[str, ...] = ()
    _rows: Rows = field(default_factory=lambda: np.empty(0, np.intp))
    _changed: bool = False

    @staticmethod
    def read(data: Mapping[str, Any]) -> RoundRobinMemory:
        """From the JSON object of the last round."""
        return RoundRobinMemory(int(data.get("turn", 0)), tuple(map(str, data.get("brokers", ()))))

    def to_dict(self) -> dict[str, Any]:
        """As the JSON object that `read` takes."""
        return {"turn": self.turn, "brokers": list(self.brokers)}

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of the brokers that take turns."""
        return (
            tuple(self._names[row] for row in self._rows.tolist()) if self._changed else self.before
        )

    def rows(self, view: ClusterView) -> Rows:
        """The brokers that take turns, as rows of this view; -1: not in it."""
        if view.brokers.names is not self._names:
            self.before = self.brokers
            self._names, self._changed = view.brokers.names, False
            place = {name: row for row, name in enumerate(self._names)}
            self._rows = np.array([place.get(name, -1) for name in self.before], np.intp)
        return self._rows

    def take_turns(self, rows: Rows) -> None:
        """Let these brokers take turns from now on.

        `rows` are those of the view that `rows()` was last asked about.
        """
        self._rows, self._changed = rows, True


@placement("RoundRobinBrokerSelector", config=RoundRobinConfig, memory=RoundRobinMemory.read)
def round_robin(
    context: PlacementContext[RoundRobinConfig, RoundRobinMemory],
) -> tuple[Best, RoundRobinMemory]:
    """The broker whose turn it is. O(brokers).

    Who takes turns is remembered, and found out anew when their number is another than that of the
    candidates, or the one whose turn it is is no candidate: another change of the same size goes
    unnoticed until then, as in the reference.
    """
    candidates, memory = context.candidates, context.memory
    if not len(candidates):
        return Best(candidates, np.empty(0), "turn"), memory
    at = memory.turn % len(candidates)
    memory.turn = 0 if memory.turn == MOST_TURNS else memory.turn + 1
    rows = memory.rows(context.targets.view)
    if len(rows) != len(candidates) or not (candidates == rows[at]).any():
        rows = candidates
        memory.take_turns(rows)
    return Best(rows[at : at + 1], np.where(candidates == rows[at], 0.0, 1.0), "turn"), memory
