"""Ceilings: what a broker carries at most, learned where bundles came and brought no more load.

A limit that is stated too high can't be seen in reports: a broker that is asked for more than it
can carry just delivers less of all its bundles. But then the bundles that were there before fall as
others come, and by as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lb_stream.core.least_moves.capacities import IN, OUT
from lb_stream.core.least_moves.memory import Ceiling, LeastMovesMemory
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows

ARRIVED_MS = 180_000
"""Bundles that came within this time are compared with those that were there before."""
NOTABLE = 0.15
"""What came is looked at above this part of what was there."""
BROUGHT_LITTLE = 0.75
"""Part of the fall of a full broker's bundles that is a sign of one."""
MOST = 0.9
"""This part of a full broker's bundles falls, at least by half as much as they typically do."""
SURE = 3.0
"""A fall is no noise above this number of standard errors."""
MEDIAN_ERROR = 1.25
"""The standard error of a median ÷ that of a mean."""
CONFIRMED_MS = 20_000
"""A sign counts once a report this much later shows it, too. Until then no bundle comes."""
SURPASSED = 1.1
"""A broker that carries this many times as much has no such ceiling."""
RETRIED_MS = 600_000
"""A plan relieves such a broker again after this time. Elsewhere there may be no room for more, as
its cpu counts in the even load, and it can't use it all."""
FORGOTTEN_MS = 4 * 3_600_000
"""After this time without another sign, the stated limit is tried again."""


@dataclass(frozen=True, slots=True)
class _Signs:
    """What reports show of each broker, by rows of brokers."""

    carries: Floats  # (brokers, in and out): bytes/s of its bundles
    expected: Floats  # bytes/s of its bundles, as they were and as they came
    held_back: Bools  # bundles came, and the others fell


def learn_ceilings(
    memory: LeastMovesMemory, view: ClusterView, rows: Rows, explained: Bools
) -> LeastMovesMemory:
    """Return the memory after new reports of these brokers. O(bundles) while bundles come.

    `explained`: brokers that are nearly full by a limit that is known.
    """
    arrived = _find_arrived(view)
    if not memory.ceilings and not arrived.any():
        return memory
    signs, now_ms = _read_signs(view, arrived, memory.noise), view.now_ms
    found = dict(memory.ceilings)
    for row in rows.tolist():
        name = view.brokers.names[row]
        known = found.pop(name, None)
        carries, expected = signs.carries[row], float(signs.expected[row])
        if known is not None and known.is_sure and (carries > SURPASSED * known.carried()).any():
            known = None
        if signs.held_back[row] and not explained[row]:
            since_ms = now_ms if known is None else known.since_ms
            sure = (known is not None and known.is_sure) or now_ms - since_ms >= CONFIRMED_MS
            most = carries if known is None else np.maximum(carries, known.carried())
            into, out = most.tolist()
            tried_ms = 0 if known is None else known.tried_ms
            found[name] = Ceiling(into, out, expected, since_ms, now_ms, sure, tried_ms)
        elif known is not None and known.is_sure and now_ms - known.seen_ms < FORGOTTEN_MS:
            found[name] = known
    return memory if found == memory.ceilings else replace(memory, ceilings=found)


def lower_to_ceilings(
    capacity: Floats, names: Sequence[str], ceilings: Mapping[str, Ceiling]
) -> Floats:
    """Return the capacities, (brokers, resources), with bandwidths lowered to sure ceilings."""
    sure = {name: ceiling for name, ceiling in ceilings.items() if ceiling.is_sure}
    rows = [row for row, name in enumerate(names) if name in sure]
    found = capacity.copy()
    for row in rows:
        # A network is as fast in one direction as in the other.
        most = max(*sure[names[row]].carried().tolist(), 1.0)
        stated = capacity[row, [IN, OUT]]
        found[row, [IN, OUT]] = np.where(stated > 0, np.minimum(stated, most), most)
    return found


def find_tried(memory: LeastMovesMemory, names: Sequence[str], now_ms: int) -> Bools:
    """Return which brokers with a ceiling a plan has relieved lately, as far as there was room."""
    tried_ms = [memory.ceilings[name].tried_ms if name in memory.ceilings else 0 for name in names]
    return np.array([when > 0 and abs(now_ms - when) < RETRIED_MS for when in tried_ms], np.bool_)


def mark_tried(memory: LeastMovesMemory, names: Sequence[str], now_ms: int) -> LeastMovesMemory:
    """Return the memory after a plan that relieves these brokers."""
    tried = {
        name: memory.ceilings[name]._replace(tried_ms=now_ms)
        for name in names
        if name in memory.ceilings
    }
    return replace(memory, ceilings={**memory.ceilings, **tried}) if tried else memory


def _find_arrived(view: ClusterView) -> Bools:
    """Return which bundles have come to their brokers lately, after others were there."""
    owner, since_ms = view.bundles.owner, view.bundles.owner_since_ms
    arrived: Bools = (owner >= 0) & (view.now_ms - since_ms < ARRIVED_MS)
    if arrived.any():
        first_ms = np.full(len(view.brokers), np.iinfo(np.int64).max)
        np.minimum.at(first_ms, owner[owner >= 0], since_ms[owner >= 0])
        arrived[arrived] = since_ms[arrived] > first_ms[owner[arrived]]
    return arrived


def _read_signs(view: ClusterView, arrived: Bools, noise: float | None) -> _Signs:
    """Compare what bundles carry now with their averages, for those that were there before.

    A fall that most brokers see is none.
    """
    bundles, count = view.bundles, len(view.brokers) + 1
    rank = bundles.owner.astype(np.intp) + 1
    latest, mean = bundles.latest.throughput, bundles.short.throughput

    def sums(of: Floats, where: Bools) -> Floats:
        return np.bincount(rank[where], of[where], count)[1:].astype(np.float64)

    were, are, came = sums(mean, ~arrived), sums(latest, ~arrived), sums(mean, arrived)
    busy = (were > 0) & view.brokers.alive
    usual = min(float(np.median(are[busy] / were[busy])), 1.0) if busy.any() else 1.0
    fall = usual * were - are
    part = np.divide(came, came + were, out=np.zeros(count - 1), where=came + were > 0)
    error = 0.0 if noise is None else SURE * noise
    held_back = (came > NOTABLE * were) & (fall > BROUGHT_LITTLE * part * were)
    held_back &= (noise is not None) & (fall > error * np.sqrt(sums(latest**2, ~arrived)))
    for row in np.flatnonzero(held_back).tolist():
        # A full broker holds all of its bundles back, not a few.
        mine = np.flatnonzero((rank == row + 1) & ~arrived & (mean > 0))
        typical = usual - float(np.median(latest[mine] / mean[mine]))
        held_back[row] = typical > max(
            BROUGHT_LITTLE * part[row], error * MEDIAN_ERROR / len(mine) ** 0.5
        )
        least = usual - float(np.quantile(latest[mine] / mean[mine], MOST))
        held_back[row] &= least > BROUGHT_LITTLE / 2 * part[row]
    return _Signs(
        carries=np.stack(
            [view.brokers.latest.throughput_in, view.brokers.latest.throughput_out], 1
        ),
        expected=usual * (were + came),
        held_back=held_back,
    )
