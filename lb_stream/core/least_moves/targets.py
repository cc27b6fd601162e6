"""The even load of each broker: its usage if load is spread as well as the rules allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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


def compute_even_loads(
    view: ClusterView, fleet: Fleet, takers: Callable[[int], Rows], reachable: Bools
) -> Floats:
    """Return the even load of each broker: a ratio of its scarcest resource, (brokers).

    Without isolation policies it is the higher of two usages: all load ÷ all capacity, and of a
    broker with only the largest bundle. The largest bundle counts with its lasting demand, so that
    other brokers do not become hot while it is smaller for a short time. With isolation, bundles
    that few brokers may take make these brokers fuller. The densest such group of brokers gets its
    even load first, then the others. O(groups² · brokers).
    """
    # Groups of bundles that the same brokers may take: the brokers, total demand, largest demand.
    found = np.full(len(view.brokers), NOTHING)
    groups = dict[bytes, tuple[Bools, Floats, Floats]]()
    for mask, rows in _classes(view, takers, reachable):
        _, total, largest = groups.get(mask.tobytes(), (mask, np.zeros(KINDS), np.zeros(KINDS)))
        largest = np.maximum(largest, fleet.lasting[rows].max(axis=0, initial=0.0))
        groups[mask.tobytes()] = mask, total + fleet.demand[rows].sum(axis=0), largest

    # The densest group of brokers, with all bundles that only they may take; then the next one.
    expected, free = fleet.expected, reachable.copy()
    waiting = list(groups.values())
    while waiting and free.any():
        best, members, settled = -1.0, free, list[int]()
        for among in [*(mask & free for mask, _, _ in waiting), free]:
            inside = [
                at for at, group in enumerate(waiting) if not (group[0] & free & ~among).any()
            ]
            usage = _usage(expected[among], fleet.fixed[among], [waiting[at][1:] for at in inside])
            if usage > best:
                best, members, settled = usage, among, inside
        found[members] = max(best, NOTHING)
        free &= ~members
        waiting = [group for at, group in enumerate(waiting) if at not in settled]
    return found


def _usage(capacity: Floats, fixed: Floats, groups: list[tuple[Floats, Floats]]) -> float:
    """Return these brokers' usage with the groups' load: on average, or with the largest bundle."""
    if not len(capacity) or not groups:
        return 0.0
    total = np.sum([group[0] for group in groups], axis=0)
    largest = np.max([group[1] for group in groups], axis=0)
    whole, most = capacity.sum(axis=0), capacity.max(axis=0)
    mean = np.divide(total + fixed.sum(axis=0), whole, out=np.zeros(KINDS), where=whole > 0)
    alone = np.divide(largest, most, out=np.zeros(KINDS), where=most > 0)
    return float(max(mean.max(), min(alone.max(), MAX_FROM_ONE_BUNDLE)))


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
