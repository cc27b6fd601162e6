"""Brokers with cpu that no bundle causes, and with limits that reports leave out or state wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.sim.model import ClusterModel
from lb_stream.sim.scenario.scenario import Scenario
from lb_stream.sim.simulation import read_policy, run_simulation
from lb_stream.sim.simulation.reports import SimulatedReporter
from tests.support.format_2 import format_2_scenario


def reports(scenario: Scenario, t_s: float = 0.0) -> list[dict[str, Any]]:
    made = SimulatedReporter(ClusterModel(scenario), "modular").make([0, 1, 2], t_s, {})
    rows: list[dict[str, Any]] = made.reports.to_pylist()
    return rows


def test_cpu_that_no_bundle_causes_adds_to_a_brokers_usage_with_bundles_or_without() -> None:
    scenario = replace(
        format_2_scenario([0, 0, 1], topics=None, cpu_base=[0.25, 0.0, 0.0], load_step_ticks=30),
        loads=np.repeat(format_2_scenario([0, 0, 1], topics=None).loads, 2, axis=2),
        background=np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.5]], np.float32),
    )
    model = ClusterModel(scenario)
    without = ClusterModel(replace(scenario, background=None, brokers=small_brokers(scenario)))
    for t_s, added in ((0.0, [0.25, 0.0, 0.0]), (300.0, [0.25, 0.0, 0.5])):
        assert model.usage(t_s) - without.usage(t_s) == pytest.approx(added)
        assert [report["cpu_usage"] for report in reports(scenario, t_s)] == pytest.approx(
            100 * model.usage(t_s)
        )


def small_brokers(scenario: Scenario) -> Any:
    return replace(scenario.brokers, cpu_base=None)


def test_who_is_full_by_its_background_delivers_less() -> None:
    busy = ClusterModel(format_2_scenario([0, 0, 1], topics=None, cpu_base=[1.8, 0.0, 0.0]))
    measured = busy.measure(0.0)
    assert measured.loads[0] == pytest.approx([25.0, 25.0, 50.0])
    assert measured.used["cpu"].tolist() == pytest.approx([1.0, 0.1, 0.0], 1e-5)


def test_reports_state_true_usage_beside_the_limit_that_they_leave_out_or_have_wrong() -> None:
    stated = {"bandwidth_in": [0.0, 5e6, 1e12], "direct_memory": [1e12, 0.0, 1e12]}
    true, seen = (
        reports(format_2_scenario([0, 0, 1], topics=None, stated=limits))
        for limits in (None, stated)
    )
    changed = {
        (row, name): after[name]
        for row, (before, after) in enumerate(zip(true, seen, strict=True))
        for name in before
        if before[name] != after[name]
    }
    assert changed == {
        (0, "bandwidth_in_limit"): 0.0,
        (1, "bandwidth_in_limit"): 5e6 / 125,
        (1, "direct_memory_limit"): 0.0,
    }


def test_the_header_says_which_format_it_is() -> None:
    for scenario in (
        format_2_scenario([0, 1, 2], topics=None),
        replace(format_2_scenario([0, 1, 2], topics=None), format=1),
    ):
        played = run_simulation(replace(scenario, ticks=2), read_policy("none"))
        assert played.header["format"] == scenario.format
