"""The first stage of a round: apply commands, find the known bundles and the live brokers."""

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
from lb_stream.core.commands.audited import JobChange
from lb_stream.core.commands.proposal_book import ProposalBook
from lb_stream.core.commands.responder import CommandAnswer, CommandResponder, Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.differing_settings import update_differing
from lb_stream.core.observing.given_capacities import with_given_capacities
from lb_stream.core.observing.gone import clear_gone_bundles
from lb_stream.core.observing.known_bundles import add_unassigned_bundles
from lb_stream.core.observing.liveness import Liveness, judge_liveness


@dataclass(frozen=True, slots=True)
class Inbox:
    """The inputs of a round beside the view of its cluster."""

    acks: tuple[Ack, ...] = ()
    caught_up: bool = True  # the job has read all records that were in Kafka when it started
    commands: tuple[Received, ...] = ()  # except those about settings
    asks: tuple[tuple[str, SplitAsk], ...] = ()  # a broker, and the split that it asks for
    # Broker → settings with which its own load manager still balances.
    balances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Broker → whether its agent can merge bundles; only brokers for which this has changed.
    merging: Mapping[str, bool] = field(default_factory=dict)
    # Broker → its settings that differ from the balancer's; none where the memory has them all.
    differing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    answers: tuple[CommandAnswer, ...] = ()  # to commands about settings, which are applied already
    job_changes: tuple[JobChange, ...] = ()  # that came with the job's start
    awaited: tuple[str, ...] = ()  # brokers whose reports the job can't read yet
    # Ownership records that the round may add to those of its events, of each cause; None: as many
    # as any round.
    max_published: int | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """A cluster before any decision of this round."""

    config: ClusterConfig
    before: Memory  # after the last round
    memory: Memory  # with the state that this round's commands have set
    known: ClusterView  # with operators' policies and the bundles of created namespaces
    alive: Liveness  # its view: `known`, without dead owners and without loads of gone bundles
    responder: CommandResponder  # has answered all commands except those in `commands`
    commands: tuple[Received, ...]  # to unload, split, merge, assign and approve


def observe(view: ClusterView, memory: Memory, inbox: Inbox, config: ClusterConfig) -> Observed:
    """Apply the commands that set operators' state; then find the bundles and live brokers.

    Such a command counts for the whole round, wherever in the batch it is.
    """
    # Operators' state, with this batch's commands.
    memory = _mark_published(memory, view)
    changes = (CommandAnswer.of_job(change, view.now_ms) for change in inbox.job_changes)
    book, answers = ProposalBook(list(memory.proposals)), [*changes, *inbox.answers]
    responder = CommandResponder(
        memory.operator_state,
        book,
        memory.pending,
        answers,
        memory.rollout,
        max_per_minute=config.balancer.max_commands_per_minute,
    )
    view = _with_weights(view, config.balancer.weights)
    view = add_unassigned_bundles(view, _find_forgotten(view, memory))
    commands = apply_state_commands(responder, view, inbox.commands, config)
    forget_ended(responder, view)
    given = (*config.balancer.broker_capacities, *responder.operator_state.capacities)
    view = with_given_capacities(view, given)
    # The known bundles, and facts about brokers from heartbeats.
    wanted = bool(inbox.commands) or config.balancer.assign_unowned == "eager"
    begun = memory.emptied.difference(memory.operator_state.drained)
    if config.balancer.dry_run:
        begun = frozenset()  # a rollout rests, and another balancer places bundles
    known = apply_operator_state(view, responder.operator_state, wanted, begun)
    balances = _find_self_balancing(memory, inbox, known)
    merging = _find_merging(memory, inbox, known)
    differing = update_differing(memory.differing, inbox.differing, memory.dead)
    found = (responder.operator_state, balances, merging, differing)
    after = memory
    if found != (memory.operator_state, memory.balances, memory.merging, memory.differing):
        after = replace(
            memory,
            operator_state=responder.operator_state,
            balances=balances,
            merging=merging,
            differing=differing,
        )
    # The brokers that are alive.
    alive = judge_liveness(known, after, config.balancer, inbox.caught_up, responder.declared)
    alive = replace(
        alive, view=clear_gone_bundles(known, alive.view, responder.operator_state.deleted)
    )
    return Observed(config, memory, after, known, alive, responder, commands)


def _mark_published(memory: Memory, view: ClusterView) -> Memory:
    """Return the memory with the last round's decisions as published.

    They are, as a batch begins only after that.
    """
    last = f"{view.cluster}:{memory.seq}:"
    pending = tuple(
        pending.published_by(view.now_ms) if pending.decision_id.startswith(last) else pending
        for pending in memory.pending
    )
    return memory if pending == memory.pending else replace(memory, pending=pending)


def _with_weights(view: ClusterView, weights: Mapping[str, float]) -> ClusterView:
    """Return the view with usages by these weights."""
    if view.brokers.weights == weights:
        return view
    usage = max_weighted_usage(view.brokers.resources, weights)
    return replace(view, brokers=replace(view.brokers, usage=usage, weights=weights))


def _find_self_balancing(
    memory: Memory, inbox: Inbox, view: ClusterView
) -> dict[str, tuple[str, ...]]:
    """Return the brokers whose own load manager still balances → the settings that make it so.

    Their agents' last heartbeats have these settings.
    """
    known = list_self_balancing(memory, inbox)
    return {broker: keys for broker, keys in known.items() if broker in view.brokers.names}


def list_self_balancing(memory: Memory, inbox: Inbox) -> dict[str, tuple[str, ...]]:
    """Return the brokers that balance themselves → the settings that make it so, sorted.

    A broker that has died or departed since its last heartbeat does not balance any more.
    """
    known = {**memory.balances, **inbox.balances}
    return {
        broker: known[broker]
        for broker in sorted(known)
        if known[broker] and (broker in inbox.balances or broker not in memory.dead)
    }


def _find_merging(memory: Memory, inbox: Inbox, view: ClusterView) -> tuple[str, ...]:
    """Return the brokers whose agents can merge bundles, by their last heartbeats."""
    if not memory.merging and not inbox.merging:
        return ()
    known = {**dict.fromkeys(memory.merging, True), **inbox.merging}
    return tuple(broker for broker in view.brokers.names if known.get(broker, False))


def _find_forgotten(view: ClusterView, memory: Memory) -> list[str]:
    """Return the moving and waiting bundles that the shards no longer have, sorted.

    No report has named them for the retention time. A bundle stays known until the decision about
    it expires, or, if this balancer has released it, until a broker has it. So does one that waits
    for a broker that may have it.
    """
    deleted = memory.operator_state.deleted
    moves = (
        pending.bundle
        for pending in memory.pending
        if pending.kind not in RESHAPES and view.now_ms < pending.expires_ms
    )
    unassigned = {*memory.released, *memory.unplaced}
    wanted = (name for name in unassigned if namespace_of(name) not in deleted)
    names = sorted({*moves, *memory.reserved, *wanted})
    rows = zip(names, view.bundles.rows_of(names).tolist(), strict=True)
    return [name for name, row in rows if row < 0]
