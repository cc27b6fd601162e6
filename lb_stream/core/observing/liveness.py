"""Which brokers are alive, by the append time of their records.

See docs/architecture.md "Rulings".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.core.model.memory import Memory, Suspension
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Refuses, Rule
from lb_stream.core.model.view import Bools, ClusterView, Ints

MASS_SHARE = 0.30
MASS_MIN_BROKERS = 2
JITTER_GRACE_MS = 180_000
"""How long the extensible manager's leader mistrusts a connection that has come back, and how much
longer it waits for brokers then."""
FADING_SHARE = 0.75
"""Of its limit: brokers that vanish together were last heard some seconds apart, so the late ones
count when the first is due."""


MIN_REPEAT_MS, MAX_REPEAT_MS = 10_000, 600_000
"""A suspension is said when it begins, then after twice the time, these bounds kept between."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """The view with its dead brokers marked and their bundles unowned; who is dead; why nothing may
    be decided now, if so.

    `refusals`: what this round reports about that. `unsteady_ms`: when the extensible manager's connection
    was in doubt last.
    """

    view: ClusterView
    dead: tuple[str, ...]
    suspended: Refusal | None
    refusals: tuple[Refusal, ...] = ()
    suspension: Suspension | None = None
    unsteady_ms: int | None = None


def find_silent(view: ClusterView, config: BalancerConfig) -> Bools:
    """Brokers that have been silent for longer than living ones are."""
    late: Bools = view.brokers.silence_ms >= _silence_limits(view, config)
    return late


def judge_liveness(
    view: ClusterView,
    memory: Memory,
    config: BalancerConfig,
    caught_up: bool,
    declared: Collection[str] = frozenset(),
) -> Liveness:
    """Declare dead who has been silent for too long or has said goodbye, and silent ones that an
    operator has `declared` dead.

    Silence is measured by the time of the broker's own partition: while others' records keep the
    job from reading there, its time stands still. Until the job has caught up with what was there
    at its start, nobody newly dies: the silence may be the job's own. So it may when nobody speaks:
    the cluster is suspended until somebody does. When more than 30 % of the brokers (and at least
    two) vanish together while others speak, it is suspended for `mass_disappearance_wait_ms`; if
    they are silent still, they are dead.

    The extensible manager waits longer for as long as its connection has not been steady for a
    while: here that is the stream's, which is in doubt after a start and after a suspension.
    """
    # Who has said goodbye, or was dead already and is silent still.
    brokers = view.brokers
    silence, limit = brokers.silence_ms, _silence_limits(view, config)
    known_dead = _is_among(frozenset(memory.dead), brokers.names)
    gone = brokers.left
    if memory.dead or declared:
        gone = gone | ((known_dead | _is_among(declared, brokers.names)) & (silence >= limit))
    # Who else has been silent for too long, and whether that says something of the broker.
    unsteady = (
        memory.unsteady_ms is not None and view.now_ms - memory.unsteady_ms <= JITTER_GRACE_MS
    )
    if unsteady and memory.suspension is None:
        limit = limit + JITTER_GRACE_MS
    vanished = (silence >= limit) & ~gone
    suspension, suspended, told = None, None, tuple[Refusal, ...]()
    if not caught_up:
        vanished[:] = False
        suspension = memory.suspension
    elif vanished.any():
        fading = (silence >= FADING_SHARE * limit) & ~gone
        rule = _find_suspension_rule(fading, vanished, gone, known_dead)
        if rule is not None:
            names = [brokers.names[row] for row in np.flatnonzero(fading)]
            why = refusal(rule, None, names, saw=silence[fading], limit=float(limit[fading].min()))
            suspended, suspension, told = _follow_suspension(
                why, memory.suspension, view.now_ms, config.mass_disappearance_wait_ms
            )
            vanished &= suspended is None
    dead = gone | vanished
    speaking = (
        ~(brokers.heartbeats & (silence >= config.silent_after_ms))
        if caught_up
        else brokers.speaking
    )
    unsteady_ms = memory.unsteady_ms if config.load_manager == "extensible" else None
    if config.load_manager == "extensible" and (
        not caught_up or (suspended is None) != (memory.suspension is None)
    ):
        unsteady_ms = view.now_ms
    names_dead = tuple(brokers.names[row] for row in np.flatnonzero(dead))
    return Liveness(
        _mark_brokers(view, dead, speaking), names_dead, suspended, told, suspension, unsteady_ms
    )


def _is_among(some: Collection[str], names: Sequence[str]) -> Bools:
    """Which of the names are among some: mostly none."""
    return (
        np.array([name in some for name in names], np.bool_)
        if some
        else np.zeros(len(names), np.bool_)
    )


def _mark_brokers(view: ClusterView, dead: Bools, speaking: Bools) -> ClusterView:
    """The view with who is dead and who speaks; the dead have no bundles.

    The same view where it says so already.
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
    limit: Ints = np.where(
        view.brokers.heartbeats, config.heartbeat_timeout_ms, config.report_timeout_ms
    )
    return limit


def _find_suspension_rule(
    fading: Bools, vanished: Bools, gone: Bools, known_dead: Bools
) -> Rule | None:
    """Why these brokers' silence is not taken for their death, if so."""
    if (gone | vanished | fading).all():
        return Refuses.EVERYTHING_SILENT
    together = np.count_nonzero(fading)
    return (
        Refuses.MASS_DISAPPEARANCE
        if together >= MASS_MIN_BROKERS and together > MASS_SHARE * np.count_nonzero(~known_dead)
        else None
    )


def _follow_suspension(
    why: Refusal, before: Suspension | None, now_ms: int, wait_ms: int
) -> tuple[Refusal | None, Suspension | None, tuple[Refusal, ...]]:
    """Whether the cluster is (still) suspended, what is to be remembered of that, and what this
    round says about it."""
    began = (
        before
        if before is not None and before.rule == why.rule
        else Suspension(why.rule, now_ms, now_ms)
    )
    waited, bounded = now_ms - began.since_ms, why.rule == Refuses.MASS_DISAPPEARANCE.name
    if bounded and waited >= wait_ms:
        return (
            None,
            None,
            (
                replace(
                    why,
                    rule=Refuses.MASS_FAILOVER.name,
                    limit=wait_ms,
                    least=waited,
                    greatest=waited,
                ),
            ),
        )
    if now_ms < began.next_report_ms:
        return why, began, ()
    next_ms = now_ms + min(max(waited, MIN_REPEAT_MS), MAX_REPEAT_MS)
    length = refusal(Refuses.SUSPENDED, None, saw=[waited], limit=wait_ms if bounded else None)
    return why, replace(began, next_report_ms=next_ms, brokers=why.subjects), (why, length)
