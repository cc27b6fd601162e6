"""LeastMoves as a shedder and as a placement. See docs/least-moves.md "LeastMoves"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from lb_stream.core.least_moves import explanations
from lb_stream.core.least_moves.config import LeastMovesConfig
from lb_stream.core.least_moves.even_out import even_out
from lb_stream.core.least_moves.fine_tune import confident_loads, fine_tune
from lb_stream.core.least_moves.fleet import (
    FULL,
    Fleet,
    fleet_of,
    fullness,
    load_of,
    observe_fleet,
    samples_of,
)
from lb_stream.core.least_moves.memory import UNSERVED_MS, LeastMovesMemory
from lb_stream.core.least_moves.payback import Payback
from lb_stream.core.least_moves.plan import MovePlan
from lb_stream.core.least_moves.targets import targets
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows
from lb_stream.core.placement.base import Best, PlacementContext, placement
from lb_stream.core.shedding.base import (
    PlanFacts,
    ShedContext,
    Traits,
    Unloads,
    heaviest_first,
    rows_by_broker,
    shedder,
)

HOUR_MS = 3_600_000
"""How long a bundle does not go back to the broker that it has left."""
REPLANNED_MS = 300_000
"""A plan within this time after one that waits for approval is the same plan, made again."""
RECENT_MS = 2 * HOUR_MS
"""How long a move counts as recent: a second move of its bundle costs more until then."""
NEVER_MS = -(1 << 60)
"""Stands for the time of the last move of a bundle that has not moved."""
USUAL_NOISE = 0.05
"""Relative error of a sample. Where reports are noisier, a broker must be hot for longer."""
MIN_SAMPLES = 3
"""Samples of a broker before it can be relieved at once."""
MAX_SEARCHES = 12
"""For so many of the hottest brokers a pass also tries swaps and pushes, which takes long."""
LEVELS = 7
"""Levels that are tried between the acceptable and the target share."""
RECENT_MOVE_FACTOR = 2.0
"""Factor on the cost of moving a bundle that has moved recently, or has left a broker within the
grace period."""

Context = ShedContext[LeastMovesConfig, LeastMovesMemory]


def observe(
    view: ClusterView, _config: LeastMovesConfig, memory: LeastMovesMemory
) -> LeastMovesMemory:
    """Return the memory after this round's reports."""
    return observe_fleet(view, memory)


def learn_moves(unserved_ms: Sequence[int], memory: LeastMovesMemory) -> LeastMovesMemory:
    """Return the memory after moves whose bundles had no owner for so long."""
    return memory.learn_unserved(unserved_ms)


def forget_plan(before: LeastMovesMemory, after: LeastMovesMemory) -> LeastMovesMemory:
    """Return the memory as if the plan had not been made: its budget and times are taken back."""
    if after.plan_ms == before.plan_ms:
        return replace(
            after, fine_tune_budget=before.fine_tune_budget, planned_ms=before.planned_ms
        )
    again = 0 < after.between_ms < REPLANNED_MS
    return replace(after, between_ms=before.between_ms) if again else after


TRAITS = Traits(
    manager="any",
    chooses_destination=True,
    sees_own_decisions=True,
    observe=observe,
    learn_moves=learn_moves,
    forget_plan=forget_plan,
    paces_itself=True,
    no_wait_settings={"least_moves_hot_for_ms": 0},
)


@shedder("LeastMoves", config=LeastMovesConfig, memory=LeastMovesMemory.read, traits=TRAITS)
def shed_least(context: Context) -> tuple[Unloads, LeastMovesMemory]:
    """Bring hot brokers down to their even load with as few and as cheap moves as possible.

    When no broker is hot, the fullest are fine-tuned once their loads are known well. A share is
    usage ÷ even load (1.0: as full as when load is spread evenly).
    Source: docs/least-moves.md.
    """
    # Each broker's even load, and its load as a share of that.
    view, config = context.view, context.config
    fleet = fleet_of(view, context.reported, context.memory)
    reachable = view.brokers.reachable
    target = targets(view, fleet, context.takers, reachable)
    share, per_unit = _shares(view, fleet, target)
    peak = share.max(axis=1)

    # The brokers to relieve: hot ones, or else those to fine-tune.
    hot, sure_share, memory, refusals = _find_hot(context, fleet, peak, target)
    usage = np.where(reachable, peak * target, np.nan)
    facts = PlanFacts(
        0,
        usage,
        target,
        config.least_moves_trigger_ratio,
        explanations.describe_uncertainty(memory, _broker_names(view, reachable)),
    )
    known = None if hot.any() else confident_loads(view, fleet, peak, memory, config)
    if known is None and not hot.any():
        return Unloads((), tuple(refusals), facts), memory
    above = sure_share if known is None else known

    # The bundles that may move: those that have rested. Those that moved recently cost more.
    moved_ms, came_from = _recent_moves(view, memory)
    moved_ms[context.movable & ~context.eligible] = view.now_ms  # by operators and drains
    moved_recently = view.now_ms - moved_ms < RECENT_MS
    plan = _plan(context, fleet, target, (share, per_unit), reachable, moved_recently, came_from)
    rested = (moved_ms == NEVER_MS) | (
        view.now_ms - view.bundles.owner_since_ms >= config.least_moves_min_dwell_ms
    )
    movable = context.movable & rested
    rows = rows_by_broker(
        view, np.flatnonzero(hot | (above > config.least_moves_target_ratio)), movable
    )

    @cache
    def others() -> dict[int, Rows]:
        return rows_by_broker(view, np.arange(len(view.brokers)), movable)

    def relieve(level: float) -> Rows:
        plan.acceptable_share = level
        sources = heaviest_first(np.flatnonzero(hot | (above > level)), peak)
        for number, source in enumerate(sources.tolist()):
            plan.bring_down(source, rows[source], others, search=number < MAX_SEARCHES)
        return sources

    # The moves: fine-tune an even cluster, or bring the hot brokers down with the fewest moves.
    if known is not None:
        sources = fine_tune(plan, relieve, known, int(memory.fine_tune_budget))
        fewest, limit, memory = (
            len(sources),
            plan.acceptable_share,
            memory.after_fine_tuning(len(plan.moves), view.now_ms),
        )
        even_out(plan, others, moved_recently)
    else:
        levels = _fewest_moves_by_level(plan, hot, above, rows, config)
        sources, fewest = _relieve_evenly(plan, relieve, levels, config)
        even_out(plan, others, moved_recently)
        # Where a broker has no intake left, it takes more once its pending moves have ended.
        if came_from and (plan.intake_left[reachable] > 0).all():
            _relieve_by_returns(context, plan, sources, rows, others)
        limit = config.least_moves_trigger_ratio
        refusals += explanations.explain_unrelieved(
            view, plan, sources, rows, target, config.least_moves_acceptable_ratio
        )
        memory = memory.after_plan(
            len(plan.moves),
            levels[config.least_moves_acceptable_ratio],
            config.least_moves_extra_moves_ratio,
            view.now_ms,
        )

    # The proposals, and why brokers stay above the acceptable share.
    proposals = explanations.build_proposals(plan, peak, target, limit)
    return Unloads(proposals, tuple(refusals), replace(facts, fewest=fewest)), replace(
        memory, left=_sources_of_moves(context, plan)
    )


def _plan(
    context: Context,
    fleet: Fleet,
    target: Floats,
    shares: tuple[Floats, Floats],
    reachable: Bools,
    moved: Bools,
    came_from: dict[int, str],
) -> MovePlan:
    """Build the plan before its first move.

    `shares`: each broker's share, and what one more unit of load adds to it.
    """
    view, config = context.view, context.config
    coming = np.bincount(
        view.bundles.owner[view.bundles.in_flight] + 1, minlength=len(view.brokers) + 1
    )[1:]
    return MovePlan(
        share=shares[0],
        per_unit=shares[1],
        demand=fleet.demand,
        cost=_costs(context, moved),
        payback=_payback(context, target),
        may_take=_may_take(context, came_from),
        acceptable_share=config.least_moves_acceptable_ratio,
        target_share=config.least_moves_target_ratio,
        limit=np.where(
            reachable, np.minimum(config.least_moves_max_destination_ratio, FULL / target), -np.inf
        ),
        disruption=context.disruption,
        intake_left=config.least_moves_max_moves_into_broker - coming,
    )


def _shares(view: ClusterView, fleet: Fleet, target: Floats) -> tuple[Floats, Floats]:
    """Compute the shares of brokers, and what one more unit of load adds to them.

    Both are (brokers, resources). A share is load ÷ (target · capacity).
    """
    with np.errstate(divide="ignore"):
        per_unit = np.where(fleet.capacity > 0, 1.0 / (target[:, None] * fleet.capacity), 0.0)
    # Columns are contiguous: the maximum over resources is found four times as fast.
    per_unit = np.asfortranarray(per_unit)
    return np.asfortranarray(load_of(view, fleet)) * per_unit, per_unit


def _broker_names(view: ClusterView, brokers: Bools) -> list[str]:
    return [view.brokers.names[row] for row in np.flatnonzero(brokers).tolist()]


def _find_hot(
    context: Context, fleet: Fleet, peak: Floats, target: Floats
) -> tuple[Bools, Floats, LeastMovesMemory, list[Refusal]]:
    """Find the brokers to relieve: above the trigger by more than noise, and for long enough.

    Full brokers are relieved at once. When one broker is relieved, so are all that are surely above
    the acceptable share.

    Returns these brokers; each broker's share less its error (-inf when only full brokers are
    relieved); the memory; and why other brokers above the trigger are not relieved.
    """
    brokers, config, memory, now_ms = (
        context.view.brokers,
        context.config,
        context.memory,
        context.view.now_ms,
    )
    trigger = config.least_moves_trigger_ratio
    sure = trigger + config.least_moves_min_standard_errors * fleet.error * peak
    above = brokers.reachable & (peak > sure)  # a broker that is not reachable has no target
    since = {
        brokers.names[row]: memory.hot.get(brokers.names[row], now_ms)
        for row in np.flatnonzero(above).tolist()
    }
    urgent = above & (fullness(brokers) >= FULL) & (samples_of(context.reported) >= MIN_SAMPLES)
    patience_ms = config.least_moves_hot_for_ms * max(1.0, (memory.noise or 0.0) / USUAL_NOISE)
    waited_ms, calm_ms = (
        np.array([now_ms - since.get(name, now_ms) for name in brokers.names]),
        memory.calm_at(),
    )
    hot = urgent | (above & (waited_ms >= patience_ms) & (now_ms >= calm_ms))
    sure_share = np.full(len(brokers), -np.inf)
    if hot.any() and now_ms >= calm_ms:
        sure_share = np.where(brokers.reachable, peak - (sure - trigger), -np.inf)
        hot |= sure_share > config.least_moves_acceptable_ratio
    refusals = explanations.explain_waiting(
        context.view, above & ~hot, waited_ms, patience_ms, calm_ms
    )
    unsure = brokers.reachable & (peak > trigger) & ~above
    refusals += explanations.explain_within_noise(
        context.view, np.flatnonzero(unsure & ~hot), peak * target, sure * target
    )
    return hot, sure_share, replace(memory, hot=since), refusals


def _fewest_moves_by_level(
    plan: MovePlan, hot: Bools, sure_share: Floats, rows: dict[int, Rows], config: LeastMovesConfig
) -> dict[float, int]:
    """Compute a lower bound of the moves for each level from the acceptable share to the target."""
    levels = np.linspace(
        config.least_moves_acceptable_ratio, config.least_moves_target_ratio, LEVELS
    )
    moves = (sure_share[~hot] > levels[:, None]).sum(axis=1)
    for source in np.flatnonzero(hot).tolist():
        moves += np.minimum(plan.fewest_by_level(levels, source, rows[source]), len(rows[source]))
    return dict(zip(levels.tolist(), moves.tolist(), strict=True))


def _relieve_evenly(
    plan: MovePlan,
    relieve: Callable[[float], Rows],
    fewest: dict[float, int],
    config: LeastMovesConfig,
) -> tuple[Rows, int]:
    """Relieve brokers to the lowest level that the budget of moves allows.

    The budget is the fewest moves possible and half of `least_moves_extra_moves_ratio`. Where the
    acceptable share already takes more, its number of moves is the budget. Levels between are
    searched by bisection.

    Returns the brokers relieved, and the lower bound of the moves of that level.
    """
    enough = config.least_moves_acceptable_ratio
    before, most = (
        plan.state(),
        round(fewest[enough] * (1.0 + config.least_moves_extra_moves_ratio / 2.0)),
    )
    levels = [level for level, moves in fewest.items() if moves <= most]
    lowest = relieve(levels[-1]), levels[-1], plan.state()
    if len(levels) == 1 or len(plan.moves) <= most:
        return lowest[0], fewest[levels[-1]]
    plan.restore(before)
    best = relieve(enough), enough, plan.state()
    most, first, last = max(len(plan.moves), most), 0, len(levels) - 1
    if len(lowest[2].moves) <= most:
        first, best = last, lowest
    while last - first > 1:  # the lowest level is between these two
        tried = (first + last) // 2
        plan.restore(before)
        sources = relieve(levels[tried])
        if len(plan.moves) <= most:
            first, best = tried, (sources, levels[tried], plan.state())
        else:
            last = tried
    sources, level, state = best
    plan.restore(state)
    return sources, fewest[level]


def _sources_of_moves(context: Context, plan: MovePlan) -> dict[str, tuple[str, int]]:
    """Map bundles to the broker that they were moved from and when (ms), this plan's included."""
    view, known_ms = context.view, max(RECENT_MS, context.config.least_moves_min_dwell_ms)
    left = {
        bundle: (broker, moved_ms)
        for bundle, (broker, moved_ms) in context.memory.left.items()
        if view.now_ms - moved_ms < known_ms
    }
    return left | {
        view.bundles.name(move.bundle): (view.brokers.names[move.source], view.now_ms)
        for move in plan.moves
    }


def _relieve_by_returns(
    context: Context,
    plan: MovePlan,
    sources: Rows,
    rows: dict[int, Rows],
    others: Callable[[], dict[int, Rows]],
) -> None:
    """Relieve brokers that are still above the trigger, now also by moves back within the hour."""
    plan.acceptable_share = context.config.least_moves_acceptable_ratio
    plan.may_take = _may_take(context, {})
    hot = sources[
        plan.share[sources].max(axis=1, initial=0.0) > context.config.least_moves_trigger_ratio
    ]
    for number, source in enumerate(heaviest_first(hot, plan.share.max(axis=1)).tolist()):
        plan.bring_down(source, rows[source], others, search=number < MAX_SEARCHES)


def _recent_moves(view: ClusterView, memory: LeastMovesMemory) -> tuple[Rows, dict[int, str]]:
    """Find when (ms) each bundle last moved, and the brokers that bundles left in the last hour.

    A planned move that was not made does not count.
    """
    rows, owner, names = view.bundles.rows_of(memory.left), view.bundles.owner, view.brokers.names
    planned = [
        (row, *left)
        for row, left in zip(rows.tolist(), memory.left.values(), strict=True)
        if row >= 0
    ]
    done = [
        (row, broker, when)
        for row, broker, when in planned
        if owner[row] < 0 or names[owner[row]] != broker
    ]
    moved_ms = np.full(len(view.bundles), NEVER_MS, np.int64)
    moved_ms[[row for row, _, _ in done]] = [when for _, _, when in done]
    return moved_ms, {row: broker for row, broker, when in done if view.now_ms - when < HOUR_MS}


def _costs(context: Context, moved: Bools) -> Floats:
    """Compute what moving each bundle costs, relative to the average bundle (1.0).

    Half of the cost is for the move itself, half for its clients.
    """
    clients = context.view.bundles.sessions.astype(np.float64)
    cost = 0.5 + 0.5 * clients / max(float(clients.mean()), 1e-9)
    cost[moved] *= RECENT_MOVE_FACTOR
    weighted: Floats = cost * np.maximum(context.disruption.weight, 1e-3)
    return weighted


def _payback(context: Context, even: Floats) -> Payback:
    """Compute what moves cost and save clients, in client-seconds.

    Each client of a bundle loses the time without an owner, and the time to reconnect.
    """
    bundles, config, learned_ms = context.view.bundles, context.config, context.memory.unserved_ms
    lost_ms = (UNSERVED_MS if learned_ms is None else learned_ms) + config.least_moves_reconnect_ms
    clients = bundles.sessions.astype(np.float64)
    of_broker = np.bincount(bundles.owner.astype(np.intp) + 1, clients, len(even) + 1)[1:].astype(
        np.float64
    )
    return Payback(
        of_broker,
        even,
        clients * (lost_ms / 1_000),
        context.disruption.weight,
        config.least_moves_payback_ms / 1_000,
    )


def _may_take(context: Context, came_from: dict[int, str]) -> Callable[[int], Bools]:
    """Return a function: bundle → brokers that may take it, except the one that it has left."""
    row_of = {name: row for row, name in enumerate(context.view.brokers.names)}

    def may_take(bundle: int) -> Bools:
        mask = np.zeros(len(row_of), np.bool_)
        mask[context.takers(bundle)] = True
        if (back := row_of.get(came_from.get(bundle, ""), -1)) >= 0:
            mask[back] = False
        return mask

    return may_take


@placement("LeastMoves", config=LeastMovesConfig, memory=LeastMovesMemory.read)
def place_evenly(
    context: PlacementContext[LeastMovesConfig, LeastMovesMemory],
) -> tuple[Best, LeastMovesMemory]:
    """Choose the candidates whose usage with the bundle is lowest."""
    after = context.targets.with_bundle(context.bundle, context.candidates)
    return Best(
        context.candidates[after == after.min()] if len(after) else context.candidates,
        after,
        "ratio",
    ), context.memory
