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
from lb_stream.core.least_moves.plan import Plan
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
"""A bundle doesn't go back meanwhile to the broker that it has left."""
REPLANNED_MS = 300_000
"""A plan so soon after one that waits for approval is the same one, made anew."""
DEARER_MS = 2 * HOUR_MS
"""A second move of a bundle within this time costs more."""
NEVER_MS = -(1 << 60)
"""When a bundle was moved that hasn't been: before any clock begins."""
USUAL_NOISE = 0.05
"""Reports that are noisier than this want more patience."""
KNOWN = 3
"""Reports of a broker before anything about it is urgent."""
SEARCHED = 12
"""The hottest brokers of a pass for which fewer moves than single ones are sought: that takes
long."""
LEVELS = 7
"""Levels that are tried between what is enough and what is aimed at."""
MOVED_LATELY = 2.0
"""Factor on the cost of moving a bundle that has moved lately, or has left a broker within the
grace period."""

Context = ShedContext[LeastMovesConfig, LeastMovesMemory]


def observe(
    view: ClusterView, _config: LeastMovesConfig, memory: LeastMovesMemory
) -> LeastMovesMemory:
    """Learn from every round's reports."""
    return observe_fleet(view, memory)


def learn_moves(unserved_ms: Sequence[int], memory: LeastMovesMemory) -> LeastMovesMemory:
    """Learn what a move costs clients."""
    return memory.learn_unserved(unserved_ms)


def forget_plan(before: LeastMovesMemory, after: LeastMovesMemory) -> LeastMovesMemory:
    """Take back what plans are counted by: moves for touching up, and the time between plans."""
    if after.plan_ms == before.plan_ms:
        return replace(after, spare=before.spare, planned_ms=before.planned_ms)
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
    """Bring hot brokers down with as few moves, and as cheap ones, as that takes."""
    # Who is hot: above what an even load would be, by more than the trigger, for long enough.
    view, config = context.view, context.config
    fleet = fleet_of(view, context.reported, context.memory)
    open_ = view.brokers.reachable
    target = targets(view, fleet, context.takers, open_)
    share, per_unit = _shares(view, fleet, target)
    peak = share.max(axis=1)
    hot, surely, memory, refusals = _hot(context, fleet, peak, target)
    usage = np.where(open_, peak * target, np.nan)
    facts = PlanFacts(
        0,
        usage,
        target,
        config.least_moves_trigger_ratio,
        explanations.unsure(memory, _names(view, open_)),
    )
    # Nobody is: then there may be loads known well enough to fine-tune.
    known = None if hot.any() else confident_loads(view, fleet, peak, memory, config)
    if known is None and not hot.any():
        return Unloads((), tuple(refusals), facts), memory
    above = surely if known is None else known
    # What may move: bundles that have rested; those that moved recently cost more.
    moved_ms, came_from = _moved_lately(view, memory)
    moved_ms[context.movable & ~context.eligible] = view.now_ms  # by operators and drains
    lately = view.now_ms - moved_ms < DEARER_MS
    plan = _plan(context, fleet, target, (share, per_unit), open_, lately, came_from)
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
        plan.enough = level
        sources = heaviest_first(np.flatnonzero(hot | (above > level)), peak)
        for number, source in enumerate(sources.tolist()):
            plan.bring_down(source, rows[source], others, search=number < SEARCHED)
        return sources

    # Fine-tune an even cluster, or bring the hot brokers down with the fewest moves.
    if known is not None:
        sources = fine_tune(plan, relieve, known, int(memory.spare))
        fewest, limit, memory = (
            len(sources),
            plan.enough,
            memory.after_fine_tuning(len(plan.moves), view.now_ms),
        )
        even_out(plan, others, lately)
    else:
        levels = _levels(plan, hot, above, rows, config)
        sources, fewest = _evenly(plan, relieve, levels, config)
        even_out(plan, others, lately)
        if (
            came_from and (plan.intake_left[open_] > 0).all()
        ):  # else somebody takes more once what is coming has come
            _send_back(context, plan, sources, rows, others)
        limit = config.least_moves_trigger_ratio
        refusals += explanations.left_undone(
            view, plan, sources, rows, target, config.least_moves_acceptable_ratio
        )
        memory = memory.after_plan(
            len(plan.moves),
            levels[config.least_moves_acceptable_ratio],
            config.least_moves_extra_moves_ratio,
            view.now_ms,
        )
    proposals = explanations.proposals(plan, peak, target, limit)
    return Unloads(proposals, tuple(refusals), replace(facts, fewest=fewest)), replace(
        memory, left=_left(context, plan)
    )


def _plan(
    context: Context,
    fleet: Fleet,
    target: Floats,
    shares: tuple[Floats, Floats],
    open_: Bools,
    moved: Bools,
    came_from: dict[int, str],
) -> Plan:
    """The plan before its first move.

    `shares`: what each broker is asked for, and what one more unit of load adds to that.
    """
    view, config = context.view, context.config
    coming = np.bincount(
        view.bundles.owner[view.bundles.in_flight] + 1, minlength=len(view.brokers) + 1
    )[1:]
    return Plan(
        share=shares[0],
        per_unit=shares[1],
        demand=fleet.demand,
        cost=_costs(context, moved),
        payback=_payback(context, target),
        may_take=_may_take(context, came_from),
        enough=config.least_moves_acceptable_ratio,
        aim=config.least_moves_target_ratio,
        limit=np.where(
            open_, np.minimum(config.least_moves_max_destination_ratio, FULL / target), -np.inf
        ),
        disruption=context.disruption,
        intake_left=config.least_moves_max_moves_into_broker - coming,
    )


def _shares(view: ClusterView, fleet: Fleet, target: Floats) -> tuple[Floats, Floats]:
    """Of each broker and resource: load ÷ (target · capacity), and what one more unit of load adds
    to that."""
    with np.errstate(divide="ignore"):
        per_unit = np.where(fleet.capacity > 0, 1.0 / (target[:, None] * fleet.capacity), 0.0)
    per_unit = np.asfortranarray(
        per_unit
    )  # each resource stands together: the greatest of a broker's is found four times as fast
    return np.asfortranarray(load_of(view, fleet)) * per_unit, per_unit


def _names(view: ClusterView, brokers: Bools) -> list[str]:
    return [view.brokers.names[row] for row in np.flatnonzero(brokers).tolist()]


def _hot(
    context: Context, fleet: Fleet, peak: Floats, target: Floats
) -> tuple[Bools, Floats, LeastMovesMemory, list[Refusal]]:
    """Brokers to relieve: above the trigger by more than noise, and for long enough.

    Full ones are relieved at once.

    When one is, so are all above what is enough. Then how full each broker is without a doubt, if
    others are to be relieved, too; and why others above the trigger are not.
    """
    brokers, config, memory, now_ms = (
        context.view.brokers,
        context.config,
        context.memory,
        context.view.now_ms,
    )
    trigger = config.least_moves_trigger_ratio
    sure = trigger + config.least_moves_min_standard_errors * fleet.error * peak
    above = brokers.reachable & (peak > sure)  # others have no target, so they look full
    since = {
        brokers.names[row]: memory.hot.get(brokers.names[row], now_ms)
        for row in np.flatnonzero(above).tolist()
    }
    urgent = above & (fullness(brokers) >= FULL) & (samples_of(context.reported) >= KNOWN)
    patience_ms = config.least_moves_hot_for_ms * max(1.0, (memory.noise or 0.0) / USUAL_NOISE)
    waited_ms, calm_ms = (
        np.array([now_ms - since.get(name, now_ms) for name in brokers.names]),
        memory.calm_at(),
    )
    hot = urgent | (above & (waited_ms >= patience_ms) & (now_ms >= calm_ms))
    surely = np.full(len(brokers), -np.inf)
    if hot.any() and now_ms >= calm_ms:
        surely = np.where(brokers.reachable, peak - (sure - trigger), -np.inf)
        hot |= surely > config.least_moves_acceptable_ratio
    refusals = explanations.waiting(context.view, above & ~hot, waited_ms, patience_ms, calm_ms)
    unsure = brokers.reachable & (peak > trigger) & ~above
    refusals += explanations.within_noise(
        context.view, np.flatnonzero(unsure & ~hot), peak * target, sure * target
    )
    return hot, surely, replace(memory, hot=since), refusals


def _levels(
    plan: Plan, hot: Bools, surely: Floats, rows: dict[int, Rows], config: LeastMovesConfig
) -> dict[float, int]:
    """Levels that brokers may be left at, from what is enough to what is aimed at, and the fewest
    moves that each takes."""
    levels = np.linspace(
        config.least_moves_acceptable_ratio, config.least_moves_target_ratio, LEVELS
    )
    moves = (surely[~hot] > levels[:, None]).sum(axis=1)
    for source in np.flatnonzero(hot).tolist():
        moves += np.minimum(plan.fewest_by_level(levels, source, rows[source]), len(rows[source]))
    return dict(zip(levels.tolist(), moves.tolist(), strict=True))


def _evenly(
    plan: Plan, relieve: Callable[[float], Rows], fewest: dict[float, int], config: LeastMovesConfig
) -> tuple[Rows, int]:
    """Relieve brokers to the lowest level whose plan takes no more moves than the fewest there can
    be and half of `least_moves_extra_moves_ratio`.

    Where even what is enough takes more than that, to the lowest that takes no more than it does.

    Returns whom, and the fewest moves that it takes.
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


def _left(context: Context, plan: Plan) -> dict[str, tuple[str, int]]:
    """Bundle → the broker that it was moved from, and when (ms): what still counts of what is
    remembered, and this plan's moves."""
    view, known_ms = context.view, max(DEARER_MS, context.config.least_moves_min_dwell_ms)
    left = {
        name: one for name, one in context.memory.left.items() if view.now_ms - one[1] < known_ms
    }
    return left | {
        view.bundles.name(move.bundle): (view.brokers.names[move.source], view.now_ms)
        for move in plan.moves
    }


def _send_back(
    context: Context,
    plan: Plan,
    sources: Rows,
    rows: dict[int, Rows],
    others: Callable[[], dict[int, Rows]],
) -> None:
    """Relieve brokers that the plan leaves above the trigger: now bundles may go back to those that
    they have left within the hour."""
    plan.enough = context.config.least_moves_acceptable_ratio
    plan.may_take = _may_take(context, {})
    hot = sources[
        plan.share[sources].max(axis=1, initial=0.0) > context.config.least_moves_trigger_ratio
    ]
    for number, source in enumerate(heaviest_first(hot, plan.share.max(axis=1)).tolist()):
        plan.bring_down(source, rows[source], others, search=number < SEARCHED)


def _moved_lately(view: ClusterView, memory: LeastMovesMemory) -> tuple[Rows, dict[int, str]]:
    """When (ms) it has moved each bundle, as far as it remembers, and the brokers that those of the
    last hour left.

    What was planned and not done is no move.
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
    """What moving each bundle costs, the average one 1: half for the move itself, half for its
    clients."""
    clients = context.view.bundles.sessions.astype(np.float64)
    cost = 0.5 + 0.5 * clients / max(float(clients.mean()), 1e-9)
    cost[moved] *= MOVED_LATELY
    weighted: Floats = cost * np.maximum(context.disruption.weight, 1e-3)
    return weighted


def _payback(context: Context, even: Floats) -> Payback:
    """What moves cost and save clients.

    Each client of a bundle loses the time in which nobody serves it, and that to connect anew.
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
    """Bundle → brokers that the rules let have it, but not the one that it has just left."""
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
    """The broker that is least full with the bundle."""
    after = context.targets.with_bundle(context.bundle, context.candidates)
    return Best(
        context.candidates[after == after.min()] if len(after) else context.candidates,
        after,
        "ratio",
    ), context.memory
