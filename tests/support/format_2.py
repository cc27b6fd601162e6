"""A small scenario of format 2, made in a line: topics, background cpu, stated limits, a rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lb_stream.core.model.names import bundle_name
from lb_stream.sim.scenario.scenario import (
    Event,
    Scenario,
    ScenarioAntiAffinity,
    ScenarioBundles,
    ScenarioIsolation,
    ScenarioPolicies,
    ScenarioRollout,
    ScenarioSplits,
    ScenarioTopics,
)
from tests.support.small_scenario import deaf, small_scenario

SPLITS = ScenarioSplits(2.0, 10, 30_000.0, 1e8, 0.1)
WIDTH = 0x1000_0000
"""The width of each bundle's range."""
TOPICS = {0x100: 3.0, 0x200: 1.0, 0x300: 1.0, 0x400: 3.0}
"""Hashes of a bundle's topics, from its lower bound on, and their shares."""


def format_2_scenario(
    owners: Sequence[int],
    topics: Mapping[int, float] | None = TOPICS,
    cpu_base: Sequence[float] | None = None,
    stated: Mapping[Any, Sequence[float]] | None = None,
    rollout: ScenarioRollout | None = None,
    **others: Any,
) -> Scenario:
    """Build a scenario of `small_scenario`, in format 2; each bundle has these `topics`."""
    small = small_scenario(owners, **others)
    count = len(owners)
    clients = np.full(count, 8)
    lows = [at * WIDTH for at in range(count)]
    bundles = ScenarioBundles(
        tuple(bundle_name("acme/shop", low, low + WIDTH) for low in lows),
        np.array(owners, np.int64),
        np.full(count, 1 if topics is None else len(topics)),
        clients,
        clients,
        clients * 1000,
    )
    brokers = replace(
        small.brokers,
        cpu_base=None if cpu_base is None else np.array(cpu_base, np.float64),
        stated={name: np.array(values, np.float64) for name, values in (stated or {}).items()},
    )
    return replace(
        small,
        format=2,
        brokers=brokers,
        bundles=bundles,
        topics=None if topics is None else _topics(lows, topics),
        splits=None if topics is None else SPLITS,
        rollout=rollout,
    )


def _topics(lows: Sequence[int], topics: Mapping[int, float]) -> ScenarioTopics:
    count = len(lows)
    return ScenarioTopics(
        np.repeat(np.arange(count), len(topics)),
        np.add.outer(lows, sorted(topics)).reshape(-1),
        np.tile(np.array([topics[at] for at in sorted(topics)], np.float32), count),
    )


def whole_format_2() -> Scenario:
    """Build a scenario that has all of format 2, and every kind of rule and event beside it.

    Six unlike brokers and 24 bundles of six namespaces, two hours of ticks of 30 s; no random
    numbers, so that traces which were recorded of it stay traces of it.
    """
    count, brokers, steps = 24, 6, 8
    at = np.arange(count)
    numbers = 1 + at * 7 % 12
    namespaces = [f"acme/app-{row % 6}" for row in range(count)]
    lows = [row // 6 * 4 * WIDTH for row in range(count)]
    highs = [min(low + 4 * WIDTH, 0xFFFFFFFF) for low in lows]
    base = small_scenario(
        (at * 5 % brokers).tolist(),
        brokers,
        240,
        capacities=[1000.0, 1500.0, 1000.0, 2000.0, 1000.0, 1200.0],
        namespaces=namespaces,
    )
    factor = 1 + np.add.outer(at, np.arange(steps)) * 11 % 7 / 10
    size = np.where(at == 10, 40, 1 + at * 3 % 11)  # one bundle is more than a broker carries
    loads = (base.loads[:, :, :1] * size[:, None] / 4 * factor).astype(np.float32)
    rows = np.repeat(at, numbers)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    return replace(
        base,
        name="whole_format_2",
        tick_s=30.0,
        ticks=240,
        load_step_ticks=30,
        judge_from_s=0.0,
        settled_from_s=3600.0,
        format=2,
        brokers=replace(
            base.brokers,
            bandwidth_out_bytes_per_s=np.full(brokers, 2e6),
            cpu_base=np.array([0.0, 0.3, 0.0, 0.0, 0.1, 0.0]),
            stated={"bandwidth_in": np.array([0.0, 1e6, *[1e12] * 4])},
        ),
        bundles=ScenarioBundles(
            tuple(map(bundle_name, namespaces, lows, highs)),
            base.bundles.start_owner,
            numbers,
            numbers * 3,
            numbers * 5,
            numbers * 1000,
        ),
        events=(
            Event(600.0, 3, "drain"),
            Event(1500.0, 5, "crash"),
            Event(1800.0, 3, "undrain"),
            Event(2100.0, 5, "up"),
            Event(2400.0, 2, "slow", 0.5),
            Event(4500.0, 4, "leave"),
            Event(5100.0, 4, "up"),
        ),
        faults=(deaf(1, 900.0, 1200.0),),
        policies=ScenarioPolicies(
            (ScenarioIsolation("own", ("acme/app-5",), (1, 5), (4,), 1),),
            (ScenarioAntiAffinity("apart", ("acme/app-1", "acme/app-2")),),
            ("acme/app-0",),
            {"acme/app-3": 2},
        ),
        loads=loads,
        background=(np.add.outer(np.arange(brokers) * 2, np.arange(steps)) % 5 / 20).astype(
            np.float32
        ),
        # Some topics share a hash, some have no load.
        topics=ScenarioTopics(
            rows,
            np.array(lows)[rows] + place // 2 * 0x0123_4567 % (4 * WIDTH),
            (1 + place * 5 % 7 - (place % 4 == 3) * (1 + place * 5 % 7)).astype(np.float32),
        ),
        splits=ScenarioSplits(2.0, 5, 300.0, 4e5, 0.1),
        rollout=ScenarioRollout(3000.0, 95.0, 2, (4, 0, 1, 2), in_order=True),
    )
