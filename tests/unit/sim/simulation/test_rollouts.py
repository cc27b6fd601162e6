"""A rollout restarts each of its brokers once: the balancer empties it, and it stops and comes back."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from lb_stream.core.model.rollout import BrokerProgress, RolloutProgress
from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.scenario import Event, Fault, Scenario, ScenarioRollout
from lb_stream.sim.simulation import read_policy, run_simulation
from lb_stream.sim.simulation.reports import SimulatedReporter
from tests.support.format_2 import format_2_scenario
from tests.unit.sim.simulation.script import Script

ORDER = ScenarioRollout(40.0, 65.0, 1, (1, 0, 2), in_order=True)
SCENARIO = format_2_scenario([0, 0, 1, 2], topics=None, rollout=ORDER, ticks=60)
NONE = read_policy("none")


def of_event(scenario: Scenario, event: str) -> list[dict[str, Any]]:
    return [line for line in run_simulation(scenario, NONE).lines if line["event"] == event]


def stops(scenario: Scenario) -> list[tuple[Any, Any]]:
    return [(line["t"], line["broker"]) for line in of_event(scenario, "stopped")]


def test_brokers_restart_empty_and_in_order_and_none_loses_a_bundle() -> None:
    found = stops(SCENARIO)
    assert [broker for _, broker in found] == ["b1:8080", "b0:8080", "b2:8080"]
    assert all(later[0] - earlier[0] > 65.0 for earlier, later in pairwise(found))
    figures = measure_figures(SCENARIO, run_simulation(SCENARIO, NONE).lines)
    assert (figures["rollout_share"], figures["rollout_orphan_s"]) == (1.0, 0.0)
    assert 0 < figures["moves_rollout"] <= figures["moves"]  # beside those that even out the end
    assert figures["rollout_s"] == found[-1][0] + 65.0 - 40.0


def test_a_restart_is_a_decision_and_takes_release_s() -> None:
    lines = run_simulation(SCENARIO, NONE).lines
    decided = {line["id"]: line for line in lines if line.get("kind") == "restart"}
    for line in lines:
        if line["event"] == "stopped":
            decision = decided[line["decision"]]
            assert (decision["broker"], decision["t"]) == (line["broker"], line["t"] - 2.0)


def test_as_many_restart_at_once_as_may_be_down() -> None:
    pairs = stops(replace(SCENARIO, rollout=ScenarioRollout(40.0, 65.0, 2, (1, 0, 2))))
    assert len(pairs) == 3
    assert abs(pairs[1][0] - pairs[0][0]) < 65.0 < pairs[2][0] - pairs[0][0]


def test_a_broker_that_crashes_is_waited_for_and_its_return_counts_as_its_restart() -> None:
    any_order = ScenarioRollout(40.0, 65.0, 1, (0, 1, 2))
    events = (Event(30.0, 1, "crash"), Event(200.0, 1, "up"))
    found = stops(replace(SCENARIO, rollout=any_order, events=events))
    assert sorted(broker for _, broker in found) == ["b0:8080", "b2:8080"]
    assert found[0][0] > 200.0


def test_a_restart_that_gets_lost_is_decided_again() -> None:
    lost = Fault("lost_decisions", (1,), 0.0, 90.0)
    empty = format_2_scenario([0, 0, 0, 2], topics=None, rollout=ORDER, ticks=60, faults=(lost,))
    lines = [line for line in run_simulation(empty, NONE).lines if line.get("kind") == "restart"]
    assert [line["broker"] for line in lines][:3] == ["b1:8080"] * 3
    assert stops(empty)[0][0] == lines[2]["t"] + 2.0 > 90.0


def test_a_broker_that_can_not_be_emptied_is_not_restarted() -> None:
    alone = format_2_scenario([1], topics=None, rollout=ORDER, ticks=60)
    only = replace(
        alone, brokers=replace(alone.brokers, up=alone.brokers.up & [False, True, False])
    )
    only = replace(only, rollout=ScenarioRollout(40.0, 65.0, 1, (1,)))
    assert stops(only) == []
    figures = measure_figures(only, run_simulation(only, NONE).lines)
    assert (figures["rollout_share"], figures["moves"]) == (0.0, 0)


def test_a_broker_that_comes_back_between_ticks_reports_then_and_not_with_the_next_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[float, int]] = []
    make = SimulatedReporter.make

    def note(reporter: SimulatedReporter, brokers: Any, t_s: float, late_s: Any) -> Any:
        made.extend((t_s, broker) for broker in brokers)
        return make(reporter, brokers, t_s, late_s)

    monkeypatch.setattr(SimulatedReporter, "make", note)
    stale = Fault("stale_reports", (1,), 0.0, 600.0, 30.0)
    empty = format_2_scenario([0, 2], topics=None, rollout=ORDER, faults=(stale,))
    (stopped_s, broker), *_ = stops(replace(empty, report_interval_s=1000.0))
    back_s = stopped_s + 65.0
    assert broker == "b1:8080" and back_s % 10.0 > 0
    assert [t_s for t_s, row in made if row == 1 and stopped_s < t_s <= back_s + 5.0] == [back_s]


def test_the_balancer_hears_a_goodbye_of_who_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    script.rollout = RolloutProgress(brokers={"b1:8080": BrokerProgress("empty")})
    with monkeypatch.context() as context:
        script.play(context)
        empty = format_2_scenario([0, 0], topics=None, rollout=ORDER, ticks=20)
        result = run_simulation(empty, NONE)
    (stopped,) = (line for line in result.lines if line["event"] == "stopped")
    assert (stopped["broker"], script.goodbyes) == (
        "b1:8080",
        [(stopped["t"] - stopped["t"] % 10.0 + 11.0, "b1:8080")],
    )
