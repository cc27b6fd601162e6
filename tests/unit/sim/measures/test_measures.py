"""The measures are those that another program, made from the same definitions, found in recorded
traces."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lb_stream.cli.simulate.page import page
from lb_stream.sim.measures import measure_figures, measure_trace
from tests.record_measures import CASES, FIGURES, Case
from tests.support.small_scenario import event, small_scenario
from tests.unit.sim.measures.differing import differing

RECORDED: dict[str, dict[str, Any]] = json.loads(FIGURES.read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_recorded_trace_measures_as_it_was_measured_elsewhere(case: Case, tmp_path: Path) -> None:
    assert differing(measure_figures(*case.read(tmp_path / "scenario")), RECORDED[case.name]) == {}


def test_the_recorded_traces_show_every_measure() -> None:
    """A measure that is 0 or nothing in every case is compared with nothing."""
    seen = {
        name
        for figures in RECORDED.values()
        for name, value in (figures | figures["violations"]).items()
        if value
    }
    assert {
        name for figures in RECORDED.values() for name in (figures | figures["violations"])
    } - seen == set()


def test_drained_brokers_are_in_no_mean_and_no_chart_goes_below_its_bound() -> None:
    """Nothing moves: b2 keeps its bundles though it is drained, b3's are lost."""
    events = (event(0.0, 2, "drain"), event(100.0, 3, "crash"))
    scenario = small_scenario([0, 0, 1, 2, 2, 2, 3, 3], brokers=4, events=events)
    seen = measure_trace(scenario, [])
    series = seen.series
    assert series.mean[0] > series.available_mean[0] == pytest.approx(0.5 / 3, 1e-4)
    assert series.available_max_over_mean[[0, -1]].tolist() == pytest.approx([1.2, 4 / 3], 1e-4)
    assert (series.available_mean <= series.max_usage).all()
    assert series.max_over_bound.min() < 1.0 <= seen.shown_over.min()
    assert _low_values(page({"small": {"none": seen}})) == []


def _low_values(text: str) -> list[float]:
    """Values below 1 that the page tells of max ÷ bound."""
    return [float(value) for value in re.findall(r"max/bound ([\d.]+)", text) if float(value) < 1]


def test_a_difference_is_found() -> None:
    one = {"scenario": "a", "moves": 1, "thrash": 0.5, "violations": {"pinned_moves": 0}}
    other = {"scenario": "a", "moves": 1.0, "thrash": 0.500001, "violations": {"pinned_moves": 2}}
    assert differing(one, one) == {}
    assert set(differing(one, other)) == {"moves", "thrash", "violations.pinned_moves"}
