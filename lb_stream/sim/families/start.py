"""Chooses the brokers at which bundles start."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np

from lb_stream.sim.families.sampling import make_rng
from lb_stream.sim.families.spec import Spec
from lb_stream.sim.scenario.scenario import Floats, Ints


@dataclass(frozen=True, slots=True)
class BundlePool:
    """Bundles and the brokers at which they may start, as rows.

    `together`: groups of sets of bundles. The sets of a group start at different brokers, the
    bundles of a set at the same one.
    """

    bundles: Ints
    brokers: Ints
    together: tuple[tuple[Ints, ...], ...] = ()


def choose_start_owners(
    spec: Spec,
    pools: list[BundlePool],
    size: Floats,
    weight: Floats,
    groups: Ints,
    largest: Ints,
) -> Ints:
    """Choose the row of each bundle's broker.

    `size`: of bundles. `weight`: of brokers, what each should carry. `groups`: each bundle's tenant
    or kind. `largest`: rows of the largest bundles, which never stray.
    """
    owner = np.full(len(size), -1, np.int64)
    for number, pool in enumerate(pools):
        draws = make_rng(spec.seed, f"start {number}")
        filled = np.zeros(len(weight))
        free = np.ones(len(size), np.bool_)
        # anti-affinity groups
        for sets in pool.together:
            for rows, broker in zip(
                sets, draws.permutation(pool.brokers)[: len(sets)].tolist(), strict=True
            ):
                owner[rows], free[rows] = broker, False
                filled[broker] += size[rows].sum()
        # all other bundles
        rows = pool.bundles[free[pool.bundles]]
        match spec.start.placement:
            case "random":
                owner[rows] = draws.choice(pool.brokers, len(rows))
            case "equal_counts":
                owner[draws.permutation(rows)] = np.resize(pool.brokers, len(rows))
            case "balanced":
                stray = draws.random(len(rows)) < spec.start.strays
                stray &= ~np.isin(rows, largest)
                placed, strays = rows[~stray], rows[stray]
                owner[placed] = _fill(placed, pool.brokers, size, weight, filled)
                owner[strays] = draws.choice(pool.brokers, len(strays))
            case _:
                own = draws.random(len(rows)) < spec.start.own_share
                labels = np.where(own, groups[rows], -1)
                kinds = int(groups.max()) + 1
                for label in range(-1, kinds):
                    mine = rows[labels == label]
                    brokers = (
                        pool.brokers
                        if label < 0
                        else pool.brokers[label % len(pool.brokers) :: kinds]
                    )
                    owner[mine] = _fill(mine, brokers, size, weight, filled)
    return owner


def _fill(rows: Ints, brokers: Ints, size: Floats, weight: Floats, filled: Floats) -> Ints:
    """Assign the largest bundle first, each to the broker that carries least for its weight.

    Adds the sizes to `filled`.
    """
    heap = [(float(filled[broker] / weight[broker]), broker) for broker in brokers.tolist()]
    heapify(heap)
    found = np.empty(len(rows), np.int64)
    for at in np.argsort(-size[rows], kind="stable").tolist():
        level, broker = heap[0]
        found[at] = broker
        heapreplace(heap, (level + float(size[rows[at]] / weight[broker]), broker))
    np.add.at(filled, found, size[rows])
    return found
