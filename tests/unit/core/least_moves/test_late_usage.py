"""LeastMoves where brokers report the bandwidth of the last whole minute, as Pulsar's do, beside
rates of now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lb_stream.sim import SimBroker, SimCluster
from tests.support.sim_loop import ClosedLoop
from tests.support.small_scenario import small_scenario

LOADS = [66.0, 36.0, 36.0, 36.0, 30.0, 12.0, 12.0, 12.0, *[6.0] * 8]
WAYS, MINUTE_MS, STEP_MS = ("bandwidthIn", "bandwidthOut"), 60_000, 5_000
FULL = 0.85
"""The usage of a broker that has all."""


class LateBroker(SimBroker):
    """Its bandwidths in use are the means of the last whole minute.

    Each broker's minutes begin at another time.
    """

    minute, samples, shown = -1, (), None

    def report(self) -> dict[str, Any]:
        report = super().report()
        minute = (self._clock() + sum(self.name.encode()) * 7_000) // MINUTE_MS
        now = [report[way]["usage"] for way in WAYS]
        if minute != self.minute:
            self.shown = np.mean(self.samples, axis=0) if self.samples else now
            self.minute, self.samples = minute, ()
        self.samples = (*self.samples, now)
        for way, usage in zip(WAYS, self.shown, strict=True):
            report[way]["usage"] = float(usage)
        return report


def started(owners: list[int]) -> ClosedLoop:
    """Three brokers, bandwidth out the scarce resource."""
    scenario = small_scenario(owners, loads=LOADS)
    wide = np.full(3, sum(LOADS) * 2_000 / FULL)
    scenario = replace(scenario, brokers=replace(scenario.brokers, bandwidth_out_bytes_per_s=wide))
    settings = {"shedding_strategy": "LeastMoves", "cpu_weight": 0, "assign_unowned": "on_lookup"}
    loop = ClosedLoop(SimCluster(scenario, 1_000_000_000), settings, 1_000_000_000)
    loop.brokers = {
        name: LateBroker(loop.cluster, name, clock=lambda: loop.now_ms) for name in loop.brokers
    }
    return loop


def moves(loop: ClosedLoop, seconds: int) -> int:
    """How many bundles are unloaded meanwhile. Every broker reports every 5 s."""
    before = len(loop.decisions)
    for _ in range(seconds * 1000 // STEP_MS):
        loop.step(STEP_MS)
    return sum(decision.kind in ("unload", "transfer") for decision in loop.decisions[before:])


def test_a_broker_that_has_all_is_relieved_once() -> None:
    loop = started([0] * len(LOADS))
    made = moves(loop, 300)
    assert loop.unevenness() < 1.1 and made <= 9, (made, loop.unevenness())


def test_an_empty_broker_is_filled_once() -> None:
    loop = started([0, 1] * (len(LOADS) // 2))
    made = moves(loop, 300)
    assert loop.unevenness() < 1.1 and made <= 9, (made, loop.unevenness())
