"""Moves that are half done: the bundle has left its source and isn't at its destination yet.

A move ends when a broker has the bundle, or when none will. The assignments that bring it there are
decisions of their own (decision 0001), with outcomes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lb_stream.core.model.memory import Memory, MoveInProgress, Pending
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.outcomes import Ending, Outcome, Settled


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """The outcomes to report in this round, and by bundle the moves that are still half done."""

    outcomes: tuple[Outcome, ...]
    moves: Mapping[str, MoveInProgress]


def follow_moves(
    view: ClusterView, memory: Memory, settled: Settled, now_ms: int, timeout_ms: int
) -> MoveProgress:
    """Which moves have come to their destination with this view, and which have failed.

    `view`: with the dead brokers' bundles unowned. `timeout_ms`: how long a released bundle has to
    arrive.
    """
    if not memory.moves and not settled.ended:
        return MoveProgress((), {})
    # Moves whose source has just released the bundle join those that are half done already.
    moves = dict(memory.moves)
    outcomes: list[Outcome] = []
    for pending, outcome in settled.ended:
        if outcome.outcome != "released":
            outcomes.append(outcome)
        elif outcome.released_ms is not None:
            moves[pending.bundle] = _build_move(pending, outcome.released_ms, now_ms + timeout_ms)
    # What has become of the assignments that bring released bundles to their destinations.
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
    # Which moves have ended with that.
    ended: tuple[Ending, str] | None
    rows = view.bundles.rows_of(moves).tolist()
    for (bundle, move), row in zip(list(moves.items()), rows, strict=True):
        owner = int(view.bundles.owner[row]) if row >= 0 else -1
        if owner >= 0:
            ended = _end_at_owner(move, view.brokers.names[owner])
        else:
            waits = row >= 0 and (bundle in assigned or now_ms < move.expires_ms)
            ended = _end_without_owner(move, move.destination in dead, failed.get(bundle), waits)
        if ended is None:
            continue
        ending, detail = ended
        since_ms = int(view.bundles.owner_since_ms[row]) if owner >= 0 else now_ms
        at_ms = since_ms if since_ms >= move.issued_ms else now_ms
        outcomes.append(
            Outcome(
                move.decision_id,
                bundle,
                ending,
                detail,
                at_ms,
                at_ms - move.issued_ms,
                move.released_ms,
            )
        )
        del moves[bundle]
    return MoveProgress(tuple(outcomes), moves)


def _build_move(pending: Pending, released_ms: int, expires_ms: int) -> MoveInProgress:
    """The move, half done."""
    places = pending.source, str(pending.destination)
    times = pending.issued_ms, released_ms, expires_ms
    return MoveInProgress(pending.decision_id, pending.kind, *places, *times)


def _end_at_owner(move: MoveInProgress, owner: str) -> tuple[Ending, str]:
    if owner == move.destination:
        return "confirmed", f"reported by {owner}"
    if owner == move.source:
        return "failed", f"{owner} has it again, not {move.destination}"
    return "superseded", f"reported by {owner} instead"


def _end_without_owner(
    move: MoveInProgress, dead: bool, failed: Outcome | None, waits: bool
) -> tuple[Ending, str] | None:
    """Return how a move without an owner has failed; None: its bundle may arrive yet.

    `dead`: its destination is. `failed`: how the bundle's assignment ended. `waits`: there is an
    assignment, or time left for one.
    """
    if dead:
        return "failed", f"it left {move.source}, then {move.destination} was dead"
    if failed is not None:
        return "failed", f"it left {move.source}, then {failed.outcome}: {failed.detail}"
    if not waits:
        return "failed", f"it left {move.source}, and nobody has reported it in time"
    return None
