"""Which brokers are alive, by the append time of their records. Source: docs/architecture.md "Rulings"."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.core.memory import Memory
from lb_stream.core.refusals import Refusal, refusal
from lb_stream.core.view import ClusterView

MASS_SHARE = 0.30
MASS_LEAST = 2


@dataclass(frozen=True, slots=True)
class Liveness:
    """The view with its dead brokers marked and their bundles unowned; who is dead; why nothing may be decided now, if so."""

    view: ClusterView
    dead: tuple[str, ...]
    suspended: Refusal | None


def judge(view: ClusterView, memory: Memory, config: BalancerConfig, caught_up: bool) -> Liveness:
    """Declare dead who has been silent for too long or has said goodbye.

    Until the job has caught up with what was there at its start, nobody newly dies: the silence may be the job's own. When more
    than 30 % of the brokers (and at least two) vanish at once the fault is more likely on this side: the cluster is suspended.
    """
    brokers = view.brokers
    silence = view.now_ms - brokers.seen_ms
    limit = np.where(brokers.heartbeats, config.heartbeat_timeout_ms, config.report_timeout_ms)
    silent = silence > limit
    known_dead = (
        np.isin(np.array(brokers.names, object), np.array(memory.dead, object)) if memory.dead else np.zeros(len(brokers), np.bool_)
    )
    vanished = silent & ~known_dead & ~brokers.left
    suspended = None
    if not caught_up:
        vanished[:] = False
    elif np.count_nonzero(vanished) >= MASS_LEAST and np.count_nonzero(vanished) > MASS_SHARE * np.count_nonzero(~known_dead):
        names = [brokers.names[row] for row in np.flatnonzero(vanished)]
        suspended = refusal("mass_disappearance", None, names, saw=silence[vanished], limit=float(limit[vanished].min()), unit="ms")
        vanished[:] = False
    dead = vanished | brokers.left | (known_dead & silent)
    owner = view.bundles.owner
    orphaned = (owner >= 0) & dead[owner]
    marked = replace(
        view,
        brokers=replace(brokers, alive=~dead),
        bundles=replace(view.bundles, owner=np.where(orphaned, np.int32(-1), owner).astype(np.int32)),
    )
    return Liveness(marked, tuple(brokers.names[row] for row in np.flatnonzero(dead)), suspended)
