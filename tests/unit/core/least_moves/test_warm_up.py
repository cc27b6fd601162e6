"""LeastMoves where brokers are restarted one after the other, and use much cpu while their code is
compiled."""

from __future__ import annotations

from typing import Any

from lb_stream.sim import SimBroker, SimCluster
from tests.support.sim_loop import ClosedLoop
from tests.support.small_scenario import small_scenario

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
