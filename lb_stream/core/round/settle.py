"""The second stage of a round: settle earlier decisions, and build the inputs of new ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.contracts.decisions import RESHAPES
from lb_stream.contracts.reports import Ack
from lb_stream.core.commands.proposals import end_proposals
from lb_stream.core.disruption.budgets import limited_namespaces, settle_spending
from lb_stream.core.filters.candidates import superseded
from lb_stream.core.filters.preallocation import count, counted_assignments
from lb_stream.core.model.chance import seed_of
from lb_stream.core.model.memory import BackOff, Memory, Pending
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.view import ClusterView, apply_pending_moves
from lb_stream.core.observing import outcomes
from lb_stream.core.observing.finite import exclude_non_finite
from lb_stream.core.observing.liveness import Liveness
from lb_stream.core.observing.outcomes import (
    Outcome,
    Settled,
    retry_after_failure,
    retry_after_restart,
)
from lb_stream.core.ownership.ledger import EndedDecision, Ledger
from lb_stream.core.placement.learn_quotas import while_others_run, with_quotas
from lb_stream.core.round.observe import Observed
from lb_stream.core.round.shed import observe_loads
from lb_stream.core.round.state import RoundInputs, RoundState


def settle(seen: Observed, acks: tuple[Ack, ...], max_published: int | None = None) -> RoundState:
    """End decisions by reports, acks and time; return the round before its first decision.

    `max_published`: as in `Inbox`.
    """
    memory, config, alive = seen.memory, seen.config.balancer, seen.alive
    now_ms = alive.view.now_ms
    # The outcomes of earlier decisions, and the ownership records that follow from them.
    settled = outcomes.settle_decisions(alive.view, memory, acks)
    ledger = Ledger.build(alive.view, seen.known, memory, config.dry_run, max_published)
    ended = [
        EndedDecision(pending, _replaces_bundles(pending, outcome), outcome.at_ms)
        for pending, outcome in settled.ended
    ]
    ledger.record_events(ended, settled.pending, memory.dead, config.tombstone_delay_ms)
    # The views that the round decides on, and the memory without ended decisions.
    reported, not_finite = exclude_non_finite(alive.view)
    reported, quotas = _with_quotas(reported, memory, config)
    view = apply_pending_moves(reported, settled.pending, config.count_pending_moves)
    limited = limited_namespaces(seen.config.namespaces)
    spent, spending = settle_spending(memory, settled, limited, now_ms)
    after = memory
    if settled.ended or (quotas, spent, spending) != (memory.quotas, memory.spent, memory.spending):
        after = replace(
            memory, pending=settled.pending, quotas=quotas, spent=spent, spending=spending
        )
    recently_unloaded = _recently_unloaded(memory, settled, config, now_ms)
    inputs = RoundInputs(
        reported=reported,
        view=view,
        memory=after,
        config=seen.config,
        seed=seed_of(view.cluster, memory.seq + 1),
        alive=alive,
        settled=settled,
        recently_unloaded=recently_unloaded | _moved_by_others(alive, config, now_ms),
        retries=_retries(memory, settled, now_ms, config),
        reserved=_reserved(memory, settled, alive.view),
        released=_released(memory, settled, alive.view),
        unloaded_brokers=_unloaded_brokers(memory, settled, reported, now_ms),
    )
    # The round before its first decision: proposals end, strategies see the loads.
    state = RoundState(inputs, ledger, seen.responder, refusals=[*not_finite, *alive.refusals])
    state.approvals = tuple(approval for approval in memory.approvals if approval[1] > now_ms)
    end_proposals(seen.responder.book, alive.view, seen.config)
    observe_loads(state)
    count_preallocated(state)
    return state


def count_preallocated(state: RoundState) -> None:
    """Count assigned bundles without a report for placement, unless the view counts them."""
    config, inputs = state.config.balancer, state.inputs
    if not config.count_pending_moves:
        placed = counted_assignments(
            inputs.reported, inputs.settled.pending, config.preallocation_release
        )
        count(placed, state.targets, state.candidates)


def _replaces_bundles(pending: Pending, outcome: Outcome) -> bool:
    """Whether a split or merge is confirmed: other bundles have replaced its own."""
    return pending.kind in RESHAPES and outcome.outcome == "confirmed"


def _with_quotas(
    view: ClusterView, memory: Memory, config: BalancerConfig
) -> tuple[ClusterView, dict[str, object]]:
    """Return the view with the quotas that the simple manager learns, and their memory."""
    if config.load_manager == "simple":
        return with_quotas(view, memory.quotas)
    return view, while_others_run(memory.quotas, view.now_ms)


def _recently_unloaded(
    memory: Memory, settled: Settled, config: BalancerConfig, now_ms: int
) -> dict[str, int]:
    """Return the bundles that have left their source within the grace period → when."""
    grace_start = now_ms - config.shedding_grace_period_ms
    kept = {bundle: at for bundle, at in memory.recently_unloaded.items() if at >= grace_start}
    return kept | {pending.bundle: now_ms for pending in settled.released}


def _moved_by_others(alive: Liveness, config: BalancerConfig, now_ms: int) -> dict[str, int]:
    """Return the bundles that another balancer moved in this batch → when; only in a dry run.

    They are in the grace period of the other balancer, and so in this one's. None while brokers are
    dead: then the moves may be failover, after which the other balancer has no grace period.
    """
    if not config.dry_run or alive.dead:
        return {}
    bundles = alive.view.bundles
    moved = np.flatnonzero(
        bundles.gained & ~bundles.appeared & (bundles.owner >= 0) & ~bundles.system
    )
    return dict.fromkeys((bundles.name(row) for row in moved.tolist()), now_ms)


def _unloaded_brokers(
    memory: Memory, settled: Settled, view: ClusterView, now_ms: int
) -> dict[str, int]:
    """Return known broker → when a bundle last left it by a move."""
    left = {pending.source: now_ms for pending in settled.released if pending.source is not None}
    latest = {**memory.unloaded_brokers, **left}
    return {broker: at_ms for broker, at_ms in latest.items() if broker in view.brokers.names}


def _retries(
    memory: Memory, settled: Settled, now_ms: int, config: BalancerConfig
) -> dict[str, BackOff]:
    """Return the bundles whose last decisions failed → their back-offs.

    A back-off is remembered while the next attempt is pending, and for the grace period or one
    time-out after its end, whichever is longer.
    """
    timeout_ms = config.unloading_timeout_ms
    oldest_ms = now_ms - max(config.shedding_grace_period_ms, timeout_ms)
    trying = {bundle for pending in memory.pending for bundle in pending.bundles}
    retries = {
        bundle: retry
        for bundle, retry in memory.retries.items()
        if retry.not_before_ms >= oldest_ms or bundle in trying
    }
    for pending, outcome in settled.ended:
        unread = pending.decision_id in settled.restarted
        for bundle in pending.bundles:
            before = retries.get(bundle)
            if unread and (before is None or before.kind != pending.kind):
                retries[bundle] = retry_after_restart(before, pending.kind, now_ms)
            elif outcome.outcome in ("expired", "refused"):
                retries[bundle] = retry_after_failure(
                    retries.get(bundle), pending.kind, now_ms, timeout_ms, pending.destination
                )
            else:
                retries.pop(bundle, None)
    return retries


def _reserved(memory: Memory, settled: Settled, view: ClusterView) -> dict[str, str]:
    """Return unassigned bundle → its reserved destination, until a round assigns it.

    That is the destination of its unload, or of an assign that is repeated because the destination
    has restarted. Bundles of deleted namespaces are left out.
    """
    released = {
        pending.bundle: str(pending.destination)
        for pending, outcome in settled.ended
        if outcome.outcome == "released"
        or (pending.kind == "assign" and pending.bundle in settled.repeated)
    }
    every = {**memory.reserved, **released}
    rows = zip(every.items(), view.bundles.rows_of(every).tolist(), strict=True)
    deleted = memory.operator_state.deleted
    return {
        bundle: destination
        for (bundle, destination), row in rows
        if row >= 0 and view.bundles.owner[row] < 0 and namespace_of(bundle) not in deleted
    }


def _released(memory: Memory, settled: Settled, view: ClusterView) -> frozenset[str]:
    """Return the unassigned bundles that moves of this balancer have released.

    Bundles that were split, or whose namespace is deleted, are left out.
    """
    released = {*memory.released, *(pending.bundle for pending in settled.released)}
    if not released:
        return frozenset()
    rows = zip(released, view.bundles.rows_of(released).tolist(), strict=True)
    unassigned = {name: row for name, row in rows if row >= 0 and view.bundles.owner[row] < 0}
    gone, deleted = superseded(view, unassigned.values()), memory.operator_state.deleted
    return frozenset(
        name
        for name, row in unassigned.items()
        if row not in gone and namespace_of(name) not in deleted
    )
