"""A small scenario of format 2, made in a line: topics, background cpu, stated limits, a rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lb_stream.core.model.names import bundle_name
from lb_stream.sim.scenario.scenario import (
    Scenario,
    ScenarioBundles,
    ScenarioRollout,
    ScenarioSplits,
    ScenarioTopics,
)
from tests.support.small_scenario import small_scenario

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
