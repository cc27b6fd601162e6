"""Small clusters for the demo and the tests: brokers, bundles dealt in turn, and their load."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lb_stream.sim.scenario.scenario import (
    MoveTimes,
    Scenario,
    ScenarioBrokers,
    ScenarioBundles,
    ScenarioPolicies,
)

BUNDLES_PER_NAMESPACE = 4  # Pulsar's default for a new namespace
MEAN_USAGE = 0.25
"""Cpu usage of an average broker under base load. A broker three times as busy is not full."""
CPU_MSGS_PER_S, CPU_BYTES_PER_S = 320e3, 320e6
NIC_BYTES_PER_S = 125e6
MIB = 2.0**20
HEAP_PER_TOPIC = 2 * MIB
HOT_FACTOR = 3.0

WORKLOADS: dict[str, str] = {
    "steady": "every bundle keeps its load",
    "skewed": "few bundles carry much of it (Zipf)",
    "hot_spot": "the bundles of the first broker carry three times their load",
}
"""Workload → its description."""


def small_scenario(
    brokers: int = 6,
    bundles: int = 96,
    workload: str = "hot_spot",
    seed: int = 1,
    at_s: float = 0.0,
) -> Scenario:
    """Build a cluster whose bundles differ by chance.

    A hot spot begins at `at_s` (seconds); from then on the load stays the same. An average broker's
    cpu usage is MEAN_USAGE under base load, whatever the counts are. Raises KeyError for an unknown
    workload.
    """
    chance = random.Random(f"cluster:{seed}")
    shapes = [
        (
            chance.uniform(0.6, 1.4),
            chance.choice((768.0, 1024.0, 1280.0)),
            chance.choice((1.0, 2.0, 3.0)),
        )
        for _ in range(bundles)
    ]
    clients = [
        (chance.randint(2, 12), chance.randint(2, 8), chance.randint(2, 16)) for _ in range(bundles)
    ]
    rate, size, fan_out = np.array(shapes).T
    rate = (
        rate
        * MEAN_USAGE
        * brokers
        / max(
            float((rate * (1 + fan_out) * (1 / CPU_MSGS_PER_S + size / CPU_BYTES_PER_S)).sum()),
            1e-12,
        )
    )
    base = np.stack([rate, rate * fan_out, rate * size, rate * fan_out * size])
    names = bundle_names(bundles)
    topics, producers, consumers = np.array(clients, np.int64).T
    owner = np.arange(bundles) % brokers
    before, after = load_factors(workload, brokers, bundles, seed)
    loads = (
        np.stack([base * before, base * after], axis=2)
        if at_s > 0
        else (base * after)[:, :, np.newaxis]
    )
    return endless_scenario(
        equal_brokers(brokers),
        ScenarioBundles(names, owner, topics, producers, consumers, _heap(topics)),
        loads,
        at_s,
    )


def endless_scenario(
    brokers: ScenarioBrokers,
    bundles: ScenarioBundles,
    loads: NDArray[np.float64],
    at_s: float = 0.0,
) -> Scenario:
    """Build a scenario without an end from loads: LOADS × bundles × steps, 1 or 2 steps.

    The second step begins at `at_s` (seconds).
    """
    steps = loads.shape[2]
    return Scenario(
        name="small",
        why="A small cluster to look at.",
        tick_s=at_s if steps > 1 else 1.0,
        ticks=steps,
        load_step_ticks=1,
        noise_step_ticks=1,
        noise_unit=0.0,
        report_interval_s=1.0,
        report_delay_s=0.0,
        move=MoveTimes(0.0, 0.0, 0.0),
        judge_from_s=0.0,
        settled_from_s=0.0,
        brokers=brokers,
        bundles=bundles,
        events=(),
        faults=(),
        policies=ScenarioPolicies(),
        loads=loads.astype(np.float32),
    )


def equal_brokers(count: int) -> ScenarioBrokers:
    """Build equal brokers: eight cores, 1 Gbit/s, 4 GiB of heap, 8 GiB of direct memory."""

    def each(value: float) -> NDArray[np.float64]:
        return np.full(count, value)

    return ScenarioBrokers(
        names=tuple(f"broker-{number + 1}:8080" for number in range(count)),
        up=np.ones(count, np.bool_),
        cpu_msgs_per_s=each(CPU_MSGS_PER_S),
        cpu_bytes_per_s=each(CPU_BYTES_PER_S),
        bandwidth_in_bytes_per_s=each(NIC_BYTES_PER_S),
        bandwidth_out_bytes_per_s=each(NIC_BYTES_PER_S),
        memory_bytes=each(4096 * MIB),
        memory_base_bytes=each(512 * MIB),
        direct_memory_bytes=each(8192 * MIB),
        direct_memory_base_bytes=each(256 * MIB),
        report_phase_s=each(0.0),
    )


def _heap(topics: NDArray[np.int64]) -> NDArray[np.int64]:
    return (topics * HEAP_PER_TOPIC).astype(np.int64)


def load_factors(
    workload: str, brokers: int, bundles: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each bundle's factor on its base load: before the hot spot, and from then on.

    Raises KeyError for an unknown workload.
    """
    steady, hot = np.ones(bundles), np.where(np.arange(bundles) % brokers == 0, HOT_FACTOR, 1.0)
    skewed = _zipf(bundles, seed)
    return {"steady": (steady, steady), "skewed": (skewed, skewed), "hot_spot": (steady, hot)}[
        workload
    ]


def _zipf(bundles: int, seed: int, exponent: float = 0.6) -> NDArray[np.float64]:
    """Deal factors by Zipf's law to the bundles by chance; their mean is 1.

    With exponent 0.6 the largest of 96 bundles carries 7 % of the cluster's load. With exponent 1.0
    it would carry 19 %, and no balancer could even out six brokers.
    """
    weights = [(rank + 1) ** -exponent for rank in range(bundles)]
    random.Random(f"skewed:{seed}").shuffle(weights)
    found: NDArray[np.float64] = np.array(weights) * (bundles / sum(weights))
    return found


def bundle_names(count: int) -> tuple[str, ...]:
    """Return `count` names such as `shop/app-07/0x40000000_0x80000000`.

    Each namespace has four even ranges; the last one may have fewer.
    """
    names: list[str] = []
    for first in range(0, count, BUNDLES_PER_NAMESPACE):
        ranges = min(BUNDLES_PER_NAMESPACE, count - first)
        bounds: Sequence[int] = [2**32 // ranges * number for number in range(ranges)] + [
            0xFFFFFFFF
        ]
        namespace = f"shop/app-{first // BUNDLES_PER_NAMESPACE + 1:02d}"
        names += [f"{namespace}/0x{low:08x}_0x{high:08x}" for low, high in pairwise(bounds)]
    return tuple(names)
