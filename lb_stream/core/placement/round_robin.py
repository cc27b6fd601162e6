"""RoundRobinBrokerSelector: the candidates take turns.

See docs/placement.md "RoundRobinBrokerSelector".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lb_stream.contracts.keys import KeyModel
from lb_stream.core.model.registry import read_memory
from lb_stream.core.model.view import ClusterView, Rows
from lb_stream.core.placement.base import Best, PlacementContext, placement

LAST_TURN = 2**31 - 1
"""The turn after which counting begins again at 0, as in the reference."""


class RoundRobinConfig(KeyModel):
    """RoundRobinBrokerSelector has no settings."""


@dataclass(slots=True)
class RoundRobinMemory:
    """The turn (a count of placements) and the brokers that take turns.

    Within a round, these brokers are rows of its view.
    """

    turn: int = 0
    before: tuple[str, ...] = ()  # names of the brokers that took turns before this view
    _names: tuple[str, ...] = ()  # of the brokers of the view that `_rows` belongs to
    _rows: Rows = field(default_factory=lambda: np.empty(0, np.intp))
    _changed: bool = False  # other brokers take turns since then

    @staticmethod
    def read(data: Mapping[str, object]) -> RoundRobinMemory:
        """Read the JSON object of the last round."""
        logged = read_memory(data, _LoggedTurns)
        return RoundRobinMemory(logged.turn, logged.brokers)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object that `read` takes."""
        return {"turn": self.turn, "brokers": list(self.brokers)}

    @property
    def brokers(self) -> tuple[str, ...]:
        """Return the names of the brokers that take turns."""
        if not self._changed:
            return self.before
        return tuple(self._names[row] for row in self._rows.tolist())

    def rows(self, view: ClusterView) -> Rows:
        """Return the brokers that take turns as rows of this view; -1: not in it."""
        if view.brokers.names is not self._names:
            self.before = self.brokers
            self._names, self._changed = view.brokers.names, False
            place = {name: row for row, name in enumerate(self._names)}
            self._rows = np.array([place.get(name, -1) for name in self.before], np.intp)
        return self._rows

    def take_turns(self, rows: Rows) -> None:
        """Have these brokers take turns from now on: rows of the view last given to `rows`."""
        self._rows, self._changed = rows, True


@dataclass(slots=True)
class _LoggedTurns:
    """The memory as rounds log it."""

    turn: int = 0
    brokers: tuple[str, ...] = ()


@placement("RoundRobinBrokerSelector", config=RoundRobinConfig, memory=RoundRobinMemory.read)
def round_robin(
    context: PlacementContext[RoundRobinConfig, RoundRobinMemory],
) -> tuple[Best, RoundRobinMemory]:
    """Choose the broker whose turn it is. O(brokers).

    The brokers that take turns are remembered. The candidates replace them when there are more or
    fewer candidates, or when the next broker is no candidate. Until then a change that leaves
    their number has no effect, as in the reference.
    Source: docs/placement.md "RoundRobinBrokerSelector".
    """
    candidates, memory = context.candidates, context.memory
    if not len(candidates):
        return Best(candidates, np.empty(0), "turn"), memory
    at = memory.turn % len(candidates)
    memory.turn = 0 if memory.turn == LAST_TURN else memory.turn + 1
    rows = memory.rows(context.targets.view)
    if len(rows) != len(candidates) or not (candidates == rows[at]).any():
        rows = candidates
        memory.take_turns(rows)
    return Best(rows[at : at + 1], np.where(candidates == rows[at], 0.0, 1.0), "turn"), memory
