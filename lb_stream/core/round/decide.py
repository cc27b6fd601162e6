"""`decide`: one pass over one cluster. Everything it knows comes in, everything it does comes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.contracts.decisions import Decision, Ownership
from lb_stream.contracts.reports import Ack, SplitAsk
from lb_stream.core.commands.persistent_commands import apply_operator_state, forget_deleted, obey_standing
from lb_stream.core.commands.progress import update_command_progress
from lb_stream.core.commands.responder import CommandAnswer, CommandResponder, Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.filters.candidates import superseded
from lb_stream.core.model.chance import seed_of
from lb_stream.core.model.memory import Memory, Pending, Retry
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.refusals import Refusal, merged, refusal
from lb_stream.core.model.rules import Refuses
from lb_stream.core.model.view import ClusterView, with_moves
from lb_stream.core.observing.arrivals import Arrivals, follow_moves
from lb_stream.core.observing.finite import exclude_non_finite
from lb_stream.core.observing.known_bundles import with_bundles
from lb_stream.core.observing.liveness import Liveness, judge
from lb_stream.core.observing.outcomes import Outcome, Settled, after_failure, settle
from lb_stream.core.ownership.ledger import Ledger
from lb_stream.core.placement.learn_quotas import while_others_run, with_quotas
from lb_stream.core.round.assign import assign_unowned, assigned_lately, too_few
from lb_stream.core.round.limits import moved_lately
from lb_stream.core.round.operator_moves import drain, obey_moves
from lb_stream.core.round.preallocation import count, waiting
from lb_stream.core.round.shed import observe_loads, shedding_is_due, unload_from_hot
from lb_stream.core.round.split import split_as_asked, split_too_large, unload_children
from lb_stream.core.round.state import RoundState

__all__ = ["Inbox", "Round", "decide", "seed_of"]


@dataclass(frozen=True, slots=True)
class Inbox:
    """What came in beside the reports. `caught_up`: the job has read all that was there when it started.

    `answers` are those to commands about settings, which have been done already (`core.commands.settings`).
    """

    acks: tuple[Ack, ...] = ()
    caught_up: bool = True
    commands: tuple[Received, ...] = ()
    answers: tuple[CommandAnswer, ...] = ()
    asks: tuple[tuple[str, SplitAsk], ...] = ()  # which broker asks for which split
    balances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # broker → settings by which its cluster balances by itself


@dataclass(frozen=True, slots=True)
class Round:
    """One decision pass: what was decided and refused, what earlier decisions came to, and what the next round must know.

    `view` is what the strategies saw, with moves in flight carried out.
    """

    cluster: str
    seq: int
    now_ms: int
    decisions: tuple[Decision, ...]
    outcomes: tuple[Outcome, ...]
    ownership: tuple[Ownership, ...]
    refusals: tuple[Refusal, ...]
    memory: Memory
    view: ClusterView
    results: tuple[CommandAnswer, ...] = ()  # of commands


def decide(view: ClusterView, memory: Memory, inbox: Inbox, config: ClusterConfig, now_ms: int, seed: int) -> Round:
    """Settle what is pending, give unowned bundles an owner, split too large ones, unload from hot brokers.

    Pure: the same arguments give the same round, bit for bit. `view` must be sorted by name (`view_of` sees to that), `seed`
    comes from `seed_of(cluster, memory.seq + 1)`.
    """
    desk, before = CommandResponder(memory.orders, list(inbox.answers)), memory
    ordered = obey_standing(desk, view, inbox.commands, config)
    forget_deleted(desk, view)
    wanted = bool(inbox.commands) or config.balancer.assign_unowned == "eager"
    view = apply_operator_state(view, desk.orders, wanted)
    view = with_bundles(view, _forgotten(view, memory))
    memory = replace(memory, orders=desk.orders, balances=_who_balances(memory, inbox, view))
    alive = judge(view, memory, config.balancer, inbox.caught_up, desk.declared)
    settled = settle(alive.view, memory, inbox.acks, now_ms)
    ledger = Ledger.of(alive.view, view, memory, config.balancer.dry_run)
    _record_outcomes(ledger, settled, memory, config.balancer)
    grace_start = now_ms - config.balancer.shedding_grace_period_ms
    reported, not_finite = exclude_non_finite(alive.view)
    quotas = while_others_run(memory.quotas, now_ms)
    if config.balancer.load_manager == "simple":
        reported, quotas = with_quotas(reported, memory.quotas)
    draft = RoundState(
        view=_carry_out(reported, settled.open, config.balancer.count_pending_moves),
        memory=replace(memory, pending=settled.open, quotas=quotas),
        config=config,
        now_ms=now_ms,
        seed=seed,
        recently_unloaded=_recently_unloaded(memory, settled, grace_start, now_ms) | _moved_by_others(alive, config.balancer, now_ms),
        retries=_retries(memory, settled, now_ms, config.balancer),
        version=ledger.version,
        strategies=dict(memory.strategies),
        refusals=[*not_finite, *alive.told],
        reported=reported,
        desk=desk,
        reserved=_reserved(memory, settled, alive.view),
        released=_released(memory, settled, alive.view),
        unloaded_brokers=_unloaded_brokers(memory, settled, reported, now_ms),
    )
    observe_loads(draft)
    if not config.balancer.count_pending_moves:
        count(waiting(reported, settled.open, config.balancer.preallocation_release), draft.targets, draft.candidates)
    obey_moves(draft, desk, ordered, alive.suspended)
    shed = False
    if alive.suspended is not None:
        pass
    elif (few := too_few(draft)) is not None:
        draft.refusals.append(few)
    else:
        assign_unowned(draft)
        drain(draft)
        unload_children(draft, _split_to_unload(settled))
        shed = config.balancer.enabled and _balance(draft, inbox.asks, sampled=bool(view.brokers.sampled.any()))
    draft.refusals += _clash(draft, before.balances, shed)
    if not config.balancer.dry_run:
        for decision in draft.decisions:
            ledger.decided(decision)
    ledger.finish()
    return _finish(draft, ledger, settled, follow_moves(alive.view, memory, settled, now_ms), alive, shed)


def _who_balances(memory: Memory, inbox: Inbox, view: ClusterView) -> dict[str, tuple[str, ...]]:
    """Brokers whose own cluster balances by itself, as their agents said last, with the settings that make it so."""
    known = {**memory.balances, **inbox.balances}
    return {broker: known[broker] for broker in sorted(known) if known[broker] and broker in view.brokers.names}


def _clash(draft: RoundState, before: Mapping[str, tuple[str, ...]], shed: bool) -> list[Refusal]:
    """Two balancers on one cluster: told when that begins or changes, and with every shedding pass."""
    now = draft.memory.balances
    if draft.config.balancer.dry_run or not now or not (shed or now != before or not draft.memory.clashing):
        return []
    return [refusal(Refuses.BALANCES_ITSELF, None, now, limit=0)]


def _forgotten(view: ClusterView, memory: Memory) -> list[str]:
    """Bundles on their way that the shards have forgotten, because no report has named them for the retention time.

    They aren't lost before the decision about them expires, and those that this balancer had released not before somebody has them.
    """
    moves = (one.bundle for one in memory.pending if one.kind != "split" and view.now_ms < one.expires_ms)
    moving = sorted({*moves, *memory.reserved, *(name for name in memory.released if namespace_of(name) not in memory.orders.deleted)})
    return [name for name, row in zip(moving, view.bundles.rows_of(moving).tolist(), strict=True) if row < 0]


def _balance(draft: RoundState, asks: Iterable[tuple[str, SplitAsk]], sampled: bool) -> bool:
    """What the balancer does of its own accord: split, and shed when that is due. Returns whether it was."""
    split_too_large(draft)
    split_as_asked(draft, asks)
    due = shedding_is_due(draft, sampled)
    if due:
        unload_from_hot(draft)
    return due


def _carry_out(view: ClusterView, pending: tuple[Pending, ...], moves_count: bool) -> ClusterView:
    """The view with the given decisions carried out: load must not be decided on twice. A split moves nothing.

    If moves don't count, their bundles are only marked as on their way.
    """
    if not pending:
        return view
    rows = view.bundles.rows_of(one.bundle for one in pending)
    names = {name: row for row, name in enumerate(view.brokers.names)}
    destinations = np.array([names.get(one.destination or "", -1) for one in pending], np.intp)
    splits = np.array([one.kind == "split" for one in pending], np.bool_)
    moves = (rows >= 0) & ~splits & moves_count
    view = with_moves(view, rows[moves], destinations[moves])
    in_flight = view.bundles.in_flight.copy()
    in_flight[rows[(rows >= 0) & ~moves]] = True
    return replace(view, bundles=replace(view.bundles, in_flight=in_flight))


def _record_outcomes(ledger: Ledger, settled: Settled, memory: Memory, config: BalancerConfig) -> None:
    ended = [(pending, pending.kind == "split" and outcome.outcome == "confirmed", outcome.at_ms) for pending, outcome in settled.ended]
    ledger.settle(ended, settled.open, memory.dead, config.tombstone_delay_ms)


def _recently_unloaded(memory: Memory, settled: Settled, grace_start: int, now_ms: int) -> dict[str, int]:
    """Bundle → when it was seen to have left its source, within the grace period (one of exactly its length still counts)."""
    kept = {bundle: at for bundle, at in memory.recently_unloaded.items() if at >= grace_start}
    return kept | {pending.bundle: now_ms for pending in settled.released}


def _moved_by_others(alive: Liveness, config: BalancerConfig, now_ms: int) -> dict[str, int]:
    """In a dry run: bundles that changed hands in this batch. Somebody else balances, and leaves alone what it has moved; so do we.

    While brokers are dead it may be failover, after which the others' balancer leaves nothing alone.
    """
    if not config.dry_run or alive.dead:
        return {}
    bundles = alive.view.bundles
    moved = np.flatnonzero(bundles.gained & ~bundles.appeared & (bundles.owner >= 0) & ~bundles.system)
    return dict.fromkeys((bundles.name(row) for row in moved.tolist()), now_ms)


def _unloaded_brokers(memory: Memory, settled: Settled, view: ClusterView, now_ms: int) -> dict[str, int]:
    """Broker → when a move was last seen to have left it, as long as the broker is known."""
    left = {pending.source: now_ms for pending in settled.released if pending.source is not None}
    return {broker: at for broker, at in (dict(memory.unloaded_brokers) | left).items() if broker in view.brokers.names}


def _retries(memory: Memory, settled: Settled, now_ms: int, config: BalancerConfig) -> dict[str, Retry]:
    """Bundle → its failures in a row: remembered while the next attempt is under way, and for the grace period (one time-out at least)."""
    timeout_ms = config.unloading_timeout_ms
    oldest_ms = now_ms - max(config.shedding_grace_period_ms, timeout_ms)
    trying = {pending.bundle for pending in memory.pending}
    retries = {bundle: retry for bundle, retry in memory.retries.items() if retry.not_before_ms >= oldest_ms or bundle in trying}
    for pending, outcome in settled.ended:
        if outcome.outcome in ("expired", "refused"):
            retries[pending.bundle] = after_failure(retries.get(pending.bundle), pending.kind, now_ms, timeout_ms, pending.destination)
        else:
            retries.pop(pending.bundle, None)
    return retries


def _reserved(memory: Memory, settled: Settled, view: ClusterView) -> dict[str, str]:
    """Released bundle → the destination that its unload named: a one-shot affinity, kept until a round can assign the bundle."""
    released = {one.bundle: str(one.destination) for one, outcome in settled.ended if outcome.outcome == "released"}
    every = {**memory.reserved, **released}
    rows = zip(every.items(), view.bundles.rows_of(every).tolist(), strict=True)
    return {bundle: destination for (bundle, destination), row in rows if row >= 0 and view.bundles.owner[row] < 0}


def _released(memory: Memory, settled: Settled, view: ClusterView) -> frozenset[str]:
    """Bundles that this balancer had released and that nobody has taken yet; none that has been split, or whose namespace is deleted."""
    every = {*memory.released, *(one.bundle for one in settled.released)}
    rows = {name: row for name, row in zip(every, view.bundles.rows_of(every).tolist(), strict=True) if row >= 0}
    waiting = {name: row for name, row in rows.items() if view.bundles.owner[row] < 0}
    gone = superseded(view, waiting.values())
    return frozenset(name for name, row in waiting.items() if row not in gone and namespace_of(name) not in memory.orders.deleted)


def _split_to_unload(settled: Settled) -> list[Pending]:
    """Bundles that have been split and whose children are to be unloaded."""
    return [pending for pending, outcome in settled.ended if pending.unload_children and outcome.outcome == "confirmed"]


def _finish(draft: RoundState, ledger: Ledger, settled: Settled, arrivals: Arrivals, alive: Liveness, shed: bool) -> Round:
    """The round and its memory. A dry run remembers no decision and tells of no ownership record."""
    assigned = {one.bundle for one in draft.decisions if one.kind == "assign" and not one.dry_run}
    reserved = {bundle: destination for bundle, destination in draft.reserved.items() if bundle not in assigned}
    update_command_progress(draft.desk, draft.reported or draft.view, settled, draft.decisions, draft.reserved.keys())
    memory, dry_run = draft.memory, draft.config.balancer.dry_run
    new = () if dry_run else tuple(_pending(decision, ledger) for decision in draft.decisions)
    kept = replace(
        memory,
        seq=memory.seq + 1,
        first_ms=draft.now_ms if memory.first_ms is None else memory.first_ms,
        last_shed_ms=draft.now_ms if shed else memory.last_shed_ms,
        pending=settled.open + new,
        recently_unloaded=draft.recently_unloaded,
        unloaded_brokers=draft.unloaded_brokers,
        retries=draft.retries,
        reserved=reserved,
        moves=arrivals.moves,
        versions=ledger.versions,
        unserved=ledger.unserved,
        untold=tuple(sorted(ledger.untold)),
        published_to=ledger.published_to,
        missed_ms=None,
        dead=alive.dead,
        suspension=alive.suspension,
        released=tuple(sorted(draft.released)),
        assigned=assigned_lately(draft),
        unsteady_ms=alive.unsteady_ms,
        clashing=0 if dry_run else len(memory.balances),
        orders=draft.desk.orders,
        moved=moved_lately(draft),
        strategies=draft.strategies_after(),
    )
    return Round(
        cluster=draft.view.cluster,
        seq=kept.seq,
        now_ms=draft.now_ms,
        decisions=tuple(draft.decisions),
        outcomes=arrivals.outcomes,
        ownership=tuple(ledger.records),
        refusals=merged(draft.refusals),
        memory=kept,
        view=draft.view,
        results=tuple(draft.desk.answers),
    )


def _pending(decision: Decision, ledger: Ledger) -> Pending:
    return Pending(
        decision_id=decision.decision_id,
        kind=decision.kind,
        bundle=decision.bundle,
        source=decision.source,
        destination=decision.destination,
        issued_ms=decision.issued_ms,
        expires_ms=decision.expires_ms,
        version=decision.expected_version + 1,
        former=ledger.former(decision.bundle) if decision.kind == "assign" else None,
        children=tuple(decision.children),
        unload_children=decision.unload_children,
    )
