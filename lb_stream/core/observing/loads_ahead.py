"""The loads that a plan's moves lead to.

From them follows an order in which no move raises the max usage, and whether a plan that waits
still serves as well as a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lb_stream.core.model.resources import Floats
from lb_stream.core.model.view import Bools, ClusterView, resources_used

ROUNDING_TOLERANCE = 1e-6
"""A max usage that rises by no more than this has not risen: usages are in single precision."""
USAGE_TOLERANCE = 0.02
"""A plan that waits is kept while its max usage ends no more than this above a new plan's."""
RELIEF_TOLERANCE = 0.05
"""It need not relieve a broker that a new plan would relieve by no more than this."""
EXTRA_MOVES_DIVISOR = 5
"""It may have a fifth more moves than a new plan, and one more at least."""

Step = tuple[int, str, str | None]
"""A move: the bundle's row, its source, and its destination (None: not known)."""
Group = list[int]
"""Moves that are made together or not at all, as positions in the list of moves."""


@dataclass(slots=True)
class LoadsAhead:
    """Brokers' usage as moves are carried out one after another. Mutable.

    Loads follow the model of pending moves.
    """

    names: dict[str, int]  # broker → row
    counted: Bools  # brokers that count in the max: reachable, and not drained
    share: Floats  # (resources, brokers): weighted usage of each, as a ratio
    ends: list[tuple[int, int]]  # of each move: rows of source and destination; -1: not known
    leaves: Floats  # (moves, resources): how much the source's usage falls
    comes: Floats  # (moves, resources): how much the destination's usage rises
    not_for_load: frozenset[int] = frozenset()  # moves that keep an anti-affinity group apart
    tolerated: float = 0.0  # usage up to which those may raise the max
    usage: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.usage = self.share.max(axis=0, initial=0.0)

    @staticmethod
    def build(
        view: ClusterView,
        steps: Sequence[Step],
        not_for_load: frozenset[int] = frozenset(),
        tolerated: float = 0.0,
    ) -> LoadsAhead:
        """Return the loads of a view before the first of these moves. O(brokers + moves)."""
        # The rows of each move, and what its bundle uses of each resource.
        brokers = view.brokers
        names = {name: row for row, name in enumerate(brokers.names)}
        drained = np.array([name in view.policies.drained for name in brokers.names], np.bool_)
        ends = [(names.get(source, -1), names.get(to or "", -1)) for _, source, to in steps]
        rows = np.array([row for row, _, _ in steps], np.intp)
        sources, destinations = np.array(ends, np.intp).reshape(-1, 2).T
        amounts = resources_used(brokers, sources, view.bundles.short.take(rows).throughput)
        # Each broker's weighted usage, and what a unit of a resource adds to it.
        share, per_unit = list[Floats](), list[Floats]()
        for name, weight in brokers.weights.items():
            usage, limit = brokers.resources[name]
            unit = np.divide(weight, limit, out=np.zeros(len(limit)), where=limit > 0)
            per_unit.append(np.append(unit, 0.0))  # one more: -1 is no broker
            share.append(np.nan_to_num(usage * unit))
        # What each move changes at both of its ends.
        used = [(amounts[name], unit) for name, unit in zip(brokers.weights, per_unit, strict=True)]
        leaves = np.array([amount * unit[sources] for amount, unit in used])
        comes = np.array([amount * unit[destinations] for amount, unit in used])
        counted = brokers.reachable & ~drained
        return LoadsAhead(
            names, counted, np.array(share), ends, leaves.T, comes.T, not_for_load, tolerated
        )

    def copy(self) -> LoadsAhead:
        """Return a copy that other moves can be applied to."""
        return replace(self, share=self.share.copy())

    @property
    def max_usage(self) -> float:
        """The max usage of the brokers that count; 0 if there is none."""
        return float(self.usage[self.counted].max(initial=0.0))

    def apply_moves(self, moves: Collection[int]) -> None:
        """Count these moves as carried out."""
        for broker, share in self._shares_after(moves).items():
            self.share[:, broker] = share
            self.usage[broker] = share.max(initial=0.0)

    def _shares_after(self, moves: Collection[int]) -> dict[int, Floats]:
        """Return the brokers that these moves touch → their shares (resources) after the moves."""
        shares: dict[int, Floats] = {}
        for move in moves:
            source, destination = self.ends[move]
            if source >= 0:
                left = shares.get(source, self.share[:, source]) - self.leaves[move]
                shares[source] = np.maximum(left, 0.0)
            if destination >= 0:
                before = shares.get(destination, self.share[:, destination])
                shares[destination] = before + self.comes[move]
        return shares

    def leaves_from(self, broker: int, moves: Collection[int]) -> bool:
        """Whether one of these moves takes a bundle from the broker in that row."""
        return any(self.ends[move][0] == broker for move in moves)

    def after(self, moves: Collection[int]) -> LoadsAhead:
        """Return the loads after these moves."""
        ahead = self.copy()
        ahead.apply_moves(moves)
        return ahead

    def is_worse_after(self, moves: Collection[int]) -> bool:
        """Whether the max usage would be higher after these moves than it is now.

        O(brokers): only brokers that the moves touch can exceed it.
        """
        most = self.max_usage
        if self.not_for_load.issuperset(moves):
            most = max(most, self.tolerated)
        shares = self._shares_after(moves)
        return any(
            self.counted[row] and share.max(initial=0.0) > most + ROUNDING_TOLERANCE
            for row, share in shares.items()
        )


def order_groups(loads: LoadsAhead, groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
    """Order groups so that none raises the max usage; return them, and the groups that always do.

    The given order is kept as far as possible. A group that raises the max whenever its turn comes
    is joined with the first group that makes room for it.
    """
    ahead, left = loads.copy(), list(groups)
    ordered, harmful = list[Group](), list[Group]()
    tried = 0  # so many of the first groups left are known to raise the max now
    while left:
        # The first group that can be next.
        places = range(tried, len(left))
        fits = next((at for at in places if not ahead.is_worse_after(left[at])), None)
        if fits is not None:
            ahead.apply_moves(left[fits])
            ordered.append(left.pop(fits))
            tried = 0
            continue
        # There is none: the first group is joined with one that relieves the broker in its way.
        first = left.pop(0)
        then = ahead.after(first)
        busiest = int(np.argmax(np.where(then.counted, then.usage, -np.inf)))
        makes_room = (at for at, group in enumerate(left) if ahead.leaves_from(busiest, group))
        other = next(makes_room, None)
        if other is None:
            harmful.append(first)
            tried = len(left)
        else:
            left[other] = sorted([*first, *left[other]])
            tried = other
    return ordered, harmful


def serves_as_well(loads: LoadsAhead, waits: Group, new: Group, begun: bool) -> bool:
    """Whether a plan that waits need not be replaced by a new one.

    It relieves the same brokers about as far, with hardly more moves. If each sample's noise
    replaced the plan, operators would see other moves under other ids all the time.

    `begun`: a part of the plan has been approved. The rest may have more moves than a new plan.
    """
    # Hardly more moves, and none of the brokers forgotten that a new plan relieves.
    sources, wanted = ({loads.ends[move][0] for move in moves} for moves in (waits, new))
    if not begun and len(waits) > len(new) + max(1, len(new) // EXTRA_MOVES_DIVISOR):
        return False
    missed = sorted(wanted - sources)
    if (loads.usage[missed] - loads.after(new).usage[missed] > RELIEF_TOLERANCE).any():
        return False
    # Hardly a higher max usage, of the brokers that either plan touches.
    ends = {broker for move in (*waits, *new) for broker in loads.ends[move]}
    touched = sorted(ends - {-1})
    after, after_new = (loads.after(moves).usage[touched] for moves in (waits, new))
    return bool(after.max(initial=0.0) <= after_new.max(initial=0.0) + USAGE_TOLERANCE)
