"""Brokers' capacities: the stated limits that can be believed, and what stands in for unknown ones.

A limit is not known where a report states none (0, or a negative number), and where the broker
clearly uses more than it states. Such a resource of such a broker is left out: it makes the broker
neither hot nor full. Columns are in the order of RESOURCES.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.model.view import Bools, Brokers, Floats

RESOURCES = ("cpu", "bandwidth_in", "bandwidth_out", "direct_memory")
CPU, IN, OUT, DIRECT = range(4)
LIMITED = (IN, OUT, DIRECT)
"""Resources whose capacity is the stated limit. That of cpu is learned."""
USAGE, LIMIT = 0, 1
BYTES_PER_KBIT, MIB = 125.0, 2.0**20
EXCEEDED = 1.1
"""A stated limit is refuted by bundles that carry this many times as much, now and on average, and
by as much direct memory."""
PLAUSIBLE = 0.85
"""A capacity is assumed only where the broker uses no more of it than this."""
TOO_LOW = 0.01
"""A stated bandwidth below this part of what brokers carry on average is none of a broker."""
ABSURD = 2.0
"""A stated limit of bandwidth or cpu is refuted by a reported usage this many times as high."""


def read_limits(brokers: Brokers) -> Floats:
    """Return (brokers, in, out and direct memory): stated limits, bytes/s and bytes; 0: none."""
    return _read_figures(brokers, LIMIT)


def read_use(brokers: Brokers) -> Floats:
    """Return (brokers, resources): use by the last reports, bytes/s and bytes; of cpu 0."""
    latest = brokers.latest
    used = np.zeros((len(brokers), len(RESOURCES)))
    used[:, LIMITED] = _read_figures(brokers, USAGE)
    used[:, IN] = np.maximum(used[:, IN], latest.throughput_in)
    used[:, OUT] = np.maximum(used[:, OUT], latest.throughput_out)
    return used


def find_exceeded(brokers: Brokers) -> Bools:
    """Find the stated limits that these brokers exceed by their last reports, as `read_limits`."""
    limits = read_limits(brokers)
    used = _read_figures(brokers, USAGE)
    exceeded = used > limits * np.array([ABSURD, ABSURD, EXCEEDED])
    carried = (
        np.minimum(brokers.latest.throughput_in, brokers.short.throughput_in),
        np.minimum(brokers.latest.throughput_out, brokers.short.throughput_out),
    )
    exceeded[:, :2] |= np.stack(carried, axis=1) > EXCEEDED * limits[:, :2]
    result: Bools = exceeded & (limits > 0)
    return result


def find_believed(brokers: Brokers, refuted: Mapping[str, tuple[float, ...]]) -> Bools:
    """Find the limits that can be believed, (brokers, resources).

    A limit that a broker has exceeded is refuted, and so is each lower one that it states later. A
    figure that half of the brokers that state it have exceeded is refuted for all of them: it is a
    default of their machines, which says nothing. A bandwidth into which hardly any bundle would
    fit is no limit, either. A limit of direct memory of which no use is reported could not be
    refuted. `refuted`: as the memory has it.
    """
    limits = read_limits(brokers)
    known = np.array([refuted.get(name, (0.0, 0.0, 0.0)) for name in brokers.names])
    wrong = find_exceeded(brokers) | (limits <= known.reshape(len(brokers), len(LIMITED)))
    for column in range(len(LIMITED)):
        for figure in np.unique(limits[wrong[:, column], column]).tolist():
            alike = limits[:, column] == figure
            if 2 * np.count_nonzero(wrong[alike, column]) >= np.count_nonzero(alike):
                wrong[alike, column] = True
    wrong[:, :2] |= limits[:, :2] < TOO_LOW * _mean_traffic(brokers)
    usage, limit = brokers.resources["cpu"]
    has_cpu = (limit > 0) & (usage <= ABSURD * limit)
    known_use = np.ones_like(wrong)
    known_use[:, LIMITED.index(DIRECT)] = brokers.resources["direct_memory"][USAGE] > 0
    return np.column_stack([has_cpu, (limits > 0) & ~wrong & known_use])


def known_capacities(brokers: Brokers, believed: Bools, speeds: Floats | None) -> Floats:
    """Return (brokers, resources): capacities in the units of demands; 0: it does not count.

    `believed`: as `find_believed` returns it. `speeds`: of the brokers; None: none is known.
    """
    capacity = np.zeros((len(brokers), len(RESOURCES)))
    if speeds is not None:
        capacity[:, CPU] = speeds
    capacity[:, LIMITED] = np.where(believed[:, LIMITED], read_limits(brokers), 0.0)
    for column, name in enumerate(RESOURCES):
        if not counts(name, brokers):
            capacity[:, column] = 0.0
    return capacity


def expected_capacities(capacity: Floats, demand: Floats) -> Floats:
    """Return the capacities, with expected ones where nothing could be assumed.

    A broker is expected to carry of each resource as much of all demand as its scarcest known one
    of cpu and bandwidths allows. A broker that knows none of these counts as an average one. A
    resource that no broker knows stays out. `demand`: (resources), of all bundles.
    """
    if (capacity > 0).all() or not len(capacity):
        return capacity
    # How many times each broker could carry all demand, by its scarcest known resource.
    main = capacity[:, :DIRECT]
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where((main > 0) & (demand[:DIRECT] > 0), main / demand[:DIRECT], np.inf)
    parts = times.min(axis=1)
    finite = np.isfinite(parts)
    parts[~finite] = parts[finite].mean() if finite.any() else 0.0
    expected = np.where(capacity > 0, capacity, parts[:, None] * demand)
    expected[:, ~(capacity > 0).any(axis=0)] = 0.0
    return expected


def assume_capacities(known: Floats, used: Floats) -> Floats:
    """Return the capacities, with typical ones where a broker does not know what others know.

    A broker is taken for as fast as the median of the others, for its cpu. An assumption that its
    use contradicts is none: there the capacity stays 0. `used`: (brokers, resources).
    """
    found = known.copy()
    scale = known[:, [CPU]] if (known[:, CPU] > 0).all() else np.ones((len(known), 1))
    for column in np.flatnonzero((known > 0).any(axis=0) & (known == 0).any(axis=0)).tolist():
        has = known[:, column] > 0
        typical = float(np.median(known[has, column] / scale[has, 0])) * scale[:, 0]
        found[:, column] = np.where(
            ~has & (used[:, column] <= PLAUSIBLE * typical), typical, known[:, column]
        )
    return found


def fixed_use(brokers: Brokers, memory: LeastMovesMemory) -> Floats:
    """Return (brokers, resources): the use that does not depend on bundles."""
    fixed = np.zeros((len(brokers), len(RESOURCES)))
    reported = zip(brokers.names, bandwidth_beyond(brokers).tolist(), strict=True)
    learned = [memory.beyond.get(name, unexplained)[:2] for name, unexplained in reported]
    fixed[:, [IN, OUT]] = np.array(learned).reshape(len(brokers), 2)
    used = np.maximum(brokers.resources["direct_memory"][0], 0.0) * MIB
    by_bundles = memory.direct_slope * brokers.latest.throughput_in
    fixed[:, DIRECT] = np.maximum(used - by_bundles, 0.0)
    return fixed


def bandwidth_beyond(brokers: Brokers) -> Floats:
    """Return (brokers, in and out): used bytes/s beyond those of bundles, by the last report."""
    carried = brokers.latest.throughput_in, brokers.latest.throughput_out
    used = [
        brokers.resources[name][0] * BYTES_PER_KBIT for name in ("bandwidth_in", "bandwidth_out")
    ]
    return np.maximum(np.stack(used, axis=1) - np.stack(carried, axis=1), 0.0)


def fullness(brokers: Brokers, believed: Bools) -> Floats:
    """Return each broker's reported usage of its scarcest resource, a ratio.

    `believed`: the limits that count, as `find_believed` returns them.
    """
    found: Floats = np.max(
        [
            np.where(believed[:, column], usage_ratio(brokers, name), 0.0)
            for column, name in enumerate(RESOURCES)
            if counts(name, brokers)
        ],
        axis=0,
    )
    return found


def usage_ratio(brokers: Brokers, resource: str) -> Floats:
    """Return each broker's usage of a resource, a ratio; 0 without a limit."""
    usage, limit = brokers.resources[resource]
    return np.divide(usage, limit, out=np.zeros(len(brokers)), where=limit > 0)


def counts(resource: str, brokers: Brokers) -> bool:
    """Return whether a resource counts: its weight is not 0. Direct memory always counts."""
    return resource == "direct_memory" or brokers.weights.get(resource, 1.0) > 0


def _mean_traffic(brokers: Brokers) -> Floats:
    """Return the bytes/s of bundles, in and out, that live brokers carry on average."""
    latest, alive = brokers.latest, brokers.alive
    carried = np.stack([latest.throughput_in, latest.throughput_out], axis=1)[alive]
    found: Floats = carried.sum(axis=0) / max(len(carried), 1)
    return found


def _read_figures(brokers: Brokers, figure: int) -> Floats:
    """Return (brokers, in, out and direct memory): reported figures, bytes/s and bytes."""
    columns = [
        brokers.resources[RESOURCES[column]][figure] * (MIB if column == DIRECT else BYTES_PER_KBIT)
        for column in LIMITED
    ]
    return np.maximum(np.stack(columns, axis=1), 0.0)
