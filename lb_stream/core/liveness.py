"""Which brokers are alive, by the append time of their records. Source: docs/architecture.md "Rulings"."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.core.memory import Memory
from lb_stream.core.refusals import Refusal, refusal
from lb_stream.core.view import Bools, ClusterView

MASS_SHARE = 0.30
MASS_LEAST = 2
JITTER_GRACE_MS = 180_000
"""How long the extensible manager's leader mistrusts a connection that has come back, and how much longer it waits for brokers then."""
FADING_SHARE = 0.75
"""Of its limit: brokers that vanish together were last heard some seconds apart, so the late ones count when the first is due."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """The view with its dead brokers marked and their bundles unowned; who is dead; why nothing may be decided now, if so.

    `unsteady_ms`: when the extensible manager's connection was in doubt last.
    """

    view: ClusterView
    dead: tuple[str, ...]
    suspended: Refusal | None
    unsteady_ms: int | None = None


def judge(view: ClusterView, memory: Memory, config: BalancerConfig, caught_up: bool) -> Liveness:
    """Declare dead who has been silent for too long or has said goodbye.

    Silence is measured by the time of the broker's own partition: while others' records keep the job from reading there, its time
    stands still. Until the job has caught up with what was there at its start, nobody newly dies: the silence may be the job's own.
    When more than 30 % of the brokers (and at least two) vanish together, or nobody is left, the fault is more likely on this side:
    the cluster is suspended.

    The extensible manager waits longer for as long as its connection has not been steady for a while (spec/ownership.md §2, "Repair"):
    here that is the stream's, which is in doubt after a start and after a suspension.
    """
    brokers = view.brokers
    silence = brokers.silence_ms
    limit = np.where(brokers.heartbeats, config.heartbeat_timeout_ms, config.report_timeout_ms)
    if memory.unsteady_ms is not None and view.now_ms - memory.unsteady_ms <= JITTER_GRACE_MS:
        limit = limit + JITTER_GRACE_MS
    remembered = frozenset(memory.dead)
    known_dead = np.array([name in remembered for name in brokers.names], np.bool_)
    silent = silence > limit
    gone = brokers.left | (known_dead & silent)
    vanished = silent & ~gone
    suspended = None
    if not caught_up:
        vanished[:] = False
    elif vanished.any():
        fading = (silence > FADING_SHARE * limit) & ~gone
        rule = _suspicious(fading, vanished, gone, known_dead)
        if rule is not None:
            names = [brokers.names[row] for row in np.flatnonzero(fading)]
            suspended = refusal(rule, None, names, saw=silence[fading], limit=float(limit[fading].min()), unit="ms")
            vanished[:] = False
    dead = gone | vanished
    owner = view.bundles.owner
    orphaned = (owner >= 0) & np.append(dead, False)[owner]
    marked = replace(
        view,
        brokers=replace(brokers, alive=~dead),
        bundles=replace(view.bundles, owner=np.where(orphaned, np.int32(-1), owner).astype(np.int32)),
    )
    in_doubt = config.load_manager == "extensible" and (suspended is not None or not caught_up)
    unsteady_ms = view.now_ms if in_doubt else memory.unsteady_ms if config.load_manager == "extensible" else None
    return Liveness(marked, tuple(brokers.names[row] for row in np.flatnonzero(dead)), suspended, unsteady_ms)


def _suspicious(fading: Bools, vanished: Bools, gone: Bools, known_dead: Bools) -> str | None:
    """Why these brokers' silence is not taken for their death, if so."""
    together = np.count_nonzero(fading)
    if together >= MASS_LEAST and together > MASS_SHARE * np.count_nonzero(~known_dead):
        return "mass_disappearance"
    return "everything_silent" if (gone | vanished).all() else None
