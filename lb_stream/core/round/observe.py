"""The first stage: which settings and orders are in force, which bundles there are, and who is
alive."""

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
    """What came in beside the reports. `caught_up`: the job has read all that was there when it started.

    `commands`: without those about settings, which are done before the round and have `answers`.
    """

    acks: tuple[Ack, ...] = ()
    caught_up: bool = True
    commands: tuple[Received, ...] = ()
    asks: tuple[tuple[str, SplitAsk], ...] = ()  # which broker asks for which split
    balances: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # broker → settings by which its cluster balances by itself
    merging: Mapping[str, bool] = field(
        default_factory=dict
    )  # broker → whether its agent can merge bundles, where it says something new
    answers: tuple[CommandAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """A cluster before any decision of this round.

    `memory` has what commands have laid down so far; `before` is the memory without. `known` has the operators' policies
    and bundles; `alive.view` is the same with the dead marked and their bundles unowned, and without
    the load of bundles that are gone.
    """

    config: ClusterConfig
    before: Memory
    memory: Memory
    known: ClusterView
    alive: Liveness
    responder: CommandResponder  # has answered all commands but those below
    commands: tuple[Received, ...]  # to unload, split, merge and assign


def observe(view: ClusterView, memory: Memory, inbox: Inbox, config: ClusterConfig) -> Observed:
    """Take the commands that count for the whole round, wherever in the batch they stood; then see
    who and what is there."""
    memory = _published(memory, view)
    book, answers = ProposalBook(list(memory.proposals)), list(inbox.answers)
    responder = CommandResponder(memory.operator_state, book, memory.pending, answers)
    view = _weighed(view, config.balancer.weights)
    commands = apply_state_commands(responder, view, inbox.commands, config)
    forget_ended(responder, view)
    wanted = bool(inbox.commands) or config.balancer.assign_unowned == "eager"
    known = apply_operator_state(view, responder.operator_state, wanted)
    known = add_unassigned_bundles(known, _forgotten(known, memory))
    balances, merging = _who_balances(memory, inbox, known), _who_merges(memory, inbox, known)
    after = memory
    if (responder.operator_state, balances, merging) != (
        memory.operator_state,
        memory.balances,
        memory.merging,
    ):
        after = replace(
            memory, operator_state=responder.operator_state, balances=balances, merging=merging
        )
    alive = judge_liveness(known, after, config.balancer, inbox.caught_up, responder.declared)
    alive = replace(
        alive, view=clear_gone_bundles(known, alive.view, responder.operator_state.deleted)
    )
    return Observed(config, memory, after, known, alive, responder, commands)


def _published(memory: Memory, view: ClusterView) -> Memory:
    """The memory once the decisions of the last round have been published.

    A batch follows when the one before it has been.
    """
    last = f"{view.cluster}:{memory.seq}:"
    pending = tuple(
        pending.published_by(view.now_ms) if pending.decision_id.startswith(last) else pending
        for pending in memory.pending
    )
    return memory if pending == memory.pending else replace(memory, pending=pending)


def _weighed(view: ClusterView, weights: Mapping[str, float]) -> ClusterView:
    """The view with usages by these weights: it may have been made for other settings."""
    if view.brokers.weights == weights:
        return view
    usage = max_weighted_usage(view.brokers.resources, weights)
    return replace(view, brokers=replace(view.brokers, usage=usage, weights=weights))


def _who_balances(memory: Memory, inbox: Inbox, view: ClusterView) -> dict[str, tuple[str, ...]]:
    """Brokers whose own cluster balances by itself, as their agents said last, with the settings
    that make it so."""
    known = {**memory.balances, **inbox.balances}
    return {
        broker: known[broker]
        for broker in sorted(known)
        if known[broker] and broker in view.brokers.names
    }


def _who_merges(memory: Memory, inbox: Inbox, view: ClusterView) -> tuple[str, ...]:
    """Brokers whose agents can merge bundles, as they said last."""
    if not memory.merging and not inbox.merging:
        return ()
    known = {**dict.fromkeys(memory.merging, True), **inbox.merging}
    return tuple(broker for broker in view.brokers.names if known.get(broker, False))


def _forgotten(view: ClusterView, memory: Memory) -> list[str]:
    """Bundles on their way that the shards have forgotten, because no report has named them for the
    retention time.

    They aren't lost before the decision about them expires, and those that this balancer had
    released not before somebody has them.
    """
    moves = (
        pending.bundle
        for pending in memory.pending
        if pending.kind not in RESHAPES and view.now_ms < pending.expires_ms
    )
    moving = sorted(
        {
            *moves,
            *memory.reserved,
            *(
                name
                for name in memory.released
                if namespace_of(name) not in memory.operator_state.deleted
            ),
        }
    )
    return [
        name
        for name, row in zip(moving, view.bundles.rows_of(moving).tolist(), strict=True)
        if row < 0
    ]
