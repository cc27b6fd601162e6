"""Moves in progress: the bundle has left its source and is not at its destination yet.

A move ends when a broker has the bundle, or when none will. The assignments that bring it there are
decisions of their own (decision 0001), with outcomes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lb_stream.core.model.memory import Memory, MoveInProgress
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.outcomes import Ending, Outcome, Settled, describe_arrival


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """The outcomes to report in this round, and the moves still in progress, by bundle."""

    outcomes: tuple[Outcome, ...]
    moves: Mapping[str, MoveInProgress]


def follow_moves(
    view: ClusterView, memory: Memory, settled: Settled, now_ms: int, timeout_ms: int
) -> MoveProgress:
    """Find the moves that this view shows at their destination, and those that have failed.

    `view`: without the owners of dead brokers' bundles. `timeout_ms`: how long a released bundle
    may take to arrive.
    """
    if not memory.moves and not settled.ended:
        return MoveProgress((), {})
    # Moves whose source has just released the bundle join those in progress.
    moves = dict(memory.moves)
    outcomes: list[Outcome] = []
    for pending, outcome in settled.ended:
        if outcome.outcome != "released":
            outcomes.append(outcome)
        elif outcome.released_ms is not None:
            moves[pending.bundle] = MoveInProgress(
                decision_id=pending.decision_id,
                kind=pending.kind,
                source=pending.source,
                destination=str(pending.destination),
                issued_ms=pending.issued_ms,
                released_ms=outcome.released_ms,
                expires_ms=now_ms + timeout_ms,
                detour=pending.detour,
            )
    # How the assignments stand that bring released bundles to their destinations.
    failed = {
        pending.bundle: outcome
        for pending, outcome in settled.ended
        if pending.kind == "assign"
        and outcome.outcome in ("refused", "expired")
        and pending.bundle not in settled.repeated
    }
    assigned = {pending.bundle for pending in settled.pending if pending.kind == "assign"}
    assigned |= settled.repeated
    dead = {view.brokers.names[row] for row in np.flatnonzero(~view.brokers.alive).tolist()}
    # The moves that have ended with that.
    ended: tuple[Ending, str] | None
    rows = view.bundles.rows_of(moves).tolist()
    for (bundle, move), row in zip(list(moves.items()), rows, strict=True):
        owner = int(view.bundles.owner[row]) if row >= 0 else -1
        if owner >= 0:
            ended = _end_at_owner(move, view.brokers.names[owner])
        else:
            may_arrive = row >= 0 and (bundle in assigned or now_ms < move.expires_ms)
            is_dead = move.destination in dead
            ended = _end_without_owner(move, is_dead, failed.get(bundle), may_arrive)
        if ended is None:
            continue
        ending, detail = ended
        since_ms = int(view.bundles.owner_since_ms[row]) if owner >= 0 else now_ms
        at_ms = since_ms if since_ms >= move.issued_ms else now_ms
        took_ms = at_ms - move.issued_ms
        outcomes.append(
            Outcome(move.decision_id, bundle, ending, detail, at_ms, took_ms, move.released_ms)
        )
        del moves[bundle]
    return MoveProgress(tuple(outcomes), moves)


def _end_at_owner(move: MoveInProgress, owner: str) -> tuple[Ending, str]:
    """Return how a move has ended whose bundle has an owner again."""
    if owner == move.destination:
        return "confirmed", describe_arrival(owner, move.detour)
    if owner == move.source:
        return "failed", f"{owner} has it again, not {move.destination}"
    return "superseded", f"reported by {owner} instead"


def _end_without_owner(
    move: MoveInProgress, is_dead: bool, failed: Outcome | None, may_arrive: bool
) -> tuple[Ending, str] | None:
    """Return how a move has failed whose bundle is unassigned; None: it is still in progress.

    `is_dead`: the destination is. `failed`: how the bundle's assignment ended. `may_arrive`: an
    assignment is pending, or there is time left for one.
    """
    if is_dead:
        return "failed", f"it left {move.source}, then {move.destination} was dead"
    if failed is not None:
        return "failed", f"it left {move.source}, then {failed.outcome}: {failed.detail}"
    if not may_arrive:
        return "failed", f"it left {move.source}, and no broker has reported it in time"
    return None
