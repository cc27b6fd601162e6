"""Small clusters, LeastMoves' plan for each, and the fewest moves there are, found by a solver of
integer programs (HiGHS)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from lb_stream.core.least_moves.chains import Reliever
from lb_stream.core.least_moves.config import LeastMovesConfig
from lb_stream.core.least_moves.payback import Payback
from lb_stream.core.least_moves.plan import MovePlan
from lb_stream.core.model.view import Bools, Floats, Rows
from lb_stream.core.shedding.base import Disruption, heaviest_first
from lb_stream.query.exact_plan import Effort, Minimum, MoveModel

ROUNDING = 1e-9
EFFORT = Effort(nodes=5_000)
"""Nodes are counted, not timed: the same case ends the same way everywhere."""
SETTINGS = LeastMovesConfig()


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster with a hot broker or several.

    Loads are in shares of each broker's target, as in a plan.
    """

    demand: Floats  # (bundles, resources)
    per_unit: Floats  # (brokers, resources): 1 / (target · capacity)
    owner: Rows
    cost: Floats  # of moving each bundle
    allowed: Bools  # (bundles, brokers): who may have it

    @property
    def share(self) -> Floats:
        """(brokers, resources): what each carries."""
        load = np.zeros_like(self.per_unit)
        np.add.at(load, self.owner, self.demand)
        return load * self.per_unit


@dataclass(frozen=True, slots=True)
class Compared:
    """LeastMoves' plan beside the fewest moves there are."""

    moves: int
    cost: float
    relieved: bool  # every hot broker has been brought down far enough
    bound: int  # the fewest moves to that, as the plan takes it
    fewest: int  # moves that do as much as the plan does
    least_cost: float  # of so few
    needed: int | None  # moves to relieve every hot broker; None: that can't be


class Unproven(Exception):
    """The solver has tried enough."""


def random_case(seed: int, brokers: int = 0, bundles: int = 0) -> Case:
    """3 to 5 brokers of up to two sizes, 8 to 21 bundles, one to three resources, a tenth of the
    destinations barred.

    They were even once; then a third of the bundles became some other load.
    """
    rng = np.random.default_rng(seed)
    brokers, bundles, resources = (
        brokers or int(rng.integers(3, 6)),
        bundles or int(rng.integers(8, 22)),
        int(rng.integers(1, 4)),
    )
    demand = rng.lognormal(0.0, rng.uniform(0.3, 1.0), (bundles, 1)) * rng.lognormal(
        0.0, 0.3, (bundles, resources)
    )
    capacity = rng.choice([1.0, rng.choice([1.0, 2.0])], (brokers, 1)) * np.ones(resources)
    owner, load = np.zeros(bundles, np.intp), np.zeros_like(capacity)
    for bundle in np.argsort(-demand.sum(axis=1)).tolist():
        owner[bundle] = np.argmin(((load + demand[bundle]) / capacity).max(axis=1))
        load[owner[bundle]] += demand[bundle]
    demand[rng.random(bundles) < 1 / 4] *= rng.uniform(0.3, 2.5)
    target = max(
        (demand.sum(axis=0) / capacity.sum(axis=0)).max(),
        (demand.max(axis=0) / capacity.max(axis=0)).max(),
    )
    clients = rng.lognormal(0.0, 1.0, bundles)
    allowed = rng.random((bundles, brokers)) > 0.1
    allowed[np.arange(bundles), owner] = True
    return Case(
        demand, 1.0 / (target * capacity), owner, 0.5 + 0.5 * clients / clients.mean(), allowed
    )


def bring_all_down(plan: MovePlan, sources: Rows, rows: Callable[[int], Rows]) -> None:
    """One pass over the sources, the fullest first, as the shedder makes it.

    `rows`: a broker's bundles that may move.
    """
    bundles = {broker: rows(broker) for broker in range(len(plan.share))}
    Reliever(plan, lambda: bundles).relieve(
        heaviest_first(sources, plan.share.max(axis=1)), bundles
    )


def sources_of(case: Case, settings: LeastMovesConfig = SETTINGS) -> Bools:
    """(brokers): those that a pass relieves."""
    peak = case.share.max(axis=1)
    found: Bools = (peak > settings.least_moves_acceptable_ratio) & (
        peak.max() > settings.least_moves_trigger_ratio
    )
    return found


def nobody_connected(brokers: int, bundles: int) -> Payback:
    """Every move pays back: it costs no client anything."""
    return Payback(np.zeros(brokers), np.ones(brokers), np.zeros(bundles), np.ones(bundles), 1.0)


def planned(case: Case, settings: LeastMovesConfig = SETTINGS) -> MovePlan:
    """LeastMoves' plan, with no budgets."""
    plan = MovePlan(
        share=case.share,
        per_unit=case.per_unit,
        demand=case.demand,
        cost=case.cost,
        payback=nobody_connected(len(case.per_unit), len(case.cost)),
        may_take=case.allowed.__getitem__,
        acceptable_share=settings.least_moves_acceptable_ratio,
        target_share=settings.least_moves_target_ratio,
        min_gain=0.0,
        limit=np.full(len(case.per_unit), settings.least_moves_max_destination_ratio),
        disruption=Disruption.none(len(case.demand)),
        intake_left=np.full(len(case.per_unit), len(case.demand)),
    )
    bring_all_down(
        plan,
        np.flatnonzero(sources_of(case, settings)),
        lambda broker: np.flatnonzero(case.owner == broker),
    )
    return plan


def compare(case: Case, settings: LeastMovesConfig = SETTINGS) -> Compared:
    """Plan, and solve for what is to be reached and for what the plan reaches."""
    before, plan, sources = case.share, planned(case, settings), sources_of(case, settings)
    enough, destination = (
        settings.least_moves_acceptable_ratio,
        settings.least_moves_max_destination_ratio,
    )
    goal = np.where(sources[:, None], enough, np.maximum(before, destination))
    needed, best = fewest_moves(case, goal), fewest_moves(case, np.maximum(goal, plan.share))
    assert best is not None, "the plan itself is one"
    at_first = replace(plan, share=before)
    return Compared(
        moves=len(plan.moves),
        cost=float(case.cost[[move.bundle for move in plan.moves]].sum()),
        relieved=bool((plan.share[sources] <= max(enough, destination) + ROUNDING).all()),
        bound=sum(
            at_first.fewest(source, np.flatnonzero(case.owner == source))
            for source in np.flatnonzero(sources).tolist()
        ),
        fewest=best[0],
        least_cost=best[1],
        needed=None if needed is None else needed[0],
    )


def fewest_moves(case: Case, ceiling: Floats) -> tuple[int, float] | None:
    """The fewest moves that leave no broker above `ceiling` (brokers, resources), and the least
    cost of so few; None: none do."""
    model = MoveModel.build(case.share, case.per_unit, case.demand, case.owner, case.allowed)
    count = _proven(model.fewest_moves(ceiling, EFFORT))
    if count is None:
        return None
    cost = _proven(model.least_cost(case.cost, ceiling, round(count), EFFORT))
    assert cost is not None
    return round(count), cost


def _proven(minimum: Minimum) -> float | None:
    """The least value; None: there is none. Raises Unproven."""
    if minimum.at_least == np.inf:
        return None
    if not minimum.is_proven:
        raise Unproven
    return minimum.found
