"""What LeastMoves decides on: each bundle's demand and each broker's capacity, by resource, out of
what reports say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.model.view import Brokers, ClusterView, Floats

RESOURCES = ("cpu", "bandwidth_in", "bandwidth_out", "direct_memory")
CPU, IN, OUT, DIRECT = range(4)
IDLE, FULL = 0.02, 0.99
"""Between these parts of its cpu a broker tells how fast it is."""
BYTES_PER_KBIT, MIB = 125.0, 2.0**20
ABSURD = 4.0
"""A broker that carries this many times what it says is its bandwidth knows its bandwidth
wrongly."""
PASSING = 1.3
"""A bundle that carries less than its long average by up to this factor is taken to come back to
it."""
RARE, RARE_AMONG_MANY = 1.5, 3.0
"""Standard errors that a broker's load, and one of its many bundles' loads, must be off before that
is no noise."""
UNKNOWN_NOISE = 0.3
"""Relative error of one sample while nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Demands and capacities in the same unit for each resource (columns in the order of
    RESOURCES)."""

    demand: Floats  # (bundles, resources)
    # (bundles, resources): demand, or what it is on the long average where that is a little more
    lasting: Floats
    capacity: Floats  # (brokers, resources); 0: unknown, counts as none
    fixed: Floats  # (brokers, resources): what a broker uses without its bundles' doing
    error: Floats  # of each broker's demand, relative, one standard error


def _level(reported: ClusterView, noise: float) -> tuple[Floats, ...]:
    """The four rates of each bundle as they are taken to be now.

    The short average, or the last sample where that says more than noise would, first of each
    bundle and then of each broker.
    """
    bundles, count = reported.bundles, len(reported.brokers)
    rows = bundles.owner.astype(np.intp) + 1
    found = []
    for mean, last in zip(bundles.short.columns, bundles.latest.columns, strict=True):
        own = mean + (last - mean) * _trust(last - mean, mean * noise, RARE_AMONG_MANY)
        now, then = (
            np.bincount(rows, last, count + 1).astype(np.float64),
            np.bincount(rows, own, count + 1).astype(np.float64),
        )
        off = np.sqrt(np.bincount(rows, own**2, count + 1)) * noise
        factor = 1.0 + np.divide(
            (now - then) * _trust(now - then, off, RARE),
            then,
            out=np.zeros(count + 1),
            where=then > 0,
        )
        factor[0] = 1.0
        found.append(own * factor[rows])
    return tuple(found)


def _trust(off: Floats, error: Floats, rare: float) -> Floats:
    """How much of a deviation is no noise, 0..1: nothing of one below `rare` standard errors."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(off == 0, 0.0, np.clip(1.0 - (rare * error / off) ** 2, 0.0, 1.0))


def observe_fleet(view: ClusterView, memory: LeastMovesMemory) -> LeastMovesMemory:
    """Learn from the brokers' new reports: what a message and a byte cost, how fast each broker is,
    how noisy samples are."""
    brokers, bundles = view.brokers, view.bundles
    alive = [brokers.names[row] for row in np.flatnonzero(brokers.alive)]
    memory = (
        memory.until(view.now_ms).without_forgotten(brokers.names).learn_fleet(alive, view.now_ms)
    )
    fresh = brokers.sampled & brokers.alive
    rows = np.flatnonzero(fresh)
    if not len(rows):
        return memory
    cpu, kinds = _ratio(brokers, "cpu"), _kinds(brokers)
    busy = rows[(cpu[rows] > IDLE) & (cpu[rows] < FULL) & (brokers.latest.rate[rows] > 0)]
    latest = brokers.latest.take(busy)
    memory = memory.learn_cpu(
        [brokers.names[row] for row in busy],
        [kinds[row] for row in busy],
        latest.rate,
        latest.throughput,
        cpu[busy],
    )
    memory = memory.learn_direct(
        brokers.latest.throughput_in[rows],
        np.maximum(brokers.resources["direct_memory"][0][rows], 0.0) * MIB,
    )
    memory = memory.learn_beyond(
        [brokers.names[row] for row in rows], _beyond(brokers)[rows], view.now_ms
    )
    rank = bundles.owner.astype(np.intp) + 1
    rate, counts = bundles.latest.rate, np.bincount(rank, minlength=len(brokers) + 1)[1:]
    total = np.bincount(rank, rate, len(brokers) + 1)[1:].astype(np.float64)
    spread = np.divide(
        np.sqrt(np.bincount(rank, rate**2, len(brokers) + 1)[1:]),
        total,
        out=np.zeros(len(brokers)),
        where=total > 0,
    )
    return memory.learn_noise(
        [brokers.names[row] for row in rows], total[rows], counts[rows].tolist(), spread[rows]
    )


def _beyond(brokers: Brokers) -> Floats:
    """(brokers, in and out): bytes/s that are in use and in no bundle's rates, by the last
    report."""
    carried = brokers.latest.throughput_in, brokers.latest.throughput_out
    used = [
        brokers.resources[name][0] * BYTES_PER_KBIT for name in ("bandwidth_in", "bandwidth_out")
    ]
    return np.maximum(np.stack(used, axis=1) - np.stack(carried, axis=1), 0.0)


def _kinds(brokers: Brokers) -> list[str]:
    """What kind of machine each broker is: those with the same limits are taken to be as fast."""
    limits = np.stack(
        [
            brokers.resources[name][1]
            for name in ("bandwidth_in", "bandwidth_out", "memory", "direct_memory")
        ],
        axis=1,
    )
    kinds, of_broker = np.unique(limits, axis=0, return_inverse=True)
    names = [":".join(f"{limit:g}" for limit in kind) for kind in kinds.tolist()]
    return [names[at] for at in of_broker.ravel().tolist()]


def _ratio(brokers: Brokers, resource: str) -> Floats:
    usage, limit = brokers.resources[resource]
    return np.divide(usage, limit, out=np.zeros(len(brokers)), where=limit > 0)


def fleet_of(view: ClusterView, reported: ClusterView, memory: LeastMovesMemory) -> Fleet:
    """The fleet as it will be when moves in flight are done."""
    brokers = reported.brokers
    noise = UNKNOWN_NOISE if memory.noise is None else memory.noise
    bytes_in, bytes_out, rate_in, rate_out = _level(reported, noise)
    rate, volume = rate_in + rate_out, bytes_in + bytes_out
    byte_cost, slope = memory.byte_cost, memory.direct_slope
    demand = np.stack(
        [rate + byte_cost * volume, bytes_in, bytes_out, slope * bytes_in]
    ).T  # each resource stands together in memory
    long = reported.bundles.long
    usual = np.stack(
        [
            long.rate + byte_cost * long.throughput,
            long.throughput_in,
            long.throughput_out,
            slope * long.throughput_in,
        ]
    ).T
    count = len(brokers)
    limit = {name: brokers.resources[name][1] for name in RESOURCES}
    capacity, fixed = np.zeros((count, 4)), np.zeros((count, 4))
    capacity[:, CPU] = memory.speeds(brokers.names, _kinds(brokers))
    for at, (name, carried) in {
        IN: ("bandwidth_in", brokers.latest.throughput_in),
        OUT: ("bandwidth_out", brokers.latest.throughput_out),
    }.items():
        unit = BYTES_PER_KBIT
        capacity[:, at] = np.where(carried < ABSURD * limit[name] * unit, limit[name] * unit, 0.0)
    capacity[:, DIRECT] = limit["direct_memory"] * MIB
    now = _beyond(brokers).tolist()
    believed = [
        memory.beyond.get(name, one)[:2] for name, one in zip(brokers.names, now, strict=True)
    ]
    fixed[:, [IN, OUT]] = np.array(believed).reshape(count, 2)
    fixed[:, DIRECT] = np.maximum(
        np.maximum(brokers.resources["direct_memory"][0], 0.0) * MIB
        - slope * brokers.latest.throughput_in,
        0.0,
    )
    capacity[:, [at for at, name in enumerate(RESOURCES) if not _counts(name, brokers)]] = 0.0
    lasting = np.maximum(demand, np.minimum(usual, PASSING * demand))
    return Fleet(demand, lasting, capacity, fixed, _errors(view, demand[:, CPU], noise))


def _counts(resource: str, brokers: Brokers) -> bool:
    """Whether a resource counts: its weight is not 0. Direct memory counts by default."""
    return resource == "direct_memory" or brokers.weights.get(resource, 1.0) > 0


def _errors(view: ClusterView, demand: Floats, noise: float) -> Floats:
    """Relative standard error of what each broker's bundles ask for together."""
    bundles, count = view.bundles, len(view.brokers)
    rows = bundles.owner.astype(np.intp) + 1
    total = np.bincount(rows, demand, count + 1)[1:]
    variance = np.bincount(
        rows, demand**2 / np.maximum(2.0 * bundles.short_samples - 1.0, 1.0), count + 1
    )[1:]
    return noise * np.divide(np.sqrt(variance), total, out=np.zeros(count), where=total > 0)


def load_of(view: ClusterView, fleet: Fleet) -> Floats:
    """(brokers, resources): what each broker is asked for."""
    rows, count = view.bundles.owner.astype(np.intp) + 1, len(view.brokers)
    return fleet.fixed + np.stack(
        [np.bincount(rows, column, count + 1)[1:] for column in fleet.demand.T], axis=1
    )


def fullness(brokers: Brokers) -> Floats:
    """How much of its scarcest resource each broker has reported to use, 0..1 and more."""
    found: Floats = np.max(
        [_ratio(brokers, name) for name in RESOURCES if _counts(name, brokers)], axis=0
    )
    return found


def samples_of(view: ClusterView) -> Floats:
    """How many samples there are of each broker's bundles, the mean."""
    rows, count = view.bundles.owner.astype(np.intp) + 1, len(view.brokers)
    bundles = np.bincount(rows, minlength=count + 1)[1:]
    samples = np.bincount(rows, view.bundles.short_samples, count + 1)[1:]
    return np.divide(samples, bundles, out=np.zeros(count), where=bundles > 0)
