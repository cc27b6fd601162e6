"""Splits and rollouts in a trace: what can not have happened is refused; bounds with background."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.sim.measures import TraceError, measure_figures, measure_trace
from lb_stream.sim.scenario.scenario import Event, ScenarioRollout
from tests.support.format_2 import WIDTH, format_2_scenario
from tests.support.small_scenario import deaf, move

PARENT, OTHER = (f"acme/shop/0x{at * WIDTH:08x}_0x{(at + 1) * WIDTH:08x}" for at in (0, 1))
LOW, HIGH = "acme/shop/0x00000000_0x00000280", "acme/shop/0x00000280_0x10000000"
ROLLOUT = ScenarioRollout(30.0, 60.0, 1, (1, 0), in_order=True)
SCENARIO = format_2_scenario([0, 0, 1], loads=[400.0, 100.0, 100.0], rollout=ROLLOUT)


def split(**changes: Any) -> list[dict[str, Any]]:
    """Return the two lines of a split; `changes` of both, by key, or of the second one, by _key."""
    decision = {
        "t": 61.0,
        "event": "decision",
        "id": "s1",
        "kind": "split",
        "bundle": PARENT,
        "broker": "b0:8080",
        "algorithm": "topic_count_equally_divide",
    }
    effect = {
        "t": 63.0,
        "event": "split",
        "bundle": PARENT,
        "broker": "b0:8080",
        "decision": "s1",
        "children": [LOW, HIGH],
    }
    decision |= {key: value for key, value in changes.items() if not key.startswith("_")}
    return [decision, effect | {key[1:]: value for key, value in changes.items() if key[0] == "_"}]


def restart(name: str, t_s: float, **changes: Any) -> list[dict[str, Any]]:
    decision = {"t": t_s, "event": "decision", "id": f"r{name}{t_s}", "kind": "restart"}
    effect = {"t": t_s + 2.0, "event": "stopped", "decision": decision["id"]} | changes
    return [decision | {"broker": name}, {"broker": name} | effect]


CHILD = move(replace(SCENARIO, bundles=replace(SCENARIO.bundles, names=(LOW,))), 0, 0, 2, 70.0)
MOVED_PARENT = [
    {**CHILD[2], "t": 75.0, "bundle": PARENT},
    {**CHILD[3], "t": 78.0, "bundle": PARENT},
]
NEXT = restart("b1:8080", 40.0)
IMPOSSIBLE: dict[str, tuple[list[dict[str, Any]], str]] = {
    "by another broker": (
        split(broker="b1:8080", _broker="b1:8080"),
        f"b1:8080 splits {PARENT}, which it does not own",
    ),
    "no position": (
        split(algorithm="specified_positions_divide", boundaries=[WIDTH]),
        f"{PARENT} can't be split by specified_positions_divide",
    ),
    "other children": (
        split(_children=[HIGH, LOW]),
        f"{PARENT} becomes {LOW}, {HIGH}, not ['{HIGH}'",
    ),
    "unknown algorithm": (
        split(algorithm="halves"),
        "algorithm of decision s1 is 'halves', expected one of range_equally_divide",
    ),
    "no algorithm": (split(algorithm=None), "algorithm of decision s1 is None"),
    "half a position": (
        split(algorithm="specified_positions_divide", boundaries=[0.5]),
        "boundaries of decision s1 are [0.5], expected whole numbers",
    ),
    "too early": (split(_t=62.9), "split 1.9 s after decision s1, expected 2 s or more"),
    "not what was decided": (split(_bundle=OTHER), f"split of {OTHER} by b0:8080 is not what"),
    "a child before its birth": (CHILD, f"bundle is '{LOW}', expected a name of the scenario's"),
    "a parent after its end": (
        [*split(), *MOVED_PARENT],
        f"b2:8080 acquires {PARENT}, which has been split",
    ),
    "split twice": (
        [*split(), *split(id="s2", t=64.0, _t=66.0, _decision="s2")],
        f"b0:8080 splits {PARENT}, which it does not own",
    ),
    "an unknown kind": (
        split(kind="merge"),
        "kind of decision s1 is 'merge', expected unload, assign, split or restart",
    ),
    "an unknown event": (
        split(_event="merged"),
        "event is 'merged', expected decision, released, acquired, split or stopped",
    ),
    "before the rollout": (restart("b1:8080", 20.0), "b1:8080 stops, but no rollout wants it"),
    "not of the rollout": (restart("b2:8080", 40.0), "b2:8080 stops, but no rollout wants it"),
    "not its turn": (restart("b0:8080", 40.0), "b0:8080 stops, but it isn't the next in order"),
    "too many": ([*NEXT, *restart("b0:8080", 50.0)], "b0:8080 stops, but 1 of the rollout's"),
    "twice": ([*NEXT, *restart("b1:8080", 110.0)], "b1:8080 stops, but no rollout wants it"),
    "stopped too early": (restart("b1:8080", 40.0, t=41.0), "stopped 1 s after decision"),
    "another broker": (
        restart("b1:8080", 40.0, broker="b0:8080"),
        "stopped by b0:8080 is not what decision",
    ),
}


@pytest.mark.parametrize(("lines", "why"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_can_not_have_happened_is_refused(lines: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(TraceError) as caught:
        measure_figures(SCENARIO, lines)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"topics": None, "splits": None, "rollout": None},
        {"faults": (deaf(0, 61.0, 62.0),)},
        {"events": (Event(61.5, 0, "crash"), Event(62.0, 0, "up"))},
    ],
    ids=["bundles without topics", "a lost decision", "a broker that was down"],
)
def test_a_split_needs_topics_and_a_broker_that_hears_of_it(changes: dict[str, Any]) -> None:
    with pytest.raises(TraceError):
        measure_figures(replace(SCENARIO, **changes), split())


def test_children_move_as_bundles_of_their_own_with_their_parts_of_load_and_clients() -> None:
    still = replace(SCENARIO, rollout=None)
    figures = measure_figures(still, [*split(), *CHILD])
    assert (figures["splits"], figures["splits_idle"], figures["moves"]) == (1, 0, 1)
    assert figures["bundles_end_over_start"] == pytest.approx(4 / 3, abs=1e-6)
    assert figures["moved_bytes_per_s"] == pytest.approx(400 * 3000 / 2)
    # half of the topics' 16 clients, 3 s without an owner and 1 s to reconnect
    assert figures["client_seconds_lost"] == 8 * (3.0 + 1.0)
    assert figures["redundant"] == figures["orphans_at_end"] == 0


def test_a_split_that_leaves_one_child_with_the_load_is_idle() -> None:
    halves = ["acme/shop/0x00000000_0x08000000", "acme/shop/0x08000000_0x10000000"]
    lines = split(algorithm="range_equally_divide", _children=halves)
    assert measure_figures(SCENARIO, lines)["splits_idle"] == 1


def test_a_bundle_that_comes_back_in_parts_was_not_moved_in_vain() -> None:
    """Its parent ends with the split; each child begins there."""
    still = replace(SCENARIO, rollout=None)
    there = move(still, 0, 0, 2, 20.0, name="a")
    halves = split(broker="b2:8080", _broker="b2:8080")
    back = [
        {**line, "id": "b1"} if line.get("id") == "m1" else line
        for line in move(
            replace(still, bundles=replace(still.bundles, names=(LOW,))), 0, 2, 0, 70.0
        )
    ]
    back = [{**line, "decision": "b1"} if line.get("decision") == "m1" else line for line in back]
    figures = measure_figures(still, [*there, *halves, *back])
    assert (figures["moves"], figures["redundant"], figures["undone"]) == (2, 0, 0)


def test_a_split_lets_the_bound_fall_to_the_finest_and_sand_would_be_lower_still() -> None:
    topics = {0x100: 7.0, 0x400: 3.0}
    large = format_2_scenario([0, 1, 2], topics=topics, loads=[900.0, 100.0, 100.0])
    series = measure_trace(large, split()).series
    assert series.finest is not None and series.floor is not None
    assert (series.bound[0], series.bound[-1]) == (
        pytest.approx(0.9, 1e-5),
        pytest.approx(0.63, 1e-5),
    )
    assert series.finest == pytest.approx(0.63, 1e-5)
    assert series.floor == pytest.approx(1.1 / 3, 1e-5)


def test_load_lies_on_top_of_the_background_and_background_alone_is_a_bound() -> None:
    busy = format_2_scenario([0, 1, 2], topics=None, cpu_base=[0.8, 0.1, 0.0])
    bound = measure_trace(busy, []).series.bound
    assert set(bound.round(6)) == {0.8}, "the broker that is busy by itself"
    loaded = replace(busy, loads=busy.loads * np.float32(10.0))
    assert measure_trace(loaded, []).series.bound == pytest.approx((3.0 + 0.9) / 3, 1e-5)


def test_a_restart_that_is_back_in_time_counts_and_its_moves_are_the_rollouts() -> None:
    out = move(SCENARIO, 2, 1, 2, 31.0)
    figures = measure_figures(SCENARIO, [*out, *restart("b1:8080", 40.0)])
    assert figures["rollout_share"] == 0.5
    assert figures["rollout_s"] is None and figures["rollout_even"] is None
    assert (figures["moves_rollout"], figures["moves_drain"]) == (1, 0)
    assert figures["rollout_moves_per_bundle"] == pytest.approx(1 / 3, abs=1e-6)
    all_back = [*out, *restart("b1:8080", 40.0), *restart("b0:8080", 110.0)]
    figures = measure_figures(SCENARIO, all_back)
    assert (figures["rollout_share"], figures["rollout_s"]) == (1.0, 172.0 - 30.0)
    assert figures["orphans_at_end"] == 2, "b0 had not been emptied"


def test_a_rollout_that_begins_with_the_scenarios_end_has_no_worst_tick() -> None:
    late = replace(SCENARIO, rollout=replace(ROLLOUT, t_s=SCENARIO.end_s))
    found = measure_figures(late, [])
    assert found["rollout_worst"] is None and found["rollout_share"] == 0
