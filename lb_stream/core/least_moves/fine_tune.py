"""Touching up: once loads are known well, the moves that plans have left over bring the fullest
brokers nearer to even."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lb_stream.core.least_moves.config import LeastMovesConfig
from lb_stream.core.least_moves.fleet import CPU, Fleet
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.least_moves.plan import NO_ROWS, Plan
from lb_stream.core.model.view import ClusterView, Floats, Rows

CALM = 0.02
"""Load is calm while no broker's bundles carry more or less than on the short average by more than
this part, and it is no noise."""
QUIET_MS = 3_600_000
"""Load that was quiet for so long between two plans will be for long enough again."""
AT_LEAST = 0.01
"""Nobody is touched up who is nearer to the aim than this."""
WORTH = 0.03
"""By so much, divided by the number of brokers, each move must lower the greatest share: a
hundredth is worth a move for three brokers."""
LEVELS, FINEST = 8, 0.0005
"""Levels that are tried between the fullest broker and the aim, and how finely between the last
two, where moves run out."""


def confident_loads(
    view: ClusterView,
    fleet: Fleet,
    peak: Floats,
    memory: LeastMovesMemory,
    config: LeastMovesConfig,
) -> Floats | None:
    """How full each broker is at least, within one standard error; None: it isn't the time to touch
    up.

    That is where no move is left over or on its way, the last plan isn't old enough for its moves
    to show in the averages, brokers come and go, or load changes: what is even now isn't in ten
    minutes, and a move too many. Where plans follow one another within the hour, load is trusted
    once it has been quiet for as long as between the last two. `peak`: the brokers' shares.
    """
    waited_ms, brokers = view.now_ms - memory.planned_ms, view.brokers
    if (
        memory.spare < 1
        or not config.least_moves_fine_tune_after_ms
        or waited_ms < config.least_moves_fine_tune_after_ms
    ):
        return None
    if (
        view.bundles.in_flight.any()
        or view.now_ms < memory.calm_at()
        or not _is_calm(view, fleet, memory)
    ):
        return None
    if view.now_ms - memory.plan_ms < memory.between_ms < QUIET_MS:
        return None
    known = np.where(brokers.reachable, peak * (1.0 - fleet.error), -np.inf)
    return known if known.max() > config.least_moves_target_ratio + AT_LEAST else None


def _is_calm(view: ClusterView, fleet: Fleet, memory: LeastMovesMemory) -> bool:
    """Whether each broker's bundles carry together what they do on the short average."""
    rows, count, mean = (
        view.bundles.owner.astype(np.intp) + 1,
        len(view.brokers) + 1,
        view.bundles.short,
    )
    now = np.bincount(rows, fleet.demand[:, CPU], count)[1:]
    usual = np.bincount(rows, mean.rate + memory.byte_cost * mean.throughput, count)[1:]
    return bool((np.abs(now - usual) <= CALM * usual)[view.brokers.alive].all())


def fine_tune(plan: Plan, relieve: Callable[[float], Rows], known: Floats, most: int) -> Rows:
    """Lower the greatest share by at most so many moves, as far as each is worth it.

    Returns whom that relieves: nobody if none is.

    `relieve`: makes the plan for a level. `known`: each broker's share.
    """
    best = before = plan.state()
    top, sources = float(known.max()), NO_ROWS
    worth, gained, reached = WORTH / max(int((known > 0).sum()), 1), 0.0, plan.enough
    level, step = top, (top - plan.aim) / LEVELS
    while level > plan.aim and step > FINEST:
        lower = max(level - step, plan.aim)
        plan.restore(before)
        tried = relieve(lower)
        moves = len(plan.moves)
        if moves > most:
            step /= 2.0
            continue
        level = lower
        gain = top - max(float(plan.share[tried].max(initial=0.0)), level)
        if moves and gain >= moves * worth and gain > gained:
            gained, reached, best, sources = gain, level, plan.state(), tried
    plan.restore(best)
    plan.enough = reached
    return sources
