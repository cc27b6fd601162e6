"""`decide`: one round of one cluster, from a view and a memory to decisions and a new memory.

Its stages follow one another: observe, settle, answer commands, place, split, shed, record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lb_stream.contracts.reports import SplitAsk
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.refusals import refusal
from lb_stream.core.model.rules import Refuses
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.assign import assign_unowned, find_too_few_brokers
from lb_stream.core.round.merge import advise_merges
from lb_stream.core.round.observe import Inbox, observe
from lb_stream.core.round.operator_moves import decide_commands, drain, move_queued
from lb_stream.core.round.planned_splits import split_as_planned
from lb_stream.core.round.proposing import propose
from lb_stream.core.round.record import Round, record
from lb_stream.core.round.rollout import (
    Rest,
    begin_brokers,
    find_rest,
    follow_rollout,
    move_for_rollout,
)
from lb_stream.core.round.settle import settle
from lb_stream.core.round.shed import move_groups_apart, shedding_is_due, unload_from_hot
from lb_stream.core.round.split import split_as_asked, split_too_large, unload_children
from lb_stream.core.round.state import RoundState

__all__ = ["Inbox", "Round", "decide"]


def decide(view: ClusterView, memory: Memory, inbox: Inbox, config: ClusterConfig) -> Round:
    """Make one round of a cluster.

    Pure: the same arguments give the same round, bit for bit. The view has the time, and random
    draws are seeded by the cluster's name and the round's number. `view`: sorted by name, as
    `view_of` returns it. `config`: the settings in force, with this batch's commands about settings
    (`lb_stream.settings.overrides`).
    """
    observed = observe(view, memory, inbox, config)
    state = settle(observed, inbox.acks, inbox.max_published)
    decide_commands(state, observed.commands)
    follow_rollout(state)
    if may_decide(state, inbox.awaited):
        place(state)
        if state.config.balancer.mode == "approve":
            propose(state, lambda fork: split(fork, inbox.asks), shed)
        else:
            balance(state, inbox.asks)
        advise_merges(state)
    return record(state, memory)


def may_decide(state: RoundState, awaited: Collection[str] = ()) -> bool:
    """Whether this round may decide more than commands; if not, add a refusal.

    `awaited`: brokers that report, and whose reports can't be read yet. The view lacks those that
    have not reported before, and their bundles.
    """
    if state.inputs.alive.suspended is not None:
        return False  # `judge_liveness` has added the refusal, if it is due
    lacking = sorted(set(awaited).difference(state.view.brokers.names))
    if lacking:
        state.refusals.append(refusal(Refuses.REPORTS_AWAITED, None, lacking))
        return False
    too_few = find_too_few_brokers(state)
    if too_few is not None:
        state.refusals.append(too_few)
    return too_few is None


def place(state: RoundState) -> None:
    """Begin brokers of a rollout, decide queued moves, assign unassigned bundles, empty brokers.

    Those are drained ones, and the ones that a rollout restarts. Then children of splits are
    unloaded. This runs even if balancing is switched off.
    """
    begin_brokers(state)
    move_queued(state)
    assign_unowned(state)
    drain(state)
    move_for_rollout(state)
    unload_children(state)


def balance(state: RoundState, asks: Iterable[tuple[str, SplitAsk]]) -> None:
    """Split and shed. In mode `approve` these two stages make proposals instead."""
    split(state, asks)
    shed(state)


def split(state: RoundState, asks: Iterable[tuple[str, SplitAsk]]) -> None:
    """Split bundles that are too large for this job, or for the brokers that ask for a split."""
    if state.config.balancer.enabled:
        split_too_large(state)
        split_as_asked(state, asks)


def unload_from_full(state: RoundState, rest: Rest) -> None:
    """Unload from full brokers alone, as balancing rests during a rollout."""
    state.refusals.append(refusal(Refuses.ROLLOUT, None))
    if len(rest.full):
        unload_from_hot(state, rest.full)


def shed(state: RoundState) -> None:
    """Move anti-affinity groups apart, then unload from hot brokers, if a pass is due.

    A shedder that plans splits proposes them in its pass.
    """
    if state.config.balancer.enabled and shedding_is_due(state):
        state.shed = True
        rest = find_rest(state)
        if rest is not None:
            unload_from_full(state, rest)
            return
        move_groups_apart(state)
        unload_from_hot(state)
        split_as_planned(state)
