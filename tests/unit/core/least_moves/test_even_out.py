"""Evening out: a plan's moves are changed, and stay as many, as cheap and as lawful as they
were."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lb_stream.core.least_moves.even_out import DEARER, EVEN, STUCK, even_out
from lb_stream.core.least_moves.plan import MovePlan, PlannedMove
from lb_stream.core.model.view import Bools
from lb_stream.core.shedding.base import Disruption
from tests.unit.core.least_moves.plans import LIMIT, a_plan, parts, rows_of

Moved = list[tuple[int, int, int]]


def planned(
    loads: list[float], owner: list[int], moves: list[tuple[int, int]], brokers: int = 3
) -> MovePlan:
    """A plan that is made: bundles, and where they go."""
    after = dict(moves)
    plan = a_plan(
        np.array(loads)[:, None],
        [after.get(bundle, one) for bundle, one in enumerate(owner)],
        brokers,
    )
    plan.moves = [
        PlannedMove(bundle, owner[bundle], destination, 0.0, -1, np.inf)
        for bundle, destination in moves
    ]
    plan.moved[[bundle for bundle, _ in moves]] = True
    return plan


def evened(plan: MovePlan, owner: list[int], moved: list[int] | None = None) -> Moved:
    """Bundle, source and destination of each move after evening out.

    `moved`: bundles that have moved lately.
    """
    lately: Bools = np.isin(np.arange(len(owner)), moved or [])
    even_out(
        plan, lambda: {broker: rows_of(owner, broker) for broker in range(len(plan.share))}, lately
    )
    return [(move.bundle, move.source, move.destination) for move in plan.moves]


def test_the_fullest_destination_gives_a_move_to_another_broker() -> None:
    owner = [0, 1, 2, 0]
    plan = planned([0.5, 0.6, 0.4, 0.9], owner, [(0, 1)])
    assert evened(plan, owner) == [(0, 0, 2)]
    assert plan.share[:, 0] == pytest.approx([0.9, 0.6, 0.9]) and plan.moves[
        0
    ].share == pytest.approx(0.9)
    assert plan.moves[0].second == -1, "nobody else has room"
    assert plan.intake_left.tolist() == [4, 5, 3], (
        "room for one more where it doesn't go any longer"
    )


def test_two_moves_exchange_their_destinations() -> None:
    owner = [0, 0, 1, 2, 0]
    plan = planned([0.5, 0.3, 0.7, 0.5, 0.9], owner, [(0, 1), (1, 2)])
    assert sorted(evened(plan, owner)) == [(0, 0, 2), (1, 0, 1)]
    assert plan.share[:, 0] == pytest.approx([0.9, 1.0, 1.0])


def test_a_lighter_bundle_of_the_same_source_stands_in_and_so_does_a_heavier_one() -> None:
    owner = [0, 0, 1, 2, 0]
    lighter = planned([0.5, 0.4, 0.6, 1.0, 0.4], owner, [(0, 1)])
    assert evened(lighter, owner) == [(1, 0, 1)] and lighter.share[:2, 0] == pytest.approx(
        [0.9, 1.0]
    )
    heavier = planned([0.4, 0.5, 0.5, 1.0, 0.6], owner, [(0, 1)])
    assert evened(heavier, owner) == [(1, 0, 1)] and heavier.share[:2, 0] == pytest.approx(
        [1.0, 1.0]
    )


@pytest.mark.parametrize("factor", [DEARER, DEARER * 1.01])
def test_what_stands_in_is_hardly_dearer(factor: float) -> None:
    owner = [0, 0, 1, 2, 0]
    plan = planned([0.5, 0.4, 0.6, 1.0, 0.4], owner, [(0, 1)])
    plan.cost[1] *= factor
    plan.cost[4] *= 10
    assert evened(plan, owner) == [(1 if factor == DEARER else 0, 0, 1)]


def test_a_bundle_of_another_budget_or_that_may_not_go_there_stands_in_for_none() -> None:
    owner, loads = [0, 0, 1, 2, 0], [0.5, 0.4, 0.6, 1.0, 0.4]
    budgets = replace(
        Disruption.none(5), budget=np.array([0, 1, 0, 0, 1], np.int32), left=np.array([5, 5])
    )
    assert evened(replace_moves(planned(loads, owner, [(0, 1)]), disruption=budgets), owner) == [
        (0, 0, 1)
    ]
    only = {1: np.array([True, False, True]), 4: np.array([True, False, True])}
    bound = replace_moves(
        planned(loads, owner, [(0, 1)]),
        may_take=lambda bundle: only.get(bundle, np.ones(3, np.bool_)),
    )
    assert evened(bound, owner) == [(0, 0, 1)]


def replace_moves(plan: MovePlan, **changes: object) -> MovePlan:
    """The plan with other rules, as far as before."""
    changed = replace(plan, **changes)
    changed.moved[:] = plan.moved
    return changed


def test_an_exchange_stays_whole() -> None:
    owner = [0, 1, 2, 0]
    plan = planned([0.9, 0.2, 0.1, 0.4], owner, [(0, 1), (1, 0)])
    plan.moves[0] = plan.moves[0]._replace(with_next=True)
    plan.share[1] = 1.2
    assert evened(plan, owner) == [(0, 0, 1), (1, 1, 0)]


def test_a_bundle_that_has_moved_lately_stays_where_another_one_can_go() -> None:
    owner = [0, 0, 1, 2, 0]
    loads = [0.3, 0.3, 0.7, 1.0, 0.6]
    assert evened(planned(loads, owner, [(0, 1)]), owner, moved=[0]) == [(1, 0, 1)]
    assert evened(planned(loads, owner, [(0, 1)]), owner, moved=[0, 1, 4]) == [(0, 0, 1)]
    assert evened(planned([0.3, 0.35, *loads[2:]], owner, [(0, 1)]), owner, moved=[0]) == [
        (0, 0, 1)
    ], "that would be too much"


def _pairs(moves: list[PlannedMove]) -> list[tuple[int, int, int, int]]:
    """Bundles and brokers of each exchange."""
    both = pairwise(moves)
    return [
        (one.bundle, one.destination, back.bundle, back.destination)
        for one, back in both
        if one.with_next
    ]


def test_a_bundle_stays_only_where_its_own_brokers_bear_that() -> None:
    owner, loads = [0, 0, 1, 2, 3, 0], [0.3, 0.02, 0.6, 0.98, 1.5, 1.0]
    plan = planned(loads, owner, [(0, 1)], brokers=4)
    plan.cost[5] = 10
    assert evened(plan, owner, moved=[0]) == [(0, 0, 1)], "another broker's 1.5 allows nothing here"


def test_nothing_stands_in_that_carries_nothing() -> None:
    owner = [0, 0, 1, 2, 0]
    plan = planned([0.08, 0.0, 1.0, 1.0, 0.97], owner, [(0, 1)])
    plan.cost[4] = 10
    assert evened(plan, owner) == [(0, 0, 1)]


def test_a_chain_of_stand_ins_is_no_dearer_than_one() -> None:
    owner = [0, 0, 0, 0, 1, 2, 0]
    plan = planned([0.10, 0.14, 0.18, 0.22, 0.6, 1.0, 0.8], owner, [(0, 1)])
    plan.cost[:] = [1, DEARER, DEARER**2, DEARER**3, 9, 9, 99]
    assert evened(plan, owner) == [(1, 0, 1)]


@pytest.mark.parametrize("others", [STUCK - 1, STUCK, 3 * STUCK])
def test_brokers_that_take_nothing_and_give_nothing_are_in_nobodys_way(others: int) -> None:
    for full in (0.0, 1e8):
        owner = [0, 1, 2, 0, *range(3, 3 + others)]
        plan = planned([0.5, 0.6, 0.4, 0.9, *[full] * others], owner, [(0, 1)], brokers=3 + others)
        plan.limit[3:] = -np.inf
        assert evened(plan, owner) == [(0, 0, 2)]


def test_a_broker_has_given_before_it_takes() -> None:
    owner = [0, 1, 2, 0, 1, 3]
    plan = planned([0.3, 0.7, 0.75, 1.0, 0.5, 0.2], owner, [(0, 2), (1, 3)], brokers=4)
    assert evened(plan, owner) == [(1, 1, 3), (0, 0, 1)]


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_changes_keep_the_number_of_moves_and_all_rules_and_no_broker_exceeds_the_fullest(
    data: st.DataObject,
) -> None:
    brokers, count = data.draw(st.integers(2, 6)), data.draw(st.integers(2, 30))
    demand = (
        np.array(data.draw(st.lists(st.tuples(parts, parts), min_size=count, max_size=count))) / 3
    )
    owner = data.draw(st.lists(st.integers(0, brokers - 1), min_size=count, max_size=count))
    refused = data.draw(
        st.lists(st.sets(st.integers(0, brokers - 1)), min_size=count, max_size=count)
    )
    masks = [np.array([broker not in one for broker in range(brokers)]) for one in refused]
    lately = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    budget = np.array(data.draw(st.lists(st.integers(-1, 1), min_size=count, max_size=count)))
    into = data.draw(st.integers(1, 5))
    plan = a_plan(demand, owner, brokers, masks.__getitem__)
    plan.cost[:] = data.draw(st.lists(st.floats(0.5, 2.0), min_size=count, max_size=count))
    plan.disruption = replace(
        plan.disruption, budget=budget.astype(np.int32), left=np.array([2, 3])
    )
    plan.intake_left = np.full(brokers, into)
    everybody = {broker: rows_of(owner, broker) for broker in range(brokers)}
    for source in range(brokers):
        plan.bring_down(
            source,
            everybody[source],
            lambda: everybody,
            effort=data.draw(st.sampled_from([0, 300])),
        )
    made, before = list(plan.moves), plan.share.copy()
    even_out(plan, lambda: everybody, lately)

    gives = {one.source for one in made}
    late, pair = list[bool](), False
    for move in plan.moves:
        alone, pair = not (pair or move.with_next), move.with_next
        late.append(alone and move.destination in gives)
    assert late == sorted(late), "into brokers that give comes last"
    assert sorted((move.source, move.with_next) for move in plan.moves) == sorted(
        (one.source, one.with_next) for one in made
    )
    assert _pairs(plan.moves) == _pairs(made)
    moved = [move.bundle for move in plan.moves]
    assert len(set(moved)) == len(moved) == int(plan.moved.sum()) and all(
        owner[move.bundle] == move.source for move in plan.moves
    )
    assert all(
        masks[move.bundle][move.destination] and move.destination != move.source
        for move in plan.moves
    )
    charged = [
        sorted((one.source, int(budget[one.bundle])) for one in some) for some in (plan.moves, made)
    ]
    assert charged[0] == charged[1], "each source's moves are of the budgets that they were of"
    assert sum(lately[moved]) <= sum(lately[one.bundle] for one in made)
    after = dict(zip(moved, (move.destination for move in plan.moves), strict=True))
    again = a_plan(demand, [after.get(bundle, one) for bundle, one in enumerate(owner)], brokers)
    assert plan.share == pytest.approx(again.share)
    assert plan.share.max() <= max(before.max(), EVEN) + 1e-9
    given_to = np.bincount([move.destination for move in plan.moves], minlength=brokers)
    assert (plan.intake_left == into - given_to).all() and (given_to <= into).all()
    sources = np.isin(np.arange(brokers), [move.source for move in plan.moves])
    assert (plan.share.max(axis=1) <= np.maximum(before.max(axis=1), LIMIT) + 1e-9)[~sources].all()
