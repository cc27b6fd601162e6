"""Brokers split bundles as decided, or refuse to; children are theirs, and are reported at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.core.model.topic_shares import TopicShares
from lb_stream.sim.scenario.scenario import Event, Fault, Scenario
from lb_stream.sim.simulation import SimulationResult, read_policy, run_simulation
from lb_stream.sim.simulation.runner import Simulation
from tests.support.format_2 import TOPICS, WIDTH, format_2_scenario
from tests.unit.sim.simulation.script import Script

PARENT, OTHER = (f"acme/shop/0x{at * WIDTH:08x}_0x{(at + 1) * WIDTH:08x}" for at in (0, 1))
LOW, HIGH = "acme/shop/0x00000000_0x00000280", "acme/shop/0x00000280_0x10000000"
SCENARIO = format_2_scenario([0, 0, 1], ticks=20, loads=[400.0, 100.0, 100.0])


def split(bundle: str = PARENT, broker: str = "b0:8080", **more: Any) -> dict[str, Any]:
    decision = {"kind": "split", "bundle": bundle, "source": broker}
    return decision | {"algorithm": "topic_count_equally_divide", "children": []} | more


def played(
    patch: pytest.MonkeyPatch, scenario: Scenario, *decisions: tuple[float, dict[str, Any]]
) -> tuple[SimulationResult, Script]:
    script = Script(*decisions)
    with patch.context() as context:
        script.play(context)
        return run_simulation(scenario, read_policy("none")), script


def effects(result: SimulationResult) -> list[tuple[Any, Any, Any]]:
    return [
        (line["t"], line["event"], line.get("children") or line["bundle"])
        for line in result.lines
        if line["event"] != "decision"
    ]


def test_the_owner_splits_after_split_s_and_reports_the_children_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, script = played(monkeypatch, SCENARIO, (20.0, split()))
    assert result.lines == [
        {
            "t": 21.0,
            "event": "decision",
            "id": "d:1",
            "kind": "split",
            "bundle": PARENT,
            "broker": "b0:8080",
            "algorithm": "topic_count_equally_divide",
            "reason": "Admin",
            "rule": "admin",
        },
        {
            "t": 23.0,
            "event": "split",
            "bundle": PARENT,
            "broker": "b0:8080",
            "decision": "d:1",
            "children": [LOW, HIGH],
        },
    ]
    reported = script.seen[24.0]
    assert set(reported) == {LOW, HIGH, OTHER}
    assert [(ack.decision_id, ack.outcome) for ack in script.acks] == [("d:1", "split")]
    for child in (LOW, HIGH):
        sample = reported[child]
        assert sample["latest_rate_in_msgs_per_s"] == pytest.approx(100.0)
        assert (sample["topics"], sample["producers"], sample["consumers"]) == (2, 4, 4)


def test_only_given_positions_are_in_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    given = split(algorithm="specified_positions_divide", boundaries=[0x300, 0x200])
    halves = split(OTHER, algorithm="range_equally_divide", boundaries=[WIDTH + WIDTH // 2])
    result, _ = played(monkeypatch, SCENARIO, (20.0, given), (40.0, halves))
    decided = [line.get("boundaries") for line in result.lines if line["event"] == "decision"]
    assert decided == [[0x300, 0x200], None]
    assert [len(children) for _, event, children in effects(result) if event == "split"] == [3, 2]


@pytest.mark.parametrize(
    "decision",
    [
        split(broker="b1:8080"),
        split(algorithm="specified_positions_divide", boundaries=[0, WIDTH]),
        split(algorithm="flow_or_qps_equally_divide"),
        split(algorithm="by_name"),
        split("acme/shop/0x20000000_0x20000001", broker="b1:8080"),
        {"kind": "merge", "bundle": PARENT, "neighbour": OTHER, "source": "b0:8080"},
    ],
    ids=["not its owner", "no position", "small enough", "unknown algorithm", "unknown", "merge"],
)
def test_what_can_not_be_split_is_refused(
    monkeypatch: pytest.MonkeyPatch, decision: dict[str, Any]
) -> None:
    result, script = played(monkeypatch, SCENARIO, (20.0, decision))
    assert effects(result) == []
    assert [ack.outcome for ack in script.acks] == ["refused"]


def test_bundles_without_topics_are_not_split_and_the_trace_knows_no_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = format_2_scenario([0, 1], topics=None, ticks=20)
    result, script = played(monkeypatch, whole, (20.0, split()))
    assert result.lines == []
    assert [ack.outcome for ack in script.acks] == ["refused"]


def test_children_move_and_are_split_on_and_their_parent_is_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assign = {"kind": "assign", "destination": "b2:8080"}
    result, script = played(
        monkeypatch,
        SCENARIO,
        (20.0, split()),
        (30.0, {"kind": "unload", "bundle": HIGH, "source": "b0:8080"}),
        (30.0, {"kind": "unload", "bundle": PARENT, "source": "b0:8080"}),
        (40.0, {"bundle": HIGH, **assign}),
        (40.0, {"bundle": PARENT, **assign}),
        (50.0, split(HIGH, "b2:8080")),
    )
    assert effects(result) == [
        (23.0, "split", [LOW, HIGH]),
        (33.0, "released", HIGH),
        (44.0, "acquired", HIGH),
        (53.0, "split", ["acme/shop/0x00000280_0x00000380", "acme/shop/0x00000380_0x10000000"]),
    ]
    outcomes = [ack.outcome for ack in script.acks]
    assert outcomes == ["split", "released", "refused", "acquired", "refused", "split"]


def test_a_broker_that_is_lost_loses_children_too_and_a_lost_decision_splits_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = (Fault("lost_decisions", (1,), 0.0, 30.0),)
    scenario = replace(SCENARIO, events=(Event(25.0, 0, "crash"),), faults=faults)
    simulation = Simulation(scenario, read_policy("none"))
    script = Script(
        (20.0, split()), (20.0, split("acme/shop/0x20000000_0x30000000", broker="b1:8080"))
    )
    with monkeypatch.context() as context:
        script.play(context)
        simulation.run(30.0, lambda _share: None)
    model = simulation.model
    owners = dict(zip(model.names, model.owner.tolist(), strict=True))
    assert owners == {
        PARENT: -1,
        OTHER: -1,
        "acme/shop/0x20000000_0x30000000": 1,
        LOW: -1,
        HIGH: -1,
    }


def test_stale_reports_name_children_without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = replace(SCENARIO, faults=(Fault("stale_reports", (0,), 0.0, 200.0, 60.0),))
    _, script = played(monkeypatch, stale, (70.0, split()))
    has_stats = {name: sample["has_stats"] for name, sample in script.seen[74.0].items()}
    assert has_stats == {LOW: False, HIGH: False, OTHER: True}


def test_a_balancer_splits_by_its_thresholds_where_there_are_topics() -> None:
    settings = {"bundle_max_msgs_per_s": 300, "split_algorithm": "topic_count_equally_divide"}
    policy = replace(read_policy("none"), settings=settings)
    events = [line["event"] for line in run_simulation(SCENARIO, policy).lines]
    assert events.count("split") == 1
    whole = replace(SCENARIO, topics=None, splits=None)
    assert "split" not in [line["event"] for line in run_simulation(whole, policy).lines]


def test_reports_tell_the_topics_of_the_brokers_heaviest_bundles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert SCENARIO.splits is not None
    for most, expected in ((0, [0, 0, 0, 0, 0]), (1, [4, 0, 2, 0, 0]), (2, [4, 4, 2, 2, 0])):
        scenario = replace(SCENARIO, splits=replace(SCENARIO.splits, detailed_bundles=most))
        _, script = played(monkeypatch, scenario, (20.0, split()))
        before, after = script.seen[1.0], script.seen[24.0]
        samples = [before[PARENT], before[OTHER], after[LOW], after[HIGH], after[OTHER]]
        assert [len(topics_of(sample)) for sample in samples] == expected
    assert topics_of(before[PARENT]) == dict(zip(TOPICS, [0.375, 0.125, 0.125, 0.375], strict=True))
    assert topics_of(after[HIGH]) == {0x300: 0.25, 0x400: 0.75}


def test_topics_of_a_bundle_with_one_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    _, script = played(monkeypatch, format_2_scenario([0, 1], topics={5: 1.0}, ticks=3))
    assert [topics_of(sample) for sample in script.seen[1.0].values()] == [{}, {}]


def topics_of(sample: dict[str, Any]) -> dict[int, float]:
    """Hash and share of each topic that a sample tells."""
    packed = sample["topic_shares"]
    if packed is None:
        return {}
    hashes, shares = TopicShares.from_packed(np.array([0]), [packed]).of(0)
    return dict(zip(hashes.tolist(), shares.tolist(), strict=True))


def test_the_extensible_managers_brokers_ask_for_splits_themselves() -> None:
    """They look each minute, and ask when a bundle has been too large four times in a row."""
    settings = {
        "shedding_strategy": "TransferShedder",
        "load_manager": "extensible",
        "bundle_max_msgs_per_s": 300,
        "split_algorithm": "topic_count_equally_divide",
    }
    result = run_simulation(
        replace(SCENARIO, ticks=40, load_step_ticks=40),
        replace(read_policy("none"), settings=settings),
    )
    splits = [line for line in result.lines if line.get("kind") == "split"]
    assert [(line["t"], line["bundle"]) for line in splits] == [(241.0, PARENT)]
    assert (243.0, "split", [LOW, HIGH]) in effects(result)
