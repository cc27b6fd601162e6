"""The simple manager's three strategies, which go by the expected load of bundles: their quotas.

Percentages are 0..100 here: differences of them are points.
See docs/placement.md "The simple manager's three".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.quotas import VALUES, Learned, allocated
from lb_stream.core.model.registry import read_memory
from lb_stream.core.model.view import ClusterView, Floats, Ints, Rows
from lb_stream.core.placement.base import Best, PlacementContext, Targets, simple_placement

POINTS = 5.0
"""Loads no farther apart than this count as equal."""
FULL_PERCENT = 100.0
CURSOR_END = 1_000_000
"""The cursor begins again at 0 here, as in the reference."""
BYTES_PER_KBIT = 128.0
"""The reference's factor: 1,024 bits to the kbit."""


class SimplePlacementConfig(KeyModel):
    """Settings of the simple manager's placement."""

    overloaded_threshold_percent: float = key(
        85,
        "When every broker is above this, the broker with most room takes the bundle.",
        unit="%",
        pulsar="loadBalancerBrokerOverloadedThresholdPercentage",
        ge=0,
        le=100,
    )
    underloaded_threshold_percent: float = key(
        50,
        "While a broker with bundles is not above this, empty brokers stay empty.",
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
    """Each broker's number of bundles and the sums of their quotas, this round's choices included.

    A bundle that reports show at a broker is loaded there; one that moves is preallocated.
    """

    view: ClusterView
    learned: Learned
    loaded: dict[str, Floats]  # value → sum for each broker
    preallocated: dict[str, Floats]  # value → sum for each broker
    bundles: Ints  # of each broker
    placed: int = 0  # choices of the round that are counted already

    @staticmethod
    def from_view(view: ClusterView, *, system: bool = False) -> QuotaTally:
        """Return the tally before the round's first choice. O(bundles).

        `system`: heartbeat and SLA-monitor bundles count too.
        """
        learned = view.quotas or Learned.initial(len(view.bundles))
        owner, in_flight, brokers = view.bundles.owner, view.bundles.in_flight, len(view.brokers)
        loaded = allocated(learned.quotas, np.where(in_flight, -1, owner), brokers, learned.factors)
        preallocated = allocated(
            learned.quotas, np.where(in_flight, owner, -1), brokers, learned.factors
        )
        return QuotaTally(view, learned, loaded, preallocated, view.bundle_counts(system=system))

    def count(self, choices: list[tuple[int, int]]) -> None:
        """Count the bundles placed since the last call at their destination, not at their source.

        `choices`: (bundle, destination) of the whole round.
        """
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
    """A cursor, by which brokers take turns when all are full, and the tally of the round."""

    cursor: int = 0
    _tally: QuotaTally | None = None  # of the round that runs; not logged

    @staticmethod
    def read(data: Mapping[str, object]) -> SimpleMemory:
        """Read the JSON object of the last round."""
        return SimpleMemory(read_memory(data, _LoggedCursor).cursor)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object that `read` takes."""
        return {"cursor": self.cursor}

    def tally(self, targets: Targets, config: SimplePlacementConfig) -> QuotaTally:
        """Return the tally of the round, up to its last choice."""
        if self._tally is None or self._tally.view is not targets.view:
            self._tally = QuotaTally.from_view(targets.view, system=config.count_system_bundles)
        self._tally.count(targets.placed)
        return self._tally


@dataclass(slots=True)
class _LoggedCursor:
    """The memory as rounds log it."""

    cursor: int = 0


SimpleContext = PlacementContext[SimplePlacementConfig, SimpleMemory]


@dataclass(frozen=True, slots=True)
class Estimates:
    """The expected load of the candidates, with a row for each."""

    percents: dict[str, Floats]  # resource → percent of its limit, 0..100
    load: Floats  # the highest of them
    rate: Floats  # messages/s
    capacity: Floats  # how many bundles of the default quota the broker could serve in all
    idle: Floats  # unused part, 0..1

    @staticmethod
    def from_tally(tally: QuotaTally, candidates: Rows) -> Estimates:
        """Return the estimates of the given brokers. O(brokers)."""
        # Percent of each resource: reported or loaded, whichever is more, and preallocated.
        resources, percents = tally.view.brokers.resources, {}
        for name in ("cpu", "memory", "bandwidth_in", "bandwidth_out"):
            usage, limit = resources[name]
            unit = BYTES_PER_KBIT if name.startswith("bandwidth") else 1.0
            loaded = np.maximum(usage[candidates], tally.loaded[name][candidates] / unit)
            arriving = tally.preallocated[name][candidates] / unit
            percents[name] = _percent(loaded + arriving, limit[candidates])
        usage, limit = resources["direct_memory"]
        percents["direct_memory"] = _percent(usage[candidates], limit[candidates])

        # The highest of them, the message rate, and the room.
        load = np.maximum.reduce([*percents.values()])
        rates = [
            quotas[name][candidates]
            for quotas in (tally.loaded, tally.preallocated)
            for name in ("rate_in", "rate_out")
        ]
        return Estimates(
            percents,
            load,
            rate=np.add.reduce(rates),
            capacity=_capacity(tally, candidates),
            idle=(FULL_PERCENT - load) / FULL_PERCENT,
        )


def _percent(value: Floats, limit: Floats) -> Floats:
    share = np.divide(FULL_PERCENT * value, limit, out=np.zeros(len(value)), where=limit > 0)
    return np.minimum(FULL_PERCENT, share)


def _capacity(tally: QuotaTally, candidates: Rows) -> Floats:
    """Return how many bundles of the default quota each candidate could serve in all."""
    quota, factors = tally.learned.default, tally.learned.factors
    resources = tally.view.brokers.resources
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
    """Choose the broker with the lowest expected load, by the rule of five points.

    An empty broker is chosen once that one is above the underloaded threshold. O(brokers) for each
    broker that is better than the best so far: few, because they are visited by load.
    Source: docs/placement.md "The simple manager's three".
    """
    # Candidates in the order of their load; those with bundles are compared.
    candidates, config, memory = context.candidates, context.config, context.memory
    tally = memory.tally(context.targets, config)
    estimates = Estimates.from_tally(tally, candidates)
    order = np.argsort(np.trunc(estimates.load), kind="stable")
    busy = order[tally.bundles[candidates[order]] > 0]
    best = _least_by_points(estimates, busy)

    # The best of them, an empty one, or a full one in its turn.
    chosen = _prefer_empty(estimates, order, busy, best, config, memory, bounded=True)
    return _best(candidates, chosen, estimates.load, "%"), memory


@simple_placement("leastMsgPerSecond", config=SimplePlacementConfig, memory=SimpleMemory.read)
def least_msg_per_second(context: SimpleContext) -> tuple[Best, SimpleMemory]:
    """Choose the broker with the lowest expected message rate. O(brokers).

    An empty broker is chosen once that one is above the underloaded threshold.
    Source: docs/placement.md "The simple manager's three".
    """
    # Candidates in the order of their rate; those with bundles are compared.
    candidates, config, memory = context.candidates, context.config, context.memory
    tally = memory.tally(context.targets, config)
    estimates = Estimates.from_tally(tally, candidates)
    order = np.argsort(np.trunc(estimates.rate), kind="stable")
    busy = order[tally.bundles[candidates[order]] > 0]
    best = int(busy[np.argmin(estimates.rate[busy])]) if len(busy) else None

    # The best of them, or an empty one.
    chosen = _prefer_empty(estimates, order, busy, best, config, memory, bounded=False)
    return _best(candidates, chosen, estimates.rate, "msg/s"), memory


@simple_placement("weightedRandomSelection", config=SimplePlacementConfig, memory=SimpleMemory.read)
def weighted_random_selection(context: SimpleContext) -> tuple[Best, SimpleMemory]:
    """Draw a broker, with a probability that grows with its room; if none has room, one of all.

    O(brokers). Source: docs/placement.md "The simple manager's three".
    """
    targets, candidates, memory = context.targets, context.candidates, context.memory
    estimates = Estimates.from_tally(memory.tally(targets, context.config), candidates)
    weight = np.trunc(estimates.capacity * estimates.idle * estimates.idle)
    if not weight.any():
        return Best(candidates, estimates.load, "%"), memory
    order = np.argsort(weight, kind="stable")
    ends = np.cumsum(weight[order])
    drawn = targets.number(targets.view.bundles.name(context.bundle), int(ends[-1]))
    chosen = int(order[np.searchsorted(ends, drawn, side="right")])
    return _best(candidates, chosen, estimates.load, "%"), memory


def _best(candidates: Rows, chosen: int | None, scores: Floats, unit: str) -> Best:
    """Return the result of a choice of one candidate (position); None: no broker is chosen."""
    return Best(candidates[:0] if chosen is None else candidates[[chosen]], scores, unit)


def _least_by_points(estimates: Estimates, busy: Rows) -> int | None:
    """Return the best of these candidates (positions), which are visited in order; None: none.

    A candidate replaces the best so far when its load is lower by more than five points; where the
    loads are closer, when its memory, cpu, bandwidth in or bandwidth out is; where all are close,
    when its load is lower at all. This relation is not transitive: the order of visits matters.
    """
    if not len(busy):
        return None
    compared = ("memory", "cpu", "bandwidth_in", "bandwidth_out")
    columns = [estimates.load, *(estimates.percents[name] for name in compared)]
    percents = np.stack(columns)[:, busy]
    at = 0
    while True:
        difference = percents[:, at + 1 :] - percents[:, at : at + 1]
        decides = np.abs(difference) > POINTS
        decides[0] |= ~decides.any(axis=0)
        better = np.take_along_axis(difference, decides.argmax(axis=0)[np.newaxis], axis=0)[0] < 0
        if not better.any():
            return int(busy[at])
        at += 1 + int(np.argmax(better))


def _prefer_empty(
    estimates: Estimates,
    order: Rows,
    busy: Rows,
    best: int | None,
    config: SimplePlacementConfig,
    memory: SimpleMemory,
    *,
    bounded: bool,
) -> int | None:
    """Return the candidate (position) that takes the bundle: `best`, or one that is preferred.

    An empty broker is preferred to one above the underloaded threshold. With `bounded`, brokers
    take turns when `best` is full, and the broker with most room is preferred to an overloaded
    one. `order`: all candidates as visited; `busy`: those with bundles. None: no candidate.
    """
    if not len(order):
        return None
    turn = int(order[memory.cursor % len(order)])
    memory.cursor = (memory.cursor + 1) % CURSOR_END
    empty = order[~np.isin(order, busy)]
    load = FULL_PERCENT if best is None else float(estimates.load[best])
    if best is None or (load > config.underloaded_threshold_percent and len(empty)):
        return int(empty[0])
    if bounded and load >= FULL_PERCENT:
        return turn
    if bounded and load > config.overloaded_threshold_percent:
        room = np.trunc(estimates.capacity * estimates.idle)
        return int(order[np.argmax(room[order])])
    return best
