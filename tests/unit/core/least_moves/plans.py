"""Plans of LeastMoves over a few brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.least_moves.payback import Payback
from lb_stream.core.least_moves.plan import MovePlan
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.policies import Policies
from lb_stream.core.model.view import Bools, ClusterView, Floats
from lb_stream.core.shedding.base import Disruption
from tests.support.build import Report, batch_of

ENOUGH, AIM, LIMIT = 1.04, 1.02, 1.045


def a_plan(
    demand: Floats,
    owner: list[int],
    brokers: int,
    may_take: Callable[[int], Bools] | None = None,
    limit: float = LIMIT,
) -> MovePlan:
    """Brokers with a capacity and a target of 1 in every resource."""
    share = np.zeros((brokers, demand.shape[1]))
    np.add.at(share, np.array(owner), demand)
    everybody = np.ones(brokers, np.bool_)
    cost = np.ones(len(demand))
    allowed = may_take or (lambda _: everybody)
    budgets, intake_left = Disruption.none(len(demand)), np.full(brokers, len(demand))
    free_moves = Payback(np.zeros(brokers), np.ones(brokers), np.zeros(len(demand)), cost, 1.0)
    return MovePlan(
        share,
        np.ones_like(share),
        demand,
        cost,
        free_moves,
        allowed,
        ENOUGH,
        AIM,
        0.0,
        np.full(brokers, limit),
        budgets,
        intake_left,
    )


def rows_of(owner: list[int], broker: int) -> np.ndarray:
    return np.flatnonzero(np.array(owner) == broker)


parts = st.integers(1, 40).map(lambda one: one / 50)

AT_ONCE = {
    "shedding_strategy": "LeastMoves",
    "placement_strategy": "LeastMoves",
    "least_moves_hot_for_ms": 0,
    "least_moves_min_standard_errors": 0,
}


def a_view(owned: dict[str, dict[str, float]], policies: Policies | None = None) -> ClusterView:
    """Brokers whose cpu is busy with a thousandth of the messages/s of their bundles; all have
    reported once."""
    reports = [
        Report(
            broker,
            1_000,
            {name: BundleStats(msg_rate_in=rate, topics=1) for name, rate in bundles.items()},
            {"cpu": (sum(bundles.values()) / 10, 100)},
        )
        for broker, bundles in owned.items()
    ]
    view = view_of(
        "c", [fold(Shard.empty(), batch_of(reports), 1_000, FoldConfig())[0]], 1_000, {"cpu": 1.0}
    )
    return view if policies is None else replace(view, policies=policies)


def a_name(number: int, namespace: str = "t/n") -> str:
    return f"{namespace}/0x{number:08x}_0x{number + 1:08x}"


UNEVEN = {
    "a": {a_name(0): 500.0, a_name(1): 300.0},
    "b": {a_name(2): 100.0},
    "c": {a_name(3): 150.0, a_name(4): 150.0},
}
