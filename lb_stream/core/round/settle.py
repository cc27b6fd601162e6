"""The second stage: what earlier decisions have come to, and what this round has to know of
them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.contracts.decisions import RESHAPES
from lb_stream.contracts.reports import Ack
from lb_stream.core.commands.proposals import end_proposals
from lb_stream.core.disruption.budgets import limited_namespaces, spent_after
from lb_stream.core.filters.candidates import superseded
from lb_stream.core.filters.preallocation import count, counted_assignments
from lb_stream.core.model.chance import seed_of
from lb_stream.core.model.memory import Memory, Retry
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.view import ClusterView, apply_pending_moves
from lb_stream.core.observing import outcomes
from lb_stream.core.observing.finite import exclude_non_finite
from lb_stream.core.observing.liveness import Liveness
from lb_stream.core.observing.outcomes import Settled, retry_after_failure, retry_after_restart
from lb_stream.core.ownership.ledger import Ledger
from lb_stream.core.placement.learn_quotas import while_others_run, with_quotas
from lb_stream.core.round.observe import Observed
from lb_stream.core.round.shed import observe_loads
from lb_stream.core.round.state import RoundInputs, RoundState


def settle(seen: Observed, acks: tuple[Ack, ...]) -> RoundState:
    """End the decisions that reports, acknowledgements and time have ended.

    What comes back is ready for the first decision.
    """
    memory, config, alive = seen.memory, seen.config.balancer, seen.alive
    now_ms = alive.view.now_ms
    settled = outcomes.settle_decisions(alive.view, memory, acks, now_ms)
    ledger = Ledger.of(alive.view, seen.known, memory, config.dry_run)
    ended = [
        (pending, pending.kind in RESHAPES and outcome.outcome == "confirmed", outcome.at_ms)
        for pending, outcome in settled.ended
    ]
    ledger.settle(ended, settled.pending, memory.dead, config.tombstone_delay_ms)
    reported, view, quotas, not_finite = _views(seen, settled)
    spent, spending = spent_after(
        memory, settled, limited_namespaces(seen.config.namespaces), now_ms
    )
    after = memory
    if settled.ended or (quotas, spent, spending) != (memory.quotas, memory.spent, memory.spending):
        after = replace(
            memory, pending=settled.pending, quotas=quotas, spent=spent, spending=spending
        )
    inputs = RoundInputs(
        reported=reported,
        view=view,
        memory=after,
        config=seen.config,
        seed=seed_of(view.cluster, memory.seq + 1),
        alive=alive,
        settled=settled,
        recently_unloaded=_recently_unloaded(memory, settled, config, now_ms)
        | _moved_by_others(alive, config, now_ms),
        retries=_retries(memory, settled, now_ms, config),
        reserved=_reserved(memory, settled, alive.view),
        released=_released(memory, settled, alive.view),
        unloaded_brokers=_unloaded_brokers(memory, settled, reported, now_ms),
    )
    state = RoundState(inputs, ledger, seen.responder, refusals=[*not_finite, *alive.refusals])
    state.approvals = tuple(approval for approval in memory.approvals if approval[1] > now_ms)
    end_proposals(seen.responder.book, alive.view, seen.config, memory.operator_state)
    observe_loads(state)
    count_preallocated(state)
    return state


def count_preallocated(state: RoundState) -> None:
    """Show placement what was placed and no report has named yet, where that isn't in the view."""
    config = state.config.balancer
    if not config.count_pending_moves:
        count(
            counted_assignments(
                state.inputs.reported, state.inputs.settled.pending, config.preallocation_release
            ),
            state.targets,
            state.candidates,
        )


def _views(
    seen: Observed, settled: Settled
) -> tuple[ClusterView, ClusterView, dict[str, Any], list[Refusal]]:
    """The two views that a round goes on with: as reported, and with moves in flight carried out.

    Then what the simple manager has learned, and which figures are no numbers.
    """
    config, remembered = seen.config.balancer, seen.memory.quotas
    reported, not_finite = exclude_non_finite(seen.alive.view)
    quotas = while_others_run(remembered, reported.now_ms)
    if config.load_manager == "simple":
        reported, quotas = with_quotas(reported, remembered)
    return (
        reported,
        apply_pending_moves(reported, settled.pending, config.count_pending_moves),
        quotas,
        not_finite,
    )


def _recently_unloaded(
    memory: Memory, settled: Settled, config: BalancerConfig, now_ms: int
) -> dict[str, int]:
    """Bundle → when it was seen to have left its source, within the grace period (one of exactly
    its length still counts)."""
    grace_start = now_ms - config.shedding_grace_period_ms
    kept = {bundle: at for bundle, at in memory.recently_unloaded.items() if at >= grace_start}
    return kept | {pending.bundle: now_ms for pending in settled.released}


def _moved_by_others(alive: Liveness, config: BalancerConfig, now_ms: int) -> dict[str, int]:
    """In a dry run: bundles that changed hands in this batch.

    Somebody else balances, and leaves alone what it has moved; so do we.

    While brokers are dead it may be failover, after which the others' balancer leaves nothing
    alone.
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
    """Broker → when a move was last seen to have left it, as long as the broker is known."""
    left = {pending.source: now_ms for pending in settled.released if pending.source is not None}
    return {
        broker: at
        for broker, at in (dict(memory.unloaded_brokers) | left).items()
        if broker in view.brokers.names
    }


def _retries(
    memory: Memory, settled: Settled, now_ms: int, config: BalancerConfig
) -> dict[str, Retry]:
    """Bundle → its failures in a row: remembered while the next attempt is under way, and for the
    grace period (one time-out at least)."""
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
    """Released bundle → the destination that its unload named.

    A one-shot affinity, kept until a round can assign the bundle. So it is with a bundle whose
    destination was restarted and is asked again. A bundle whose namespace is deleted goes nowhere.
    """
    released = {
        one.bundle: str(one.destination)
        for one, outcome in settled.ended
        if outcome.outcome == "released"
        or (one.kind == "assign" and one.bundle in settled.repeated)
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
    """Bundles that this balancer had released and that nobody has taken yet; none that has been
    split, or whose namespace is deleted."""
    every = {*memory.released, *(pending.bundle for pending in settled.released)}
    if not every:
        return frozenset()
    rows = {
        name: row
        for name, row in zip(every, view.bundles.rows_of(every).tolist(), strict=True)
        if row >= 0
    }
    waiting = {name: row for name, row in rows.items() if view.bundles.owner[row] < 0}
    gone = superseded(view, waiting.values())
    return frozenset(
        name
        for name, row in waiting.items()
        if row not in gone and namespace_of(name) not in memory.operator_state.deleted
    )
