"""Budgets of moves: how moves are counted, what is refused and until when, and that the count
outlives a restart."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.balancer import NamespaceConfig
from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.reports import Ack
from lb_stream.core.commands.responder import Received
from lb_stream.core.disruption.budgets import HOUR_MS, Budget
from lb_stream.core.disruption.holds import Holds
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.round.decide import Round
from lb_stream.settings.resolve import cluster_config
from tests.support.budget_cluster import HEAVY, LIGHT, NOW_MS, TIMEOUT_MS, Cluster

BUDGET = "namespace.t/heavy.moves_per_hour"


def unloads(made: Round, of: list[str] = HEAVY) -> list[str]:
    return [
        decision.bundle
        for decision in made.decisions
        if decision.kind == "unload" and decision.bundle in of
    ]


def refused(made: Round) -> list[Refusal]:
    return [refusal for refusal in made.refusals if refusal.rule == "moves_per_hour"]


def order(kind: str, **fields: Any) -> Received:
    return Received.from_command(COMMANDS[kind](id=f"{kind}-{fields}", **fields), NOW_MS)


def test_a_budget_holds_for_an_hour_after_a_bundle_left_and_says_when_there_is_room() -> None:
    cluster = Cluster(**{BUDGET: 2})
    first = cluster.round()
    assert len(unloads(first)) == 2, "a shedder that goes by the heaviest plans around the budget"
    assert unloads(first, LIGHT), "and takes others instead"
    cluster.obey(first)
    left_ms = cluster.now_ms + 10_000
    cluster.obey(cluster.round())
    (told,) = refused(cluster.round())
    assert (told.namespace, told.limit, told.least, told.until_ms) == (
        "t/heavy",
        2.0,
        2.0,
        left_ms + HOUR_MS,
    )
    assert set(told.subjects) == set(HEAVY)
    last = cluster.round(left_ms + HOUR_MS - 1 - cluster.now_ms)
    assert (unloads(last), cluster.used()) == ([], 2)
    cluster.obey(last)
    assert len(unloads(cluster.round(1))) == 2


def test_a_decision_that_nobody_has_confirmed_counts_until_an_hour_after_its_expiry() -> None:
    cluster = Cluster(**{BUDGET: 1}, shedding_grace_period_ms=0)
    begun = cluster.round()
    assert len(unloads(begun)) == 1
    cluster.round(1_000)  # it has been published
    expired = cluster.round(TIMEOUT_MS - 1_000)
    assert [outcome.outcome for outcome in expired.outcomes if outcome.bundle in HEAVY] == [
        "expired"
    ]
    (told,) = refused(expired)
    assert told.until_ms == begun.now_ms + TIMEOUT_MS + HOUR_MS


def test_a_refused_decision_costs_nothing() -> None:
    cluster = Cluster(**{BUDGET: 1})
    (decision,) = [decision for decision in cluster.round().decisions if decision.bundle in HEAVY]
    assert cluster.used() == 1
    made = cluster.round(
        acks=(Ack(decision_id=decision.decision_id, outcome="refused", reason="no"),)
    )
    assert [outcome.outcome for outcome in made.outcomes if outcome.bundle == decision.bundle] == [
        "refused"
    ]
    assert len(unloads(made)) == 1, "another one goes"


def test_a_drain_is_free_and_what_is_under_way_when_it_ends_counts() -> None:
    cluster = Cluster(**{BUDGET: 1})
    made = cluster.round(commands=(order("drain-broker", broker="a"),))
    assert (len(unloads(made)), refused(made), cluster.used()) == (len(HEAVY), [], 0)
    cluster.obey(made)
    cluster.round(commands=(order("undrain-broker", broker="a"),))
    assert cluster.used() == len(HEAVY), "they may have left after the drain"


def test_what_an_operator_orders_is_done_and_counts() -> None:
    cluster = Cluster(**{BUDGET: 1}, shedding_enabled=False)
    commands = tuple(
        order("unload", namespace="t/heavy", bundle=name.rpartition("/")[2]) for name in HEAVY[:3]
    )
    assert unloads(cluster.round(commands=commands)) == HEAVY[:3]
    assert cluster.used() == 3


def test_a_budget_of_nothing_never_has_room() -> None:
    (told,) = refused(Cluster(**{BUDGET: 0}).round())
    assert (told.limit, told.least, told.until_ms) == (0.0, 0.0, None)
    assert "untilMs" not in told.to_dict() and "until_ms" not in told.to_dict()


def test_a_command_sets_a_budget_and_takes_it_back() -> None:
    cluster = Cluster()
    made = cluster.round(commands=(order("set-config", values={BUDGET: 1}),))
    assert [result.outcome for result in made.results] == ["done"]
    assert len(unloads(made)) == 1
    taken_back = cluster.round(commands=(order("delete-config", key=BUDGET),))
    assert len(unloads(taken_back)) == 1, "with the budget there would be none"
    (answer,) = cluster.round(
        commands=(order("set-config", values={"namespace.t/heavy.moves_per_hour": -1}),)
    ).results
    assert (answer.outcome, answer.text) == (
        "refused",
        "namespace.t/heavy.moves_per_hour = -1: expected 0 or more",
    )


def test_a_budget_is_remembered_by_namespace_in_whole_seconds_and_only_where_there_is_one() -> None:
    cluster = Cluster(**{BUDGET: 4})
    cluster.obey(cluster.round(10_001))
    cluster.round(10_001)
    assert cluster.memory.spent == {"t/heavy": ((NOW_MS + 21_000 + HOUR_MS, 3),)}
    assert cluster.memory.spending == ()
    without = Cluster()
    assert '"spen' not in without.round().memory.to_json(), (
        "nothing is written of what a cluster doesn't have"
    )


def test_room_comes_when_enough_moves_count_no_more() -> None:
    budget = Budget("t/n", 2, (100, 200, 300))
    assert [budget.room_ms(moves) for moves in (1, 2, 3)] == [200, 300, None]
    assert (
        budget.left,
        replace(budget, until_ms=(100,)).left,
        replace(budget, until_ms=(100,)).room_ms(),
    ) == (0, 1, 0)


def test_strategies_see_weights_and_what_each_budget_leaves() -> None:
    view = Cluster().round().view
    limited = {
        "t/heavy": NamespaceConfig(moves_per_hour=0),
        "t/light": NamespaceConfig(disruption_weight=2.5),
    }
    config = replace(cluster_config({}), namespaces=limited)
    seen = Holds.build(config, Memory(), (), NOW_MS).disruption(view)
    is_heavy = np.array([name in HEAVY for name in view.bundles.names.to_pylist()])
    assert (seen.held == is_heavy).all()
    assert (seen.weight == np.where(is_heavy, 1.0, 2.5)).all()
    assert ((seen.budget == 0) == is_heavy).all()
    assert seen.left.tolist() == [0]


@pytest.mark.parametrize(
    "strategy", ["ThresholdShedder", "UniformLoadShedder", "AvgShedder", "RangeThresholdShedder"]
)
def test_no_shedder_exceeds_a_budget_in_one_pass(strategy: str) -> None:
    eager = {
        "threshold_percent": 1,
        "min_throughput_mb": 0,
        "hit_count_low": 1,
        "hit_count_high": 1,
        "max_unload_ratio": 0.9,
    }
    cluster = Cluster(**{BUDGET: 1}, **eager, shedding_strategy=strategy)
    for _ in range(3):
        made = cluster.round()
        assert len(unloads(made)) <= 1
    assert cluster.used() <= 1


@pytest.mark.parametrize(
    ("key", "rule"), [("freeze", "frozen"), ("disruption_windows", "outside_window")]
)
def test_in_a_freeze_or_outside_of_a_window_balancing_moves_nothing_of_a_namespace(
    key: str, rule: str
) -> None:
    text = "new disks" if key == "freeze" else "0 3 * * * 1h"  # the rounds begin at 22:13
    made = Cluster(**{f"namespace.t/heavy.{key}": text}).round()
    assert unloads(made) == []
    assert unloads(made, LIGHT)
    (told,) = [refusal for refusal in made.refusals if refusal.rule == rule]
    opens_ms = NOW_MS - NOW_MS % 86_400_000 + 27 * 3_600_000
    assert (told.namespace, told.count, told.until_ms) == (
        "t/heavy",
        len(HEAVY),
        None if key == "freeze" else opens_ms,
    )


def test_a_clusters_freeze_stops_all_balancing_and_neither_drains_nor_failovers_nor_operators() -> (
    None
):
    cluster = Cluster()
    frozen = cluster.round(commands=(order("set-config", values={"freeze": "new disks"}),))
    assert frozen.decisions == ()
    assert [(refusal.rule, refusal.namespace) for refusal in frozen.refusals] == [("frozen", None)]
    asked = cluster.round(
        commands=(order("unload", namespace="t/light", bundle=LIGHT[0].rpartition("/")[2]),)
    )
    assert unloads(asked, LIGHT) == LIGHT[:1]
    drained = cluster.round(commands=(order("drain-broker", broker="a"),))
    assert len(unloads(drained)) == len(HEAVY)
    cluster.owned = {"b": []}
    assert {decision.kind for decision in cluster.round(60_000).decisions} == {"assign"}
