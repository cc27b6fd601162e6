"""The last stage: the round as it is logged, with its ownership records and what the next round
must know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lb_stream.contracts.decisions import Decision, Ownership
from lb_stream.core.commands.progress import Progress, update_command_progress
from lb_stream.core.commands.proposal_book import ProposalNews
from lb_stream.core.commands.responder import CommandAnswer
from lb_stream.core.disruption.budgets import counting, limited_namespaces
from lb_stream.core.model.memory import Memory, MoveInProgress, Pending
from lb_stream.core.model.refusals import Refusal, merged, refusal
from lb_stream.core.model.rules import Refuses
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.move_progress import follow_moves
from lb_stream.core.observing.outcomes import Outcome, find_unserved_since
from lb_stream.core.round.assign import count_recent_assignments
from lb_stream.core.round.limits import count_recent_moves
from lb_stream.core.round.merge import merges_after
from lb_stream.core.round.shed import observe_moves
from lb_stream.core.round.state import RoundState
from lb_stream.core.shedding.base import NOTHING, Unloads
from lb_stream.core.splitting.merging import MergeAdvice, MergeLook


@dataclass(frozen=True, slots=True)
class Round:
    """One decision pass: what was decided and refused, what earlier decisions came to, and what the
    next round must know.

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
    proposed: Unloads = NOTHING  # what the shedder wanted; not logged
    merge_advice: tuple[MergeAdvice, ...] = ()  # what is new about it
    proposals: tuple[ProposalNews, ...] = ()  # what has become of each that something has become of


def record(state: RoundState, before: Memory) -> Round:
    """Close the round.

    `before`: the memory that it began with. A dry run remembers no decision and tells of no
    ownership record.
    """
    inputs, ledger = state.inputs, state.ledger
    state.refusals += _clash(state, before.balances)
    for decision in state.decisions if not state.config.balancer.dry_run else ():
        ledger.decided(decision)
    ledger.finish()
    places = state.config.balancer.assign_unowned == "eager"
    progress = Progress(
        inputs.reported,
        inputs.settled,
        state.decisions,
        state.reserved.keys(),
        places,
        state.responder.operator_state,
    )
    update_command_progress(state.responder, progress)
    timeout_ms = state.config.balancer.unloading_timeout_ms
    arrivals = follow_moves(
        inputs.alive.view, state.memory, inputs.settled, state.now_ms, timeout_ms
    )
    observe_moves(state, arrivals.outcomes)
    merges = merges_after(state)
    memory = _memory_after(state, arrivals.moves, merges)
    return Round(
        cluster=state.view.cluster,
        seq=memory.seq,
        now_ms=state.now_ms,
        decisions=tuple(state.decisions),
        outcomes=arrivals.outcomes,
        ownership=tuple(ledger.records.published),
        refusals=merged(state.refusals),
        memory=memory,
        view=state.view,
        results=tuple(state.responder.answers),
        proposed=state.proposed,
        merge_advice=merges.advice,
        proposals=tuple(state.responder.book.news),
    )


def _clash(state: RoundState, before: Mapping[str, tuple[str, ...]]) -> list[Refusal]:
    """Two balancers on one cluster: told when that begins or changes, and with every shedding
    pass."""
    now = state.memory.balances
    if (
        state.config.balancer.dry_run
        or not now
        or not (state.shed or now != before or not state.memory.clashing)
    ):
        return []
    return [refusal(Refuses.BALANCES_ITSELF, None, now, limit=0)]


def _memory_after(
    state: RoundState, moves: Mapping[str, MoveInProgress], merges: MergeLook
) -> Memory:
    """`moves`: those that are half done."""
    inputs, ledger, memory, now_ms = state.inputs, state.ledger, state.memory, state.now_ms
    dry_run, alive = state.config.balancer.dry_run, inputs.alive
    new = () if dry_run else tuple(_pending_after(state, moves))
    spending = (
        ()
        if dry_run
        else counting(state.decisions, limited_namespaces(state.config.namespaces), memory)
    )
    assigned = {
        decision.bundle
        for decision in state.decisions
        if decision.kind == "assign" and not decision.dry_run
    }
    # Everything else is as the stages have left it.
    return replace(
        memory,
        seq=memory.seq + 1,
        first_ms=now_ms if memory.first_ms is None else memory.first_ms,
        last_shed_ms=now_ms if state.shed else memory.last_shed_ms,
        pending=memory.pending + new,
        recently_unloaded=inputs.recently_unloaded,
        unloaded_brokers=inputs.unloaded_brokers,
        retries=inputs.retries,
        reserved={
            bundle: destination
            for bundle, destination in state.reserved.items()
            if bundle not in assigned
        },
        moves=moves,
        versions=ledger.records.versions,
        unserved=ledger.records.unserved,
        unpublished=tuple(sorted(ledger.records.unpublished)),
        published_to=ledger.published_to,
        missed_ms=None,
        dead=alive.dead,
        suspension=alive.suspension,
        released=tuple(sorted(inputs.released)),
        assigned=count_recent_assignments(state),
        unsteady_ms=alive.unsteady_ms,
        clashing=0 if dry_run else len(memory.balances),
        operator_state=state.responder.operator_state,
        moved=count_recent_moves(state),
        strategies=state.strategies_after(),
        spending=memory.spending + tuple(decision.decision_id for decision in spending),
        mergeable=merges.pairs,
        merges_sought_ms=merges.at_ms,
        proposals=tuple(state.responder.book.waiting),
        approvals=state.approvals,
    )


def _pending_after(state: RoundState, moves: Mapping[str, MoveInProgress]) -> Iterator[Pending]:
    """The round's decisions as those that no report has confirmed. `moves`: those half done."""
    ledger, known = state.ledger, state.ledger.reported
    starts = state.inputs.reported.brokers.starts()  # of the brokers' processes
    rows = known.bundles.rows_of(decision.bundle for decision in state.decisions).tolist()
    for decision, row in zip(state.decisions, rows, strict=True):
        former, released_ms = None, None
        if decision.kind == "assign":
            former = ledger.former(decision.bundle)
            move = moves.get(decision.bundle)
            released_ms = find_unserved_since(known, row) if move is None else move.released_ms
        pending = Pending(
            decision_id=decision.decision_id,
            kind=decision.kind,
            bundle=decision.bundle,
            source=decision.source,
            destination=decision.destination,
            issued_ms=decision.issued_ms,
            expires_ms=decision.expires_ms,
            version=decision.expected_version + 1,
            former=former,
            children=tuple(decision.children),
            unload_children=decision.unload_children,
            neighbour=decision.neighbour,
            released_ms=released_ms,
        )
        yield replace(pending, start_ms=starts.get(pending.asked or "", 0))
