"""Small scenarios for the player's tests: three brokers, some bundles, events and faults as a test
wants them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lb_stream.sim.scenario.scenario import MoveTimes, Scenario, ScenarioBundles, ScenarioPolicies
from lb_stream.sim.workload import equal_brokers

A, B, C = (f"broker-{number}:8080" for number in (1, 2, 3))


def bundle(number: int) -> str:
    """The whole ring of a namespace of its own."""
    return f"t/n{number}/0x00000000_0xffffffff"


def scene(
    owners: list[int], *, ticks: int = 30, rates: list[float] | None = None, **changes: Any
) -> Scenario:
    """Bundles with these owners and message rates (in; twice that out), a tick of ten seconds,
    reports each 30 s, a second on their way."""
    count = len(owners)
    given = np.array(rates or [1000.0] * count)
    ones = np.ones(count, np.int64)
    bundles = ScenarioBundles(
        tuple(map(bundle, range(count))),
        np.array(owners),
        2 * ones,
        3 * ones,
        4 * ones,
        2**20 * ones,
    )
    base = Scenario(
        name="scene",
        why="A test.",
        tick_s=10.0,
        ticks=ticks,
        load_step_ticks=ticks,
        noise_step_ticks=1,
        noise_unit=0.0,
        report_interval_s=30.0,
        report_delay_s=1.0,
        move=MoveTimes(2.0, 3.0, 2.0),
        judge_from_s=0.0,
        settled_from_s=0.0,
        brokers=equal_brokers(3),
        bundles=bundles,
        events=(),
        faults=(),
        policies=ScenarioPolicies(),
        loads=np.stack([given, given * 2, given * 1000, given * 2000])[:, :, np.newaxis].astype(
            np.float32
        ),
    )
    return replace(base, **changes)
