"""TransferShedder's decision: from which brokers to which, and which of their top bundles.

See docs/strategies.md "TransferShedder".

Loads are ratios (1.0 = 100 %), throughputs bytes/s, times ms since the epoch. The arithmetic is the
reference's, in doubles and in its order: what it computes from a load or throughput of zero
(infinite, or no number) goes through its comparisons here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from lb_stream.core.model.rules import Decides, Refuses, Rule
from lb_stream.core.model.view import Bools, Floats, Ints, Rows

SWAP_LEAVES = 0.75
"""A swap must bring its source below this share of its throughput."""

Skip = Literal["CoolDown", "OutDatedData", "NoBrokers", "NoLoadData", "HitCount", "NoBundles"]
Reason = Literal["Overloaded", "Underloaded"]
MayTake = Callable[[int, int], bool]
"""(bundle, broker) → whether the filters let that broker have that bundle."""


@dataclass(frozen=True, slots=True)
class Top:
    """One broker's top bundles as they are reported, the lightest first."""

    bundles: Rows
    throughput: Floats
    may_leave: Bools  # the broker owns it, and it was not unloaded recently


@dataclass(frozen=True, slots=True)
class LoadStore:
    """What is known of each broker, one row each; where loads are equal the order of the rows
    decides."""

    names: tuple[str, ...]
    load: Floats  # smoothed
    throughput_ema: Floats  # smoothed
    throughput: Floats  # latest
    updated_ms: Ints
    top: Callable[[int], Top]  # of the broker in a row; asked only for those that matter
    without_data: tuple[str, ...] = ()  # registered brokers of which no load is known


@dataclass(frozen=True, slots=True)
class CycleLimits:
    """The settings of a cycle: ratios, ms, counts."""

    target_std: float
    hit_count_threshold: int
    transfer: bool
    max_brokers: int
    delay_ms: int
    ttl_ms: int
    overloaded: float
    counts_gain: bool  # what a swap brings back counts for the bundles after it


@dataclass(frozen=True, slots=True)
class Why:
    """Which rule fired, with what it saw and its limit."""

    reason: Reason
    rule: Rule
    saw: float
    limit: float


@dataclass(frozen=True, slots=True)
class CycleMove:
    """One bundle leaves `source`, for `destination` (None: to be found later).

    `expected_after` is the source's load then.

    `in_return`: it makes room for the move that follows it, and makes sense only together with
    that.
    """

    bundle: int
    source: int
    destination: int | None
    why: Why
    expected_after: float
    in_return: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """Why a source keeps bundles: the rule, what it saw (bytes/s, or bundles) and its limit."""

    rule: Rule
    source: int
    bundles: tuple[int, ...] = ()
    saw: tuple[float, ...] = ()
    limit: float | None = None


@dataclass(slots=True)
class Cycle:
    """What one cycle came to. It lives within one call."""

    hits: int
    moves: list[CycleMove] = field(default_factory=list)
    skip: Skip | None = None
    unloaded: dict[str, int] = field(
        default_factory=dict
    )  # broker → when it was last unloaded, where that still counts
    average: float | None = None
    std: float | None = None
    std_after: float = 0.0
    kept: list[Kept] = field(default_factory=list)


def run_cycle(
    store: LoadStore,
    limits: CycleLimits,
    hits: int,
    unloaded: Mapping[str, int],
    may_take: MayTake,
    now_ms: int,
) -> Cycle:
    """One pass over the cluster. `hits` counts the passes in a row that saw an uneven cluster."""
    cycle = Cycle(hits, unloaded=dict(unloaded))
    with np.errstate(all="ignore"):
        counted = _fresh(store, limits, cycle, now_ms)
        if counted is None:
            return cycle
        stats = _Stats.of(store, limits, store.load[counted])
        cycle.average, cycle.std, cycle.std_after = (
            float(stats.average),
            float(stats.std),
            float(stats.std),
        )
        cycle.hits = hits + 1 if stats.why() is not None else 0
        if cycle.hits <= limits.hit_count_threshold:
            cycle.skip = "HitCount"
            return cycle
        no_data, few_bundles = _shed(store, limits, stats, cycle, may_take)
    cycle.moves = list(dict.fromkeys(cycle.moves))
    cycle.std_after = float(stats.std)
    if cycle.moves:
        cycle.hits = 0
    else:
        cycle.skip = "NoLoadData" if no_data else "NoBundles" if few_bundles else "HitCount"
    return cycle


def _fresh(store: LoadStore, limits: CycleLimits, cycle: Cycle, now_ms: int) -> Bools | None:
    """Which brokers' data is fresh enough to count; None when the pass ends here (the skip says
    why)."""
    fresh = now_ms - store.updated_ms <= limits.ttl_ms
    for row, name in enumerate(store.names):
        if name not in cycle.unloaded or not fresh[row]:
            continue
        if store.updated_ms[row] - cycle.unloaded[name] < limits.delay_ms:
            cycle.skip = "CoolDown"
            return None
        del cycle.unloaded[name]
    if not fresh.any():
        cycle.skip = "OutDatedData" if len(store.names) else "NoBrokers"
    elif store.without_data:
        cycle.skip = "NoLoadData"
    return fresh if cycle.skip is None else None


@dataclass(slots=True)
class _Stats:
    """Mean and deviation while pairs are relieved, and who is next: the lowest not yet helped, the
    highest not yet tried."""

    store: LoadStore
    limits: CycleLimits
    order: list[int]
    low: int
    high: int
    count: int
    average: float
    square_sum: float
    std: float
    pairs: int = 0

    @staticmethod
    def of(store: LoadStore, limits: CycleLimits, loads: Floats) -> _Stats:
        """Before the first pair.

        `loads` are those that count in the mean; the order is of all brokers.
        """
        order = np.argsort(store.load, kind="stable").tolist()
        average = np.cumsum(loads)[-1] / len(loads)  # summed one by one, as the reference does
        squares = np.cumsum(loads * loads)[-1]
        std = np.sqrt(squares / len(loads) - average * average)
        return _Stats(store, limits, order, 0, len(order) - 1, len(loads), average, squares, std)

    def why(self) -> Why | None:
        """The reason to act now, if there is one."""
        if self.std > self.limits.target_std:
            return Why(
                "Overloaded", Decides.STD_ABOVE_TARGET, float(self.std), self.limits.target_std
            )
        return self._underloaded(self.order[self.low]) or self._overloaded(self.order[self.high])

    def _underloaded(self, broker: int) -> Why | None:
        share = min(0.5, max(0.0, self.limits.target_std / 2.0))
        load, least = self.store.load[broker], self.average * share
        if load < least:
            return Why("Underloaded", Decides.UNDERLOADED_BROKER, float(load), float(least))
        traffic, least = (
            self.store.throughput_ema[broker],
            self.store.throughput_ema[self.order[self.high]] * share,
        )
        return (
            Why("Underloaded", Decides.IDLE_BROKER, float(traffic), float(least))
            if traffic < least
            else None
        )

    def _overloaded(self, broker: int) -> Why | None:
        load, limits = (
            self.store.load[broker],
            (self.limits.overloaded, self.average + self.limits.target_std),
        )
        return (
            Why("Overloaded", Decides.OVERLOADED_BROKER, float(load), float(max(limits)))
            if all(load > limit for limit in limits)
            else None
        )

    def moved(self, source: int, destination: int, offload: float) -> None:
        """Count a pair: the source's load falls by `offload`, the destination's rises by it."""
        high, low = self.store.load[source], self.store.load[destination]
        self.square_sum -= high * high + low * low
        after_high, after_low = np.maximum(0.0, high - offload), low + offload
        self.square_sum += after_high * after_high + after_low * after_low
        self.std = np.sqrt(np.abs(self.square_sum / self.count - self.average * self.average))
        self.pairs += 1
        self.low += 1


def _shed(
    store: LoadStore, limits: CycleLimits, stats: _Stats, cycle: Cycle, may_take: MayTake
) -> tuple[int, int]:
    """Pair the highest with the lowest until the cluster is even or the cycle's pairs are used up.

    Returns how many sources had no top bundles, and how many gave none.
    """
    no_data = few_bundles = 0
    while stats.pairs < limits.max_brokers and stats.low < stats.high:
        why = stats.why()
        if why is None:
            break
        source, destination = stats.order[stats.high], stats.order[stats.low]
        stats.high -= 1
        top = store.top(source)
        if len(top.bundles) <= 1:
            no_data += len(top.bundles) == 0
            few_bundles += len(top.bundles) == 1
            rule = Refuses.SOLE_BUNDLE if len(top.bundles) else Refuses.NO_TOP_BUNDLES
            bundles = tuple(top.bundles.tolist())
            cycle.kept.append(Kept(rule, source, bundles, (len(bundles),), 2))
            continue
        pair = _Pair.of(store, limits, source, destination, top, may_take)
        if pair.relieve():
            stats.moved(
                source,
                destination,
                (pair.marked - pair.gain) * store.load[source] / store.throughput[source],
            )
            cycle.moves += pair.moves(why)
        else:
            few_bundles += 1
        cycle.kept += pair.kept()
    return no_data, few_bundles


@dataclass(slots=True)
class _Pair:
    """One source and one destination: which bundles go over, and which come back in exchange."""

    store: LoadStore
    limits: CycleLimits
    source: int
    destination: int
    top: Top
    returns: Iterator[tuple[int, float]]  # the destination's top bundles, never rewound
    may_take: MayTake
    target: float  # bytes/s
    marked: float = 0.0  # leaves the source
    gain: float = 0.0  # comes back, as far as that counts
    returned: float = 0.0  # comes back
    chosen: list[tuple[int, bool]] = field(default_factory=list)  # (bundle, comes back)
    not_transferable: list[int] = field(default_factory=list)
    stopped_at: tuple[int, float] | None = None  # the bundle that was too much, and its bytes/s

    @staticmethod
    def of(
        store: LoadStore,
        limits: CycleLimits,
        source: int,
        destination: int,
        top: Top,
        may_take: MayTake,
    ) -> _Pair:
        """Before the first bundle.

        Half of the difference in load should move, as that share of the source's throughput.
        """
        offload = (store.load[source] - store.load[destination]) / 2
        target = store.throughput[source] * offload / store.load[source]
        other = store.top(destination)
        returns = zip(other.bundles.tolist(), other.throughput, strict=True)
        return _Pair(store, limits, source, destination, top, returns, may_take, target)

    def relieve(self) -> bool:
        """Choose bundles; whether any throughput would move."""
        remaining = len(self.top.bundles)
        for bundle, throughput, may_leave in zip(
            self.top.bundles.tolist(), self.top.throughput, self.top.may_leave, strict=True
        ):
            if not may_leave:
                continue
            if not self.may_take(bundle, self.destination):
                self.not_transferable.append(bundle)
                continue
            if remaining <= 1:
                break
            if throughput == 0:
                continue
            back: list[int] = []
            if self.marked - self.gain + throughput > self.target:
                found = self._swap(throughput) if self.limits.transfer else None
                if found is None:
                    self.stopped_at = bundle, float(throughput)
                    break
                back, brought = found
                self.returned += brought
                if self.limits.counts_gain:
                    self.gain += brought
            self.chosen += [*((one, True) for one in back), (bundle, False)]
            self.marked += throughput
            remaining -= 1
        return bool(self.marked > 0)

    def kept(self) -> list[Kept]:
        """Why bundles stay: the rules forbid it, or nothing that may leave fits."""
        found = []
        if not self.marked > 0 and self.stopped_at is not None:
            bundle, throughput = self.stopped_at
            saw, limit = (throughput,), float(self.target)
            found.append(Kept(Refuses.NO_FITTING_BUNDLE, self.source, (bundle,), saw, limit))
        elif not self.marked > 0 and not self.not_transferable:
            may_leave = int(np.count_nonzero(self.top.may_leave))
            found.append(Kept(Refuses.NO_ELIGIBLE_BUNDLE, self.source, (), (may_leave,), 1))
        if self.not_transferable:
            found.append(Kept(Refuses.NOT_TRANSFERABLE, self.source, tuple(self.not_transferable)))
        return found

    def _swap(self, throughput: float) -> tuple[list[int], float] | None:
        """What the destination should give back for a bundle that is too heavy, and its throughput;
        None: no swap helps."""
        most = self.store.throughput[self.source]
        high = most - self.marked + self.gain - throughput
        low = self.store.throughput[self.destination] + self.marked - self.gain + throughput
        back: list[int] = []
        brought = 0.0
        for bundle, load in self.returns:
            if not self.may_take(bundle, self.source) or load == 0:
                continue
            if high + load < most and low - load < most:
                back.append(bundle)
                high, low, brought = high + load, low - load, brought + load
                if low <= high < most * SWAP_LEAVES:
                    return back, brought
        return None

    def moves(self, why: Why) -> list[CycleMove]:
        """The choice as moves, in the order in which it was made."""
        high, low = self.store.load[self.source], self.store.load[self.destination]
        offload = (self.marked - self.returned) * high / self.store.throughput[self.source]
        goes_to = self.destination if self.limits.transfer else None
        return [
            CycleMove(
                bundle, self.destination, self.source, why, float(low + offload), in_return=True
            )
            if comes_back
            else CycleMove(bundle, self.source, goes_to, why, float(high - offload))
            for bundle, comes_back in self.chosen
        ]
