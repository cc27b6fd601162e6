"""The last stage of a round: its ownership records, and the memory for the next round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lb_stream.contracts.decisions import Decision, Ownership
from lb_stream.core.commands.progress import Progress, update_command_progress
from lb_stream.core.commands.proposal_book import ProposalNews
from lb_stream.core.commands.responder import CommandAnswer
from lb_stream.core.disruption.budgets import limited_namespaces, select_counted
from lb_stream.core.model.memory import Memory, MoveInProgress, Pending
from lb_stream.core.model.refusals import Refusal, merged, refusal
from lb_stream.core.model.rollout import RolloutNews
from lb_stream.core.model.rules import Refuses
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.move_progress import follow_moves
from lb_stream.core.observing.outcomes import Outcome, find_unserved_since
from lb_stream.core.round.assign import count_recent_assignments
from lb_stream.core.round.limits import count_recent_moves
from lb_stream.core.round.merge import find_merges_after
from lb_stream.core.round.shed import observe_moves
from lb_stream.core.round.state import RoundState
from lb_stream.core.round.unplaced import find_unplaced
from lb_stream.core.shedding.base import NOTHING, Unloads
from lb_stream.core.splitting.merging import MergeAdvice, MergeLook


@dataclass(frozen=True, slots=True)
class Round:
    """One round: its decisions, refusals and answers, and the memory for the next round."""

    cluster: str
    seq: int
    now_ms: int
    decisions: tuple[Decision, ...]
    outcomes: tuple[Outcome, ...]  # of earlier decisions
    ownership: tuple[Ownership, ...]  # records to publish
    refusals: tuple[Refusal, ...]
    memory: Memory
    view: ClusterView  # of strategies: with pending moves carried out
    results: tuple[CommandAnswer, ...] = ()  # of commands
    proposed: Unloads = NOTHING  # the result of the shedder; not logged
    merge_advice: tuple[MergeAdvice, ...] = ()  # new or withdrawn
    proposals: tuple[ProposalNews, ...] = ()  # new or changed
    rollout: tuple[RolloutNews, ...] = ()  # changes in a rollout


def record(state: RoundState, before: Memory) -> Round:
    """Return the finished round. `before`: the memory that it began with.

    A dry run remembers no decision and publishes no ownership record.
    """
    inputs, ledger, config = state.inputs, state.ledger, state.config.balancer
    state.refusals += _refuse_two_balancers(state, before.balances)
    # Ownership records of the decisions, and of released bundles without one.
    if not config.dry_run:
        for decision in state.decisions:
            ledger.record_decision(decision)
    ledger.finish()
    # The progress of commands that wait for decisions.
    update_command_progress(
        state.responder,
        Progress(
            inputs.reported,
            inputs.settled,
            state.decisions,
            state.reserved.keys(),
            config.assign_unowned == "eager",
            state.responder.operator_state,
            state.memory.rollout,
            state.next_refused,
        ),
    )
    # Moves in progress, from which the shedder may learn; and the memory.
    timeout_ms = config.unloading_timeout_ms
    progress = follow_moves(
        inputs.alive.view, state.memory, inputs.settled, state.now_ms, timeout_ms
    )
    observe_moves(state, progress.outcomes)
    merges = find_merges_after(state)
    memory = _build_memory(state, progress.moves, merges)
    return Round(
        cluster=state.view.cluster,
        seq=memory.seq,
        now_ms=state.now_ms,
        decisions=tuple(state.decisions),
        outcomes=progress.outcomes,
        ownership=tuple(ledger.records.published),
        refusals=merged(state.refusals),
        memory=memory,
        view=state.view,
        results=tuple(state.responder.answers),
        proposed=state.proposed,
        merge_advice=merges.advice,
        proposals=tuple(state.responder.book.news),
        rollout=tuple(state.rollout_news),
    )


def _refuse_two_balancers(
    state: RoundState, before: Mapping[str, tuple[str, ...]]
) -> list[Refusal]:
    """Return the refusal that another balancer moves this cluster's bundles, if that is due.

    It is due when brokers' settings have changed or decisions are published again, and in every
    shedding pass.
    """
    balancing = state.memory.balances
    if state.config.balancer.dry_run or not balancing:
        return []
    if state.shed or balancing != before or not state.memory.clashing:
        return [refusal(Refuses.BALANCES_ITSELF, None, balancing, limit=0)]
    return []


def _build_memory(
    state: RoundState, moves: Mapping[str, MoveInProgress], merges: MergeLook
) -> Memory:
    """Return the memory for the next round; `moves`: bundle → its move in progress."""
    inputs, ledger, memory, now_ms = state.inputs, state.ledger, state.memory, state.now_ms
    dry_run, alive = state.config.balancer.dry_run, inputs.alive
    # The decisions of this round, which a dry run does not remember.
    pending, spending, assigned = memory.pending, memory.spending, set[str]()
    if not dry_run:
        limited = limited_namespaces(state.config.namespaces)
        counted = select_counted(state.decisions, limited, memory)
        pending += tuple(_build_pending(state, moves))
        spending += tuple(decision.decision_id for decision in counted)
        assigned = {made.bundle for made in state.decisions if made.kind == "assign"}
    reserved = {
        bundle: destination
        for bundle, destination in state.reserved.items()
        if bundle not in assigned
    }
    # All other values are those of the stages.
    return replace(
        memory,
        seq=memory.seq + 1,
        first_ms=now_ms if memory.first_ms is None else memory.first_ms,
        last_shed_ms=now_ms if state.shed else memory.last_shed_ms,
        pending=pending,
        recently_unloaded=inputs.recently_unloaded,
        unloaded_brokers=inputs.unloaded_brokers,
        retries=inputs.retries,
        reserved=reserved,
        moves=moves,
        versions=ledger.records.versions,
        unserved=ledger.records.unserved,
        unpublished=tuple(sorted(ledger.records.unpublished)),
        published_to=ledger.published_to,
        missed_ms=None,
        dead=alive.dead,
        suspension=alive.suspension,
        released=tuple(sorted(inputs.released)),
        unplaced=find_unplaced(state),
        assigned=count_recent_assignments(state),
        unsteady_ms=alive.unsteady_ms,
        clashing=0 if dry_run else len(memory.balances),
        operator_state=state.responder.operator_state,
        moved=count_recent_moves(state),
        strategies=state.strategies_after(),
        spending=spending,
        mergeable=merges.pairs,
        merges_sought_ms=merges.at_ms,
        proposals=tuple(state.responder.book.waiting),
        approvals=state.approvals,
    )


def _build_pending(state: RoundState, moves: Mapping[str, MoveInProgress]) -> Iterator[Pending]:
    """Yield the round's decisions as pending ones; `moves`: bundle → its move in progress."""
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
