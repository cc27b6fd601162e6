"""How much may move at a time: limits on moves under way and within a minute, whoever wants
them."""

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
class MoveBudget:
    """What moves already: by broker, in the last minute, and with how many bytes/s."""

    state: RoundState
    in_flight: Counter[str | None]
    lately: int
    load: float

    @staticmethod
    def of(state: RoundState) -> MoveBudget:
        """As things stand, what was decided in this round included."""
        under_way = [pending.source for pending in state.memory.pending if pending.kind in MOVES]
        decided = [decision.source for decision in state.decisions if decision.kind in MOVES]
        lately = count_recent_moves(state)
        return MoveBudget(
            state,
            Counter(under_way + decided),
            sum(moves for _, moves, _ in lately),
            sum(load for _, _, load in lately),
        )

    @staticmethod
    def unused(state: RoundState) -> MoveBudget:
        """As if nothing moved: what it refuses has no room at any time."""
        return MoveBudget(state, Counter(), 0, 0.0)

    def refusal(self, moves: Sequence[tuple[int, int]]) -> Refusal | None:
        """The limit that all of these moves (rows of bundle and source) together would exceed, if
        any."""
        config, view = self.state.config.balancer, self.state.view
        names = [view.bundles.name(bundle) for bundle, _ in moves]
        total = sum(self.in_flight.values())
        if total + len(moves) > config.max_moves_in_flight:
            return refusal(
                Refuses.MOVES_IN_FLIGHT, None, names, saw=[total], limit=config.max_moves_in_flight
            )
        limit = config.max_moves_in_flight_per_broker
        for source, count in Counter(view.brokers.names[source] for _, source in moves).items():
            if self.in_flight[source] + count > limit:
                return refusal(
                    Refuses.MOVES_IN_FLIGHT_OF_BROKER,
                    source,
                    names,
                    saw=[self.in_flight[source]],
                    limit=limit,
                )
        if self.lately + len(moves) > config.max_moves_per_minute:
            return refusal(
                Refuses.MOVES_PER_MINUTE,
                None,
                names,
                saw=[self.lately],
                limit=config.max_moves_per_minute,
            )
        most = config.max_moved_mb_per_minute
        if (
            most is not None
            and self.load + sum(self._load(bundle) for bundle, _ in moves) > most * MB
        ):
            return refusal(Refuses.MOVED_PER_MINUTE, None, names, saw=[self.load], limit=most * MB)
        return None

    def take(self, bundle: int, source: int) -> None:
        """Count one more move."""
        self.in_flight[self.state.view.brokers.names[source]] += 1
        self.lately += 1
        self.load += self._load(bundle)

    def _load(self, bundle: int) -> float:
        short = self.state.view.bundles.short
        return float(short.throughput_in[bundle] + short.throughput_out[bundle])


def build_holds(state: RoundState) -> Holds:
    """What keeps bundles from being moved by balancing, as things stand in this round."""
    return Holds.of(state.config, state.memory, state.decisions, state.now_ms)


def count_recent_moves(state: RoundState) -> tuple[tuple[int, int, float], ...]:
    """Of each round of the last minute with moves, this one included: when, how many, and their
    bytes/s. A dry run's don't count."""
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
