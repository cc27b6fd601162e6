"""The fleet: each bundle's demand and each broker's capacity by resource, learned from reports."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lb_stream.core.least_moves.capacities import (
    ABSURD,
    CPU,
    MIB,
    assume_capacities,
    bandwidth_beyond,
    counts,
    expected_capacities,
    find_believed,
    find_exceeded,
    fixed_use,
    fullness,
    known_capacities,
    read_limits,
    read_use,
    usage_ratio,
)
from lb_stream.core.least_moves.ceilings import find_doubted, learn_ceilings, lower_to_ceilings
from lb_stream.core.least_moves.cpu import (
    BUSY,
    FULL,
    IDLE,
    WARM_UP_MS,
    CpuModel,
    CpuReports,
    jump_limit,
    learn_cpu,
    model_cpu,
)
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.model.view import Bools, Brokers, ClusterView, Floats, Rows

PASSING = 1.3
"""A bundle whose long-term average is up to this factor higher is expected to return to it."""
RARE, RARE_AMONG_MANY = 1.5, 3.0
"""A deviation of this many standard errors is no noise: of a broker's load (RARE), and of the load
of one of its many bundles."""
CLEARLY_HELD_BACK, MOST_HELD_BACK = 1.1, 20.0
"""The bundles of a full broker are asked for more than they carry by a factor between these."""
EXPLAINS = 0.85
"""A broker with this usage of a resource can have no room for more load, by a known limit."""
MIN_SAMPLES = 3
"""A full broker is relieved at once after this number of samples."""
LEAST_LOAD = 0.02
"""The cpu of a broker that carries less than this part of the mean is used by what isn't load."""
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
    closed: Bools  # (brokers): it takes no bundle, as by its last report its cpu has no room
    unexplained: Floats  # (brokers): cpu usage of its last report beyond the expected one, a ratio
    slowed: Bools  # (brokers): its cpu has become slower or busier, so its load is known to be high

    @property
    def expected(self) -> Floats:
        """Return the capacities, with expected ones where they are 0."""
        return expected_capacities(self.capacity, self.demand.sum(axis=0))


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


def _learn_direct(memory: LeastMovesMemory, brokers: Brokers, rows: Rows) -> LeastMovesMemory:
    """Learn the direct memory that load takes from brokers whose limit their usage respects."""
    usage, limit = (figures[rows] for figures in brokers.resources["direct_memory"])
    respected = (limit > 0) & (usage >= 0) & (usage <= limit)
    if not respected.any():
        return memory
    return memory.learn_direct(
        brokers.latest.throughput_in[rows][respected], usage[respected] * MIB
    )


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

    # What cpu costs, and how much of it each broker has.
    memory = learn_cpu(memory, _cpu_reports(view, memory, rows), view.now_ms)
    if bool(memory.kinds) != bool(memory.kinds_ms):
        memory = replace(memory, kinds_ms=view.now_ms if memory.kinds else 0)
    memory = _learn_direct(memory, brokers, rows)
    memory = memory.learn_beyond(
        [brokers.names[row] for row in rows], bandwidth_beyond(brokers)[rows], view.now_ms
    )

    # Stated limits that brokers exceed.
    wrong = np.where(find_exceeded(brokers), read_limits(brokers), 0.0)
    memory = memory.learn_refuted([brokers.names[row] for row in rows], wrong[rows])

    # What brokers carry at most, whatever they state.
    explained = fullness(brokers, find_believed(brokers, memory.refuted)) >= EXPLAINS
    memory = learn_ceilings(memory, view, rows, explained)

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


def _cpu_reports(view: ClusterView, memory: LeastMovesMemory, rows: Rows) -> CpuReports:
    """Return the reported cpu usage and load of these brokers."""
    brokers, kinds = view.brokers, _kinds(view.brokers)
    usage = usage_ratio(brokers, "cpu")
    rows = rows[(usage[rows] > 0) & (usage[rows] <= ABSURD)]
    latest = brokers.latest.take(rows)
    return CpuReports(
        [brokers.names[row] for row in rows],
        [kinds[row] for row in rows],
        latest.rate,
        latest.throughput,
        usage[rows],
        find_warming(view, memory)[rows],
        _is_loaded(brokers)[rows],
    )


def _is_loaded(brokers: Brokers) -> Bools:
    """Return which brokers carry so much that their cpu usage shows what load takes of it.

    They carry a notable part of the mean of live brokers, in messages or in bytes.
    """
    found, alive = np.zeros(len(brokers), np.bool_), np.count_nonzero(brokers.alive)
    for load in (brokers.latest.rate, brokers.latest.throughput):
        found |= load >= LEAST_LOAD * load[brokers.alive].sum() / max(alive, 1)
    return found


def find_warming(view: ClusterView, memory: LeastMovesMemory) -> Bools:
    """Return which brokers have just started.

    In a new cluster most brokers have, and costs are learned from them all the same. Once costs are
    known, each broker that starts later is warming, also where most have been restarted one after
    the other. A broker that does not report its start has started when it came back.
    """
    names, now_ms = view.brokers.names, view.now_ms
    starts = view.brokers.starts()
    came = {name: when for when, name in memory.changes if name in memory.serving}
    started_ms = np.array([starts.get(name, came.get(name, 0)) for name in names])
    young: Bools = np.abs(now_ms - started_ms) < WARM_UP_MS
    alive = view.brokers.alive
    if memory.kinds and memory.kinds_ms:
        later: Bools = started_ms > memory.kinds_ms
    else:
        later = np.zeros(len(names), np.bool_)
    few = np.count_nonzero(young & alive) * 2 < np.count_nonzero(alive)
    return young & (later | few)


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


def build_fleet(view: ClusterView, reported: ClusterView, memory: LeastMovesMemory) -> Fleet:
    """Return the demands and capacities; `view` has pending moves applied, `reported` has not."""
    noise = UNKNOWN_NOISE if memory.noise is None else memory.noise
    demand, usual = _demands(reported, noise, memory)
    demand *= _held_back(reported, demand[:, CPU], usual[:, CPU])[:, None]
    brokers = reported.brokers
    cpu = model_cpu(memory, brokers.names, _kinds(brokers))
    believed = find_believed(brokers, memory.refuted)
    known = known_capacities(brokers, believed, _find_speeds(brokers, memory, cpu))
    capacity = assume_capacities(known, read_use(brokers))
    capacity = lower_to_ceilings(capacity, brokers.names, memory.ceilings)
    fixed = fixed_use(brokers, memory)
    fixed[:, CPU] = cpu.base * cpu.capacity
    return Fleet(
        demand,
        lasting=np.maximum(demand, np.minimum(usual, PASSING * demand)),
        capacity=capacity,
        fixed=np.where(capacity > 0, fixed, 0.0),
        error=_errors(view, demand[:, CPU], noise),
        closed=_closed(reported, memory, cpu) | find_doubted(memory.ceilings, brokers.names),
        unexplained=_unexplained(reported, memory, cpu),
        slowed=cpu.slowed,
    )


def _find_speeds(brokers: Brokers, memory: LeastMovesMemory, model: CpuModel) -> Floats | None:
    """Return the brokers' speeds in demand of cpu; None: no report shows what load takes of cpu.

    Before a speed has been learned, it is that of the last reports that show any use of cpu.
    """
    if memory.kinds:
        return model.capacity
    cpu, rate = usage_ratio(brokers, "cpu"), brokers.latest.rate
    shows = (cpu > IDLE) & (cpu <= ABSURD) & (rate > 0) & _is_loaded(brokers)
    if not shows.any():
        return None
    return np.full(len(brokers), float(np.median(rate[shows] / cpu[shows])))


def _held_back(reported: ClusterView, demand: Floats, usual: Floats) -> Floats:
    """Return each bundle's demand ÷ what its broker delivers: above 1 at brokers with full cpu.

    A broker that is asked for more than it can carry delivers less of every bundle. How much less,
    the long-term averages show: most bundles are asked for what they have carried before. If load
    has fallen everywhere, that is no sign of a full broker.
    """
    owner, factor = reported.bundles.owner, np.ones(len(demand))
    full = usage_ratio(reported.brokers, "cpu") >= FULL
    if not full.any():
        return factor
    known = (demand > 0) & (usual > 0) & (owner >= 0) & (reported.bundles.long_samples > 1)
    held = known & full[owner]
    free = known & ~full[owner]
    carried = demand[free].sum()
    fallen = max(float(usual[free].sum() / carried), 1.0) if carried > 0 else 1.0
    for broker in np.flatnonzero(full).tolist():
        rows = np.flatnonzero(held & (owner == broker))
        if len(rows):
            ratio = _weighted_median(usual[rows] / demand[rows], demand[rows]) / fallen
            factor[owner == broker] = ratio if ratio > CLEARLY_HELD_BACK else 1.0
    return np.minimum(factor, MOST_HELD_BACK)


def _weighted_median(values: Floats, weights: Floats) -> float:
    """Return the median of values, each counted by its weight."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def _closed(reported: ClusterView, memory: LeastMovesMemory, cpu: CpuModel) -> Bools:
    """Return which brokers take no bundle, by their own last report.

    Their cpu is full, or has just become slower or busier, or is used by more than their load
    explains. Only the first counts for brokers that have just started.
    """
    brokers = reported.brokers
    usage = usage_ratio(brokers, "cpu")
    load = brokers.latest.rate + memory.byte_cost * brokers.latest.throughput
    expected = cpu.expected(load) * np.exp(jump_limit(memory))
    above = (usage > np.maximum(expected, BUSY)) & ~find_warming(reported, memory)
    found: Bools = (usage >= FULL) | cpu.slowed | above
    return found if counts("cpu", brokers) else np.zeros(len(brokers), np.bool_)


def _unexplained(reported: ClusterView, memory: LeastMovesMemory, cpu: CpuModel) -> Floats:
    """Return each broker's cpu usage beyond what its load explains, by its last report, a ratio.

    It may be noise, so it makes no broker hot; but a destination has no room for it. 0 for brokers
    that have just started.
    """
    brokers = reported.brokers
    if not counts("cpu", brokers):
        return np.zeros(len(brokers))
    load = brokers.latest.rate + memory.byte_cost * brokers.latest.throughput
    beyond = np.minimum(usage_ratio(brokers, "cpu"), 1.0) - cpu.expected(load)
    found: Floats = np.where(find_warming(reported, memory), 0.0, np.maximum(beyond, 0.0))
    return found


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


def find_urgent(
    view: ClusterView, reported: ClusterView, memory: LeastMovesMemory, fleet: Fleet
) -> Bools:
    """Find the brokers that are relieved at once if they are hot: full, slowed and busy ones."""
    believed = find_believed(reported.brokers, memory.refuted)
    sudden = (fullness(view.brokers, believed) >= FULL) | fleet.slowed
    urgent: Bools = sudden & (samples_of(reported) >= MIN_SAMPLES)
    return urgent


def samples_of(view: ClusterView) -> Floats:
    """Return the mean number of samples of each broker's bundles."""
    rows, count = view.bundles.owner.astype(np.intp) + 1, len(view.brokers)
    bundles = np.bincount(rows, minlength=count + 1)[1:]
    samples = np.bincount(rows, view.bundles.short_samples, count + 1)[1:]
    return np.divide(samples, bundles, out=np.zeros(count), where=bundles > 0)
