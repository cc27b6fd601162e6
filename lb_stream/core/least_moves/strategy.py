"""LeastMoves: bring hot brokers down to an even load with as few moves as possible.

It is a shedder and a placement. See docs/least-moves.md "LeastMoves".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from lb_stream.core.least_moves import explanations
from lb_stream.core.least_moves.ceilings import find_tried, mark_tried
from lb_stream.core.least_moves.chains import MAX_BROKERS, Reliever
from lb_stream.core.least_moves.config import LeastMovesConfig
from lb_stream.core.least_moves.even_out import even_out
from lb_stream.core.least_moves.fine_tune import confident_loads, fine_tune
from lb_stream.core.least_moves.fleet import (
    Fleet,
    build_fleet,
    find_urgent,
    observe_fleet,
)
from lb_stream.core.least_moves.lowering import Lowering
from lb_stream.core.least_moves.memory import UNSERVED_MS, LeastMovesMemory
from lb_stream.core.least_moves.payback import Payback
from lb_stream.core.least_moves.plan import NEGLIGIBLE, MovePlan, State
from lb_stream.core.least_moves.shares import Shares, compute_shares
from lb_stream.core.least_moves.splits import (
    expect_children,
    expectation,
    plan_splits,
    plans_splits,
)
from lb_stream.core.least_moves.targets import EvenLoads, compute_even_loads
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.view import Bools, ClusterView, Floats, Rows
from lb_stream.core.placement.base import Best, PlacementContext, placement
from lb_stream.core.shedding.base import (
    PlanFacts,
    PlanProblem,
    ShedContext,
    Traits,
    Unloads,
    heaviest_first,
    rows_by_broker,
    shedder,
)

HOUR_MS = 3_600_000
"""Within this time a bundle does not go back to the broker that it has left, as clients would be
disturbed twice for nothing. See decision 0014."""
REPLANNED_MS = 300_000
"""A plan that waits for approval is made anew in each round. If it comes within this time after the
plan before, both count as one, so `between_ms` stays the time between two different plans."""
RECENT_MS = 2 * HOUR_MS
"""Within this time a move counts as recent, and another move of its bundle costs more. Load that
swings by the day would otherwise move the same bundles on its way back: 39 second moves instead of
42 in the scenarios of decision 0014."""
NEVER_MS = -(1 << 60)
"""Stands for the time of the last move of a bundle that has not moved."""
USUAL_NOISE = 0.05
"""Relative error of a sample for which `least_moves_hot_for_ms` is meant. If reports are noisier, a
broker must be hot for longer, in proportion."""
EMPTY = 0.1
"""A broker with less than this part of its even load is empty. No noise hides nine tenths of a
load that is the sum of many bundles'."""
LEVELS = 7
"""Number of levels that are tried from the acceptable share to the target share. Their steps are
0.006 by default, and a bisection makes plans for three of them at most."""
WORTH_A_MOVE = 0.01
"""Each move beyond a plan's budget lowers max usage by this part of the even load. It is what a
fine-tuning move must gain in a cluster of three brokers."""
WORTH_A_PASS = 0.01
"""A pass lowers one of the hot brokers at least by this part, or brings it near its even load.
Otherwise a broker that stays hot would have all others relieved at the acceptable share instead of
the trigger, by noise, at every report (decision 0040)."""
RECENT_MOVE_FACTOR = 2.0
"""Factor on the cost of a move of a bundle that has moved recently, or was unloaded within the
grace period. With 4.0 there were as many second moves, and 10 more in all (decision 0014)."""

Context = ShedContext[LeastMovesConfig, LeastMovesMemory]


def _moves_at_once(context: Context) -> Unloads:
    """Return the moves of a pass on a cluster as it would be, which is not remembered."""
    return shed_least(context)[0]


def observe(
    view: ClusterView, _config: LeastMovesConfig, memory: LeastMovesMemory
) -> LeastMovesMemory:
    """Return the memory after this round's reports."""
    return observe_fleet(view, memory)


def learn_moves(unserved_ms: Sequence[int], memory: LeastMovesMemory) -> LeastMovesMemory:
    """Return the memory after moves whose bundles were unassigned for these times."""
    return memory.learn_unserved(unserved_ms)


def forget_plan(before: LeastMovesMemory, after: LeastMovesMemory) -> LeastMovesMemory:
    """Return the memory as if the plan had not been made: without its budget and times."""
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
    plans_splits=plans_splits,
    no_wait_settings={"least_moves_hot_for_ms": 0},
)


@shedder("LeastMoves", config=LeastMovesConfig, memory=LeastMovesMemory.read, traits=TRAITS)
def shed_least(context: Context) -> tuple[Unloads, LeastMovesMemory]:
    """Bring hot brokers down to their even load with as few and as cheap moves as possible.

    If no broker is hot, the fullest ones are fine-tuned once their loads are well known. A share is
    usage ÷ even load; 1.0 is even. Source: docs/least-moves.md.
    """
    fleet = build_fleet(context.view, context.reported, context.memory)
    fleet = expect_children(fleet, context.view, context.memory)
    splits = plan_splits(
        context, fleet, lambda other: _compute_even_loads(context, other).usage, _moves_at_once
    )
    context = replace(context, memory=splits.memory)
    shares = compute_shares(context.view, fleet, _compute_even_loads(context, fleet))
    facts = _describe_loads(context, shares)

    # Splits come first: the moves depend on their children.
    if splits.proposals or splits.awaits:
        return Unloads((), splits.refusals, facts, splits.proposals), splits.memory
    return _plan_moves(context, fleet, shares, facts, splits.refusals)


def _compute_even_loads(context: Context, fleet: Fleet) -> EvenLoads:
    """Return each broker's even load with these demands and capacities."""
    return compute_even_loads(
        context.view,
        fleet,
        context.takers,
        context.view.brokers.reachable,
        context.stays,
        context.config.least_moves_min_target_ratio,
    )


def _describe_loads(context: Context, shares: Shares) -> PlanFacts:
    """Return the facts of a plan that hold before its moves are known."""
    view = context.view
    reachable, peak = view.brokers.reachable, shares.peak
    return PlanFacts(
        fewest=0,
        usage=np.where(reachable, shares.usage(peak), np.nan),
        even=shares.usage(np.ones(len(peak))),
        trigger=context.config.least_moves_trigger_ratio,
        unsure=explanations.describe_uncertainty(context.memory, _broker_names(view, reachable)),
        expected=expectation(view, context.memory),
    )


def _plan_moves(
    context: Context,
    fleet: Fleet,
    shares: Shares,
    facts: PlanFacts,
    unsplit: tuple[Refusal, ...],
) -> tuple[Unloads, LeastMovesMemory]:
    """Plan the moves that relieve hot brokers; if none is hot, those that fine-tune the fullest.

    `unsplit`: refusals of bundles that are too large and yet not split.
    """
    # The brokers to relieve.
    config, found = context.config, _find_hot(context, fleet, shares)
    hot, memory, refusals = found.hot, found.memory, [*found.refusals, *unsplit]
    known = None
    if not hot.any():
        known = confident_loads(context.view, fleet, shares.peak, memory, config)
        if known is None:
            return Unloads((), tuple(refusals), facts), memory

    # Their moves.
    above = found.sure_share if known is None else known
    relief = _prepare_relief(context, fleet, shares, hot, above, memory)
    if known is not None:
        fewest, memory = _fine_tune(relief, known, memory)
        limit = relief.plan.acceptable_share
    else:
        fewest, memory, unrelieved = _relieve_hot(relief, fleet, found.triggers, memory)
        refusals += unrelieved + explanations.explain_ceilings(context.view, memory.ceilings)
        limit = config.least_moves_trigger_ratio

    # The proposals.
    proposals = explanations.build_proposals(relief.plan, shares, limit)
    memory = replace(memory, left=_sources_of_moves(context, relief.plan))
    facts = replace(facts, fewest=fewest, problem=relief.problem)
    return Unloads(proposals, tuple(refusals), facts), memory


@dataclass(frozen=True, slots=True)
class _Relief:
    """The plan of a pass, the brokers that it may relieve, and the bundles that may move."""

    context: Context
    plan: MovePlan
    problem: PlanProblem
    reliever: Reliever
    shares: Shares  # before the first move
    hot: Bools  # brokers
    above: Floats  # each broker's share, less its error
    rows: dict[int, Rows]  # source → its bundles that may move
    others: Callable[[], dict[int, Rows]]  # returns the same of every broker, computed once
    moved_recently: Bools  # bundles
    was_fruitless: bool  # a search with these shares has just found no move
    came_from: dict[int, str]  # bundle → broker that it has left within the last hour

    def relieve(self, level: float, search: bool = True) -> Rows:
        """Relieve all brokers above this share; return them, the fullest first."""
        self.plan.acceptable_share = level
        sources = heaviest_first(np.flatnonzero(self.hot | (self.above > level)), self.shares.peak)
        self.reliever.relieve(sources, self.rows, search)
        return sources


def _prepare_relief(
    context: Context,
    fleet: Fleet,
    shares: Shares,
    hot: Bools,
    above: Floats,
    memory: LeastMovesMemory,
) -> _Relief:
    """Return the plan before its first move, with the bundles that may move.

    A bundle that has moved must have rested since; if it moved recently, its move costs more.
    """
    view, config = context.view, context.config
    moved_ms, came_from = _recent_moves(view, memory)
    moved_ms[context.movable & ~context.eligible] = view.now_ms  # by operators and drains
    moved_recently = view.now_ms - moved_ms < RECENT_MS
    rested_ms = view.now_ms - view.bundles.owner_since_ms
    rested = (moved_ms == NEVER_MS) | (rested_ms >= config.least_moves_min_dwell_ms)
    movable = context.movable & rested
    sources = np.flatnonzero(hot | (above > config.least_moves_target_ratio))
    plan = _build_plan(context, fleet, shares, moved_recently, came_from)
    others = cache(lambda: rows_by_broker(view, np.arange(len(view.brokers)), movable))
    was_fruitless = memory.was_fruitless(_shares_by_name(view, shares), view.now_ms)
    return _Relief(
        context=context,
        plan=plan,
        problem=PlanProblem(
            plan.share.copy(),
            plan.per_unit,
            plan.demand,
            plan.limit,
            others,
            plan.may_take,
            plan.disruption,
            plan.intake_left.copy(),
        ),
        reliever=_reliever(plan, others, was_fruitless),
        shares=shares,
        hot=hot,
        above=above,
        rows=rows_by_broker(view, sources, movable),
        others=others,
        moved_recently=moved_recently,
        was_fruitless=was_fruitless,
        came_from=came_from,
    )


def _fine_tune(
    relief: _Relief, known: Floats, memory: LeastMovesMemory
) -> tuple[int, LeastMovesMemory]:
    """Plan fine-tuning moves; return the number of brokers that they relieve, and the memory."""
    plan = relief.plan
    sources = fine_tune(plan, relief.relieve, known, int(memory.fine_tune_budget))
    memory = memory.after_fine_tuning(len(plan.moves), relief.context.view.now_ms)
    even_out(plan, relief.others, relief.moved_recently)
    return len(sources), memory


def _relieve_hot(
    relief: _Relief, fleet: Fleet, triggers: Bools, memory: LeastMovesMemory
) -> tuple[int, LeastMovesMemory, list[Refusal]]:
    """Plan the moves that bring hot brokers down.

    `triggers`: the brokers because of which the pass is made. Returns a lower bound of the moves,
    the memory, and refusals of brokers that stay above the acceptable share.
    """
    context, plan = relief.context, relief.plan
    view, config = context.view, context.config
    before = plan.state()
    acceptable, extra = config.least_moves_acceptable_ratio, config.least_moves_extra_moves_ratio

    # To the lowest level within the budget of moves. Where one bundle alone sets the even load, its
    # broker has the max usage and others have much room: there moves may exceed the budget, as long
    # as each lowers max usage enough.
    fewest_by_level = _fewest_moves_by_level(plan, relief.hot, relief.above, relief.rows, config)
    of_one = relief.shares.of_one[relief.hot].any() and extra > 0
    worth_a_move = WORTH_A_MOVE if of_one else np.inf
    sources, fewest = _relieve_evenly(plan, relief.relieve, fewest_by_level, worth_a_move, config)
    plan.acceptable_share = acceptable

    # Brokers for which that is out of reach: as low as they come. A broker without intake left will
    # take more soon, so until then nothing is out of reach.
    may_take_more = _all_have_intake_left(relief)
    stuck = plan.share[sources].max(axis=1, initial=0.0) > acceptable + NEGLIGIBLE
    if may_take_more and stuck.any():
        _lowering(relief, fleet).lower(sources)
        fewest = _fewest_to_reach(plan, before, sources, relief.rows)
    if not _is_worth_a_pass(before, plan, triggers):
        plan.restore(before)

    # The same number of moves, made better; then bundles that go back, if nothing else helps.
    even_out(plan, relief.others, relief.moved_recently)
    if relief.came_from and _all_have_intake_left(relief):
        _relieve_by_returns(relief, sources)
    refusals = explanations.explain_unrelieved(
        view, plan, sources, relief.rows, relief.shares, acceptable
    )

    # The memory of the plan, and of a search that has found nothing.
    memory = memory.after_plan(len(plan.moves), fewest_by_level[acceptable], extra, view.now_ms)
    if plan.moves or (may_take_more and not relief.was_fruitless):
        searched = _shares_by_name(view, relief.shares)
        memory = memory.after_search(searched, len(plan.moves), view.now_ms)
    return fewest, memory, refusals


def _all_have_intake_left(relief: _Relief) -> bool:
    """Return whether each reachable broker may take another bundle beside its pending moves."""
    reachable = relief.context.view.brokers.reachable
    return bool((relief.plan.intake_left[reachable] > 0).all())


def _lowering(relief: _Relief, fleet: Fleet) -> Lowering:
    """Return what lowers brokers that are out of reach of their even load.

    A source falls by as much as from the trigger to the acceptable share, and by more than noise.
    """
    config, plan, shares = relief.context.config, relief.plan, relief.shares
    fall = 1.0 - config.least_moves_acceptable_ratio / config.least_moves_trigger_ratio
    return Lowering(
        plan,
        relief.rows,
        least=np.minimum(fall + config.least_moves_min_standard_errors * fleet.error, 1.0),
        ceiling=np.where((plan.limit > 0) & ~shares.is_overfull, shares.full, plan.limit),
    )


def _fewest_to_reach(plan: MovePlan, before: State, sources: Rows, rows: dict[int, Rows]) -> int:
    """Return a lower bound of the moves from a state that bring the sources where the plan does."""
    reached = plan.share[sources].max(axis=1)
    at_first = replace(plan, share=before.share)
    return sum(
        int(at_first.fewest_by_level(np.array([level]), source, rows[source])[0])
        for level, source in zip(
            np.maximum(reached, plan.acceptable_share).tolist(), sources.tolist(), strict=True
        )
    )


def _is_worth_a_pass(before: State, plan: MovePlan, triggers: Bools) -> bool:
    """Return whether the plan relieves one of these brokers, or lowers it enough.

    If not, other brokers wait until they are hot themselves.
    """
    was, now = before.share[triggers].max(axis=1), plan.share[triggers].max(axis=1)
    relieved = now <= plan.acceptable_share + NEGLIGIBLE
    return bool((relieved | (now <= was * (1.0 - WORTH_A_PASS))).any())


def _build_plan(
    context: Context, fleet: Fleet, shares: Shares, moved: Bools, came_from: dict[int, str]
) -> MovePlan:
    """Build the plan before its first move. `moved`: bundles that have moved recently."""
    view, config = context.view, context.config
    highest = config.least_moves_max_destination_ratio
    takes = view.brokers.reachable & ~fleet.closed & ~shares.has_no_room(highest)
    coming = np.bincount(
        view.bundles.owner[view.bundles.in_flight] + 1, minlength=len(view.brokers) + 1
    )[1:]
    return MovePlan(
        share=shares.share.copy(order="F"),
        per_unit=shares.per_unit,
        demand=fleet.demand,
        cost=_costs(context, moved),
        payback=_payback(context, shares.even),
        may_take=_may_take(context, came_from),
        acceptable_share=config.least_moves_acceptable_ratio,
        target_share=config.least_moves_target_ratio,
        min_gain=config.least_moves_min_gain_ratio,
        limit=np.where(takes, np.minimum(highest, shares.full), -np.inf),
        disruption=context.disruption,
        intake_left=config.least_moves_max_moves_into_broker - coming,
    )


def _broker_names(view: ClusterView, brokers: Bools) -> list[str]:
    """Return the names of these brokers."""
    return [view.brokers.names[row] for row in np.flatnonzero(brokers).tolist()]


@dataclass(frozen=True, slots=True)
class _Hot:
    """The brokers to relieve, and why others above the trigger are not relieved."""

    triggers: Bools  # (brokers): above the trigger, surely and for long enough
    hot: Bools  # (brokers): these, and all that are relieved with them
    sure_share: Floats  # each broker's share less its error; -inf if only full ones are relieved
    memory: LeastMovesMemory
    refusals: list[Refusal]


def _find_hot(context: Context, fleet: Fleet, shares: Shares) -> _Hot:
    """Find the brokers to relieve: above the trigger by more than noise, and for long enough.

    Full brokers are relieved at once. If one broker is relieved, so are all whose share less its
    error is above the acceptable share.
    """
    # Brokers above the trigger, and since when.
    brokers, now_ms, peak = context.view.brokers, context.view.now_ms, shares.peak
    config, memory = context.config, context.memory
    trigger = config.least_moves_trigger_ratio
    sure = trigger + config.least_moves_min_standard_errors * fleet.error * peak
    above = brokers.reachable & (peak > sure)  # a broker that is not reachable has no target
    since = {
        brokers.names[row]: memory.hot.get(brokers.names[row], now_ms)
        for row in np.flatnonzero(above).tolist()
    }

    # Brokers above it for long enough, and full ones; then all that are surely above acceptable.
    urgent = above & find_urgent(context.view, context.reported, memory, fleet)
    patience_ms = config.least_moves_hot_for_ms * np.where(
        _is_beside_empty(fleet, shares, brokers.reachable),
        1.0,
        max(1.0, (memory.noise or 0.0) / USUAL_NOISE),
    )
    waited_ms = np.array([now_ms - since.get(name, now_ms) for name in brokers.names])
    calm_ms = memory.calm_at()
    triggers = urgent | (above & (waited_ms >= patience_ms) & (now_ms >= calm_ms))
    triggers &= ~find_tried(memory, brokers.names, now_ms)
    hot = triggers.copy()
    sure_share = np.full(len(brokers), -np.inf)
    if hot.any() and now_ms >= calm_ms:
        sure_share = np.where(brokers.reachable, peak - (sure - trigger), -np.inf)
        hot |= sure_share > config.least_moves_acceptable_ratio

    # Refusals of the others.
    refusals = explanations.explain_waiting(
        context.view, above & ~hot, waited_ms, patience_ms, calm_ms
    )
    unsure = brokers.reachable & (peak > trigger) & ~above
    refusals += explanations.explain_within_noise(
        context.view, np.flatnonzero(unsure & ~hot), shares.usage(peak), shares.usage(sure)
    )
    refusals += explanations.explain_fixed(context.view, shares, above | unsure, trigger)
    memory = mark_tried(replace(memory, hot=since), _broker_names(context.view, hot), now_ms)
    return _Hot(triggers, hot, sure_share, memory, refusals)


def _is_beside_empty(fleet: Fleet, shares: Shares, reachable: Bools) -> Bools:
    """Return which brokers share their even load with one that may take bundles, and has hardly any.

    That it lacks its part is no noise of reports.
    """
    empty = reachable & ~fleet.closed & (shares.peak < EMPTY)
    found: Bools = np.isin(shares.group, shares.group[empty])
    return found


def _fewest_moves_by_level(
    plan: MovePlan, hot: Bools, sure_share: Floats, rows: dict[int, Rows], config: LeastMovesConfig
) -> dict[float, int]:
    """Return a lower bound of the moves for each level from the acceptable share to the target."""
    levels = np.linspace(
        config.least_moves_acceptable_ratio, config.least_moves_target_ratio, LEVELS
    )
    moves = (sure_share[~hot] > levels[:, None]).sum(axis=1)
    for source in np.flatnonzero(hot).tolist():
        moves += np.minimum(plan.fewest_by_level(levels, source, rows[source]), len(rows[source]))
    return dict(zip(levels.tolist(), moves.tolist(), strict=True))


def _relieve_evenly(
    plan: MovePlan,
    relieve: Callable[[float, bool], Rows],
    fewest: dict[float, int],
    worth_a_move: float,
    config: LeastMovesConfig,
) -> tuple[Rows, int]:
    """Relieve brokers to the lowest level that the budget of moves allows.

    The budget is the fewest possible moves, plus half of `least_moves_extra_moves_ratio` of them.
    If the acceptable share takes more moves, their number is the budget. It grows by a move for
    each `worth_a_move` by which a level is below what the acceptable share's moves reach.

    Returns the relieved brokers, and the lower bound of the moves of that level.
    """
    # The lowest level for which the lower bound is within the budget. In a small cluster only
    # single moves try to reach it: the effort belongs to the acceptable share.
    enough = config.least_moves_acceptable_ratio
    before = plan.state()
    most = round(fewest[enough] * (1.0 + config.least_moves_extra_moves_ratio / 2.0))
    levels = [level for level, moves in fewest.items() if moves <= most]
    sources = relieve(levels[-1], len(plan.share) > MAX_BROKERS)
    if len(plan.moves) <= most and not _excess(plan, sources, enough):
        return sources, fewest[levels[-1]]

    # The acceptable share. What it can't be reached by is not reached by less.
    plan.restore(before)
    best = relieve(enough, True), enough, plan.state()
    most, first, last = max(len(plan.moves), most), 0, len(levels)
    if _excess(plan, best[0], enough):
        return best[0], fewest[enough]
    reached = float(plan.share[best[0]].max(initial=0.0))

    # A bisection between the two.
    while last - first > 1:
        tried = (first + last) // 2
        plan.restore(before)
        sources = relieve(levels[tried], True)
        more = int(max(reached - levels[tried], 0.0) / worth_a_move)
        if len(plan.moves) <= most + more and not _excess(plan, sources, enough):
            first, best = tried, (sources, levels[tried], plan.state())
        else:
            last = tried
    sources, level, state = best
    plan.restore(state)
    return sources, fewest[level]


def _excess(plan: MovePlan, sources: Rows, enough: float) -> float:
    """Return how far the sources are above the acceptable share, together."""
    over = plan.share[sources].max(axis=1, initial=0.0) - enough
    return float(over[over > NEGLIGIBLE].sum())


def _sources_of_moves(context: Context, plan: MovePlan) -> dict[str, tuple[str, int]]:
    """Return moved bundle → (source, time of its plan in ms), this plan's moves included."""
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


def _relieve_by_returns(relief: _Relief, sources: Rows) -> None:
    """Relieve brokers that are still above the trigger; bundles may go back within the hour."""
    context, plan = relief.context, relief.plan
    plan.acceptable_share = context.config.least_moves_acceptable_ratio
    plan.may_take = _may_take(context, {})
    hot = sources[
        plan.share[sources].max(axis=1, initial=0.0) > context.config.least_moves_trigger_ratio
    ]
    reliever = _reliever(plan, relief.others, relief.was_fruitless)
    reliever.relieve(heaviest_first(hot, plan.share.max(axis=1)), relief.rows)


def _reliever(
    plan: MovePlan, others: Callable[[], dict[int, Rows]], was_fruitless: bool
) -> Reliever:
    """Return what relieves brokers; by single moves alone if a search has just found nothing."""
    return Reliever(plan, others, 0, 0) if was_fruitless else Reliever(plan, others)


def _shares_by_name(view: ClusterView, shares: Shares) -> dict[str, float]:
    """Return broker → its share, in a cluster that is small enough to be searched as a whole."""
    if len(view.brokers) > MAX_BROKERS:
        return {}
    return dict(zip(view.brokers.names, shares.peak.tolist(), strict=True))


def _recent_moves(view: ClusterView, memory: LeastMovesMemory) -> tuple[Rows, dict[int, str]]:
    """Return when (ms) each bundle last moved, and the brokers that bundles left in the last hour.

    A planned move counts once its bundle has left.
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
    """Return the cost of a move of each bundle; the average bundle's is 1.0.

    Half of the cost stands for the move itself, half for the bundle's clients.
    """
    clients = context.view.bundles.sessions.astype(np.float64)
    cost = 0.5 + 0.5 * clients / max(float(clients.mean()), 1e-9)
    cost[moved] *= RECENT_MOVE_FACTOR
    weighted: Floats = cost * np.maximum(context.disruption.weight, 1e-3)
    return weighted


def _payback(context: Context, even: Floats) -> Payback:
    """Return the client-seconds that moves take and save.

    Each client of a moving bundle loses the time without an owner, and the time to reconnect.
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
    """Return a function: bundle → brokers that may take it, except the broker that it has left.

    A plan asks for the same bundles at each level that it tries, and must not change the answer.
    """
    row_of = {name: row for row, name in enumerate(context.view.brokers.names)}

    @cache
    def may_take(bundle: int) -> Bools:
        mask = np.zeros(len(row_of), np.bool_)
        mask[context.takers(bundle)] = True
        if (back := row_of.get(came_from.get(bundle, ""), -1)) >= 0:
            mask[back] = False
        mask.flags.writeable = False
        return mask

    return may_take


@placement("LeastMoves", config=LeastMovesConfig, memory=LeastMovesMemory.read)
def place_evenly(
    context: PlacementContext[LeastMovesConfig, LeastMovesMemory],
) -> tuple[Best, LeastMovesMemory]:
    """Choose the candidates whose usage with the bundle is lowest. O(brokers).

    Source: docs/least-moves.md "LeastMoves".
    """
    candidates = context.candidates
    after = context.targets.with_bundle(context.bundle, candidates)
    best = candidates[after == after.min()] if len(after) else candidates
    return Best(best, after, "ratio"), context.memory
