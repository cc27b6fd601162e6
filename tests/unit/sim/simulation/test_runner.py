"""A scenario is played by the written physics: what reaches whom, when, and what comes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lb_stream.sim.families import load_scenario
from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.reading import read_scenario
from lb_stream.sim.scenario.scenario import (
    Event,
    Fault,
    Scenario,
    ScenarioAntiAffinity,
    ScenarioIsolation,
    ScenarioPolicies,
)
from lb_stream.sim.simulation import Policy, read_policy, run_simulation
from lb_stream.sim.simulation.balancer import SimulatedBalancer
from lb_stream.sim.simulation.reports import SimulatedReporter
from lb_stream.sim.simulation.runner import SimulationResult
from tests.support.sampling import sampled
from tests.unit.sim.simulation.scenes import A, B, C, bundle, scene

SCENARIOS = Path(__file__).parents[3] / "data/scenarios"
NONE = read_policy("none")
EAGER = Policy(
    "eager",
    {
        "shedding_strategy": "ThresholdShedder",
        "threshold_percent": 1,
        "min_throughput_mb": 0,
        "history_ratio": 0.0,
    },
)
HOT = [40_000.0] * 3


def lines(played: SimulationResult, event: str) -> list[dict[str, Any]]:
    return [line for line in played.lines if line["event"] == event]


def test_an_unassigned_bundle_is_assigned_in_the_first_round_and_acquired_three_seconds_later() -> (
    None
):
    played = run_simulation(scene([0, 1, 2, -1]), NONE)
    (decision,), (acquired,) = lines(played, "decision"), lines(played, "acquired")
    assert (decision["kind"], decision["bundle"], acquired["decision"]) == (
        "assign",
        bundle(3),
        decision["id"],
    )
    assert acquired["t"] == decision["t"] + 3.0 and acquired["broker"] == decision["destination"]


def test_a_bundle_is_released_after_two_seconds_and_assigned_when_that_is_reported() -> None:
    played = run_simulation(scene([0] * 6, rates=HOT * 2), EAGER)
    unload, released = lines(played, "decision")[0], lines(played, "released")[0]
    assert (released["t"], released["broker"], released["bundle"]) == (
        unload["t"] + 2.0,
        A,
        unload["bundle"],
    )
    assign = next(
        line
        for line in lines(played, "decision")
        if line["kind"] == "assign" and line["bundle"] == unload["bundle"]
    )
    assert assign["t"] == released["t"] + 1.0, "the report at once was a second on its way"


def test_two_runs_give_the_same_lines_and_progress_ends_at_one() -> None:
    told: list[float] = []
    first, again = (
        run_simulation(scene([0] * 6, rates=HOT * 2), EAGER, told.append) for _ in range(2)
    )
    assert first.lines == again.lines and first.lines and first.rounds == again.rounds
    assert told[-1] == 1.0 and told == sorted(told[: len(told) // 2]) * 2


def test_a_crashed_brokers_bundles_go_to_others_and_those_of_one_that_says_goodbye_go_at_once() -> (
    None
):
    """A crash shows after thirty seconds of silence: the last sign of life was heard at 91 s.

    A goodbye shows with the next round.
    """
    when = {}
    for kind in ("crash", "leave"):
        played = run_simulation(scene([0, 0, 1, 2], events=(Event(100.0, 0, kind),)), NONE)
        assert {line["bundle"] for line in lines(played, "acquired")} == {bundle(0), bundle(1)}
        assert A not in {line["broker"] for line in lines(played, "acquired")}
        when[kind] = min(line["t"] for line in lines(played, "decision"))
    assert (when["leave"], when["crash"]) == (101.0, 121.0)


def test_a_broker_that_comes_up_reports_at_that_tick_and_can_be_given_bundles() -> None:
    base = scene([0, 0, 1], events=(Event(50.0, 2, "up"), Event(60.0, 0, "crash")))
    base.brokers.up[2] = False
    assert C in {line["broker"] for line in lines(run_simulation(base, NONE), "acquired")}


def test_what_is_sent_to_a_deaf_broker_is_lost_and_given_to_another_later() -> None:
    deaf = Fault("lost_decisions", (1, 2), 0.0, 60.0)
    played = run_simulation(
        scene([0, 1, 2, -1], faults=(deaf,), rates=[40_000.0, 1.0, 2.0, 1.0]), NONE
    )
    first, *later = lines(played, "decision")
    assert first["destination"] in (B, C) and first["t"] < 60.0
    assert first["id"] not in {line["decision"] for line in lines(played, "acquired")} and later


def test_a_broker_that_went_down_in_between_does_nothing_even_when_it_is_back_by_then() -> None:
    first = lines(run_simulation(scene([0, 1, 2, -1]), NONE), "decision")[0]
    row = [A, B, C].index(first["destination"])
    blink = (Event(first["t"] + 1.0, row, "crash"), Event(first["t"] + 2.0, row, "up"))
    played = run_simulation(scene([0, 1, 2, -1], events=blink), NONE)
    assert lines(played, "decision")[0] == first
    assert first["id"] not in {line["decision"] for line in lines(played, "acquired")}


def test_without_acknowledgements_and_reports_at_once_the_next_report_shows_what_is_done() -> None:
    silent = Fault("lost_acks", (0, 1, 2), 0.0, 1000.0)
    plain, faulty = (
        run_simulation(scene([0, 0, 1, 2], events=(Event(100.0, 0, "leave"),), faults=faults), NONE)
        for faults in ((), (silent,))
    )
    assert len(lines(plain, "acquired")) == len(lines(faulty, "acquired")) == 2
    assert faulty.rounds < plain.rounds, "nothing came at once"


def test_a_drained_broker_is_emptied_and_given_nothing_until_it_is_given_back() -> None:
    played = run_simulation(
        scene(
            [0, 0, 1, 2],
            events=(Event(60.0, 0, "drain"), Event(200.0, 0, "undrain"), Event(210.0, 1, "leave")),
        ),
        NONE,
    )
    released = lines(played, "released")
    assert {line["bundle"] for line in released} == {bundle(0), bundle(1)} and min(
        line["t"] for line in released
    ) >= 61.0
    before = [line["broker"] for line in lines(played, "acquired") if line["t"] < 200.0]
    after = [line["broker"] for line in lines(played, "acquired") if line["t"] > 210.0]
    assert A not in before and A in after


def test_isolated_namespaces_go_to_their_brokers() -> None:
    policies = ScenarioPolicies(isolation=(ScenarioIsolation("own", ("t/n3",), (2,), (), 1),))
    acquired = lines(run_simulation(scene([0, 1, 0, -1, -1], policies=policies), NONE), "acquired")
    where = {line["bundle"]: line["broker"] for line in acquired}
    assert where[bundle(3)] == C, "its primary"
    assert where[bundle(4)] != C, "that is nobody else's"


def test_namespaces_of_a_group_are_kept_apart() -> None:
    policies = ScenarioPolicies(
        anti_affinity=(ScenarioAntiAffinity("apart", ("t/n0", "t/n1", "t/n3")),)
    )
    (acquired,) = lines(run_simulation(scene([0, 1, 0, -1], policies=policies), NONE), "acquired")
    assert acquired["broker"] == C


def test_pinned_namespaces_are_not_shed() -> None:
    hot = scene([0] * 6, rates=HOT * 2)
    moved = {line["bundle"] for line in lines(run_simulation(hot, EAGER), "released")}
    pinned = ScenarioPolicies(pinned_namespaces=tuple(name.rpartition("/")[0] for name in moved))
    kept = run_simulation(scene([0] * 6, rates=HOT * 2, policies=pinned), EAGER)
    assert moved and not moved & {line["bundle"] for line in lines(kept, "released")}


def test_the_policy_sees_no_load_while_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = read_scenario(SCENARIOS / "steady_skewed")
    policy = read_policy("ThresholdShedder+LeastLongTermMessageRate")
    plain, hidden, ask = run_simulation(scenario, policy), [False], SimulatedBalancer.decide

    def blind(*given: Any) -> Any:
        hidden[0] = True
        try:
            return ask(*given)
        finally:
            hidden[0] = False

    for name in ("loads_at", "noise_at"):
        shown = getattr(Scenario, name)
        monkeypatch.setattr(
            Scenario,
            name,
            lambda self, tick, shown=shown: (
                pytest.fail("it looks") if hidden[0] else shown(self, tick)
            ),
        )
    monkeypatch.setattr(SimulatedBalancer, "decide", blind)
    assert run_simulation(scenario, policy).lines == plain.lines


def test_stale_reports_name_todays_bundles_with_yesterdays_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[float, dict[int, float], list[dict[str, Any]]]] = []
    make = SimulatedReporter.make

    def watched(self: SimulatedReporter, brokers: Any, t_s: float, late_s: Any) -> Any:
        made = make(self, brokers, t_s, late_s)
        seen.append((t_s, dict(late_s), made.samples.to_pylist()))
        return made

    monkeypatch.setattr(SimulatedReporter, "make", watched)
    stale = Fault("stale_reports", (0, 2), 0.0, 1000.0, delay_s=60.0)
    (taken,) = lines(
        run_simulation(scene([0, 1, 2], faults=(stale,), events=(Event(100.0, 1, "leave"),)), NONE),
        "acquired",
    )
    broker = [A, B, C].index(taken["broker"])
    late, samples = next((late, samples) for t_s, late, samples in seen if t_s == taken["t"])
    assert late == {broker: 60.0}
    assert {row["name"]: row["has_stats"] for row in samples} == {
        bundle(1): False,
        bundle(broker): True,
    }


@pytest.mark.parametrize("name", sampled(sorted(path.name for path in SCENARIOS.iterdir())))
def test_what_was_played_could_have_happened(name: str) -> None:
    """The measures follow the trace through the scenario and raise for what can't have been."""
    scenario = read_scenario(SCENARIOS / name)
    played = run_simulation(scenario, read_policy("AvgShedder"))
    assert measure_figures(scenario, json.loads(json.dumps(played.lines)))["scenario"] == name


@pytest.mark.parametrize(("family", "ticks"), [("zipf_topics", 24), ("rollout_3", 100)])
def test_what_was_played_in_format_2_could_have_happened(family: str, ticks: int) -> None:
    scenario = replace(load_scenario(Path(family)), ticks=ticks, settled_from_s=200.0)
    scenario = replace(scenario, judge_from_s=0.0)
    played = run_simulation(scenario, read_policy("LeastMoves"))
    figures = measure_figures(scenario, json.loads(json.dumps(played.lines)))
    assert figures["splits"] or figures["rollout_share"] == 1.0
    short = replace(scenario, ticks=10)
    again, once_more = (run_simulation(short, read_policy("LeastMoves")).lines for _ in range(2))
    assert again == once_more == played.lines[: len(again)]
