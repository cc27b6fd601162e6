"""Of whatever cluster: a plan that waits makes nothing worse, in its order nor as a whole, doesn't
grow, and goes when it is wrong."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lb_stream.core.model.memory import Proposal
from tests.support.approving_cluster import ApprovingCluster

SHEDDERS: list[dict[str, Any]] = [
    {"shedding_strategy": "OverloadShedder", "overloaded_threshold_percent": 40},
    {"shedding_strategy": "ThresholdShedder", "min_throughput_mb": 0},
    {"shedding_strategy": "UniformLoadShedder"},
    {
        "shedding_strategy": "AvgShedder",
        "placement_strategy": "AvgShedder",
        "hit_count_high": 1,
        "hit_count_low": 1,
    },
    {
        "shedding_strategy": "LeastMoves",
        "least_moves_hot_for_ms": 0,
        "least_moves_min_standard_errors": 0.0,
    },
    {"load_manager": "extensible", "hit_count_threshold": 0},
]
strategies = st.sampled_from(SHEDDERS)
loads = st.lists(st.lists(st.integers(1, 25), min_size=1, max_size=6), min_size=3, max_size=6)
CLOSE = 2e-3  # figures in the memory have four digits, usages single precision


def cluster_of(given_loads: list[list[int]], settings: dict[str, Any]) -> ApprovingCluster:
    return ApprovingCluster(
        {f"b{row}": [float(load) for load in some] for row, some in enumerate(given_loads)},
        **settings,
    )


def done(
    usage: dict[str, float], cluster: ApprovingCluster, proposal: Proposal
) -> dict[str, float]:
    """The usages once a move has been made, as far as it is known where the bundle goes."""
    carried = cluster.owned[proposal.source][proposal.bundle] / 100.0
    usage = usage | {proposal.source: usage[proposal.source] - carried}
    if proposal.destination is not None:
        usage[proposal.destination] += carried
    return usage


def steps(proposals: tuple[Proposal, ...]) -> list[list[Proposal]]:
    groups: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        groups.setdefault(proposal.together, []).append(proposal)
    return list(groups.values())


@given(loads, strategies)
def test_a_plan_makes_the_max_worse_at_none_of_its_steps_and_says_what_is_so(
    given_loads: list[list[int]], settings: dict[str, Any]
) -> None:
    cluster = cluster_of(given_loads, settings)
    cluster.round()
    cluster.round()
    usage = cluster.usage
    greatest = first = max(usage.values())
    for group in steps(cluster.waiting):
        alone = cluster.usage
        for proposal in group:
            usage, alone = done(usage, cluster, proposal), done(alone, cluster, proposal)
        assert max(usage.values()) <= greatest + CLOSE, "in the plan's order"
        greatest = max(usage.values())
        for proposal in group:
            assert proposal.usage_in_order == pytest.approx(greatest, abs=CLOSE)
            assert proposal.usage_alone == pytest.approx(max(alone.values()), abs=CLOSE)
            assert proposal.source_usage == pytest.approx(cluster.usage[proposal.source], abs=CLOSE)
    assert greatest <= first + CLOSE, "as a whole"


LITTLE_INTO_LITTLE = [
    [20],
    [1, 1, 1, 6, 1, 21],
    [21],
    [5, 17, 25, 25],
    [10, 1, 23, 25, 25],
    [1, 17, 25, 25],
]


@example(LITTLE_INTO_LITTLE, SHEDDERS[4], set(), True)
@given(loads, strategies, st.sets(st.integers(0, 9), max_size=4), st.booleans())
def test_whichever_of_them_are_approved_the_max_is_none_the_worse(
    given_loads: list[list[int]], settings: dict[str, Any], which: set[int], whole: bool
) -> None:
    cluster = cluster_of(given_loads, settings)
    cluster.round()
    waiting = cluster.waiting
    ids = [one.proposal_id for at, one in enumerate(waiting) if whole or at in which]
    if not ids:
        return
    made, answer = cluster.approve(*reversed(ids))
    usage, names = cluster.usage, {one.proposal_id: one for one in waiting}
    for decision in made.decisions:
        if decision.proposal_id is not None:
            usage = done(usage, cluster, names[decision.proposal_id])
    assert max(usage.values()) <= max(cluster.usage.values()) + CLOSE
    if whole:
        assert answer.outcome == "accepted" and answer.rule is None, (
            "a plan can be approved as a whole"
        )


@given(loads, strategies, st.sampled_from(["kind=move", "max_mb=8", "max_mb=15 per_hour=2"]))
def test_a_rule_makes_the_max_none_the_worse(
    given_loads: list[list[int]], settings: dict[str, Any], rule: str
) -> None:
    cluster = cluster_of(given_loads, settings | {"auto_approve": rule})
    for _ in range(3):
        made = cluster.round()
        usage = before = cluster.usage
        for decision in made.decisions:
            if decision.approved_by and decision.destination is not None:
                carried = cluster.owned[str(decision.source)][decision.bundle] / 100.0
                usage = usage | {str(decision.source): usage[str(decision.source)] - carried}
                usage[decision.destination] += carried
        assert max(usage.values()) <= max(before.values()) + CLOSE
        if any(decision.destination is None for decision in made.decisions):
            return
        cluster.obey(made)


@given(loads, strategies)
def test_what_waits_in_a_steady_cluster_stays_what_one_pass_wants(
    given_loads: list[list[int]], settings: dict[str, Any]
) -> None:
    cluster = cluster_of(given_loads, settings)
    most = 0
    for _ in range(8):
        made = cluster.round()
        most = max(most, len(made.proposed.proposals))
        bundles = [one.bundle for one in cluster.waiting]
        assert len(set(bundles)) == len(bundles) <= most, "one proposal about one bundle"
        assert all(one.source != one.destination for one in cluster.waiting)


@given(loads, loads, strategies)
def test_what_has_become_wrong_is_gone_after_the_next_pass(
    given_loads: list[list[int]], then: list[list[int]], settings: dict[str, Any]
) -> None:
    cluster = cluster_of(given_loads, settings)
    cluster.round()
    for some, new in zip(cluster.owned.values(), then, strict=False):
        for name, load in zip(some, new * 6, strict=False):
            some[name] = float(load)
    made = cluster.round()
    usage, greatest = cluster.usage, max(cluster.usage.values())
    if not made.proposed.proposals and not cluster.waiting:
        return
    for group in steps(cluster.waiting):
        for proposal in group:
            usage = done(usage, cluster, proposal)
        assert max(usage.values()) <= greatest + CLOSE
        greatest = max(usage.values())
