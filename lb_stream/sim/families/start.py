"""Where bundles are when a made scenario begins."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np

from lb_stream.sim.families.sampling import make_rng
from lb_stream.sim.families.spec import Spec
from lb_stream.sim.scenario.scenario import Floats, Ints


@dataclass(frozen=True, slots=True)
class BundlePool:
    """Bundles and the brokers that they may use, by rows.

    `together`: bundles that start at one broker each set, no two sets at one.
    """

    bundles: Ints
    brokers: Ints
    together: tuple[tuple[Ints, ...], ...] = ()


def start_owners(
    spec: Spec, pools: list[BundlePool], size: Floats, weight: Floats, groups: Ints
) -> Ints:
    """The row of each bundle's broker.

    `size` of bundles, `weight` of brokers: how much each should carry; `groups`: tenant or kind.
    """
    owner = np.full(len(size), -1, np.int64)
    for number, pool in enumerate(pools):
        draws = make_rng(spec.seed, f"start {number}")
        filled = np.zeros(len(weight))
        free = np.ones(len(size), np.bool_)
        for sets in pool.together:
            for rows, broker in zip(
                sets, draws.permutation(pool.brokers)[: len(sets)].tolist(), strict=True
            ):
                owner[rows], free[rows] = broker, False
                filled[broker] += size[rows].sum()
        rows = pool.bundles[free[pool.bundles]]
        match spec.start.placement:
            case "random":
                owner[rows] = draws.choice(pool.brokers, len(rows))
            case "equal_counts":
                owner[draws.permutation(rows)] = np.resize(pool.brokers, len(rows))
            case "balanced":
                owner[rows] = _fill(rows, pool.brokers, size, weight, filled)
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
    """The largest bundle first, each to the broker that is then filled least for its weight.

    Adds to `filled`.
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
