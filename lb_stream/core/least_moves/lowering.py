"""Lowering: how far the fullest brokers come down where no moves bring them near their even load.

Large bundles, unlike capacities or rules can put the even load out of reach. Then the best plan is
the one whose highest share is lowest, then its second highest, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.core.least_moves.plan import NEGLIGIBLE, MovePlan, State
from lb_stream.core.model.view import Floats, Rows

LEVELS = 8
"""Levels that are tried from a broker's share down to the acceptable share."""
ALIKE = 100
"""Highest shares of two plans are compared to the nearest part of this, and then by their moves."""
EFFORT = 2_000
"""Lower levels are tried until this number of moves has been tried."""


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
            if not self._lower(first, waiting, np.geomspace(highest, acceptable, LEVELS)):
                waiting = waiting[waiting != first]
            plan.acceptable_share, plan.target_share, plan.limit = acceptable, target, limit

    def _lower(self, first: int, sources: Rows, levels: Floats) -> bool:
        """Bring a source, and all others above its level, down to the best of these levels.

        Returns whether the source can be brought to any.
        """
        plan = self.plan
        before, limit = plan.state(), plan.limit
        best: tuple[list[int], int, State] | None = None
        for level in levels.tolist():
            plan.restore(before)
            plan.acceptable_share = plan.target_share = level
            plan.limit = np.minimum(np.maximum(limit, level), self.ceiling)
            above = sources[plan.share[sources].max(axis=1) > level + NEGLIGIBLE]
            for source in above[np.argsort(-plan.share[above].max(axis=1), kind="stable")].tolist():
                plan.relieve(source, self.rows[source])
            self.tried += len(plan.moves) - len(before.moves)
            if plan.share[first].max() > level + NEGLIGIBLE or not self._pays(before):
                break
            found = (self._profile(), len(plan.moves), plan.state())
            if best is None or found[:2] < best[:2]:
                best = found
        plan.restore(before if best is None else best[2])
        return best is not None

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
