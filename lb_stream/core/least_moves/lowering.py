"""Lowering: how far the fullest brokers come down where no moves bring them near their even load.

Large bundles, unlike capacities or rules can put the even load out of reach. Then the best plan is
the one whose highest share is lowest, then its second highest, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.core.least_moves.plan import NEGLIGIBLE, MovePlan, State
from lb_stream.core.model.view import Floats, Rows
from lb_stream.core.shedding.base import heaviest_first

TRIES = 7
"""Levels that are tried for a broker, from its share down to the acceptable share."""
ALIKE = 100
"""Highest shares of two plans are compared to the nearest part of this, and then by their moves."""
EFFORT, MOST = 10_000, 2_000
"""No more levels are tried once EFFORT moves have been tried, and none that takes more than MOST
moves: what a large cluster has left, later passes do."""


@dataclass(slots=True)
class Lowering:
    """The moves that lower the fullest sources as far as others need not become as full. Mutable.

    A source is brought down to a level that is clearly below its share, and no destination ends
    above that level. So each step lowers the highest share, and the steps come to an end.
    """

    plan: MovePlan
    rows: dict[int, Rows]  # source → its bundles that may move
    least: Floats  # (brokers): the least by which a source must fall, part of its share
    ceiling: Floats  # (brokers): no level fills a destination above this share
    tried: int = 0

    def lower(self, sources: Rows) -> None:
        """Lower those of these brokers that stay above the acceptable share, the fullest first."""
        plan, waiting = self.plan, sources
        acceptable, target, limit = plan.acceptable_share, plan.target_share, plan.limit
        while len(waiting) and self.tried < EFFORT:
            peak = plan.share[waiting].max(axis=1)
            first = int(waiting[peak.argmax()])
            highest = float(peak.max() * (1.0 - self.least[first]))
            if highest <= acceptable:
                break
            if not self._bring_down(first, waiting, highest, acceptable):
                waiting = waiting[waiting != first]
            plan.acceptable_share, plan.target_share, plan.limit = acceptable, target, limit

    def _bring_down(self, first: int, sources: Rows, highest: float, lowest: float) -> bool:
        """Bring a source, and all others above its level, down to the best level between two.

        The levels are those of a bisection. Returns whether the source can be brought to any.
        """
        plan, before, limit = self.plan, self.plan.state(), self.plan.limit
        best: tuple[list[int], int, State] | None = None
        level = highest
        for _ in range(TRIES):
            plan.restore(before)
            plan.limit = np.minimum(np.maximum(limit, level), self.ceiling)
            if self._try(level, sources, before) and plan.share[first].max() <= level + NEGLIGIBLE:
                highest, found = level, (self._profile(), len(plan.moves), plan.state())
                if best is None or found[:2] < best[:2]:
                    best = found
            elif best is None:
                break
            else:
                lowest = level
            if self.tried > EFFORT:
                break
            level = (highest * lowest) ** 0.5
        plan.restore(before if best is None else best[2])
        return best is not None

    def _try(self, level: float, sources: Rows, before: State) -> bool:
        """Bring the sources down to a level; return whether few moves do so, which pay back."""
        plan = self.plan
        plan.acceptable_share = plan.target_share = level
        peak = plan.share.max(axis=1)
        most = len(before.moves) + MOST
        for source in heaviest_first(sources[peak[sources] > level + NEGLIGIBLE], peak).tolist():
            plan.relieve(source, self.rows[source], most)
        self.tried += len(plan.moves) - len(before.moves)
        return len(plan.moves) < most and self._pays(before)

    def _profile(self) -> list[int]:
        """Return the shares of all brokers in hundredths, the highest first."""
        peaks = np.sort(self.plan.share.max(axis=1))[::-1]
        found: list[int] = np.round(peaks * ALIKE).astype(int).tolist()
        return found

    def _pays(self, before: State) -> bool:
        """Return whether the moves since a state pay back, though destinations become fuller."""
        plan = self.plan
        bundles = np.array([move.bundle for move in plan.moves[len(before.moves) :]], np.intp)
        return plan.payback.pay_in_all(before.share, plan.share, bundles)
