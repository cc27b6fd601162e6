"""Judge which brokers are alive, by the append times of their records.

See docs/architecture.md "Behaviour in detail".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.core.model.memory import Memory, Suspension
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Refuses, Rule
from lb_stream.core.model.view import Bools, ClusterView, Ints

MASS_SHARE = 0.30
MASS_MIN_BROKERS = 2
"""More than this share of the brokers, and at least so many, vanish together: a suspension."""

JITTER_GRACE_MS = 180_000
"""How long the extensible manager's leader mistrusts a connection that was in doubt, and how much
longer it waits for brokers then."""

FADING_SHARE = 0.75
"""A broker counts as vanishing from this share of its limit on. Brokers that vanish together were
last heard some seconds apart: the late ones count when the first is due."""

MIN_REPEAT_MS, MAX_REPEAT_MS = 10_000, 600_000
"""A suspension is reported when it begins, and each time its length has doubled, so far apart."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """Which brokers are alive in a round, and whether anything may be decided."""

    view: ClusterView  # dead and silent brokers marked, dead ones' bundles unassigned
    dead: tuple[str, ...]
    suspended: Refusal | None  # why nothing may be decided now
    refusals: tuple[Refusal, ...] = ()  # what the round reports about a suspension
    suspension: Suspension | None = None  # as the next round remembers it
    unsteady_ms: int | None = None  # when the extensible manager's connection was last in doubt


def find_silent(view: ClusterView, config: BalancerConfig) -> Bools:
    """Return the brokers that have been silent for longer than live ones are."""
    silent: Bools = view.brokers.silence_ms >= _silence_limits(view, config)
    return silent


def judge_liveness(
    view: ClusterView,
    memory: Memory,
    config: BalancerConfig,
    caught_up: bool,
    declared: Collection[str] = frozenset(),
) -> Liveness:
    """Find the dead brokers: departed ones, and those that have been silent for too long.

    `declared`: brokers that an operator declares dead, which is done if they are silent.

    Silence is measured by the clock of the broker's own partition: while the job is behind there,
    that clock stands still. Until the job has caught up with what was there at its start, no broker
    newly dies: the silence may be the job's own.

    The cluster is suspended while all brokers are silent: the job itself may be cut off. If more
    than 30 % of the brokers (and at least two) vanish together while others speak, it is suspended
    for `mass_disappearance_wait_ms`. Those that are still silent then are dead.

    The extensible manager waits longer while its connection was in doubt lately. Here that is the
    stream's connection, which is in doubt after a start and after a suspension.
    """
    brokers = view.brokers
    silence_ms, limit_ms = brokers.silence_ms, _silence_limits(view, config)
    # Departed brokers, and silent ones that were dead before or are declared dead.
    known_dead = _is_among(frozenset(memory.dead), brokers.names)
    gone = brokers.left
    if memory.dead or declared:
        expected = known_dead | _is_among(declared, brokers.names)
        gone = gone | (expected & (silence_ms >= limit_ms))
    # Other brokers that have been silent for too long, and whether that means that they are dead.
    if memory.suspension is None and _is_unsteady(memory, view.now_ms):
        limit_ms = limit_ms + JITTER_GRACE_MS
    vanished = (silence_ms >= limit_ms) & ~gone
    found = _Suspended(None, None)
    if not caught_up:
        vanished[:] = False
        found = _Suspended(None, memory.suspension)
    elif vanished.any():
        fading = (silence_ms >= FADING_SHARE * limit_ms) & ~gone
        rule = _find_suspension_rule(fading, vanished, gone, known_dead)
        if rule is not None:
            why = _refuse_silence(view, rule, fading, limit_ms)
            wait_ms = config.mass_disappearance_wait_ms
            found = _follow_suspension(why, memory.suspension, view.now_ms, wait_ms)
            vanished &= found.why is None
    # What the round sees of it, and what the next one remembers.
    dead, speaking = gone | vanished, brokers.speaking
    if caught_up:
        speaking = ~(brokers.heartbeats & (silence_ms >= config.silent_after_ms))
    unsteady_ms = None
    if config.load_manager == "extensible":
        suspension_changed = (found.why is None) != (memory.suspension is None)
        in_doubt = not caught_up or suspension_changed
        unsteady_ms = view.now_ms if in_doubt else memory.unsteady_ms
    return Liveness(
        view=_mark_brokers(view, dead, speaking),
        dead=tuple(brokers.names[row] for row in np.flatnonzero(dead)),
        suspended=found.why,
        refusals=found.refusals,
        suspension=found.suspension,
        unsteady_ms=unsteady_ms,
    )


def _is_unsteady(memory: Memory, now_ms: int) -> bool:
    """Whether the extensible manager's connection was in doubt lately."""
    return memory.unsteady_ms is not None and now_ms - memory.unsteady_ms <= JITTER_GRACE_MS


def _is_among(some: Collection[str], names: Sequence[str]) -> Bools:
    """Return which of the names are among some; nearly always none is."""
    if not some:
        return np.zeros(len(names), np.bool_)
    return np.array([name in some for name in names], np.bool_)


def _mark_brokers(view: ClusterView, dead: Bools, speaking: Bools) -> ClusterView:
    """Return the view with dead and speaking brokers marked, and dead ones' bundles unassigned.

    The view itself, if it says so already.
    """
    brokers, owner = view.brokers, view.bundles.owner
    if not dead.any():
        if brokers.alive.all() and (speaking == brokers.speaking).all():
            return view
        return replace(view, brokers=replace(brokers, alive=~dead, speaking=speaking))
    orphaned = (owner >= 0) & np.append(dead, False)[owner]
    bundles = replace(view.bundles, owner=np.where(orphaned, np.int32(-1), owner).astype(np.int32))
    return replace(view, brokers=replace(brokers, alive=~dead, speaking=speaking), bundles=bundles)


def _silence_limits(view: ClusterView, config: BalancerConfig) -> Ints:
    """Return after how much silence (ms) each broker is dead."""
    limits: Ints = np.where(
        view.brokers.heartbeats, config.heartbeat_timeout_ms, config.report_timeout_ms
    )
    return limits


def _find_suspension_rule(
    fading: Bools, vanished: Bools, gone: Bools, known_dead: Bools
) -> Rule | None:
    """Return the rule by which silence does not mean death; None: it does."""
    if (gone | vanished | fading).all():
        return Refuses.EVERYTHING_SILENT
    together, before = np.count_nonzero(fading), np.count_nonzero(~known_dead)
    if together >= MASS_MIN_BROKERS and together > MASS_SHARE * before:
        return Refuses.MASS_DISAPPEARANCE
    return None


def _refuse_silence(view: ClusterView, rule: Rule, fading: Bools, limit_ms: Ints) -> Refusal:
    """Return the refusal to decide anything while these brokers are silent."""
    names = [view.brokers.names[row] for row in np.flatnonzero(fading)]
    saw, limit = view.brokers.silence_ms[fading], float(limit_ms[fading].min())
    return refusal(rule, None, names, saw=saw, limit=limit)


class _Suspended(NamedTuple):
    """Whether a cluster is suspended, and why."""

    why: Refusal | None  # None: it is not
    suspension: Suspension | None  # as the next round remembers it
    refusals: tuple[Refusal, ...] = ()  # what this round reports


def _follow_suspension(
    why: Refusal, before: Suspension | None, now_ms: int, wait_ms: int
) -> _Suspended:
    """Begin, continue or end a suspension.

    `before`: the suspension that the memory has. `wait_ms`: how long a mass disappearance suspends.
    """
    began = before
    if began is None or began.rule != why.rule:
        began = Suspension(why.rule, since_ms=now_ms, next_report_ms=now_ms)
    waited_ms = now_ms - began.since_ms
    # The wait is over: those that have vanished are dead.
    bounded = why.rule == Refuses.MASS_DISAPPEARANCE.name
    if bounded and waited_ms >= wait_ms:
        rule = Refuses.MASS_FAILOVER.name
        ended = replace(why, rule=rule, limit=wait_ms, least=waited_ms, greatest=waited_ms)
        return _Suspended(None, None, (ended,))
    # It goes on, and is reported whenever that is due.
    if now_ms < began.next_report_ms:
        return _Suspended(why, began)
    next_ms = now_ms + min(max(waited_ms, MIN_REPEAT_MS), MAX_REPEAT_MS)
    limit_ms = wait_ms if bounded else None
    length = refusal(Refuses.SUSPENDED, None, saw=[waited_ms], limit=limit_ms)
    reported = replace(began, next_report_ms=next_ms, brokers=why.subjects)
    return _Suspended(why, reported, (why, length))
