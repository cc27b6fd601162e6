"""`decide`: one pass over one cluster.

Everything it knows comes in, everything it does comes out.
"""

from __future__ import annotations

from collections.abc import Iterable

from lb_stream.contracts.reports import SplitAsk
from lb_stream.core.commands.responder import Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.assign import assign_unowned, find_too_few_brokers
from lb_stream.core.round.merge import advise_merges
from lb_stream.core.round.observe import Inbox, observe
from lb_stream.core.round.operator_moves import drain, move_queued, obey_moves
from lb_stream.core.round.proposing import propose
from lb_stream.core.round.record import Round, record
from lb_stream.core.round.settle import settle
from lb_stream.core.round.shed import move_groups_apart, shedding_is_due, unload_from_hot
from lb_stream.core.round.split import split_as_asked, split_too_large, unload_children
from lb_stream.core.round.state import RoundState

__all__ = ["Inbox", "Round", "decide"]


def decide(view: ClusterView, memory: Memory, inbox: Inbox, config: ClusterConfig) -> Round:
    """Settle what is pending, obey operators, give unowned bundles an owner, split too large ones,
    unload from hot brokers.

    Pure: the same arguments give the same round, bit for bit. `view` must be sorted by name (`view_of` sees to that); the time is the
    view's, chance follows from the cluster's name and the round's number. `config`: the settings in force
    (`lb_stream.settings.overrides` does the commands that change them).
    """
    seen = observe(view, memory, inbox, config)
    state = settle(seen, inbox.acks)
    answer(state, seen.commands)
    if may_decide(state):
        place(state)
        if state.config.balancer.mode == "approve":
            propose(state, lambda fork: split(fork, inbox.asks), shed)
        else:
            balance(state, inbox.asks)
        advise_merges(state)
    return record(state, memory)


def answer(state: RoundState, commands: Iterable[Received]) -> None:
    """Decide what operators have ordered, and answer each command.

    Why nothing may be decided now is an answer, too.
    """
    obey_moves(state, commands, state.inputs.alive.suspended)


def may_decide(state: RoundState) -> bool:
    """Whether the balancer may decide anything of its own accord in this round."""
    if state.inputs.alive.suspended is not None:
        return False  # the suspension itself is among the refusals, whenever it is due to be told
    if (few := find_too_few_brokers(state)) is not None:
        state.refusals.append(few)
    return few is None


def place(state: RoundState) -> None:
    """Do what operators have queued, give owners to bundles without one, empty drained brokers.

    This goes on while balancing is switched off.
    """
    move_queued(state)
    assign_unowned(state)
    drain(state)
    unload_children(state)


def balance(state: RoundState, asks: Iterable[tuple[str, SplitAsk]]) -> None:
    """Split what is too large; when a pass is due, move groups apart and shed."""
    split(state, asks)
    shed(state)


def split(state: RoundState, asks: Iterable[tuple[str, SplitAsk]]) -> None:
    """Split what is too large, by its figures or by its broker's."""
    if state.config.balancer.enabled:
        split_too_large(state)
        split_as_asked(state, asks)


def shed(state: RoundState) -> None:
    """Move groups apart and unload from hot brokers when that is due."""
    if state.config.balancer.enabled and shedding_is_due(state):
        state.shed = True
        move_groups_apart(state)
        unload_from_hot(state)
