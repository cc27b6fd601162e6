"""The fleet: each bundle's demand and each broker's capacity by resource, learned from reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.model.view import Brokers, ClusterView, Floats

RESOURCES = ("cpu", "bandwidth_in", "bandwidth_out", "direct_memory")
CPU, IN, OUT, DIRECT = range(4)
IDLE, FULL = 0.02, 0.99
"""A broker's speed is learned while its cpu usage is between these."""
BYTES_PER_KBIT, MIB = 125.0, 2.0**20
ABSURD = 4.0
"""A reported limit of bandwidth is wrong if the broker carries this many times as much."""
PASSING = 1.3
"""A bundle whose long-term average is up to this factor higher is expected to return to it."""
RARE, RARE_AMONG_MANY = 1.5, 3.0
"""A deviation of this many standard errors is no noise: of a broker's load (RARE), and of the load
of one of its many bundles."""
UNKNOWN_NOISE = 0.3
"""Relative error of one sample before it has been learned."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Demands and capacities, in one unit for each resource (columns in the order of RESOURCES)."""

    demand: Floats  # (bundles, resources): now
    lasting: Floats  # (bundles, resources): the same, or the long-term one if a little higher
    capacity: Floats  # (brokers, resources); 0: unknown, the resource does not count
    fixed: Floats  # (brokers, resources): used independently of bundles
    error: Floats  # (brokers): relative standard error of the broker's demand


def _current_rates(reported: ClusterView, noise: float) -> tuple[Floats, ...]:
    """Return an estimate of the present four rates of each bundle.

    It is the short-term average, corrected towards the last sample if the two differ by more than
    noise: first of each bundle, then of the sums of each broker.
    """
    bundles, count = reported.bundles, len(reported.brokers)
    rows = bundles.owner.astype(np.intp) + 1
    found = []
    for mean, last in zip(bundles.short.columns, bundles.latest.columns, strict=True):
        own = mean + (last - mean) * _trust(last - mean, mean * noise, RARE_AMONG_MANY)
        now = np.bincount(rows, last, count + 1).astype(np.float64)
        then = np.bincount(rows, own, count + 1).astype(np.float64)
        off = np.sqrt(np.bincount(rows, own**2, count + 1)) * noise
        factor = 1.0 + np.divide(
            (now - then) * _trust(now - then, off, RARE),
            then,
            out=np.zeros(count + 1),
            where=then > 0,
        )
        factor[0] = 1.0  # unassigned bundles
        found.append(own * factor[rows])
    return tuple(found)


def _trust(off: Floats, error: Floats, rare: float) -> Floats:
    """Return the part of a deviation that is no noise, 0..1; 0 below `rare` standard errors."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(off == 0, 0.0, np.clip(1.0 - (rare * error / off) ** 2, 0.0, 1.0))


def observe_fleet(view: ClusterView, memory: LeastMovesMemory) -> LeastMovesMemory:
    """Return the memory after the brokers' new reports: costs of load, speeds, noise."""
    # The known brokers, and the live ones.
    brokers, bundles = view.brokers, view.bundles
    alive = [brokers.names[row] for row in np.flatnonzero(brokers.alive)]
    memory = memory.until(view.now_ms).without_forgotten(brokers.names)
    memory = memory.learn_fleet(alive, view.now_ms)
    rows = np.flatnonzero(brokers.sampled & brokers.alive)
    if not len(rows):
        return memory

    # The costs of messages and bytes, by brokers that are neither idle nor full.
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

    # The noise of samples.
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
    """Return (brokers, in and out): used bytes/s beyond those of bundles, by the last report."""
    carried = brokers.latest.throughput_in, brokers.latest.throughput_out
    used = [
        brokers.resources[name][0] * BYTES_PER_KBIT for name in ("bandwidth_in", "bandwidth_out")
    ]
    return np.maximum(np.stack(used, axis=1) - np.stack(carried, axis=1), 0.0)


def _kinds(brokers: Brokers) -> list[str]:
    """Return each broker's kind of machine. Brokers with the same limits are of one kind."""
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
    """Return each broker's usage of a resource, a ratio; 0 without a limit."""
    usage, limit = brokers.resources[resource]
    return np.divide(usage, limit, out=np.zeros(len(brokers)), where=limit > 0)


def build_fleet(view: ClusterView, reported: ClusterView, memory: LeastMovesMemory) -> Fleet:
    """Return the demands and capacities; `view` has pending moves applied, `reported` has not."""
    noise = UNKNOWN_NOISE if memory.noise is None else memory.noise
    demand, usual = _demands(reported, noise, memory)
    return Fleet(
        demand,
        lasting=np.maximum(demand, np.minimum(usual, PASSING * demand)),
        capacity=_capacities(reported.brokers, memory),
        fixed=_fixed_use(reported.brokers, memory),
        error=_errors(view, demand[:, CPU], noise),
    )


def _demands(
    reported: ClusterView, noise: float, memory: LeastMovesMemory
) -> tuple[Floats, Floats]:
    """Return (bundles, resources) twice: the current demand, and that of the long-term averages."""
    byte_cost, slope = memory.byte_cost, memory.direct_slope
    bytes_in, bytes_out, rate_in, rate_out = _current_rates(reported, noise)
    cpu = rate_in + rate_out + byte_cost * (bytes_in + bytes_out)
    long = reported.bundles.long
    usual_cpu = long.rate + byte_cost * long.throughput
    usual_in, usual_out = long.throughput_in, long.throughput_out
    # Transposed, so that the column of a resource is contiguous.
    return (
        np.stack([cpu, bytes_in, bytes_out, slope * bytes_in]).T,
        np.stack([usual_cpu, usual_in, usual_out, slope * usual_in]).T,
    )


def _capacities(brokers: Brokers, memory: LeastMovesMemory) -> Floats:
    """Return (brokers, resources): capacities in the units of demands; 0: it does not count."""
    capacity = np.zeros((len(brokers), len(RESOURCES)))
    capacity[:, CPU] = memory.speeds(brokers.names, _kinds(brokers))
    carried = {IN: brokers.latest.throughput_in, OUT: brokers.latest.throughput_out}
    for column, throughput in carried.items():
        limit = brokers.resources[RESOURCES[column]][1] * BYTES_PER_KBIT
        capacity[:, column] = np.where(throughput < ABSURD * limit, limit, 0.0)
    capacity[:, DIRECT] = brokers.resources["direct_memory"][1] * MIB
    for column, name in enumerate(RESOURCES):
        if not _counts(name, brokers):
            capacity[:, column] = 0.0
    return capacity


def _fixed_use(brokers: Brokers, memory: LeastMovesMemory) -> Floats:
    """Return (brokers, resources): the use that does not depend on bundles."""
    fixed = np.zeros((len(brokers), len(RESOURCES)))
    reported = zip(brokers.names, _beyond(brokers).tolist(), strict=True)
    learned = [memory.beyond.get(name, unexplained)[:2] for name, unexplained in reported]
    fixed[:, [IN, OUT]] = np.array(learned).reshape(len(brokers), 2)
    used = np.maximum(brokers.resources["direct_memory"][0], 0.0) * MIB
    by_bundles = memory.direct_slope * brokers.latest.throughput_in
    fixed[:, DIRECT] = np.maximum(used - by_bundles, 0.0)
    return fixed


def _counts(resource: str, brokers: Brokers) -> bool:
    """Return whether a resource counts: its weight is not 0. Direct memory always counts."""
    return resource == "direct_memory" or brokers.weights.get(resource, 1.0) > 0


def _errors(view: ClusterView, demand: Floats, noise: float) -> Floats:
    """Return the relative standard error of the sum of each broker's demand."""
    bundles, count = view.bundles, len(view.brokers)
    rows = bundles.owner.astype(np.intp) + 1
    total = np.bincount(rows, demand, count + 1)[1:]
    variance = np.bincount(
        rows, demand**2 / np.maximum(2.0 * bundles.short_samples - 1.0, 1.0), count + 1
    )[1:]
    return noise * np.divide(np.sqrt(variance), total, out=np.zeros(count), where=total > 0)


def load_of(view: ClusterView, fleet: Fleet) -> Floats:
    """Return (brokers, resources): each broker's use, with the demand of its bundles."""
    rows, count = view.bundles.owner.astype(np.intp) + 1, len(view.brokers)
    return fleet.fixed + np.stack(
        [np.bincount(rows, column, count + 1)[1:] for column in fleet.demand.T], axis=1
    )


def fullness(brokers: Brokers) -> Floats:
    """Return each broker's reported usage of its scarcest resource, a ratio."""
    found: Floats = np.max(
        [_ratio(brokers, name) for name in RESOURCES if _counts(name, brokers)], axis=0
    )
    return found


def samples_of(view: ClusterView) -> Floats:
    """Return the mean number of samples of each broker's bundles."""
    rows, count = view.bundles.owner.astype(np.intp) + 1, len(view.brokers)
    bundles = np.bincount(rows, minlength=count + 1)[1:]
    samples = np.bincount(rows, view.bundles.short_samples, count + 1)[1:]
    return np.divide(samples, bundles, out=np.zeros(count), where=bundles > 0)
