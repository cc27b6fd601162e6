"""What a plan's moves do to brokers' usage: an order in which none of them makes the max worse, and
whether a plan that waits still serves as well as a new one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lb_stream.core.model.resources import Floats
from lb_stream.core.model.view import Bools, ClusterView, resources_used

ROUNDING_TOLERANCE = 1e-6
"""A max usage that rises by no more than this stays as it is: usages are in single precision."""
USAGE_TOLERANCE = 0.02
"""A plan that waits is kept while its brokers end no more than this above those of a new plan."""
RELIEF_TOLERANCE = 0.05
"""It needn't relieve a broker that a new plan would relieve by no more than this."""
EXTRA_MOVES_DIVISOR = 5
"""It may have a fifth more moves than a new one, and one at least."""

Step = tuple[int, str, str | None]
"""A move: the bundle's row, its source, its destination; None: not known."""
Group = list[int]
"""Moves that are made together or not at all, by their places in the list of moves."""


@dataclass(slots=True)
class LoadsAhead:
    """Brokers' usage as moves are carried out one after another.

    By the load model of moves in flight. Mutable. Brokers that are dead or being drained don't
    count in the max. Moves that aren't made for load's sake may raise it up to `tolerated`.
    """

    names: dict[str, int]  # broker → row
    counted: Bools
    share: Floats  # (resources, brokers): weighted usage of each, as a ratio
    ends: list[tuple[int, int]]  # of each move: rows of source and destination; -1: not known
    leaves: Floats  # (moves, resources): what its source comes down by
    comes: Floats  # (moves, resources): what its destination rises by
    not_for_load: frozenset[int] = frozenset()  # moves that keep a group apart
    tolerated: float = 0.0  # usage
    usage: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.usage = self.share.max(axis=0, initial=0.0)

    @staticmethod
    def of(
        view: ClusterView,
        steps: Sequence[Step],
        not_for_load: frozenset[int] = frozenset(),
        tolerated: float = 0.0,
    ) -> LoadsAhead:
        """The loads of a view, before the first of these moves. O(brokers + moves)."""
        brokers = view.brokers
        names = {name: row for row, name in enumerate(brokers.names)}
        drained = np.array([name in view.policies.drained for name in brokers.names], np.bool_)
        ends = [(names.get(source, -1), names.get(to or "", -1)) for _, source, to in steps]
        rows = np.array([row for row, _, _ in steps], np.intp)
        sources, destinations = np.array(ends, np.intp).reshape(-1, 2).T
        amounts = resources_used(brokers, sources, view.bundles.short.take(rows).throughput)
        share, per_unit = list[Floats](), list[Floats]()
        for name, weight in brokers.weights.items():
            usage, limit = brokers.resources[name]
            unit = np.divide(weight, limit, out=np.zeros(len(limit)), where=limit > 0)
            per_unit.append(np.append(unit, 0.0))  # one more: -1 is no broker
            share.append(np.nan_to_num(usage * unit))
        used = [(amounts[name], unit) for name, unit in zip(brokers.weights, per_unit, strict=True)]
        leaves = np.array([amount * unit[sources] for amount, unit in used])
        comes = np.array([amount * unit[destinations] for amount, unit in used])
        counted = brokers.reachable & ~drained
        moved = leaves.T, comes.T
        return LoadsAhead(names, counted, np.array(share), ends, *moved, not_for_load, tolerated)

    def copy(self) -> LoadsAhead:
        """The same, to be gone on with in another way."""
        return replace(self, share=self.share.copy())

    @property
    def max_usage(self) -> float:
        """Of the brokers that count; 0 where there is none."""
        return float(self.usage[self.counted].max(initial=0.0))

    def carry_out(self, moves: Collection[int]) -> None:
        """Count these moves as done."""
        for broker, share in self._shares_after(moves).items():
            self.share[:, broker] = share
            self.usage[broker] = share.max(initial=0.0)

    def _shares_after(self, moves: Collection[int]) -> dict[int, Floats]:
        """Broker that these moves touch → what its usage consists of once they are done."""
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
        """Whether one of these moves takes a bundle from a broker (row)."""
        return any(self.ends[move][0] == broker for move in moves)

    def after(self, moves: Collection[int]) -> LoadsAhead:
        """The loads once these moves are done, too."""
        ahead = self.copy()
        ahead.carry_out(moves)
        return ahead

    def is_worse_after(self, moves: Collection[int]) -> bool:
        """Whether these moves, made now, leave the busiest broker busier than the busiest is now.

        O(brokers): only what they touch can have become busier than that.
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
    """Groups in an order in which none makes the max worse, and those for which there is none.

    The given order is kept as far as it can be. A group that makes the max worse, whenever its turn
    comes, is bound to the first one that makes room for it: both become one group.
    """
    ahead, left = loads.copy(), list(groups)
    ordered, harmful = list[Group](), list[Group]()
    tried = 0  # of those that are left the first so many make the max worse as loads are
    while left:
        places = range(tried, len(left))
        fits = next((at for at in places if not ahead.is_worse_after(left[at])), None)
        if fits is not None:
            ahead.carry_out(left[fits])
            ordered.append(left.pop(fits))
            tried = 0
            continue
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
    """Whether a plan that waits needs no new one in its place.

    It relieves the same brokers about as far, with hardly more moves. Else each sample's noise
    would have operators look at other moves, under other ids.

    `begun`: part of it has been approved. The rest may then be more than a new plan would have.
    """
    sources, wanted = ({loads.ends[move][0] for move in moves} for moves in (waits, new))
    if not begun and len(waits) > len(new) + max(1, len(new) // EXTRA_MOVES_DIVISOR):
        return False
    missed = sorted(wanted - sources)
    if (loads.usage[missed] - loads.after(new).usage[missed] > RELIEF_TOLERANCE).any():
        return False
    ends = {broker for move in (*waits, *new) for broker in loads.ends[move]}
    touched = sorted(ends - {-1})
    after, after_new = (loads.after(moves).usage[touched] for moves in (waits, new))
    return bool(after.max(initial=0.0) <= after_new.max(initial=0.0) + USAGE_TOLERANCE)
