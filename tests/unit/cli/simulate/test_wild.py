"""Splits and rollouts are shown where there are any, and scenarios that can be split are judged by
the bound that splits can reach."""

from __future__ import annotations

from typing import Any

import pytest

from lb_stream.cli.simulate.figures import side_by_side
from lb_stream.cli.simulate.page import page
from lb_stream.sim.measures import TraceMeasures, judge_trace, measure_trace
from lb_stream.sim.scenario.scenario import ScenarioRollout
from lb_stream.sim.simulation import read_policy, run_simulation
from tests.support.format_2 import WIDTH, format_2_scenario
from tests.support.html_page import Page

HUGE = format_2_scenario([0, 1, 2], loads=[900.0, 100.0, 100.0], ticks=90)
CHILDREN = ["acme/shop/0x00000000_0x00000280", "acme/shop/0x00000280_0x10000000"]
SPLIT: list[dict[str, Any]] = [
    {
        "t": 21.0,
        "event": "decision",
        "id": "a",
        "kind": "split",
        "bundle": f"acme/shop/0x00000000_0x{WIDTH:08x}",
        "broker": "b0:8080",
        "algorithm": "topic_count_equally_divide",
    },
    {
        "t": 23.0,
        "event": "split",
        "bundle": f"acme/shop/0x00000000_0x{WIDTH:08x}",
        "broker": "b0:8080",
        "decision": "a",
        "children": CHILDREN,
    },
]
MOVE = [
    {
        "t": 31.0,
        "event": "decision",
        "id": "b",
        "kind": "unload",
        "bundle": CHILDREN[1],
        "source": "b0:8080",
    },
    {"t": 33.0, "event": "released", "bundle": CHILDREN[1], "broker": "b0:8080", "decision": "b"},
    {
        "t": 34.0,
        "event": "decision",
        "id": "c",
        "kind": "assign",
        "bundle": CHILDREN[1],
        "destination": "b1:8080",
    },
    {"t": 37.0, "event": "acquired", "bundle": CHILDREN[1], "broker": "b1:8080", "decision": "c"},
]


def rows(*measured: TraceMeasures) -> dict[str, list[str]]:
    return {
        name: values
        for name, *values in side_by_side({str(at): one.figures for at, one in enumerate(measured)})
    }


def test_a_huge_bundle_that_stays_whole_is_lost_although_no_move_would_help() -> None:
    whole = measure_trace(HUGE, [])
    assert whole.figures["max_over_bound_median"] == 1.0
    assert "never balanced" in (verdict := str(judge_trace(whole))) and verdict.startswith("lost")
    assert "2.45 of the bound with any splits" in verdict


def test_measures_of_splits_are_shown_where_a_split_was_made_or_would_have_helped() -> None:
    whole, divided = measure_trace(HUGE, []), measure_trace(HUGE, [*SPLIT, *MOVE])
    shown = rows(whole, divided)
    assert shown["splits"] == ["0", "1"] and shown["max_over_finest_median"][0] == "2.455"
    assert not any(name.startswith("rollout") for name in shown)
    even = format_2_scenario([0, 1, 2])
    assert not {"splits", "max_over_finest_median", "max_over_floor_p95"} & set(
        rows(measure_trace(even, []))
    )


def test_the_page_shows_splits_and_the_bound_that_they_can_reach() -> None:
    text = page({"huge": {"whole": measure_trace(HUGE, []), "divided": measure_trace(HUGE, SPLIT)}})
    assert "assignment of all topics can reach" in text
    assert "max ÷ bound with any splits" in text
    assert "splits, 0 that changed nothing" in text
    assert Page(text).tables["measures-huge"][0][0] == "measure"


@pytest.mark.parametrize("ticks", [10, 90])
def test_a_rollout_is_shown_and_lost_if_it_is_not_done(ticks: int) -> None:
    rollout = ScenarioRollout(20.0, 60.0, 1, (0, 1))
    scenario = format_2_scenario([0, 1, 2], topics=None, rollout=rollout, ticks=ticks)
    measured = measure_trace(scenario, run_simulation(scenario, read_policy("none")).lines)
    shown, verdict = rows(measured), str(judge_trace(measured))
    assert shown["rollout_share"] == ["1" if ticks == 90 else "0.500"]
    assert ("1 of the rollout's 2 brokers were restarted and are back" in verdict) == (ticks == 10)
    text = page({"rollout": {"none": measured}})
    assert "moves a bundle in the rollout" in text
    assert ("not done" in text) == (ticks == 10)
