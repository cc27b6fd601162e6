"""What the solver proves holds: rules, budgets and intakes, and bounds that no plan beats."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from lb_stream.core.model.view import Bools
from lb_stream.core.shedding.base import Disruption, PlanProblem
from lb_stream.query.exact_plan import Effort, MoveModel, prove

EVERYBODY = np.ones(3, np.bool_)


def a_problem(loads: list[float], owner: list[int], **changed: object) -> PlanProblem:
    """Three brokers with a capacity and an even load of 1."""
    demand, owners = np.array(loads)[:, None], np.array(owner)
    share = np.zeros((3, 1))
    np.add.at(share, owners, demand)
    fields = {
        "share": share,
        "per_unit": np.ones((3, 1)),
        "demand": demand,
        "limit": np.full(3, 1.035),
        "rows": lambda: {broker: np.flatnonzero(owners == broker) for broker in range(3)},
        "may_take": lambda _: EVERYBODY,
        "disruption": Disruption.none(len(loads)),
        "intake_left": np.full(3, len(loads)),
    }
    return PlanProblem(**(fields | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(6))
def test_no_assignment_is_better_than_what_is_proven(seed: int) -> None:
    rng = np.random.default_rng(seed)
    loads, owner = rng.uniform(0.1, 0.7, 6), rng.integers(0, 2, 6)
    refused = rng.random((6, 3)) < 0.2
    refused[np.arange(6), owner] = False

    def may_take(bundle: int) -> Bools:
        taken: Bools = ~refused[bundle]
        return taken

    problem = a_problem(loads.tolist(), owner.tolist(), may_take=may_take)
    exact = prove(problem, [], 0, seconds=60.0)
    assert exact.is_proven and exact.fewest_moves == 0, "the plan makes no move"
    for moves in (1, 2):
        model, _ = MoveModel.of_problem(problem)
        tops = [
            np.bincount(at, loads, 3).max()
            for at in map(np.array, product(range(3), repeat=6))
            if (at != owner).sum() <= moves and not refused[np.arange(6), at].any()
        ]
        assert model.lowest_max(moves, EVERYBODY, Effort()).found == pytest.approx(min(tops))


def test_budgets_and_intakes_hold() -> None:
    loads, owner = [0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0]
    budgets = Disruption(
        held=np.zeros(4, np.bool_),
        weight=np.ones(4),
        budget=np.zeros(4, np.int32),
        left=np.array([1]),
    )
    moves = [(0, 1)]
    free = prove(a_problem(loads, owner), moves, 1, 60.0)
    budgeted = prove(a_problem(loads, owner, disruption=budgets), [(0, 1)], 1, 60.0)
    assert free.max == budgeted.max == 1.5
    model, _ = MoveModel.of_problem(a_problem(loads, owner, disruption=budgets))
    assert model.lowest_max(4, EVERYBODY, Effort()).found == pytest.approx(1.5)
    model, _ = MoveModel.of_problem(a_problem(loads, owner, intake_left=np.array([4, 1, 0])))
    assert model.lowest_max(4, EVERYBODY, Effort()).found == pytest.approx(1.5)
    model, _ = MoveModel.of_problem(a_problem(loads, owner))
    assert model.lowest_max(4, EVERYBODY, Effort()).found == pytest.approx(1.0)
