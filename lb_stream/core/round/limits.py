"""Limits on moves: how many may be pending, and how many moves and bytes/s a minute may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lb_stream.contracts.decisions import MOVES
from lb_stream.core.disruption.holds import Holds
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Refuses
from lb_stream.core.round.state import RoundState
from lb_stream.core.shedding.base import MB

MINUTE_MS = 60_000


@dataclass(slots=True)
class MoveAllowance:
    """The moves that count in the limits. Mutable."""

    state: RoundState
    pending: Counter[str | None]  # broker → moves out of it that are pending
    recent: int  # moves of the last minute
    recent_load: float  # their bytes/s

    @staticmethod
    def build(state: RoundState) -> MoveAllowance:
        """Return the moves that are pending, recent, or decided by this round so far."""
        pending = [pending.source for pending in state.memory.pending if pending.kind in MOVES]
        decided = [decision.source for decision in state.decisions if decision.kind in MOVES]
        recent = count_recent_moves(state)
        moves, load = sum(count for _, count, _ in recent), sum(load for _, _, load in recent)
        return MoveAllowance(state, Counter(pending + decided), moves, load)

    @staticmethod
    def unused(state: RoundState) -> MoveAllowance:
        """Return a budget without moves. A move that it refuses can never be decided."""
        return MoveAllowance(state, Counter(), 0, 0.0)

    def refusal(self, moves: Sequence[tuple[int, int]]) -> Refusal | None:
        """Return the refusal by a limit that these moves exceed together; None: none is exceeded.

        `moves`: rows of bundle and source.
        """
        config, view = self.state.config.balancer, self.state.view
        names = [view.bundles.name(bundle) for bundle, _ in moves]
        # Pending moves, of the cluster and of each source.
        pending, limit = sum(self.pending.values()), config.max_moves_in_flight
        if pending + len(moves) > limit:
            return refusal(Refuses.MOVES_IN_FLIGHT, None, names, saw=[pending], limit=limit)
        limit = config.max_moves_in_flight_per_broker
        for source, count in Counter(view.brokers.names[source] for _, source in moves).items():
            pending = self.pending[source]
            if pending + count > limit:
                rule = Refuses.MOVES_IN_FLIGHT_OF_BROKER
                return refusal(rule, source, names, saw=[pending], limit=limit)
        # Moves of the last minute, and the load that they moved.
        limit = config.max_moves_per_minute
        if self.recent + len(moves) > limit:
            return refusal(Refuses.MOVES_PER_MINUTE, None, names, saw=[self.recent], limit=limit)
        limit_mb = config.max_moved_mb_per_minute
        if limit_mb is not None:
            load, most = sum(self._load(bundle) for bundle, _ in moves), limit_mb * MB
            if self.recent_load + load > most:
                rule = Refuses.MOVED_PER_MINUTE
                return refusal(rule, None, names, saw=[self.recent_load], limit=most)
        return None

    def take(self, bundle: int, source: int) -> None:
        """Count one more move."""
        self.pending[self.state.view.brokers.names[source]] += 1
        self.recent += 1
        self.recent_load += self._load(bundle)

    def _load(self, bundle: int) -> float:
        """Return a bundle's throughput (bytes/s, short-term average)."""
        short = self.state.view.bundles.short
        return float(short.throughput_in[bundle] + short.throughput_out[bundle])


def build_holds(state: RoundState) -> Holds:
    """Return the windows and budgets that keep bundles from moving, at this point of the round."""
    return Holds.build(state.config, state.memory, state.decisions, state.now_ms)


def count_recent_moves(state: RoundState) -> tuple[tuple[int, int, float], ...]:
    """Return (time, moves, their bytes/s) of the last minute's rounds with moves, and of this one.

    Moves of a dry run don't count.
    """
    kept = tuple(entry for entry in state.memory.moved if state.now_ms - entry[0] < MINUTE_MS)
    names = [
        decision.bundle
        for decision in state.decisions
        if decision.kind in MOVES and not decision.dry_run
    ]
    if not names:
        return kept
    short = state.view.bundles.short.take(state.view.bundles.rows_of(names))
    return (*kept, (state.now_ms, len(names), float(short.throughput.sum())))
