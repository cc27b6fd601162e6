"""Plans of proposals: judged on loads as they are, in an order that harms nothing, replaced when
they have become wrong."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.core.model.memory import Proposal
from lb_stream.core.observing.loads_ahead import LoadsAhead, order_groups, serves_as_well
from lb_stream.core.round.decide import Round
from tests.support.approving_cluster import MINUTE_MS, OVERLOAD, ApprovingCluster, bundle

LEAST_MOVES = {
    "shedding_strategy": "LeastMoves",
    "placement_strategy": "LeastMoves",
    "least_moves_hot_for_ms": 0,
    "least_moves_min_standard_errors": 0.0,
}


def ended(made: Round) -> dict[str, str]:
    return {
        proposal.proposal.proposal_id: proposal.state
        for proposal in made.proposals
        if proposal.state != "waiting"
    }


def hot(**settings: Any) -> ApprovingCluster:
    return ApprovingCluster(
        {"a": [10.0] * 9, "b": [10.0] * 2, "c": [10.0] * 1, "d": [10.0] * 1}, **settings
    )


@pytest.mark.parametrize(
    "settings", [OVERLOAD, LEAST_MOVES, {"shedding_strategy": "ThresholdShedder"}]
)
def test_what_waits_does_not_grow_while_nobody_answers_and_keeps_its_ids(
    settings: dict[str, Any],
) -> None:
    cluster, acts = hot(**settings), hot(**settings, mode="act")
    cluster.round()
    first = {one.proposal_id for one in cluster.waiting}
    wanted = [decision for decision in acts.round().decisions if decision.kind != "assign"]
    assert first and len(first) <= len(wanted), "no more than one pass wants"
    for _ in range(20):
        made = cluster.round()
        assert ended(made) == {} and {one.proposal_id for one in cluster.waiting} == first


def test_each_says_the_real_usages_of_now_and_what_the_plan_comes_to() -> None:
    cluster = hot()
    made = cluster.round()
    usage = cluster.usage
    assert len(cluster.waiting) > 1 and len({one.plan for one in cluster.waiting}) == 1
    assert [one.step for one in cluster.waiting] == list(range(1, len(cluster.waiting) + 1))
    for one in cluster.waiting:
        assert one.source_usage == pytest.approx(usage[one.source], abs=1e-3)
        assert one.destination_usage == pytest.approx(usage[str(one.destination)], abs=1e-3)
        assert one.explain["saw"] == pytest.approx(usage[one.source], abs=1e-3), (
            "not what it would be after other proposals"
        )
        assert one.max_usage == pytest.approx(0.9, abs=1e-3) and one.usage_alone == pytest.approx(
            0.8, abs=1e-3
        )
    told = [proposal.proposal for proposal in made.proposals]
    assert [one.usage_in_order for one in told] == [one.usage_in_order for one in cluster.waiting]
    in_order = [float(one.usage_in_order or 0) for one in cluster.waiting]
    assert in_order == sorted(in_order, reverse=True)
    done = cluster.approve(*(one.proposal_id for one in cluster.waiting))[0].decisions
    for decision in done:
        cluster.carry_out(decision)
    assert max(cluster.usage.values()) == pytest.approx(in_order[-1], abs=1e-3)


def test_figures_follow_the_loads_between_two_passes() -> None:
    cluster = hot(shedding_interval_ms=60 * MINUTE_MS)
    cluster.round()
    cluster.owned["b"][bundle(200)] = 5.0
    cluster.round(after_ms=1_000)
    into_b = [one.destination_usage for one in cluster.waiting if one.destination == "b"]
    assert into_b == pytest.approx([0.25] * len(into_b), abs=1e-3) and into_b


def test_what_balancing_wants_no_more_is_gone_with_the_next_pass() -> None:
    cluster = hot()
    cluster.round()
    ids = {one.proposal_id for one in cluster.waiting}
    for name in [*cluster.owned["a"]]:
        cluster.owned["a"][name] = 2.0
    made = cluster.round()
    assert ended(made) == dict.fromkeys(ids, "superseded") and not cluster.waiting


def test_what_would_make_the_busiest_broker_busier_by_now_is_replaced_by_the_next_pass() -> None:
    cluster = hot()
    cluster.round()
    before = {one.proposal_id for one in cluster.waiting}
    assert {one.source for one in cluster.waiting} == {"a"}
    for name in [*cluster.owned["a"]]:
        cluster.owned["a"][name] = 2.0
    cluster.owned["d"] |= {bundle(100 + number): 10.0 for number in range(8)}
    made = cluster.round()
    assert before <= ended(made).keys() and {one.source for one in cluster.waiting} == {"d"}


def test_a_move_that_a_newer_plan_has_too_keeps_its_id() -> None:
    cluster = hot()
    cluster.round()
    before = {(one.bundle, one.destination): one.proposal_id for one in cluster.waiting}
    cluster.owned["a"] |= {
        bundle(100 + number): 9.0 for number in range(4)
    }  # much hotter: the old plan is not enough
    cluster.round()
    after = {(one.bundle, one.destination): one.proposal_id for one in cluster.waiting}
    same = before.keys() & after.keys()
    assert len(after) > len(before) and same and all(after[move] == before[move] for move in same)
    assert len({one.bundle for one in cluster.waiting}) == len(cluster.waiting)


def chain() -> tuple[ApprovingCluster, dict[str, str]]:
    """b has room for a bundle of a only once its own has left for c."""
    cluster = ApprovingCluster(
        {"a": [40.0, 20.0], "b": [25.0, 30.0], "c": [1.0]}, shedding_interval_ms=60 * MINUTE_MS
    )
    cluster.round()
    seed = Proposal(
        "c:9:p0",
        "c:9:p0",
        "unload",
        bundle(3),
        "b",
        "c",
        "Overloaded",
        "overloaded",
        "OverloadShedder",
        {"saw": 0.5},
        30e6,
        cluster.now_ms,
        cluster.now_ms + 30 * MINUTE_MS,
        plan="c:9",
        step=1,
    )
    into_b = replace(
        seed,
        proposal_id="c:9:p1",
        together="c:9:p1",
        bundle=bundle(1),
        source="a",
        destination="b",
        step=2,
    )
    cluster.memory = replace(cluster.memory, proposals=(seed, into_b))
    cluster.round(after_ms=1_000)
    return cluster, {"out of b": "c:9:p0", "into b": "c:9:p1"}


def test_a_step_that_harms_alone_is_marked_and_refused_alone_and_waits_on() -> None:
    cluster, ids = chain()
    now = {one.proposal_id: one for one in cluster.waiting}
    assert now[ids["into b"]].max_usage == pytest.approx(0.6, abs=1e-3)
    assert now[ids["into b"]].usage_alone == pytest.approx(0.75, abs=1e-3)
    assert now[ids["into b"]].usage_in_order == pytest.approx(0.45, abs=1e-3)
    made, answer = cluster.approve(ids["into b"])
    assert (made.decisions, answer.outcome, answer.rule) == ((), "refused", "raises_max")
    assert (
        "bring b to 75.0%" in answer.text
        and "60.0% now" in answer.text
        and "--plan c:9" in answer.text
    )
    assert {one.proposal_id for one in cluster.waiting} == set(ids.values())


def test_both_go_in_whatever_order_they_are_named_and_the_one_that_makes_room_goes_first() -> None:
    cluster, ids = chain()
    made, answer = cluster.approve(ids["into b"], ids["out of b"])
    assert [decision.proposal_id for decision in made.decisions] == [
        ids["out of b"],
        ids["into b"],
    ] and answer.outcome == "accepted"
    explain = made.decisions[1].explain
    figures = (
        explain.source_usage,
        explain.destination_usage,
        explain.max_usage,
        explain.max_usage_after,
    )
    assert figures == pytest.approx((0.6, 0.25, 0.6, 0.45), abs=1e-3), (
        "real usages when it was approved"
    )
    assert explain.saw == 0.5


def test_what_is_meant_is_done_even_if_it_makes_things_worse() -> None:
    cluster, ids = chain()
    made, answer = cluster.approve(ids["into b"], even_if_worse=True)
    assert [decision.proposal_id for decision in made.decisions] == [
        ids["into b"]
    ] and answer.outcome == "accepted"


def test_the_rest_of_a_plan_that_was_begun_waits_while_nothing_else_is_wanted() -> None:
    cluster = hot()
    cluster.round()
    first, *rest = cluster.waiting
    assert len(rest) >= 2
    made, _ = cluster.approve(first.proposal_id)
    cluster.obey(made)
    cluster.owned["a"].pop(next(iter(cluster.owned["a"])), None)
    cluster.round()
    left = {one.bundle for one in cluster.waiting}
    assert left <= {one.bundle for one in rest} and first.bundle not in left
    assert all(one.begun for one in cluster.waiting if one.plan == first.plan)


def test_a_rejected_step_has_the_rest_planned_anew() -> None:
    cluster = hot()
    cluster.round()
    rejected = cluster.waiting[0]
    order = cluster.say(
        "reject-proposals", proposals=[rejected.proposal_id], why="not now", for_ms=60 * MINUTE_MS
    )
    cluster.round(order)
    cluster.round()
    assert rejected.bundle not in {one.bundle for one in cluster.waiting} and cluster.waiting
    assert min(float(one.usage_in_order or 0) for one in cluster.waiting) < 0.9


def loads(usage: list[float], moves: list[tuple[int, int, float]]) -> LoadsAhead:
    share = np.array([usage])
    ends = [(source, destination) for source, destination, _ in moves]
    amounts = np.array([[amount] for _, _, amount in moves])
    names = {f"b{row}": row for row in range(len(usage))}
    return LoadsAhead(names, np.ones(len(usage), np.bool_), share, ends, amounts, amounts)


def test_an_order_is_found_that_harms_at_no_step() -> None:
    ahead = loads([0.9, 0.8, 0.1], [(0, 1, 0.3), (1, 2, 0.4)])
    assert order_groups(ahead, [[0], [1]]) == ([[1], [0]], [])


def test_two_that_only_go_together_are_bound_and_what_only_harms_is_left_out() -> None:
    swap = loads([0.9, 0.85], [(0, 1, 0.3), (1, 0, 0.25)])
    assert order_groups(swap, [[0], [1]]) == ([[0, 1]], [])
    alone = loads([0.9, 0.85], [(0, 1, 0.3)])
    assert order_groups(alone, [[0]]) == ([], [[0]])


def test_moves_that_harm_are_tried_once_and_not_again_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 300
    tried: list[Any] = []
    is_worse_after = LoadsAhead.is_worse_after

    def counted(ahead: LoadsAhead, moves: Any) -> bool:
        tried.append(moves)
        return is_worse_after(ahead, moves)

    monkeypatch.setattr(LoadsAhead, "is_worse_after", counted)
    harm = loads([0.5] * 10, [(number % 9, 9, 0.4) for number in range(count)])
    assert order_groups(harm, [[number] for number in range(count)])[0] == []
    assert len(tried) == count


@pytest.mark.parametrize(
    ("waits", "new", "serves"),
    [
        ([0, 1], [0, 1], True),
        ([0], [0, 1], False),  # it relieves the broker much less
        ([0, 1, 2, 3, 4], [0, 1], False),  # it has many more moves
        ([0, 1], [5], False),  # another broker is hot by now
    ],
)
def test_a_plan_that_waits_serves_while_it_relieves_the_same_about_as_far(
    waits: list[int], new: list[int], serves: bool
) -> None:
    moves = [(0, 1, 0.1), (0, 2, 0.1), (0, 1, 0.01), (0, 2, 0.01), (0, 1, 0.01), (3, 1, 0.3)]
    assert serves_as_well(loads([0.9, 0.3, 0.3, 0.85], moves), waits, new, begun=False) is serves


AVG = {"shedding_strategy": "AvgShedder", "hit_count_low": 90, "hit_count_high": 90}
EAGER = LEAST_MOVES | {"least_moves_hot_for_ms": 3_600_000}


END, LOW, HIGH = "0x00000000_0xffffffff", "0x00000000_0x80000000", "0x80000000_0xffffffff"
GROUP = {"t/red": "g", "t/green": "g"}
TWO = [f"t/green/{LOW}", f"t/green/{HIGH}"]


def sharing(brokers: dict[str, list[float]], **settings: Any) -> ApprovingCluster:
    """Namespaces of one anti-affinity group are both at the first broker, t/green with two
    bundles."""
    cluster = ApprovingCluster(brokers, **settings)
    red = ["t/red/0x00000000_0x40000000", "t/red/0x40000000_0x80000000", f"t/red/{HIGH}"]
    cluster.owned["a"] |= dict.fromkeys(red, 2.0) | dict.fromkeys(TWO, 1.0)
    cluster.round(cluster.say("set-policies", anti_affinity=GROUP), after_ms=1)
    return cluster


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"shedding_strategy": "ThresholdShedder"}, None),
        (AVG, "hit_count"),
        (EAGER, "not_hot_for_long"),
    ],
    ids=["even", "counts", "waits"],
)
def test_a_group_is_parted_though_its_brokers_are_even_or_the_shedder_waits(
    settings: dict[str, Any], rule: str | None
) -> None:
    fullest = [10.0] * 7 if rule else [10.0] * 2
    cluster = sharing({"a": fullest, "b": [10.0] * 3, "c": [10.0] * 3}, **settings)
    made = cluster.round()
    assert rule is None or rule in {refused.rule for refused in made.refusals}
    assert [one.bundle for one in cluster.waiting] == TWO
    assert {one.rule for one in cluster.waiting} == {"anti_affinity"} and {
        one.plan for one in cluster.waiting
    } == {None}
    first = cluster.waiting
    for _ in range(3):
        assert ended(cluster.round()) == {}
    assert [one.proposal_id for one in cluster.waiting] == [one.proposal_id for one in first]
    made, answer = cluster.approve(first[0].proposal_id)
    assert answer.rule is None and {decision.bundle for decision in made.decisions} == set(TWO)


def test_moves_that_part_a_group_leave_the_plan_for_load_and_go_when_the_group_is_parted() -> None:
    cluster = hot()
    cluster.round()
    plan = {one.proposal_id: one.plan for one in cluster.waiting}
    cluster.owned["c"] |= {f"t/red/{END}": 0.5, f"t/green/{END}": 0.25}
    cluster.round(cluster.say("set-policies", anti_affinity=GROUP))
    cluster.round()
    assert plan.items() < {one.proposal_id: one.plan for one in cluster.waiting}.items()
    (repair,) = (one for one in cluster.waiting if one.proposal_id not in plan)
    assert repair.strategy == "anti_affinity_repair"
    cluster.owned["b"][repair.bundle] = cluster.owned["c"].pop(repair.bundle)
    made = cluster.round()
    assert ended(made) == {repair.proposal_id: "superseded"} or ended(made) == {
        repair.proposal_id: "stale"
    }
    assert {one.proposal_id: one.plan for one in cluster.waiting} == plan


def test_what_parts_a_group_makes_no_broker_overloaded() -> None:
    cluster = sharing(
        {"a": [10.0] * 2, "b": [10.0] * 2, "c": [10.0] * 2}, overloaded_threshold_percent=60
    )
    cluster.round()
    assert len(cluster.waiting) == 2
    for name in ("b", "c"):
        cluster.owned[name] |= {bundle(200 + ord(name)): 39.5}
    made = cluster.round()
    assert (
        set(ended(made))
        and cluster.waiting == ()
        and "not_apart" in {refused.rule for refused in made.refusals}
    )
