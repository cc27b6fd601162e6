"""The even load of each broker: its usage if load is spread as well as the rules allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lb_stream.core.least_moves.capacities import RESOURCES
from lb_stream.core.least_moves.fleet import Fleet
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.view import Bools, Bundles, ClusterView, Floats, Rows

NOTHING = 1e-9
"""The even load of a broker without load: not 0, as shares are divided by it."""
KINDS = len(RESOURCES)
MAX_FROM_ONE_BUNDLE = 0.85
"""The largest bundle raises the even load of all brokers up to this usage, and no further."""


class EvenLoads(NamedTuple):
    """The even load of each broker, and what it is computed from."""

    usage: Floats  # (brokers): the even load, a ratio of the scarcest resource
    fixed: Floats  # (brokers, resources): used by no bundle, or by bundles that can't move
    of_one: Bools  # (brokers): one bundle alone sets the even load, so others have room
    group: Rows  # (brokers): number of the group that shares this even load; -1: no load to share


def compute_even_loads(
    view: ClusterView,
    fleet: Fleet,
    takers: Callable[[int], Rows],
    reachable: Bools,
    stays: Bools,
    least: float = NOTHING,
) -> EvenLoads:
    """Return the even load of each broker.

    Without isolation policies it is the higher of two usages: that to which all load that can move
    fills the brokers, and that of a broker with only the largest bundle. A broker whose fixed use
    is above it takes no part, and doesn't raise it. The largest bundle counts with its lasting
    demand, so that other brokers do not become hot while it is smaller for a short time. With
    isolation, bundles that few brokers may take make these brokers fuller. The densest such group
    of brokers gets its even load first, then the others.

    `stays`: bundles that may not leave their brokers; their demand is fixed. `least`: no even load
    is below this. O(groups² · brokers).
    """
    # Groups of bundles that the same brokers may take: the brokers, total demand, largest demand.
    demand, lasting, fixed = _split_fixed(view, fleet, stays)
    groups = dict[bytes, tuple[Bools, Floats, Floats]]()
    for mask, rows in _classes(view, takers, reachable):
        _, total, largest = groups.get(mask.tobytes(), (mask, np.zeros(KINDS), np.zeros(KINDS)))
        largest = np.maximum(largest, lasting[rows].max(axis=0, initial=0.0))
        groups[mask.tobytes()] = mask, total + demand[rows].sum(axis=0), largest

    # The densest group of brokers, with all bundles that only they may take; then the next one.
    found = np.full(len(view.brokers), max(least, NOTHING))
    of_one = np.zeros(len(view.brokers), np.bool_)
    group = np.full(len(view.brokers), -1, np.intp)
    vessels = _Vessels.build(fleet.expected, fixed)
    free = reachable.copy()
    waiting = list(groups.values())
    while waiting and free.any():
        best, by_one, members, settled = -1.0, False, free, list[int]()
        for among in [*(mask & free for mask, _, _ in waiting), free]:
            inside = [
                at for at, (mask, *_) in enumerate(waiting) if not (mask & free & ~among).any()
            ]
            level, alone = vessels.usages(among, [waiting[at][1:] for at in inside])
            if max(level, alone) > best:
                best, by_one, members, settled = max(level, alone), alone > level, among, inside
        of_one[members] = by_one & (best > found[members])
        found[members] = np.maximum(best, found[members])
        group[members] = group.max() + 1
        free &= ~members
        waiting = [loads for at, loads in enumerate(waiting) if at not in settled]
    return EvenLoads(found, fixed, of_one, group)


def _split_fixed(view: ClusterView, fleet: Fleet, stays: Bools) -> tuple[Floats, Floats, Floats]:
    """Return the demand and lasting demand of bundles that can move, and brokers' fixed use.

    The first two are 0 for bundles that stay; their demand is part of their owners' fixed use.
    """
    if not stays.any():
        return fleet.demand, fleet.lasting, fleet.fixed
    rows, count = view.bundles.owner[stays].astype(np.intp) + 1, len(view.brokers)
    staying = [np.bincount(rows, column, count + 1)[1:] for column in fleet.demand[stays].T]
    moves = ~stays[:, None]
    return fleet.demand * moves, fleet.lasting * moves, fleet.fixed + np.stack(staying, axis=1)


@dataclass(frozen=True, slots=True)
class _Vessels:
    """Brokers as vessels that movable load fills to one level above what is in them for good.

    Columns are resources; a capacity of 0 takes no part. The sorted ones have the brokers in the
    order of their fixed usage, another order for each resource.
    """

    capacity: Floats  # (brokers, resources)
    fixed: Floats  # (brokers, resources), 0 without a capacity
    order: Rows  # (brokers, resources): rows of the sorted ones
    sorted_capacity: Floats
    sorted_fixed: Floats

    @staticmethod
    def build(capacity: Floats, fixed: Floats) -> _Vessels:
        """Return the vessels of all brokers."""
        fixed = np.where(capacity > 0, fixed, 0.0)
        usage = np.divide(fixed, capacity, out=np.zeros_like(fixed), where=capacity > 0)
        order = np.argsort(usage, axis=0, kind="stable")
        return _Vessels(
            capacity,
            fixed,
            order,
            np.take_along_axis(capacity, order, axis=0),
            np.take_along_axis(fixed, order, axis=0),
        )

    def usages(self, among: Bools, groups: list[tuple[Floats, Floats]]) -> tuple[float, float]:
        """Return these brokers' usage with the groups' load: filled up, and by the largest bundle.

        A group is the total and the largest demand of its bundles.
        """
        if not among.any() or not groups:
            return 0.0, 0.0
        total = np.sum([group[0] for group in groups], axis=0)
        largest = np.max([group[1] for group in groups], axis=0)
        level = self._level(among, total)
        with_largest = np.divide(
            self.fixed[among] + largest,
            self.capacity[among],
            out=np.full((int(among.sum()), KINDS), np.inf),
            where=self.capacity[among] > 0,
        ).min(axis=0)
        alone = with_largest[(with_largest < np.inf) & (largest > 0)].max(initial=0.0)
        return level, float(min(alone, MAX_FROM_ONE_BUNDLE))

    def _level(self, among: Bools, total: Floats) -> float:
        """Return the least u with Σ capacity · max(0, u - fixed ÷ capacity) = total.

        Filling only the k least used brokers gives a level for each k. It falls as long as the next
        broker's fixed usage is below it: the lowest one is the level of all.
        """
        takes_part = among[self.order]
        capacity = np.cumsum(self.sorted_capacity * takes_part, axis=0)
        filled = total + np.cumsum(self.sorted_fixed * takes_part, axis=0)
        levels = np.divide(
            filled, capacity, out=np.full_like(capacity, np.inf), where=capacity > 0
        ).min(axis=0)
        return float(levels[levels < np.inf].max(initial=0.0))


def _classes(
    view: ClusterView, takers: Callable[[int], Rows], reachable: Bools
) -> Iterator[tuple[Bools, slice]]:
    """Yield groups of bundles that the same brokers may take: (brokers, rows of bundles).

    Only isolation matters here: anti-affinity separates bundles that may go anywhere.
    """
    everything = slice(0, len(view.bundles))
    if not view.policies.isolation:
        yield reachable, everything
        return
    for first, rows in _namespaces(view.bundles):
        mask = np.zeros(len(view.brokers), np.bool_)
        mask[takers(first)] = True
        mask &= reachable
        yield (mask if mask.any() else reachable), rows


def _namespaces(bundles: Bundles) -> Iterator[tuple[int, slice]]:
    """Yield the first bundle of each namespace, and the rows of all its bundles."""
    first = 0
    while first < len(bundles):
        rows = bundles.rows_of_namespace(namespace_of(bundles.name(first)))
        yield first, slice(first, max(rows.stop, first + 1))
        first = max(rows.stop, first + 1)
