"""Rollouts in a round: begin the next broker, empty it, even out loads at the end.

`follow_rollout` comes first, in every round: brokers restart and are lost while nothing may be
decided, too. `begin_brokers` comes before anything is placed, so that no bundle goes to a broker
that leaves; `move_for_rollout` comes once released bundles have their owners. See docs/rollouts.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from lb_stream.contracts.decisions import RESHAPES, Candidate, Decision, Explain
from lb_stream.core.commands.base import named, plural
from lb_stream.core.commands.rollouts import find_called
from lb_stream.core.least_moves.capacities import find_believed, fullness
from lb_stream.core.least_moves.cpu import FULL
from lb_stream.core.least_moves.fleet import build_fleet, observe_fleet
from lb_stream.core.least_moves.memory import LeastMovesMemory
from lb_stream.core.model.memory import Pending
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.refusals import refusal
from lb_stream.core.model.rollout import (
    RolloutEvent,
    RolloutNews,
    RolloutOrder,
    RolloutProgress,
)
from lb_stream.core.model.rules import Decides, FilteredBy, Refuses, Rule
from lb_stream.core.model.view import Bools, ClusterView, Ints, Rows, apply_pending_moves
from lb_stream.core.rollout.destinations import Destination, Emptying
from lb_stream.core.rollout.levelling import AGAIN, NEAR, LevellingMove, level_out
from lb_stream.core.rollout.loads import Loads
from lb_stream.core.rollout.order import Queue, Turn
from lb_stream.core.rollout.progress import (
    BrokerFacts,
    begin,
    begin_broker,
    count_moves,
    find_open,
    find_overdue,
    find_stuck_ms,
    follow,
    may_begin_another,
)
from lb_stream.core.round.limits import MoveAllowance, build_holds
from lb_stream.core.round.shed import find_takers, movable_bundles
from lb_stream.core.round.state import RoundState
from lb_stream.core.shedding.base import shedder

ESTIMATES = "LeastMoves"
"""The strategy whose estimates of demands and capacities count, whatever strategy balances."""
STRATEGY, REASON = "rollout", "Admin"
FIRST_ALONE_MS = 2_000
"""For so long the first bundle of a broker that has none is alone on its way there. With Pulsar
5.0.1 and a core for each broker it takes 2.4 to 2.9 s, and the next ones a tenth of a second."""
AGAIN_AFTER_MS = 20_000
"""For so long after loads have begun to be evened out no broker is relieved again. Producers send
at once what they held back during a move, so a bundle's first rates at its new broker are high."""


# --- the stages before placing: how far it is, and who is next ---


def follow_rollout(state: RoundState) -> None:
    """Follow the brokers' phases; begin and end the rollout as commands order it."""
    order, before = state.responder.operator_state.rollout, state.memory.rollout
    if order is None or order.aborted:
        if order is not None:
            _end(state, order, "aborted", "the rollout was aborted: its brokers get bundles again")
        elif before is not None:
            state.set_rollout(None)
        return
    facts = _find_facts(state)
    news = list[RolloutNews]()
    if before is not None and before.id != order.id:
        # Commands of one round have aborted it and started this one.
        text = "the rollout was aborted: another one is started"
        news.append(RolloutNews(before.id, None, "aborted", state.now_ms, text))
    if before is None or before.id != order.id:
        before = begin(order, facts, state.now_ms)
        count, by = plural(len(order.brokers), "broker"), order.by or "an operator"
        text = f"a rollout of {count} begins, ordered by {by}"
        news.append(RolloutNews(order.id, None, "started", state.now_ms, text))
    progress, more = follow(order, before, facts, state.now_ms)
    state.rollout_news += news + more
    state.set_rollout(_note_standstill(state, order, progress))


def _find_facts(state: RoundState) -> dict[str, BrokerFacts]:
    """Return what this round's reports say of each broker."""
    view = state.inputs.reported
    brokers, starts = view.brokers, view.brokers.starts()
    counts = view.bundle_counts(system=False)
    moving = Counter[str | None]()
    for pending in state.memory.pending:
        if pending.kind not in RESHAPES:
            moving.update({pending.source, pending.destination})
    moving.update(state.inputs.reserved.values())
    # A released bundle no longer concerns its source.
    return {
        name: BrokerFacts(
            alive=bool(brokers.alive[row]),
            start_ms=starts.get(name, 0),
            version=brokers.versions[row],
            reported_ms=int(brokers.reported_ms[row]),
            bundles=int(counts[row]),
            moving=moving[name],
        )
        for row, name in enumerate(brokers.names)
    }


def _note_standstill(
    state: RoundState, order: RolloutOrder, progress: RolloutProgress
) -> RolloutProgress:
    """Return the progress, with since when it stands still; add a refusal and news."""
    within_ms, now_ms = state.config.balancer.rollout_back_within_ms, state.now_ms
    why = ""
    if state.config.balancer.dry_run:
        state.refuse_next([refusal(Refuses.ROLLOUT_DRY_RUN, None)])
        why = "decisions are not published (dry run)"
    elif overdue := find_overdue(order, progress, now_ms, within_ms):
        waits = [float(waited_ms) for waited_ms in overdue.values()]
        rule = Refuses.ROLLOUT_STANDS_STILL
        state.refuse_next([refusal(rule, None, overdue, saw=waits, limit=within_ms)])
        what = ", ".join(f"{name} is {progress.brokers[name].phase}" for name in overdue)
        why = f"{what} for {max(overdue.values()) / 60_000:.0f} min"
    elif stuck_ms := find_stuck_ms(order, progress, now_ms, within_ms):
        why = f"no broker can be begun for {stuck_ms / 60_000:.0f} min"
    if bool(why) == (progress.still_ms is not None):
        return progress
    if why:
        text = f"the rollout stands still: {why}"
        state.rollout_news.append(RolloutNews(order.id, None, "stands_still", now_ms, text))
        return replace(progress, still_ms=now_ms)
    text = "the rollout goes on"
    state.rollout_news.append(RolloutNews(order.id, None, "goes_on", now_ms, text))
    return replace(progress, still_ms=None)


def begin_brokers(state: RoundState) -> None:
    """Begin as many waiting brokers of a rollout as may be begun now."""
    order, balancer = state.responder.operator_state.rollout, state.config.balancer
    if order is None or balancer.dry_run:
        return
    within_ms = balancer.rollout_back_within_ms
    facts: dict[str, BrokerFacts] = {}  # the same for all brokers of this round
    while (progress := state.memory.rollout) is not None and may_begin_another(
        order, progress, state.now_ms, within_ms
    ):
        view = _as_decided(state)
        loads = build_loads(state, view)
        by_port = balancer.isolation_by_port
        called = find_called(state.responder.operator_state)
        queue = Queue(loads, order, progress, view.active, by_port, called)
        planned = queue.sort()
        turn, refusals = queue.next(planned)
        progress = replace(progress, planned=tuple(planned))
        if turn is None:
            state.refuse_next(refusals)
            state.set_rollout(progress)
            return
        state.refusals += refusals
        # One that has no bundle is empty at once.
        begun = _begin(state, order, progress, turn)
        facts = facts or _find_facts(state)
        begun, more = follow(order, begun, facts, state.now_ms)
        state.rollout_news += more
        state.set_rollout(begun)


def _begin(
    state: RoundState, order: RolloutOrder, progress: RolloutProgress, turn: Turn
) -> RolloutProgress:
    """Return the progress in which this broker is drained; add the news."""
    name, expected = turn.absence.broker, turn.absence.usage
    text = f"{name} is next: {turn.why}"
    state.rollout_news.append(RolloutNews(order.id, name, "draining", state.now_ms, text))
    return begin_broker(progress, name, turn.why, expected, state.now_ms)


def _end(state: RoundState, order: RolloutOrder, event: RolloutEvent, text: str) -> None:
    """End a rollout."""
    state.rollout_news.append(RolloutNews(order.id, None, event, state.now_ms, text))
    state.responder.change(rollout=None)
    state.set_rollout(None)


# --- what both stages know ---


def _as_decided(state: RoundState) -> ClusterView:
    """Return the view in which all moves are carried out: pending, decided, and queued ones."""
    view = state.view
    if not state.config.balancer.count_pending_moves:
        view = apply_pending_moves(view, state.memory.pending, moves_count=True)
    reserved = [
        Pending("", "assign", bundle, None, broker, state.now_ms, state.now_ms, version=0)
        for bundle, broker in state.reserved.items()
    ]
    return apply_pending_moves(
        view, [*reserved, *state.decisions, *state.queued_moves()], moves_count=True
    )


def build_loads(state: RoundState, view: ClusterView) -> Loads:
    """Return what brokers carry in this view, by the estimates of LeastMoves."""
    fleet = build_fleet(view, state.inputs.reported, _estimates(state))
    return Loads(view, fleet, _takers(state))


def _takers(state: RoundState) -> Callable[[int], Rows]:
    """Return a function bundle → the brokers that may take it, with this round's moves.

    While a broker is emptied, a bundle that rules allow nowhere goes where placement would put it,
    as from a drained broker: policies hold, and what only keeps bundles apart does not.
    """
    by_namespace, view, targets = find_takers(state), state.view, state.targets
    progress = state.memory.rollout
    must_leave = progress is not None and bool(progress.in_phases("draining"))

    def takers(bundle: int) -> Rows:
        if view.policies.group_of(namespace_of(view.bundles.name(bundle))) is None:
            rows = by_namespace(bundle)
        else:
            rows = state.candidates.allowed_by_rules(bundle, targets)[0]
        if not len(rows) and must_leave:
            return state.candidates.pool_for(bundle, targets).kept
        return rows

    return takers


def _estimates(state: RoundState) -> LeastMovesMemory:
    """Return what LeastMoves has learned of loads, with this round's reports.

    Where it doesn't balance the cluster, it learns while a rollout is on.
    """
    strategy = shedder[ESTIMATES]
    memory = cast(LeastMovesMemory, state.remembered(strategy))
    if state.config.shedder is not strategy and not state.estimated:
        memory = observe_fleet(state.inputs.reported, memory)
        state.remember(strategy, memory)
        state.estimated = True
    return memory


def _intake_left(state: RoundState, view: ClusterView) -> Ints:
    """Return how many more bundles may be on their way to each broker.

    As many as out of one broker: most of what one gives up, one other takes.
    """
    coming = view.bundles.owner[view.bundles.in_flight] + 1
    count = np.bincount(coming, minlength=len(view.brokers) + 1)[1:]
    left: Ints = state.config.balancer.max_moves_in_flight_per_broker - count
    return left


@dataclass(slots=True)
class Cold:
    """Brokers that have been restarted, and have no bundle by their own report. Mutable.

    Their code for bundles is loaded and compiled with the first one, which takes seconds. Bundles
    that come together with it wait for all of that too. So the first one comes alone.
    """

    brokers: Bools
    empty: Bools  # (brokers): nothing is on its way to it: it takes one bundle
    closed: Bools  # (brokers): its first bundle has just been sent: it takes no other one

    @staticmethod
    def find(state: RoundState, progress: RolloutProgress) -> Cold:
        """Find the cold brokers of this round."""
        view = state.inputs.reported
        names = view.brokers.names
        brokers = np.isin(names, progress.in_phases("done"))
        brokers &= view.bundle_counts(system=False) == 0
        coming, just_sent = set(state.reserved.values()), set[str]()
        moves: list[Pending | Decision] = [*state.memory.pending, *state.decisions]
        for move in moves:
            if move.kind not in RESHAPES:
                coming.add(str(move.destination))
                if move.kind != "assign" and state.now_ms - move.issued_ms < FIRST_ALONE_MS:
                    just_sent.add(str(move.destination))
        empty = brokers & ~np.isin(names, list(coming))
        return Cold(brokers, empty, brokers & np.isin(names, list(just_sent)))

    def accept(self, destination: int) -> bool:
        """Return whether a bundle may be sent to a destination now, and count it there."""
        if self.closed[destination]:
            return False
        self.closed[destination] = self.empty[destination]
        return True


# --- the stage that moves bundles ---


def move_for_rollout(state: RoundState) -> None:
    """Unload the bundles of brokers that are to be restarted; even out loads at the end."""
    order, progress = state.responder.operator_state.rollout, state.memory.rollout
    if order is None or progress is None or state.config.balancer.dry_run:
        return
    before = len(state.decisions)
    view = _as_decided(state)
    loads = build_loads(state, view)
    peak = max(progress.peak_usage, float(loads.usage[view.brokers.reachable].max(initial=0.0)))
    state.set_rollout(progress := replace(progress, peak_usage=peak))
    if not order.paused:
        for name in progress.in_phases("draining"):
            _empty(state, name, progress, loads, _intake_left(state, view))
    if not find_open(order, progress):
        _level(state, order, progress, loads, view)
        return
    made = [move for move in state.decisions[before:] if move.destination is not None]
    if made:
        moves = [(move.bundle, str(move.source), str(move.destination)) for move in made]
        state.set_rollout(count_moves(progress, moves))


def _empty(
    state: RoundState, name: str, progress: RolloutProgress, loads: Loads, intake_left: Ints
) -> None:
    """Decide unloads of a broker's bundles, as far as limits allow."""
    view, names = loads.view, loads.view.brokers.names
    source = names.index(name)
    free = state.free_bundles(retry=True) & ~state.overlapped.moving
    mine = np.flatnonzero(free & (view.bundles.owner == source) & ~view.bundles.in_flight)
    if not len(mine):
        return
    waiting = np.isin(names, progress.in_phases("waiting"))
    active = view.active
    emptying = Emptying(
        loads, source, active & ~waiting, active & waiting, loads.levels(active), intake_left
    )
    room = MoveAllowance.build(state)
    ordered, again = emptying.order(mine)
    cold = Cold.find(state, progress)
    for bundle in ordered.tolist():
        if (exceeded := room.refusal([(bundle, source)])) is not None:
            state.refusals.append(exceeded)
            return
        found = emptying.choose(bundle, bundle in again)
        if found is None:
            state.refusals += state.no_candidate(bundle, name)
            continue
        usage = float(loads.usage[source])
        level = float(emptying.levels[found.broker])
        emptying.take(bundle, found.broker)
        if not cold.accept(found.broker):
            continue
        explain = Explain(saw=usage, limit=level, candidates=_candidates(names, found, waiting))
        _decide(state, bundle, name, found.broker, Decides.ROLLOUT, explain)
        room.take(bundle, source)


def _candidates(
    names: tuple[str, ...], found: Destination | LevellingMove, waiting: Bools | None = None
) -> list[Candidate]:
    """Return the brokers that were compared, the best first: share of the level with the bundle.

    `waiting`: brokers that are to be restarted later. They are refused where another one is chosen.
    """
    refuses = waiting is not None and isinstance(found, Destination) and found.stays
    shown = list[Candidate]()
    for at in np.argsort(found.scores, kind="stable").tolist():
        row = int(found.considered[at])
        if refuses and waiting is not None and waiting[row]:
            shown.append(Candidate(broker=names[row], refused_by=FilteredBy.ROLLOUT.name))
        else:
            shown.append(Candidate(broker=names[row], score=float(found.scores[at])))
    return shown[:MAX_SHOWN]


MAX_SHOWN = 20


def _decide(
    state: RoundState, bundle: int, source: str, destination: int, rule: Rule, explain: Explain
) -> None:
    """Decide a move, as the load manager's own kind of decision."""
    extensible = state.config.balancer.load_manager == "extensible"
    state.decide(
        "transfer" if extensible else "unload",
        bundle,
        source,
        destination,
        reason=REASON,
        rule=rule,
        strategy=STRATEGY,
        explain=explain,
    )


def _level(
    state: RoundState,
    order: RolloutOrder,
    progress: RolloutProgress,
    loads: Loads,
    view: ClusterView,
) -> None:
    """Even out loads once all brokers are done; end the rollout when there is nothing to do."""
    if progress.levelling_ms is None:
        text = "all brokers are done: loads are evened out"
        if left := len(progress.brokers) - len(progress.in_phases("done")):
            text = f"all brokers are done but {left}: loads are evened out"
        state.rollout_news.append(RolloutNews(order.id, None, "levelling", state.now_ms, text))
        progress = replace(progress, levelling_ms=state.now_ms)
        state.set_rollout(progress)
    moving = [str(move.destination) for move in state.memory.pending if move.kind not in RESHAPES]
    cold = Cold.find(state, progress)
    # The others are decided while the first bundle of an empty broker is on its way.
    others = np.isin(moving, np.array(view.brokers.names)[cold.brokers], invert=True)
    if others.any() or cold.closed.any() or state.reserved or order.paused:
        return
    # The first bundle of each broker that has none is decided before the others.
    trigger = NEAR if progress.levelling_moves <= order.at_most else AGAIN
    levelled_for_ms = state.now_ms - (progress.levelling_ms or state.now_ms)
    if trigger == AGAIN and levelled_for_ms < AGAIN_AFTER_MS:
        even = loads.levels(view.active)
        if (loads.usage > trigger * even)[view.active].any():
            return
    moves = _decide_levelling(state, loads, view, trigger, cold)
    if moves:
        count = progress.levelling_moves + moves
        state.set_rollout(replace(progress, levelling_moves=count))
        return
    if moving:
        return
    moved = sum(broker.moves for broker in progress.brokers.values()) + progress.levelling_moves
    minutes = (state.now_ms - progress.begun_ms) / 60_000
    lost = progress.in_phases("down")
    stayed = progress.in_phases("draining", "empty")
    text = (
        f"the rollout has ended after {minutes:.0f} min: "
        f"{plural(len(progress.in_phases('done')), 'broker')} restarted, {plural(moved, 'move')}, "
        f"peak usage {progress.peak_usage:.0%}"
    )
    text += f"; lost: {named(lost)}" if lost else ""
    text += f"; not restarted: {named(stayed)}" if stayed else ""
    _end(state, order, "ended", text)


def _decide_levelling(
    state: RoundState, loads: Loads, view: ClusterView, trigger: float, cold: Cold
) -> int:
    """Decide moves that even out loads, as far as limits, pins and budgets allow; count them."""
    # The operator's word has begun the rollout: windows of the whole cluster don't end it halfway.
    holds = build_holds(state)
    holds.cluster = None
    room, made = MoveAllowance.build(state), 0
    movable = movable_bundles(state, holds.disruption(state.view).held)
    again = np.zeros(len(view.bundles), np.bool_)
    if (progress := state.memory.rollout) is not None:
        rows = view.bundles.rows_of(progress.again)
        again[rows[rows >= 0]] = True
    intake_left = _intake_left(state, view)
    for move in level_out(loads, view.active, movable, again, intake_left, trigger):
        # All else waits for the first bundles of empty brokers.
        if cold.empty.any() and not cold.empty[move.destination]:
            continue
        name, source = view.bundles.name(move.bundle), view.brokers.names[move.source]
        exceeded = holds.refusal([name]) or room.refusal([(move.bundle, move.source)])
        if not (loads.takers(move.bundle) == move.destination).any():  # by a move of this round
            exceeded = refusal(Refuses.ANTI_AFFINITY, source, [name])
        if exceeded is not None:
            state.refusals.append(exceeded)
            continue
        if not cold.accept(move.destination):
            continue
        candidates = _candidates(view.brokers.names, move)
        explain = Explain(saw=move.saw, limit=move.even, average=move.even, candidates=candidates)
        _decide(state, move.bundle, source, move.destination, Decides.ROLLOUT_LEVELS, explain)
        room.take(move.bundle, move.source)
        holds.take(state.decisions[-1:])
        made += 1
    return made


# --- what balancing knows of a rollout ---


@dataclass(frozen=True, slots=True)
class Rest:
    """Balancing rests while a rollout is on; only these brokers are relieved."""

    full: Rows


def find_rest(state: RoundState) -> Rest | None:
    """Return that balancing rests, because of a rollout; None: it doesn't.

    Loads are uneven by design between two brokers' turns. If nothing has happened in the rollout
    for as long as a restart may take, balancing goes on.
    """
    order, progress = state.responder.operator_state.rollout, state.memory.rollout
    if order is None or progress is None or state.config.balancer.dry_run:
        return None
    begun = [broker for broker in progress.brokers.values() if broker.phase != "waiting"]
    last_ms = max((broker.since_ms for broker in begun), default=None)
    if last_ms is None or state.now_ms - last_ms >= state.config.balancer.rollout_back_within_ms:
        return None
    view = _as_decided(state)
    loads = build_loads(state, view)
    believed = find_believed(state.inputs.reported.brokers, _estimates(state).refuted)
    usage = np.maximum(loads.usage, fullness(view.brokers, believed))
    return Rest(np.flatnonzero(view.brokers.reachable & (usage >= FULL)))
