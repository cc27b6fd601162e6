"""Chains: the fewest moves over all hot brokers of a small cluster, within rules and budgets."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lb_stream.core.least_moves import chains
from lb_stream.core.least_moves.chains import MAX_BROKERS, ChainSearch, Reliever
from lb_stream.core.least_moves.plan import MovePlan
from lb_stream.core.model.view import Bools, Floats, Rows
from lb_stream.core.shedding.base import Disruption, heaviest_first
from tests.unit.core.least_moves.plans import ENOUGH, LIMIT, a_plan, parts, rows_of

CYCLE = [0.6, 0.5, 0.6, 0.4, 0.55, 0.35]
"""Of a (0.6, 0.5), b (0.6, 0.4), c (0.55, 0.35): a has 1.1, b 1.0, c 0.9."""
OWNERS = [0, 0, 1, 1, 2, 2]


def rows_by_broker(owner: list[int], brokers: int) -> dict[int, Rows]:
    return {broker: rows_of(owner, broker) for broker in range(brokers)}


def relieve_all(plan: MovePlan, owner: list[int]) -> None:
    """Relieve all brokers above the acceptable share."""
    rows = rows_by_broker(owner, len(plan.share))
    peak = plan.share.max(axis=1)
    sources = heaviest_first(np.flatnonzero(peak > ENOUGH), peak)
    Reliever(plan, lambda: rows).relieve(sources, rows)


def fewest_by_trying(demand: Floats, owner: list[int], brokers: int, high: Floats) -> int | None:
    """The fewest moves after which no broker is above `high`, by trying every assignment."""
    found = list[int]()
    for at in product(range(brokers), repeat=len(owner)):
        load = np.zeros((brokers, demand.shape[1]))
        np.add.at(load, np.array(at), demand)
        if (load <= high + 1e-9).all():
            found.append(sum(now != then for now, then in zip(at, owner, strict=True)))
    return min(found, default=None)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_search_finds_the_fewest_moves_that_there_are(data: st.DataObject) -> None:
    count = data.draw(st.integers(3, 6))
    demand = np.array(data.draw(st.lists(st.tuples(parts, parts), min_size=count, max_size=count)))
    owner = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    plan = a_plan(demand, owner, 3)
    high = np.where(plan.share.max(axis=1) > ENOUGH, ENOUGH, LIMIT)[:, None] * np.ones((3, 2))
    high = np.maximum(high, np.where(plan.share > ENOUGH, ENOUGH, plan.share))
    search = ChainSearch(plan, rows_by_broker(owner, 3), high)
    found = search.find(count, chains.WIDE, 10**9)
    fewest = fewest_by_trying(demand, owner, 3, high)
    assert found.proven
    if fewest == 0:
        return  # nothing is too full
    assert (None if found.moves is None else len(found.moves)) == fewest


def test_three_brokers_that_no_single_move_or_swap_relieves_exchange_in_a_cycle() -> None:
    # 0.6 of a for 0.55 of c leaves c too full; a cycle over three brokers relieves all.
    loads = np.array([0.62, 0.48, 0.56, 0.40, 0.50, 0.44])[:, None]
    plan = a_plan(loads, OWNERS, 3, limit=1.02)
    relieve_all(plan, OWNERS)
    assert plan.share.max() <= ENOUGH + 1e-9
    assert len(plan.moves) == fewest_by_trying(
        loads, OWNERS, 3, np.array([[ENOUGH], [1.02], [1.02]])
    )


def test_moves_that_only_together_leave_room_are_decided_together() -> None:
    # Both brokers are full but for 0.02, so neither can take before it gives.
    loads = np.array([0.6, 0.5, 0.55, 0.45])[:, None]
    owner = [0, 0, 1, 1]
    plan = a_plan(loads, owner, 2, limit=1.05)
    relieve_all(plan, owner)
    assert [move.with_next for move in plan.moves] == [True, False]
    assert plan.share.max() < 1.1 - 0.04


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_no_plan_of_a_small_cluster_breaks_a_rule_or_a_budget_or_ends_fuller(
    data: st.DataObject,
) -> None:
    brokers, count = data.draw(st.integers(2, 5)), data.draw(st.integers(2, 12))
    demand = np.array(data.draw(st.lists(st.tuples(parts, parts), min_size=count, max_size=count)))
    owner = data.draw(st.lists(st.integers(0, brokers - 1), min_size=count, max_size=count))
    refused = data.draw(
        st.lists(st.sets(st.integers(0, brokers - 1)), min_size=count, max_size=count)
    )
    masks = [np.array([broker not in own for broker in range(brokers)]) for own in refused]
    budget = np.array(data.draw(st.lists(st.integers(-1, 1), min_size=count, max_size=count)))
    left = np.array(data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=2)))
    intake = np.array(data.draw(st.lists(st.integers(0, 4), min_size=brokers, max_size=brokers)))

    def planned() -> MovePlan:
        plan = a_plan(demand, owner, brokers, masks.__getitem__)
        plan.disruption = Disruption(
            np.zeros(count, np.bool_), np.ones(count), budget.astype(np.int32), left
        )
        plan.intake_left = intake.copy()
        relieve_all(plan, owner)
        return plan

    plan = planned()
    begun = a_plan(demand, owner, brokers).share
    assert plan.share.max() <= max(begun.max(), ENOUGH) + 1e-9
    moved = [move.bundle for move in plan.moves]
    assert len(set(moved)) == len(moved)
    for move in plan.moves:
        assert move.destination not in refused[move.bundle]
        assert owner[move.bundle] == move.source
    for number in range(2):
        assert sum(budget[bundle] == number for bundle in moved) <= left[number]
    taken = np.bincount([move.destination for move in plan.moves], minlength=brokers)
    assert (taken <= intake).all()
    assert planned().moves == plan.moves, "the same input gives the same plan"


def test_of_plans_with_as_few_moves_the_cheapest_is_found() -> None:
    loads = np.array([0.5, 0.3, 0.3, 0.3, 0.2])[:, None]
    plan = a_plan(loads, [0, 0, 0, 0, 1], 2)
    plan.cost = np.array([2.0, 3.0, 1.0, 2.0, 1.0])
    goal = np.array([[1.11], [1.0]])
    found = ChainSearch(plan, rows_by_broker([0, 0, 0, 0, 1], 2), goal).find(3, 30, 10**9)
    assert found.moves == ((2, 1),) and found.cost == 1.0


@pytest.mark.parametrize("payback_s", [1e-6, 1e9])
def test_a_chain_whose_moves_cost_more_than_they_save_is_not_made(payback_s: float) -> None:
    plan = a_plan(np.array(CYCLE)[:, None], OWNERS, 3, limit=1.02)
    plan.payback = replace(
        plan.payback, clients=np.ones(3), client_seconds=np.ones(6), within_s=payback_s
    )
    relieve_all(plan, OWNERS)
    assert bool(plan.moves) == (payback_s > 1)


def test_equal_bundles_are_tried_once() -> None:
    loads = np.full(16, 0.125)[:, None]
    owner = [0] * 12 + [1] * 2 + [2] * 2
    plan = a_plan(loads, owner, 3, limit=1.0)
    goal = np.full((3, 1), 0.75)
    search = ChainSearch(plan, rows_by_broker(owner, 3), goal)
    found = search.find(6, chains.WIDE, 10**9)
    assert found.moves is not None and len(found.moves) == 6 and found.proven
    assert search.effort < 20_000, "12 equal bundles have one order, not 12 · 11 · 10 ..."


def test_a_large_cluster_is_not_searched_as_a_whole() -> None:
    brokers = MAX_BROKERS + 1
    loads = np.array([0.7, 0.5, *[0.9] * (brokers - 2), 0.2])[:, None]
    owner = [0, 0, *range(1, brokers)]

    def may_take(_: int) -> Bools:
        return np.ones(brokers, np.bool_)

    plan = a_plan(loads, owner, brokers, may_take)
    rows = rows_by_broker(owner, brokers)
    reliever = Reliever(plan, lambda: rows)
    left = reliever.chains_left
    reliever.relieve(np.array([0]), rows)
    assert reliever.chains_left == left and plan.share[0].max() <= ENOUGH


def test_a_move_that_a_later_one_makes_needless_is_taken_back() -> None:
    # Without the first move, the second alone relieves the broker.
    loads = np.array([0.9, 0.3, 0.2])[:, None]
    plan = a_plan(loads, [0, 0, 0], 3)
    goal = np.array([[ENOUGH], [LIMIT], [LIMIT]])
    for bundle, broker in ((2, 1), (0, 2)):
        plan.move_to(bundle, 0, broker)
    chains._drop_needless(plan, 0, goal)
    assert [move.bundle for move in plan.moves] == [0]
    np.testing.assert_allclose(plan.share.ravel(), [0.5, 0.0, 0.9], atol=1e-12)
    assert not plan.moved[2] and plan.intake_left.tolist() == [3, 3, 2]
