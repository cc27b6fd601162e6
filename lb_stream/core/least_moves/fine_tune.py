"""Fine-tuning: moves that plans have left over bring the fullest brokers nearer to even."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lb_stream.core.least_moves.capacities import CPU
from lb_stream.core.least_moves.config import LeastMovesConfig
from lb_stream.core.least_moves.fleet import Fleet
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.least_moves.plan import NO_ROWS, MovePlan
from lb_stream.core.model.view import ClusterView, Floats, Rows

CALM = 0.02
"""Load is calm if each broker's load differs from its short-term average by this part at most."""
QUIET_MS = 3_600_000
"""If the last plan came this long after the one before, the load counts as steady."""
MIN_EXCESS = 0.01
"""Fine-tuning begins when the highest share is this far above the target."""
MIN_GAIN = 0.03
"""Each move must lower the highest share by this ÷ the number of brokers: 0.01 for 3 brokers."""
LEVELS = 8
"""Levels that are tried between the highest share and the target."""
MIN_STEP = 0.0005
"""The search for the lowest level ends once the step between two levels is this small."""


def confident_loads(
    view: ClusterView,
    fleet: Fleet,
    peak: Floats,
    memory: LeastMovesMemory,
    config: LeastMovesConfig,
) -> Floats | None:
    """Return each broker's share less one standard error; None: fine-tuning has to wait.

    `peak`: the brokers' shares of their scarcest resource.
    """
    # The budget is spent, or the last moves do not show in the averages yet.
    waited_ms, brokers = view.now_ms - memory.planned_ms, view.brokers
    if (
        memory.fine_tune_budget < 1
        or not config.least_moves_fine_tune_after_ms
        or waited_ms < config.least_moves_fine_tune_after_ms
    ):
        return None

    # Moves are pending, brokers restart, or load changes, so it would not stay even.
    if (
        view.bundles.in_flight.any()
        or view.now_ms < memory.calm_at()
        or not _is_calm(view, fleet, memory)
    ):
        return None

    # The last two plans were less than QUIET_MS apart, and the load may soon need another plan.
    if view.now_ms - memory.plan_ms < memory.between_ms < QUIET_MS:
        return None
    known = np.where(brokers.reachable, peak * (1.0 - fleet.error), -np.inf)
    return known if known.max() > config.least_moves_target_ratio + MIN_EXCESS else None


def _is_calm(view: ClusterView, fleet: Fleet, memory: LeastMovesMemory) -> bool:
    """Return whether the load of each live broker is that of its bundles' short-term averages."""
    rows, count = view.bundles.owner.astype(np.intp) + 1, len(view.brokers) + 1
    mean = view.bundles.short
    now = np.bincount(rows, fleet.demand[:, CPU], count)[1:]
    usual = np.bincount(rows, mean.rate + memory.byte_cost * mean.throughput, count)[1:]
    return bool((np.abs(now - usual) <= CALM * usual)[view.brokers.alive].all())


def fine_tune(plan: MovePlan, relieve: Callable[[float], Rows], known: Floats, most: int) -> Rows:
    """Lower the highest share with at most `most` moves, each of which must gain enough.

    `relieve` makes the plan for a level and returns the brokers that it relieves. `known`: each
    broker's share. Returns the brokers that the best plan relieves; none: no plan gains enough.
    """
    best = before = plan.state()
    top, sources = float(known.max()), NO_ROWS
    min_gain = MIN_GAIN / max(int((known > 0).sum()), 1)
    gained, reached = 0.0, plan.acceptable_share

    # Lower and lower levels, in smaller steps where a level takes too many moves.
    level, step = top, (top - plan.target_share) / LEVELS
    while level > plan.target_share and step > MIN_STEP:
        lower = max(level - step, plan.target_share)
        plan.restore(before)
        tried = relieve(lower)
        moves = len(plan.moves)
        if moves > most:
            step /= 2.0
            continue
        level = lower
        gain = top - max(float(plan.share[tried].max(initial=0.0)), level)
        if moves and gain >= moves * min_gain and gain > gained:
            gained, reached, best, sources = gain, level, plan.state(), tried
    plan.restore(best)
    plan.acceptable_share = reached
    return sources
