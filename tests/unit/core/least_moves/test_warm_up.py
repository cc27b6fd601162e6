"""LeastMoves where brokers are restarted one after the other, and use much cpu while their code is
compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lb_stream.core.least_moves.cpu import WARM_UP_MS
from lb_stream.core.least_moves.fleet import find_warming
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.model.view import ClusterView
from lb_stream.sim import SimBroker, SimCluster
from tests.support.sim_loop import ClosedLoop
from tests.support.small_scenario import small_scenario
from tests.unit.core.least_moves.cpu_reports import learned
from tests.unit.core.least_moves.plans import a_name, a_view

LOADS = [20.0 + number for number in range(24)]
BEGIN_MS, STEP_MS, WARM_MS = 1_000_000_000, 10_000, 120_000
USAGE, WARMING = 0.3, 0.45
"""The cpu usage of each broker's load, and what it uses beside it while it is warming."""
KNOWN_S, APART_S = 150, 40
"""How long brokers have been known before the first restart, and the time between two restarts."""


class RestartedBroker(SimBroker):
    """It reports the start of its last process, and is warming after it."""

    restarted_ms = 0

    def report(self) -> dict[str, Any]:
        report = super().report()
        now_ms = self._clock()
        if 0 < self.restarted_ms <= now_ms:
            report["startTimestamp"] = self.restarted_ms
            if now_ms < self.restarted_ms + WARM_MS:
                report["cpu"]["usage"] += WARMING * report["cpu"]["limit"]
        return report


def test_no_broker_is_relieved_because_all_are_warming_after_their_restarts() -> None:
    speed = sum(LOADS) / 3 / USAGE
    scenario = small_scenario([0, 1, 2] * 8, capacities=[speed] * 3, loads=LOADS)
    settings = {"shedding_strategy": "LeastMoves", "assign_unowned": "on_lookup"}
    loop = ClosedLoop(SimCluster(scenario, BEGIN_MS), settings, BEGIN_MS)
    brokers = {
        name: RestartedBroker(loop.cluster, name, clock=lambda: loop.now_ms)
        for name in loop.brokers
    }
    for place, broker in enumerate(brokers.values()):
        broker.restarted_ms = BEGIN_MS + (KNOWN_S + place * APART_S) * 1000
    loop.brokers = dict(brokers)
    for _ in range((KNOWN_S + 260) * 1000 // STEP_MS):
        loop.step(STEP_MS)
    assert not [decision for decision in loop.decisions if decision.kind == "unload"]


NOW_MS = 10_000_000
NAMES = ("a", "b", "c", "d", "e")
JUST_NOW_MS = NOW_MS - WARM_UP_MS + 1
LONG_AGO_MS = NOW_MS - WARM_UP_MS


def brokers_that_started(starts_ms: Mapping[str, int]) -> ClusterView:
    """Five live brokers; those without a start don't report it."""
    view = a_view({name: {a_name(at): 100.0} for at, name in enumerate(NAMES)})
    start_ms = np.array([starts_ms.get(name, 0) for name in NAMES], np.int64)
    return replace(view, now_ms=NOW_MS, brokers=replace(view.brokers, start_ms=start_ms))


def costs_known_since(when_ms: int) -> LeastMovesMemory:
    """The memory of a cluster whose costs have been known since then."""
    return replace(learned(), serving=NAMES, kinds_ms=when_ms)


def letters_of_warming(view: ClusterView, memory: LeastMovesMemory) -> str:
    """Return the letters of the brokers that have just started."""
    return "".join(np.array(NAMES)[find_warming(view, memory)].tolist())


@pytest.mark.parametrize(
    ("starts_ms", "warming"),
    [
        ({}, ""),
        (dict.fromkeys("ab", JUST_NOW_MS), "ab"),
        (dict.fromkeys("ab", LONG_AGO_MS), ""),
        (dict.fromkeys("abc", JUST_NOW_MS), ""),
        ({"a": NOW_MS + 5_000}, "a"),
    ],
    ids=["not reported", "few", "some minutes ago", "a new cluster", "a clock that is ahead"],
)
def test_few_brokers_that_have_just_started_are_warming_but_not_those_of_a_new_cluster(
    starts_ms: dict[str, int], warming: str
) -> None:
    assert letters_of_warming(brokers_that_started(starts_ms), LeastMovesMemory()) == warming


def test_once_costs_are_known_all_that_start_later_are_warming_however_many() -> None:
    view = brokers_that_started(dict.fromkeys("abcd", JUST_NOW_MS))
    assert letters_of_warming(view, costs_known_since(JUST_NOW_MS - 1)) == "abcd"
    assert letters_of_warming(view, costs_known_since(JUST_NOW_MS)) == "", "they started before"
    assert letters_of_warming(view, costs_known_since(0)) == "", "since when is not known"


def test_a_broker_that_does_not_report_its_start_has_started_when_it_came_back() -> None:
    view = brokers_that_started({})
    memory = replace(
        costs_known_since(1), changes=((JUST_NOW_MS - 60_000, "a"), (JUST_NOW_MS, "a"))
    )
    assert letters_of_warming(view, memory) == "a"
    assert letters_of_warming(view, replace(memory, changes=((LONG_AGO_MS, "a"),))) == ""
    gone = replace(memory, serving=("b", "c", "d", "e"))
    assert letters_of_warming(view, gone) == "", "it has only gone"
