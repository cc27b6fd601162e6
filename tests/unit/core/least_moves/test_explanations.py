"""What LeastMoves tells beside its moves: their usages, what a plan needs at least, and why no more
is done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lb_stream import ask
from lb_stream.contracts.decisions import Explain, example_decision
from lb_stream.core.least_moves.explanations import build_proposals
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.least_moves.shares import Shares
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.policies import IsolationPolicy, Policies
from lb_stream.core.model.view import ClusterView
from tests.unit.core.least_moves.plans import AT_ONCE, UNEVEN, a_name, a_plan, a_view

MANY = {
    "a": {a_name(row): 50.0 for row in range(12)},
    "b": {a_name(20): 90.0},
    "c": {a_name(21): 110.0, a_name(22): 90.0},
}
STUCK = {
    "a": {a_name(0): 400.0, a_name(1): 300.0, a_name(2): 200.0},
    "b": {a_name(3): 100.0, a_name(4): 100.0},
    "c": {a_name(5): 150.0},
}
"""Nothing but exchanges helps a."""


def refused(
    view: ClusterView, memory: Memory | None = None, **settings: object
) -> dict[tuple[str, str | None], tuple[float | None, float | None]]:
    """Rule and broker → what was seen, the limit."""
    return {
        (refusal.rule, refusal.broker): (refusal.greatest, refusal.limit)
        for refusal in ask(view, memory, **{**AT_ONCE, **settings}).refusals
    }


@pytest.mark.parametrize("owned", [UNEVEN, MANY, STUCK])
def test_usages_before_and_after_each_move_follow_from_the_one_before(
    owned: dict[str, dict[str, float]],
) -> None:
    made = ask(a_view(owned), **AT_ONCE)
    facts = made.proposed.plan
    assert facts is not None and made.proposed.proposals
    usage = facts.usage.copy()
    demand = {name: rate / 1_000 for bundles in owned.values() for name, rate in bundles.items()}
    for proposal in made.proposed.proposals:
        moved = demand[made.view.bundles.name(proposal.bundle)]
        assert proposal.usages is not None and proposal.destination is not None
        assert proposal.usages == pytest.approx(
            (
                usage[proposal.source],
                usage[proposal.source] - moved,
                usage[proposal.destination],
                usage[proposal.destination] + moved,
            )
        )
        assert proposal.gain == pytest.approx(moved)
        usage[proposal.source] -= moved
        usage[proposal.destination] += moved
        assert dict(proposal.considered)[proposal.destination] == pytest.approx(proposal.usages[3])
    last = {proposal.source: proposal.expected_after for proposal in made.proposed.proposals}
    assert {row: usage[row] for row in last} == pytest.approx(last)


def test_a_destination_that_room_is_made_at_has_its_second_best_beside_it_be_that_one_emptier() -> (
    None
):
    demand = np.array([[0.5], [0.7], [0.4], [0.1]])
    plan = a_plan(demand, [0, 0, 1, 2], 3)
    even = np.full(3, 0.5)
    none = np.zeros(3, np.bool_)
    before = Shares(
        plan.share.copy(),
        plan.per_unit,
        even,
        np.zeros_like(plan.share),
        np.zeros(3),
        none,
        np.zeros(3, np.intp),
    )
    assert plan.push(0, 0, 1, np.array([2]), np.inf)
    assert plan.moves[0][:6] == (0, 0, 1, pytest.approx(0.9), 2, pytest.approx(0.6))
    (told,) = build_proposals(plan, before, 1.1)
    assert told.destination == 1 and told.considered == (
        (2, pytest.approx(0.3)),
        (1, pytest.approx(0.45)),
    )


def test_a_decision_tells_cost_gain_and_its_plan_beside_the_fewest_moves_that_there_must_be() -> (
    None
):
    made = ask(a_view(MANY), **AT_ONCE)
    assert len(made.decisions) == 6, "0.6 of an even load of 0.297 less what six of its bundles are"
    for decision in made.decisions:
        explain = decision.explain
        assert (explain.plan_moves, explain.plan_fewest, explain.cost, explain.gain) == (
            6,
            6,
            0.5,
            pytest.approx(0.05),
        )
        assert explain.client_seconds is None, "nothing is known of clients"


def test_a_decision_has_the_time_that_its_bundles_clients_lose_as_learned_from_moves() -> None:
    view = a_view(MANY)
    view = replace(view, bundles=replace(view.bundles, sessions=np.full(len(view.bundles), 20)))
    assert {decision.explain.client_seconds for decision in ask(view, **AT_ONCE).decisions} == {
        20 * (5.0 + 2.0)
    }
    learned = Memory(strategies={"LeastMoves": LeastMovesMemory(unserved_ms=1_500.0).to_dict()})
    made = ask(view, learned, least_moves_reconnect_ms=500, **AT_ONCE)
    assert {decision.explain.client_seconds for decision in made.decisions} == {20 * (1.5 + 0.5)}


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_that_relieves_everybody_has_fewer_moves_than_its_lower_bound(seed: int) -> None:
    sizes = np.random.default_rng(seed).gamma(2.0, 10.0, 60)
    owned = {
        name: {a_name(row): float(sizes[row]) for row in range(60) if min(row // 15, 3) == at}
        for at, name in enumerate("abcd")
    }
    owned["e"] = {}
    made = ask(a_view(owned), **AT_ONCE)
    facts = made.proposed.plan
    assert (
        facts is not None
        and not made.refusals
        and 0 < facts.fewest <= len(made.decisions) <= 1.5 * facts.fewest
    )


def test_figures_that_a_strategy_does_not_tell_leave_no_trace_in_the_record() -> None:
    told = example_decision().model_dump(mode="json")["explain"]
    assert (
        not {"cost", "client_seconds", "gain", "plan_moves", "plan_fewest"} & told.keys()
        and "expected_after" in told
    )
    assert Explain.model_validate_json('{"saw": 0.5}').cost is None
    assert Explain.model_validate_json(Explain(cost=1.5, plan_moves=0).to_json()) == Explain(
        cost=1.5, plan_moves=0
    )


def test_who_is_hot_but_not_for_long_enough_is_told_with_the_time_that_it_takes() -> None:
    found = refused(a_view(UNEVEN), least_moves_hot_for_ms=30_000)
    (waited, limit) = found["not_hot_for_long", "a"]
    assert waited == 0 and limit is not None and 0 < limit <= 30_000


def test_noise_makes_a_hot_broker_wait_longer_but_not_beside_an_empty_one() -> None:
    noisy = Memory(strategies={"LeastMoves": LeastMovesMemory(noise=0.3).to_dict()})

    def waits_s(last: int) -> float:
        """How long a waits beside two brokers that have as much as it has, and d."""
        counts = {"a": 400, "b": 400, "c": 400, "d": last}
        owned = {
            name: {a_name(1_000 * at + row): 1.0 for row in range(count)}
            for at, (name, count) in enumerate(counts.items())
        }
        found = refused(
            a_view(owned),
            noisy,
            least_moves_hot_for_ms=30_000,
            least_moves_min_standard_errors=3,
        )
        _, limit = found["not_hot_for_long", "a"]
        assert limit is not None
        return limit / 1_000

    assert waits_s(last=0) == waits_s(last=30) == 30
    assert waits_s(last=150) == pytest.approx(30 * 0.3 / 0.05)


def test_an_empty_broker_of_another_isolated_group_is_no_reason_to_wait_less() -> None:
    """Both groups have the same even load."""
    counts = {"a": 400, "b": 200, "c": 600, "d": 0}
    namespaces = {"a": "t/left", "b": "t/left", "c": "t/right", "d": "t/right"}
    owned = {
        name: {a_name(1_000 * at + row, namespaces[name]): 1.0 for row in range(count)}
        for at, (name, count) in enumerate(counts.items())
    }
    apart = Policies(
        isolation=(
            IsolationPolicy(("t/left",), ("a", "b")),
            IsolationPolicy(("t/right",), ("c", "d")),
        )
    )
    noisy = Memory(strategies={"LeastMoves": LeastMovesMemory(noise=0.3).to_dict()})
    found = refused(a_view(owned, apart), noisy, least_moves_hot_for_ms=30_000)
    assert found["not_hot_for_long", "a"][1] == pytest.approx(30_000 * 0.3 / 0.05)
    assert found["not_hot_for_long", "c"][1] == 30_000


def test_who_is_above_the_trigger_by_no_more_than_noise_is_told() -> None:
    ((key, (saw, limit)),) = refused(a_view(UNEVEN), least_moves_min_standard_errors=30).items()
    assert (
        key == ("within_noise", "a")
        and saw == pytest.approx(0.8)
        and limit is not None
        and limit > 0.8
    )


def test_a_wave_of_restarts_is_told_with_its_end() -> None:
    view = a_view(UNEVEN)
    view = replace(view, now_ms=100_000)
    wave = LeastMovesMemory(serving=("a", "b", "c"), changes=((40_000, "b"), (90_000, "c")))
    made = ask(view, Memory(strategies={"LeastMoves": wave.to_dict()}), **AT_ONCE)
    assert not made.decisions
    assert [
        (refusal.rule, refusal.until_ms)
        for refusal in made.refusals
        if refusal.broker == "a" and refusal.rule != "one_topic"
    ] == [("restarts", 165_000)]


def test_what_is_left_has_a_reason() -> None:
    found = refused(
        a_view(STUCK),
        least_moves_target_ratio=1.0,
        least_moves_max_destination_ratio=1.0,
        least_moves_acceptable_ratio=1.02,
    )
    assert {rule for rule, _ in found} == {"no_room"}
    alone = refused(a_view({"a": {a_name(0): 990.0}, "b": {a_name(1): 10.0}, "c": {}}))
    assert alone["sole_bundle", "a"] == (1, 2)


def test_bundles_that_may_not_move_are_the_reason_where_they_are() -> None:
    found = refused(a_view(UNEVEN), shedding_excluded_namespaces=["t/n"])
    saw, limit = found["fixed_load", "a"]
    assert saw == pytest.approx(0.8) and limit == pytest.approx(1.08 * 0.1), (
        "b's load is the even one"
    )


def test_only_brokers_that_have_just_reported_are_told_about() -> None:
    view = a_view(UNEVEN)
    brokers = replace(view.brokers, sampled=np.array([name == "b" for name in view.brokers.names]))
    assert not refused(replace(view, brokers=brokers), least_moves_hot_for_ms=30_000)


def test_an_even_cluster_is_told_by_its_figures() -> None:
    made = ask(a_view({name: {a_name(row): 100.0} for row, name in enumerate("abc")}), **AT_ONCE)
    facts = made.proposed.plan
    assert (
        facts is not None
        and facts.fewest == 0
        and facts.usage / facts.even == pytest.approx(np.ones(3))
        and not made.refusals
    )


def test_bundles_that_do_not_pay_back_are_told_with_the_time_that_each_would_take() -> None:
    """Nobody has room for the largest bundle of a; the others have nearly all clients."""
    small, large = {a_name(10 + row): 15.0 for row in range(10)}, {a_name(0): 400.0}
    others = {"b": {a_name(1): 100.0, a_name(2): 50.0}, "c": {a_name(3): 100.0, a_name(4): 50.0}}
    view = a_view({"a": {**large, **small}, **others})
    sessions = np.ones(len(view.bundles), np.int64)
    sessions[view.bundles.rows_of(small)] = 1_000
    view = replace(view, bundles=replace(view.bundles, sessions=sessions))
    made = ask(view, least_moves_payback_ms=20_000, least_moves_splits=False, **AT_ONCE)
    dear, room = made.refusals
    assert not made.decisions and (dear.rule, room.rule) == ("does_not_pay_back", "no_room")
    assert (dear.broker, dear.count, set(dear.subjects), dear.unit) == ("a", 10, set(small), "min")
    clients, saved = 10_001, 0.015
    assert dear.greatest == dear.least == pytest.approx(1_000 * 7.0 / (clients * saved) / 60)
    assert dear.limit == pytest.approx(20 / 60)
    assert {
        decision.bundle
        for decision in ask(view, least_moves_payback_ms=60_000, **AT_ONCE).decisions
    } < set(small)
