"""The simple manager's three strategies, by what bundles are expected to cost (their quotas).

Percentages are 0..100 here, as the comparisons are in points.

See docs/placement.md "The simple manager's three".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.quotas import VALUES, Learned, allocated
from lb_stream.core.model.view import ClusterView, Floats, Ints, Rows
from lb_stream.core.placement.base import Best, PlacementContext, Targets, simple_placement

POINTS = 5.0
"""Loads no farther apart than this are taken as equal."""
FULL_PERCENT = 100.0
CURSOR_END = 1_000_000
BYTES_PER_KBIT = 128.0


class SimplePlacementConfig(KeyModel):
    """Settings of the simple manager's placement."""

    overloaded_threshold_percent: float = key(
        85,
        "when every broker is above it, the one with most room takes the bundle",
        unit="%",
        pulsar="loadBalancerBrokerOverloadedThresholdPercentage",
        ge=0,
        le=100,
    )
    underloaded_threshold_percent: float = key(
        50,
        "as long as a broker is not above it, empty brokers stay empty",
        unit="%",
        pulsar="loadBalancerBrokerUnderloadedThresholdPercentage",
        dynamic=False,
        ge=0,
        le=100,
    )
    count_system_bundles: bool = key(
        False,
        "Heartbeat and SLA-monitor bundles count when a broker is checked for having only one "
        "bundle, or none, as in the reference. They never move.",
    )


@dataclass(slots=True)
class QuotaTally:
    """Each broker's bundles and the quotas of these, on the view of one round, its choices
    included.

    What reports show at a broker is loaded there; what is on its way is preallocated.
    """

    view: ClusterView
    learned: Learned
    loaded: dict[str, Floats]
    preallocated: dict[str, Floats]
    bundles: Ints
    placed: int = 0  # choices of the round that are in already

    @staticmethod
    def from_view(view: ClusterView, *, system: bool = False) -> QuotaTally:
        """Before the round's first choice. O(bundles).

        Heartbeat and SLA-monitor bundles are counted only with `system`.
        """
        learned = view.quotas or Learned.initial(len(view.bundles))
        owner, in_flight, brokers = view.bundles.owner, view.bundles.in_flight, len(view.brokers)
        loaded = allocated(learned.quotas, np.where(in_flight, -1, owner), brokers, learned.factors)
        preallocated = allocated(
            learned.quotas, np.where(in_flight, owner, -1), brokers, learned.factors
        )
        return QuotaTally(view, learned, loaded, preallocated, view.bundle_counts(system=system))

    def take(self, choices: list[tuple[int, int]]) -> None:
        """Preallocate the bundles that were placed since the last call; they count at their source
        no more."""
        for bundle, destination in choices[self.placed :]:
            quota = {name: float(self.learned.quotas.columns[name][bundle]) for name in VALUES}
            quota["cpu"] = (quota["rate_in"] + quota["rate_out"]) * self.learned.factors.cpu
            source = int(self.view.bundles.owner[bundle])
            self.bundles[destination] += 1
            for name, value in quota.items():
                self.preallocated[name][destination] += value
            if source >= 0:
                self.bundles[source] -= 1
                for name, value in quota.items():
                    self.loaded[name][source] -= value
        self.placed = len(choices)


@dataclass(slots=True)
class SimpleMemory:
    """A cursor that goes round the brokers when all of them are full, and while a round runs its
    tally."""

    cursor: int = 0
    _book: QuotaTally | None = None

    @staticmethod
    def read(data: Mapping[str, Any]) -> SimpleMemory:
        """From the JSON object of the last round."""
        return SimpleMemory(int(data.get("cursor", 0)))

    def to_dict(self) -> dict[str, Any]:
        """As the JSON object that `read` takes."""
        return {"cursor": self.cursor}

    def book(self, targets: Targets, config: SimplePlacementConfig) -> QuotaTally:
        """The book of the round, up to its last choice."""
        if self._book is None or self._book.view is not targets.view:
            self._book = QuotaTally.from_view(targets.view, system=config.count_system_bundles)
        self._book.take(targets.placed)
        return self._book


SimpleContext = PlacementContext[SimplePlacementConfig, SimpleMemory]


@dataclass(frozen=True, slots=True)
class Estimates:
    """What the candidates are expected to carry, one row each: percents of each limit, messages/s,
    room for bundles."""

    percents: dict[str, Floats]  # resource → 0..100
    load: Floats  # the greatest of them
    rate: Floats
    capacity: Floats  # bundles of the default quota that the broker could serve in all
    idle: Floats  # 0..1

    @staticmethod
    def from_tally(book: QuotaTally, candidates: Rows) -> Estimates:
        """Of the given brokers. O(brokers)."""
        resources, percents = book.view.brokers.resources, {}
        for name in ("cpu", "memory", "bandwidth_in", "bandwidth_out"):
            usage, limit = resources[name]
            unit = BYTES_PER_KBIT if name.startswith("bandwidth") else 1.0
            carries = (
                np.maximum(usage[candidates], book.loaded[name][candidates] / unit)
                + book.preallocated[name][candidates] / unit
            )
            percents[name] = _percent(carries, limit[candidates])
        usage, limit = resources["direct_memory"]
        percents["direct_memory"] = _percent(usage[candidates], limit[candidates])
        load = np.maximum.reduce([*percents.values()])
        rates = [
            quotas[name][candidates]
            for quotas in (book.loaded, book.preallocated)
            for name in ("rate_in", "rate_out")
        ]
        return Estimates(
            percents,
            load,
            np.add.reduce(rates),
            _capacity(book, candidates),
            (FULL_PERCENT - load) / FULL_PERCENT,
        )


def _percent(value: Floats, limit: Floats) -> Floats:
    share = np.divide(FULL_PERCENT * value, limit, out=np.zeros(len(value)), where=limit > 0)
    return np.minimum(FULL_PERCENT, share)


def _capacity(book: QuotaTally, candidates: Rows) -> Floats:
    quota, factors, resources = (
        book.learned.default,
        book.learned.factors,
        book.view.brokers.resources,
    )
    limits = {name: limit[candidates] for name, (_, limit) in resources.items()}
    rooms = [
        limits["cpu"] / factors.cpu / (quota["rate_in"] + quota["rate_out"]),
        limits["memory"] / quota["memory"],
        limits["bandwidth_in"] * BYTES_PER_KBIT / quota["bandwidth_in"],
        limits["bandwidth_out"] * BYTES_PER_KBIT / quota["bandwidth_out"],
    ]
    capacity: Floats = np.trunc(np.maximum(np.minimum.reduce(rooms), 0.0))
    return capacity


@simple_placement("leastLoadedServer", config=SimplePlacementConfig, memory=SimpleMemory.read)
def least_loaded_server(context: SimpleContext) -> tuple[Best, SimpleMemory]:
    """The broker with the least estimated load, by the rule of five points; an empty one once that
    is loaded enough.

    O(brokers) for each broker that turns out better than the best so far: a few, as they are
    visited by their load.
    """
    candidates, config, memory = context.candidates, context.config, context.memory
    book = memory.book(context.targets, config)
    seen = Estimates.from_tally(book, candidates)
    order = np.argsort(np.trunc(seen.load), kind="stable")
    busy = order[book.bundles[candidates[order]] > 0]
    chosen = _settled(seen, order, busy, _least_by_points(seen, busy), config, memory, bounded=True)
    return _best(candidates, chosen, seen.load, "%"), memory


@simple_placement("leastMsgPerSecond", config=SimplePlacementConfig, memory=SimpleMemory.read)
def least_msg_per_second(context: SimpleContext) -> tuple[Best, SimpleMemory]:
    """The broker with the lowest expected message rate; an empty one once that is loaded enough.

    O(brokers).
    """
    candidates, config, memory = context.candidates, context.config, context.memory
    book = memory.book(context.targets, config)
    seen = Estimates.from_tally(book, candidates)
    order = np.argsort(np.trunc(seen.rate), kind="stable")
    busy = order[book.bundles[candidates[order]] > 0]
    least = int(busy[np.argmin(seen.rate[busy])]) if len(busy) else None
    chosen = _settled(seen, order, busy, least, config, memory, bounded=False)
    return _best(candidates, chosen, seen.rate, "msg/s"), memory


@simple_placement("weightedRandomSelection", config=SimplePlacementConfig, memory=SimpleMemory.read)
def weighted_random_selection(context: SimpleContext) -> tuple[Best, SimpleMemory]:
    """A broker by chance, the likelier the more room it has; where none has any, one of all.

    O(brokers).
    """
    targets, candidates, memory = context.targets, context.candidates, context.memory
    seen = Estimates.from_tally(memory.book(targets, context.config), candidates)
    weight = np.trunc(seen.capacity * seen.idle * seen.idle)
    if not weight.any():
        return Best(candidates, seen.load, "%"), memory
    order = np.argsort(weight, kind="stable")
    ends = np.cumsum(weight[order])
    drawn = targets.number(targets.view.bundles.name(context.bundle), int(ends[-1]))
    return _best(
        candidates, int(order[np.searchsorted(ends, drawn, side="right")]), seen.load, "%"
    ), memory


def _best(candidates: Rows, chosen: int | None, scores: Floats, unit: str) -> Best:
    return Best(candidates[:0] if chosen is None else candidates[[chosen]], scores, unit)


def _least_by_points(seen: Estimates, busy: Rows) -> int | None:
    """The best of some candidates (positions), visited in that order.

    One replaces the best so far when its load is lower by more than five points, or, where loads
    are closer, its memory, cpu, inbound or outbound bandwidth; where all are close, when its load
    is lower at all. This order has circles, so it must be a visit.
    """
    if not len(busy):
        return None
    percents = np.stack(
        [
            seen.load,
            *(seen.percents[name] for name in ("memory", "cpu", "bandwidth_in", "bandwidth_out")),
        ]
    )[:, busy]
    at = 0
    while True:
        difference = percents[:, at + 1 :] - percents[:, at : at + 1]
        decides = np.abs(difference) > POINTS
        decides[0] |= ~decides.any(axis=0)
        better = np.take_along_axis(difference, decides.argmax(axis=0)[np.newaxis], axis=0)[0] < 0
        if not better.any():
            return int(busy[at])
        at += 1 + int(np.argmax(better))


def _settled(
    seen: Estimates,
    order: Rows,
    busy: Rows,
    least: int | None,
    config: SimplePlacementConfig,
    memory: SimpleMemory,
    *,
    bounded: bool,
) -> int | None:
    """The candidate (position) that takes the bundle; None where there is none.

    `order` is that of the visit, `busy` have bundles.

    With `bounded` loads, when even the best is full they take turns, and when it is overloaded the
    one with most room does.
    """
    if not len(order):
        return None
    turn = int(order[memory.cursor % len(order)])
    memory.cursor = (memory.cursor + 1) % CURSOR_END
    empty = order[~np.isin(order, busy)]
    load = FULL_PERCENT if least is None else float(seen.load[least])
    if least is None or (load > config.underloaded_threshold_percent and len(empty)):
        return int(empty[0])
    if bounded and load >= FULL_PERCENT:
        return turn
    if bounded and load > config.overloaded_threshold_percent:
        room = np.trunc(seen.capacity * seen.idle)
        return int(order[np.argmax(room[order])])
    return least
