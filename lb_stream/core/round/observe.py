"""The first stage of a round: what operators have set, which bundles exist, who is alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lb_stream.contracts.decisions import RESHAPES
from lb_stream.contracts.reports import Ack, SplitAsk
from lb_stream.core.commands.apply import (
    apply_operator_state,
    apply_state_commands,
    forget_ended,
)
from lb_stream.core.commands.proposal_book import ProposalBook
from lb_stream.core.commands.responder import CommandAnswer, CommandResponder, Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.gone import clear_gone_bundles
from lb_stream.core.observing.known_bundles import add_unassigned_bundles
from lb_stream.core.observing.liveness import Liveness, judge_liveness


@dataclass(frozen=True, slots=True)
class Inbox:
    """What a round gets beside the view of its cluster."""

    acks: tuple[Ack, ...] = ()
    caught_up: bool = True  # the job has read everything that was there when it started
    # Without the commands about settings: those are applied before the round, and have `answers`.
    commands: tuple[Received, ...] = ()
    asks: tuple[tuple[str, SplitAsk], ...] = ()  # a broker, and the split that it asks for
    # Broker → the settings by which its cluster balances by itself.
    balances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Broker → whether its agent can merge bundles; brokers that say something new.
    merging: Mapping[str, bool] = field(default_factory=dict)
    answers: tuple[CommandAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """A cluster before any decision of this round."""

    config: ClusterConfig
    before: Memory  # as the last round left it
    memory: Memory  # with what this round's commands have set
    known: ClusterView  # with operators' policies and the bundles of created namespaces
    alive: Liveness  # its view is `known` without dead brokers' owners and gone bundles' loads
    responder: CommandResponder  # has answered all commands except those below
    commands: tuple[Received, ...]  # to unload, split, merge, assign and approve


def observe(view: ClusterView, memory: Memory, inbox: Inbox, config: ClusterConfig) -> Observed:
    """Apply the commands that count for the whole round; then find its bundles and live brokers.

    Such commands count wherever in the batch they stood.
    """
    # What operators have set, with this batch's commands.
    memory = _mark_published(memory, view)
    book, answers = ProposalBook(list(memory.proposals)), list(inbox.answers)
    responder = CommandResponder(memory.operator_state, book, memory.pending, answers)
    view = _with_weights(view, config.balancer.weights)
    commands = apply_state_commands(responder, view, inbox.commands, config)
    forget_ended(responder, view)
    # The bundles that exist, and what heartbeats say of brokers.
    wanted = bool(inbox.commands) or config.balancer.assign_unowned == "eager"
    known = apply_operator_state(view, responder.operator_state, wanted)
    known = add_unassigned_bundles(known, _find_forgotten(known, memory))
    balances = _find_self_balancing(memory, inbox, known)
    merging = _find_merging(memory, inbox, known)
    after = memory
    if (responder.operator_state, balances, merging) != (
        memory.operator_state,
        memory.balances,
        memory.merging,
    ):
        after = replace(
            memory, operator_state=responder.operator_state, balances=balances, merging=merging
        )
    # The brokers that are alive.
    alive = judge_liveness(known, after, config.balancer, inbox.caught_up, responder.declared)
    alive = replace(
        alive, view=clear_gone_bundles(known, alive.view, responder.operator_state.deleted)
    )
    return Observed(config, memory, after, known, alive, responder, commands)


def _mark_published(memory: Memory, view: ClusterView) -> Memory:
    """Return the memory with the last round's decisions as published.

    A batch begins only when the decisions of the one before it are published.
    """
    last = f"{view.cluster}:{memory.seq}:"
    pending = tuple(
        pending.published_by(view.now_ms) if pending.decision_id.startswith(last) else pending
        for pending in memory.pending
    )
    return memory if pending == memory.pending else replace(memory, pending=pending)


def _with_weights(view: ClusterView, weights: Mapping[str, float]) -> ClusterView:
    """Return the view with usages by these weights: it may have been built with others."""
    if view.brokers.weights == weights:
        return view
    usage = max_weighted_usage(view.brokers.resources, weights)
    return replace(view, brokers=replace(view.brokers, usage=usage, weights=weights))


def _find_self_balancing(
    memory: Memory, inbox: Inbox, view: ClusterView
) -> dict[str, tuple[str, ...]]:
    """Return the brokers whose cluster balances by itself → the settings that make it so.

    As their agents' last heartbeats say.
    """
    known = {**memory.balances, **inbox.balances}
    return {
        broker: known[broker]
        for broker in sorted(known)
        if known[broker] and broker in view.brokers.names
    }


def _find_merging(memory: Memory, inbox: Inbox, view: ClusterView) -> tuple[str, ...]:
    """Return the brokers whose agents can merge bundles, as their last heartbeats say."""
    if not memory.merging and not inbox.merging:
        return ()
    known = {**dict.fromkeys(memory.merging, True), **inbox.merging}
    return tuple(broker for broker in view.brokers.names if known.get(broker, False))


def _find_forgotten(view: ClusterView, memory: Memory) -> list[str]:
    """Return the moving bundles that the shards no longer have, sorted.

    No report has named them for the retention time. They are known until the decision about them
    expires; bundles that this balancer released, until a broker has them.
    """
    deleted = memory.operator_state.deleted
    moves = (
        pending.bundle
        for pending in memory.pending
        if pending.kind not in RESHAPES and view.now_ms < pending.expires_ms
    )
    released = (name for name in memory.released if namespace_of(name) not in deleted)
    moving = sorted({*moves, *memory.reserved, *released})
    rows = zip(moving, view.bundles.rows_of(moving).tolist(), strict=True)
    return [name for name, row in rows if row < 0]
