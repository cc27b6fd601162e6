"""What no assignment can go below: how full each broker must be when load is spread as well as the
rules allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from lb_stream.core.least_moves.fleet import RESOURCES, Fleet
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.view import Bools, Bundles, ClusterView, Floats, Rows

NOTHING = 1e-9
KINDS = len(RESOURCES)
COMFORT = 0.85
"""Where one bundle alone makes a broker fuller than this, the others are not filled likewise."""


def targets(view: ClusterView, fleet: Fleet, takers: Callable[[int], Rows], open_: Bools) -> Floats:
    """(brokers): the usage that each is entitled to, of its scarcest resource.

    Without isolation that is all load ÷ all capacity, or the largest bundle alone (up to COMFORT).
    Where that bundle has become smaller for a while, nobody else has become hot: it counts as it
    mostly is. With it, bundles that few brokers may have make these fuller than the rest: the
    densest such group is settled first, and the rest of the load is the rest's. O(groups² ·
    brokers).
    """
    found = np.full(len(view.brokers), NOTHING)
    groups = dict[
        bytes, tuple[Bools, Floats, Floats]
    ]()  # who may take → that, the sum of demands, the largest
    for mask, rows in _classes(view, takers, open_):
        _, total, largest = groups.get(mask.tobytes(), (mask, np.zeros(KINDS), np.zeros(KINDS)))
        largest = np.maximum(largest, fleet.lasting[rows].max(axis=0, initial=0.0))
        groups[mask.tobytes()] = mask, total + fleet.demand[rows].sum(axis=0), largest
    free, waiting = open_.copy(), list(groups.values())
    while waiting and free.any():
        best, members, settled = -1.0, free, list[int]()
        for among in [*(one[0] & free for one in waiting), free]:
            inside = [at for at, one in enumerate(waiting) if not (one[0] & free & ~among).any()]
            usage = _usage(
                fleet.capacity[among], fleet.fixed[among], [waiting[at][1:] for at in inside]
            )
            if usage > best:
                best, members, settled = usage, among, inside
        found[members] = max(best, NOTHING)
        free &= ~members
        waiting = [one for at, one in enumerate(waiting) if at not in settled]
    return found


def _usage(capacity: Floats, fixed: Floats, groups: list[tuple[Floats, Floats]]) -> float:
    """How full these brokers are with the groups' load spread over them, and at least one of them
    with the largest bundle."""
    if not len(capacity) or not groups:
        return 0.0
    total, largest = (
        np.sum([group[0] for group in groups], axis=0),
        np.max([group[1] for group in groups], axis=0),
    )
    whole, most = capacity.sum(axis=0), capacity.max(axis=0)
    mean = np.divide(total + fixed.sum(axis=0), whole, out=np.zeros(KINDS), where=whole > 0)
    alone = np.divide(largest, most, out=np.zeros(KINDS), where=most > 0)
    return float(max(mean.max(), min(alone.max(), COMFORT)))


def _classes(
    view: ClusterView, takers: Callable[[int], Rows], open_: Bools
) -> Iterator[tuple[Bools, slice]]:
    """Bundles that the same brokers may have.

    Only isolation makes any difference here: anti-affinity keeps apart what may go anywhere.
    """
    everything = slice(0, len(view.bundles))
    if not view.policies.isolation:
        yield open_, everything
        return
    for first, rows in _namespaces(view.bundles):
        mask = np.zeros(len(view.brokers), np.bool_)
        mask[takers(first)] = True
        mask &= open_
        yield (mask if mask.any() else open_), rows


def _namespaces(bundles: Bundles) -> Iterator[tuple[int, slice]]:
    """The first bundle of each namespace, and the rows of all."""
    first = 0
    while first < len(bundles):
        rows = bundles.rows_of_namespace(namespace_of(bundles.name(first)))
        yield first, slice(first, max(rows.stop, first + 1))
        first = max(rows.stop, first + 1)
