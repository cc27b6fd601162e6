"""A cluster in a line, for tests of what a rollout plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.least_moves.fleet import Fleet
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.policies import NO_POLICIES, Policies
from lb_stream.core.model.view import Rows
from lb_stream.core.rollout.loads import Loads
from tests.support.build import Report, batch_of


def a_cluster(
    owned: Mapping[str, Sequence[float]],
    capacity: Sequence[float] | None = None,
    policies: Policies = NO_POLICIES,
) -> Loads:
    """Return the loads of a cluster: broker → the cpu that each of its bundles takes.

    The first broker's bundles have the first rows. `capacity`: of each broker; 1 without it.
    """
    counts = [len(loads) for loads in owned.values()]
    names = [f"t/n/0x{at:08x}_0x{at + 1:08x}" for at in range(sum(counts))]
    ends = np.cumsum([0, *counts]).tolist()
    reports = [
        Report(broker, 1_000, dict.fromkeys(names[first:end]))
        for broker, first, end in zip(owned, ends, ends[1:], strict=False)
    ]
    shard, _ = fold(Shard.empty(), batch_of(reports), 1_000, FoldConfig())
    view = replace(view_of("c", [shard], 1_000, {"cpu": 1.0}), policies=policies)
    demand = np.zeros((len(names), 4))
    demand[:, 0] = [load for loads in owned.values() for load in loads]
    brokers = len(owned)
    room = np.zeros((brokers, 4))
    room[:, 0] = 1.0 if capacity is None else capacity
    no, unexplained = np.zeros(brokers, np.bool_), np.zeros(brokers)
    fleet = Fleet(
        demand, demand, room, np.zeros((brokers, 4)), np.zeros(brokers), no, unexplained, no
    )

    def takers(bundle: int) -> Rows:
        return np.flatnonzero(view.active)

    return Loads(view, fleet, takers)
