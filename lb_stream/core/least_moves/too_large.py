"""Bundles that are larger than an even load, and since when.

A bundle that alone exceeds what each broker would carry if load were sand keeps its broker hot
wherever it is. See docs/splitting.md "Splits of a plan".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from lb_stream.core.least_moves.capacities import DIRECT
from lb_stream.core.least_moves.config import LeastMovesConfig
from lb_stream.core.least_moves.fleet import UNKNOWN_NOISE, Fleet
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.model.view import Floats, Rows
from lb_stream.core.shedding.base import ShedContext

RETRY_MS = 300_000
"""A bundle whose split would gain too little is tried again after this time."""

Context = ShedContext[LeastMovesConfig, LeastMovesMemory]
EvenLoadsOf = Callable[[Fleet], Floats]
"""Demands and capacities → the even load of each broker."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Bundles that are larger than an even load. Columns have a row for each, the largest first."""

    rows: Rows
    alone: Floats  # usage of the broker that it loads least, if it were alone there
    even: Floats  # the even load, if load were sand
    resource: Rows  # that it uses most of


def find_too_large(context: Context, fleet: Fleet, even_loads: EvenLoadsOf) -> TooLarge | None:
    """Find the bundles that alone exceed what an even load would be if bundles were sand.

    None: there is none. O(bundles).
    """
    # Bundles that exceed the mean usage of all brokers.
    reachable = context.view.brokers.reachable
    if not reachable.any():
        return None
    capacity, trigger = fleet.expected[reachable], context.config.least_moves_trigger_ratio
    most, whole = capacity.max(axis=0), capacity.sum(axis=0)
    alone = _over(fleet.lasting, most).max(axis=1)
    mean = _over(fleet.demand.sum(axis=0), whole).max()
    candidates = np.flatnonzero(alone > trigger * mean)
    candidates = candidates[context.view.bundles.owner[candidates] >= 0]
    if not len(candidates):
        return None

    # Those of them that exceed it at each broker that may take them.
    even = even_loads(replace(fleet, lasting=np.zeros_like(fleet.lasting)))
    found = list[tuple[int, float, float, int]]()
    for row in candidates.tolist():
        takers = np.zeros(len(reachable), np.bool_)
        takers[context.takers(row)] = True
        takers[context.view.bundles.owner[row]] = True
        at = np.flatnonzero(takers & reachable)
        usages = _over(fleet.lasting[row], fleet.capacity[at])
        if not len(at):
            continue
        best = int(np.argmin(usages.max(axis=1) / even[at]))
        usage, target = float(usages[best].max()), float(even[at[best]])
        if usage > trigger * target:
            found.append((row, usage, target, int(usages[best].argmax())))
    if not found:
        return None
    found.sort(key=lambda large: (-large[1] / large[2], large[0]))
    rows, usage_alone, targets, resources = zip(*found, strict=True)
    return TooLarge(
        np.array(rows, np.intp), np.array(usage_alone), np.array(targets), np.array(resources)
    )


def _over(load: Floats, capacity: Floats) -> Floats:
    """Return load ÷ capacity; 0 without a capacity, as the resource does not count."""
    shape = np.broadcast_shapes(load.shape, capacity.shape)
    found: Floats = np.divide(load, capacity, out=np.zeros(shape), where=capacity > 0)
    return found


def find_due(
    context: Context, fleet: Fleet, memory: LeastMovesMemory, large: TooLarge | None
) -> tuple[LeastMovesMemory, Rows, Rows]:
    """Return the memory with the too large bundles, and two groups of them, as places in `large`.

    The first group has been too large for long enough, by more than noise. The second one soon
    will have been: it is too large by its long-term averages, too, and so is no passing peak.
    """
    now_ms, no_rows = context.view.now_ms, np.empty(0, np.intp)
    if large is None:
        return replace(memory, too_large={}), no_rows, no_rows
    names = [context.view.bundles.name(row) for row in large.rows.tolist()]
    since = {name: min(memory.too_large.get(name, now_ms), now_ms + RETRY_MS) for name in names}
    bundles, config = context.reported.bundles, context.config
    noise = UNKNOWN_NOISE if memory.noise is None else memory.noise
    samples = np.maximum(bundles.short_samples[large.rows], 1)
    error = noise / np.sqrt(2.0 * samples - 1.0)
    limit = config.least_moves_trigger_ratio * large.even
    sure = large.alone * (1.0 - config.least_moves_min_standard_errors * error) > limit

    # By the long-term average too, or only as it is now.
    long = bundles.long.take(large.rows)
    cpu = long.rate + memory.byte_cost * long.throughput
    columns = np.stack([cpu, long.throughput_in, long.throughput_out, long.throughput_in], axis=1)
    here = np.arange(len(names)), large.resource
    columns[:, DIRECT] *= memory.direct_slope
    usual = columns[here] / np.maximum(fleet.lasting[large.rows][here], 1e-300)
    lasts = large.alone * usual > limit
    grown_ms = max(config.least_moves_split_grown_ms, config.least_moves_hot_for_ms)
    wait_ms = np.where(lasts, config.least_moves_hot_for_ms, grown_ms)
    waited_ms = now_ms - np.array([since[name] for name in names])
    soon = lasts & (waited_ms >= 0) & (waited_ms < wait_ms)
    return (
        replace(memory, too_large=since),
        np.flatnonzero(sure & (waited_ms >= wait_ms)),
        np.flatnonzero(soon),
    )
