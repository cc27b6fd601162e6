"""Where the bundles of a broker go that is to be restarted.

They go to brokers that stay first: to those that have been restarted, and to those that needn't be.
There they needn't move again. No broker is filled beyond the level that all have while this one is
away. What finds no room goes to brokers that wait for their turn, and moves once more: it should be
few bundles, and so heavy ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lb_stream.core.model.view import Bools, Floats, Ints, Rows
from lb_stream.core.rollout.loads import Loads

TOLERANCE = 0.015
"""A destination may be filled beyond the level by this part of it."""


class Destination(NamedTuple):
    """The chosen broker, and what was compared."""

    broker: int
    considered: Rows  # the brokers with a score
    scores: Floats  # usage with the bundle ÷ level
    stays: bool  # the bundle needn't move again


@dataclass(slots=True)
class Emptying:
    """The bundles of one broker, and the brokers that may take them. Mutable."""

    loads: Loads
    source: int
    stays: Bools  # (brokers): restarted ones, and those that needn't be
    passing: Bools  # (brokers): those that wait for their turn, and may take bundles until then
    levels: Floats  # (brokers): the even usage while the source is away
    intake_left: Ints  # (brokers): bundles that each may still take

    def order(self, bundles: Rows) -> tuple[Rows, set[int]]:
        """Return the bundles, the heaviest first, and those that shall move once more.

        The latter are as few as make room for all others at the brokers that stay.
        """
        weights = self.loads.weights(bundles)
        heaviest = bundles[np.argsort(-weights, kind="stable")]
        left = self._left_over(heaviest, set())
        if len(left) > 1:
            fewer = self._fewest_that_cover(heaviest)
            if len(again := self._left_over(heaviest, fewer)) < len(left):
                left = again
        return heaviest, left

    def choose(self, bundle: int, moves_again: bool) -> Destination | None:
        """Choose the destination of a bundle; None: no broker may take it now."""
        rows = self.loads.takers(bundle)
        rows = rows[(self.stays | self.passing)[rows] & (self.intake_left[rows] > 0)]
        if not len(rows):
            return None
        scores = self.loads.with_bundle(bundle, rows) / self.levels[rows]
        stays = self.stays[rows]
        fits = scores <= 1.0 + TOLERANCE
        for wanted in (stays & fits & (not moves_again), ~stays & fits, stays | ~stays):
            if wanted.any():
                best = int(np.where(wanted, scores, np.inf).argmin())
                return Destination(int(rows[best]), rows, scores, bool(stays[best]))
        return None

    def take(self, bundle: int, destination: int) -> None:
        """Count a bundle at its destination from now on."""
        self.loads.move(bundle, self.source, destination)
        self.intake_left[destination] -= 1

    def _left_over(self, bundles: Rows, without: set[int]) -> set[int]:
        """Return the bundles that the brokers that stay have no room for, and `without`.

        Each goes to the broker with most room, in this order.
        """
        used = self.loads.used.copy()
        left = set(without)
        limit = self.levels * (1.0 + TOLERANCE)
        for bundle in bundles.tolist():
            if bundle in left:
                continue
            rows = self.loads.takers(bundle)
            rows = rows[self.stays[rows]]
            after = self.loads.with_bundle(bundle, rows) - limit[rows]
            if not len(rows) or after.min() > 0:
                left.add(bundle)
                continue
            self.loads.used[rows[after.argmin()]] += self.loads.fleet.demand[bundle]
        self.loads.used = used
        return left

    def _fewest_that_cover(self, heaviest: Rows) -> set[int]:
        """Return as few bundles as weigh what the brokers that stay have no room for."""
        weights = self.loads.weights(heaviest)
        rows = np.flatnonzero(self.stays)
        limit = self.levels[rows] * (1.0 + TOLERANCE)
        excess = float(weights.sum()) - float(np.maximum(limit - self.loads.usage[rows], 0).sum())
        chosen = set[int]()
        for at in range(len(heaviest)):
            enough = np.flatnonzero(weights[at:] >= excess)
            if len(enough):
                chosen.add(int(heaviest[at + enough[-1]]))
                break
            chosen.add(int(heaviest[at]))
            excess -= float(weights[at])
        return chosen
