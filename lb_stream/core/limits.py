"""How much may move at a time: limits on moves under way, whoever wants them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lb_stream.core.draft import Draft
from lb_stream.core.refusals import Refusal, refusal

MOVES = ("unload", "transfer")


def moves_in_flight(draft: Draft) -> Counter[str | None]:
    """Broker → moves out of it that are under way, those decided in this round among them."""
    under_way = [one.source for one in draft.memory.pending if one.kind in MOVES]
    return Counter(under_way + [one.source for one in draft.decisions if one.kind in MOVES])


def no_room(draft: Draft, moves: Sequence[tuple[int, int]], in_flight: Counter[str | None]) -> Refusal | None:
    """The limit that all of these moves (rows of bundle and source) together would exceed, if any."""
    config, view = draft.config.balancer, draft.view
    names = [view.bundles.name(bundle) for bundle, _ in moves]
    total = sum(in_flight.values())
    if total + len(moves) > config.max_moves_in_flight:
        return refusal("moves_in_flight", None, names, saw=[total], limit=config.max_moves_in_flight, unit="moves")
    limit = config.max_moves_in_flight_per_broker
    for source, count in Counter(view.brokers.names[source] for _, source in moves).items():
        if in_flight[source] + count > limit:
            return refusal("moves_in_flight_of_broker", source, names, saw=[in_flight[source]], limit=limit, unit="moves")
    return None
