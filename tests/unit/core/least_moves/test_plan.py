"""Plans: as few moves as can be, within limits, rules and budgets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lb_stream.core.least_moves.payback import Payback
from tests.unit.core.least_moves.plans import ENOUGH, LIMIT, a_plan, parts, rows_of


@settings(deadline=None)
@given(st.lists(parts, min_size=1, max_size=9))
def test_one_source_is_relieved_by_as_few_moves_as_there_can_be(loads: list[float]) -> None:
    demand = np.array(loads)[:, None]
    plan = a_plan(demand, [0] * len(loads), len(loads) + 1)
    excess = float(plan.share[0, 0]) - ENOUGH
    counts = (
        count
        for count in range(len(loads) + 1)
        for some in combinations(loads, count)
        if sum(some) >= excess - 1e-9
    )
    assert plan.relieve(0, np.arange(len(loads)))
    assert len(plan.moves) == next(counts)


@settings(deadline=None)
@given(st.data())
def test_no_destination_is_filled_beyond_its_limit_nor_asked_for_what_it_may_not_have(
    data: st.DataObject,
) -> None:
    brokers, count = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 12))
    demand = np.array(data.draw(st.lists(st.tuples(parts, parts), min_size=count, max_size=count)))
    owner = data.draw(st.lists(st.integers(0, brokers - 1), min_size=count, max_size=count))
    refused = data.draw(
        st.lists(st.sets(st.integers(0, brokers - 1)), min_size=count, max_size=count)
    )
    masks = [np.array([broker not in one for broker in range(brokers)]) for one in refused]
    plan = a_plan(demand, owner, brokers, masks.__getitem__)
    before = plan.share.copy()
    for source in range(brokers):
        if not plan.relieve(source, rows_of(owner, source)):
            plan.exchange(
                source, rows_of(owner, source), {one: rows_of(owner, one) for one in range(brokers)}
            )
    loads = np.zeros_like(before)
    for move in plan.moves:
        assert owner[move.bundle] == move.source
        owner[move.bundle] = move.destination
        assert move.destination not in refused[move.bundle]
    np.add.at(loads, np.array(owner), demand)
    np.testing.assert_allclose(plan.share, loads, atol=1e-9)
    assert len({move.bundle for move in plan.moves}) == len(plan.moves), "no bundle moves twice"
    assert (loads.max(axis=1) <= np.maximum(before.max(axis=1), LIMIT) + 1e-9).all()


def test_a_bundle_that_was_given_for_another_broker_s_does_not_leave_its_broker_again() -> None:
    """Of forty clusters with two scarce resources a handful swap bundles of a broker whose own turn
    comes later."""
    swapped = 0
    for seed in range(40):
        chance = np.random.default_rng(seed)
        owner = chance.integers(0, 4, 16).tolist()
        plan = a_plan(chance.uniform(0.05, 0.5, (16, 2)), owner, 4)
        rows = {broker: rows_of(owner, broker) for broker in range(4)}
        for source in np.argsort(-plan.share.max(axis=1)).tolist():
            plan.bring_down(source, rows[source], partial(dict, rows))
        assert len({move.bundle for move in plan.moves}) == len(plan.moves), seed
        swapped += any(move.with_next for move in plan.moves)
    assert swapped, "none of these clusters says anything"


def test_of_bundles_that_cover_the_excess_the_one_with_the_fewest_clients_goes() -> None:
    demand = np.array([[0.5], [0.5], [0.5]])
    plan = a_plan(demand, [0, 0, 0], 2)
    plan.cost[:] = [1.0, 0.5, 2.0]
    assert plan.relieve(0, np.arange(3))
    assert [move.bundle for move in plan.moves] == [1]


def test_a_bundle_whose_budget_is_used_up_stays() -> None:
    demand = np.array([[0.5], [0.5], [0.6], [0.6]])
    plan = a_plan(demand, [0] * 4, 4)
    plan.disruption = replace(
        plan.disruption, budget=np.array([0, 0, 1, 1], np.int32), left=np.array([5, 1])
    )
    assert plan.relieve(0, np.arange(4))
    assert sorted(move.bundle for move in plan.moves) == [0, 1, 2], (
        "2 and 3 would be enough, but one of them must stay"
    )


def test_what_no_single_move_relieves_is_exchanged() -> None:
    demand = np.array(
        [[0.6, 0.1], [0.5, 0.1], [0.2, 0.1], [0.7, 0.1]]
    )  # 1.1 at the first broker, 0.9 at the second
    plan = a_plan(demand, [0, 0, 1, 1], 2)
    assert not plan.relieve(0, np.array([0, 1])) and not plan.moves
    plan.exchange(0, np.array([0, 1]), {1: np.array([2, 3])})
    assert plan.moves == []  # 0.5 for 0.2 makes 1.2 there, 0.6 for 0.7 makes it worse
    plan = a_plan(np.array([[0.6], [0.5], [0.5], [0.4]]), [0, 0, 1, 1], 2)
    assert not plan.relieve(0, np.array([0, 1]))
    plan.exchange(0, np.array([0, 1]), {1: np.array([2, 3])})
    assert [
        (move.bundle, move.source, move.destination, move.with_next) for move in plan.moves
    ] == [
        (0, 0, 1, True),
        (2, 1, 0, False),
    ]
    assert plan.share.max() <= ENOUGH


def test_brokers_that_have_too_much_of_different_things_exchange_what_they_have_too_much_of() -> (
    None
):
    """Nobody has room for anything: two have too much of the first resource, two of the second."""
    demand = np.array([[0.3, 0.05]] * 8 + [[0.05, 0.3]] * 8)
    owner = [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    plan = a_plan(demand, owner, 4)
    rows = {broker: rows_of(owner, broker) for broker in range(4)}
    assert (
        plan.share.max() == 1.2
        and not any(plan.relieve(source, rows[source]) for source in range(4))
        and not plan.moves
    )
    for source in range(4):
        plan.bring_down(source, rows[source], lambda: rows)
    assert plan.share.max() <= ENOUGH and len(plan.moves) == 4, "one exchange relieves two brokers"


def test_the_second_best_destination_is_told() -> None:
    plan = a_plan(np.array([[0.8], [0.4], [0.3], [0.1]]), [0, 0, 1, 2], 3)
    assert plan.relieve(0, np.array([0, 1]))
    (move,) = plan.moves
    assert (move.bundle, move.destination, move.second) == (1, 2, 1)
    assert (round(move.share, 9), round(move.second_share, 9)) == (0.5, 0.7)


def test_no_room_is_made_for_a_bundle_where_the_moves_for_it_cost_more_than_it_saves() -> None:
    demand, owner = np.array([[0.9], [0.7], [0.3], [0.3], [0.6]]), [0, 0, 1, 1, 2]

    def moved(client_seconds: float) -> list[int]:
        of_bundle = np.array([1.0, 1.0, client_seconds, client_seconds, client_seconds])
        payback = Payback(np.full(3, 100.0), np.ones(3), of_bundle, np.ones(5), 1.0)
        plan = replace(a_plan(demand, owner, 3), payback=payback)
        plan.bring_down(
            0,
            rows_of(owner, 0),
            lambda: {broker: rows_of(owner, broker) for broker in range(3)},
        )
        return [move.bundle for move in plan.moves]

    assert moved(1.0) == [1, 2] and moved(1_000.0) == []
