"""A scenario of a few brokers and bundles, made in a line, for tests that look at one thing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lb_stream.sim.scenario.scenario import (
    Event,
    Fault,
    MoveTimes,
    Scenario,
    ScenarioBrokers,
    ScenarioBundles,
    ScenarioPolicies,
)


def small_scenario(
    owners: Sequence[int],
    brokers: int = 3,
    ticks: int = 60,
    capacities: Sequence[float] | None = None,
    loads: Sequence[float] | None = None,
    namespaces: Sequence[str] | None = None,
    **others: Any,
) -> Scenario:
    """Bundles of these owners, each with 100 msg/s in and out unless `loads` says another; brokers
    carry 1,000 msg/s each, or `capacities`.

    Bandwidths and direct memory are ample: usage is cpu usage. A tick is 10 s; release 2 s, acquire
    3 s, reconnect 1 s.
    """
    count = len(owners)
    rate = np.array(loads if loads is not None else [100.0] * count)
    ample, names = np.full(brokers, 1e12), namespaces or ["acme/shop"] * count
    cpu = np.array(capacities, float) if capacities is not None else np.full(brokers, 1000.0)
    none = np.zeros(count, np.int64)
    made = Scenario(
        name="small",
        why="A test.",
        tick_s=10.0,
        ticks=ticks,
        load_step_ticks=ticks,
        noise_step_ticks=1,
        noise_unit=0.0,
        report_interval_s=30.0,
        report_delay_s=1.0,
        move=MoveTimes(2.0, 3.0, 1.0),
        judge_from_s=0.0,
        settled_from_s=10.0 * ticks / 2,
        brokers=ScenarioBrokers(
            tuple(f"b{at}:8080" for at in range(brokers)),
            np.ones(brokers, np.bool_),
            cpu,
            ample,
            ample,
            ample,
            *(ample, np.zeros(brokers), ample, np.zeros(brokers), np.zeros(brokers)),
        ),
        bundles=ScenarioBundles(
            tuple(f"{name}/0x{at:08x}_0x{at + 1:08x}" for at, name in enumerate(names)),
            np.array(owners, np.int64),
            none + 10,
            none + 1,
            none + 2,
            none,
        ),
        events=(),
        faults=(),
        policies=ScenarioPolicies(),
        loads=np.stack([rate / 2, rate / 2, rate * 1000, rate * 2000]).astype(np.float32)[
            :, :, None
        ],
    )
    return replace(made, **others)


def event(t_s: float, broker: int, kind: Any, factor: float = 1.0) -> Event:
    """Something that happens."""
    return Event(t_s, broker, kind, factor)


def deaf(broker: int, from_s: float, to_s: float) -> Fault:
    """Decisions to this broker are lost."""
    return Fault("lost_decisions", (broker,), from_s, to_s)


def move(
    scenario: Scenario, bundle: int, source: int, destination: int, t_s: float, name: str = "m"
) -> list[dict[str, Any]]:
    """Unload, released, assign, acquired: a move as it should be, begun at this moment."""
    names, brokers = scenario.bundles.names, scenario.brokers.names
    release_s, acquire_s = scenario.move.release_s, scenario.move.acquire_s
    one, left = {"bundle": names[bundle]}, t_s + release_s
    return [
        {
            "t": t_s,
            "event": "decision",
            "id": f"{name}1",
            "kind": "unload",
            **one,
            "source": brokers[source],
        },
        {"t": left, "event": "released", **one, "broker": brokers[source], "decision": f"{name}1"},
        {
            "t": left,
            "event": "decision",
            "id": f"{name}2",
            "kind": "assign",
            **one,
            "destination": brokers[destination],
        },
        {
            "t": left + acquire_s,
            "event": "acquired",
            **one,
            "broker": brokers[destination],
            "decision": f"{name}2",
        },
    ]
