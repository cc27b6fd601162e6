"""One cycle of TransferShedder: pairs of brokers, and the top bundles that move between them.

Loads are ratios (1.0 = 100 %), throughputs bytes/s, times ms since the epoch. The arithmetic is the
reference's, in doubles and in the same order. A load or throughput of zero gives infinite values or
NaN, and comparisons treat them as the reference's do. See docs/strategies.md "TransferShedder".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from lb_stream.core.model.rules import Decides, Refuses, Rule
from lb_stream.core.model.view import Bools, Floats, Ints, Rows

SWAP_LEAVES = 0.75
"""A swap must bring its source below this part of the source's present throughput."""

Skip = Literal["CoolDown", "OutDatedData", "NoBrokers", "NoLoadData", "HitCount", "NoBundles"]
Reason = Literal["Overloaded", "Underloaded"]
MayTake = Callable[[int, int], bool]
"""(bundle, place of a broker) → whether the filters let the broker take the bundle."""


@dataclass(frozen=True, slots=True)
class Top:
    """The top bundles that a broker reports, the lightest first."""

    bundles: Rows
    throughput: Floats  # latest
    may_leave: Bools  # the bundle is eligible


@dataclass(frozen=True, slots=True)
class LoadStore:
    """The figures of live brokers, with a row for each, which is the broker's place.

    Of brokers with equal loads, the one with the lower place comes first.
    """

    names: tuple[str, ...]
    load: Floats  # smoothed
    throughput_ema: Floats  # smoothed
    throughput: Floats  # latest
    updated_ms: Ints  # append time of the last report
    # Place → top bundles; called only for brokers that are paired. The second argument has the
    # places that are likely to be asked for next, in that order.
    top: Callable[[int, Iterable[int]], Top]
    without_data: tuple[str, ...] = ()  # registered brokers without a known load


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
    counts_gain: bool  # the load that a swap brings back makes room for more moves of the pair


class Why(NamedTuple):
    """The rule by which a pass acts, what it saw, and its limit."""

    reason: Reason
    rule: Rule
    saw: float
    limit: float


class CycleMove(NamedTuple):
    """One bundle leaves `source` for `destination` (None: chosen later).

    `expected_after`: the source's load after the moves of its pair. `in_return`: the first half of
    a swap, which makes room for the move that follows it.
    """

    bundle: int
    source: int
    destination: int | None
    why: Why
    expected_after: float
    in_return: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """The rule by which a source keeps bundles, what it saw (bytes/s, or a number), its limit."""

    rule: Rule
    source: int
    bundles: tuple[int, ...] = ()
    saw: tuple[float, ...] = ()
    limit: float | None = None


@dataclass(slots=True)
class Cycle:
    """The result of one cycle. `run_cycle` changes it while it runs."""

    hits: int  # uneven passes in a row, this one included
    moves: list[CycleMove] = field(default_factory=list)
    skip: Skip | None = None  # Pulsar's word for the reason that there are no moves
    unloaded: dict[str, int] = field(default_factory=dict)  # broker → last unload, if in cool-down
    average: float | None = None  # load
    std: float | None = None  # standard deviation of the loads
    std_after: float = 0.0  # the same after the moves
    kept: list[Kept] = field(default_factory=list)


def run_cycle(
    store: LoadStore,
    limits: CycleLimits,
    hits: int,
    unloaded: Mapping[str, int],
    may_take: MayTake,
    now_ms: int,
) -> Cycle:
    """Run one pass over the cluster. `hits`: the uneven passes in a row before it."""
    cycle = Cycle(hits, unloaded=dict(unloaded))
    with np.errstate(all="ignore"):
        # End if the data is old, or the cluster has not been uneven for enough passes.
        counted = _find_fresh(store, limits, cycle, now_ms)
        if counted is None:
            return cycle
        stats = _Stats.before_pairs(store, limits, store.load[counted])
        cycle.average = float(stats.average)
        cycle.std = cycle.std_after = float(stats.std)
        cycle.hits = hits + 1 if stats.why() is not None else 0
        if cycle.hits <= limits.hit_count_threshold:
            cycle.skip = "HitCount"
            return cycle

        # The moves, pair by pair.
        no_data, few_bundles = _relieve_pairs(store, limits, stats, cycle, may_take)
    if len({move.bundle for move in cycle.moves}) < len(cycle.moves):
        cycle.moves = list(dict.fromkeys(cycle.moves))
    cycle.std_after = float(stats.std)
    if cycle.moves:
        cycle.hits = 0
    elif no_data:
        cycle.skip = "NoLoadData"
    else:
        cycle.skip = "NoBundles" if few_bundles else "HitCount"
    return cycle


def _find_fresh(store: LoadStore, limits: CycleLimits, cycle: Cycle, now_ms: int) -> Bools | None:
    """Return which brokers' data is fresh enough to count; None: the pass ends (`cycle.skip`)."""
    fresh = now_ms - store.updated_ms <= limits.ttl_ms
    for row, name in enumerate(store.names if cycle.unloaded else ()):
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


def _in_order(loads: Floats) -> Rows:
    """Return the places of the loads, the lowest first; equal ones in the order of their places."""
    order = np.argsort(loads)
    ordered = loads[order]
    if (ordered[1:] > ordered[:-1]).all():
        return order
    return np.argsort(loads, kind="stable")  # several times slower


@dataclass(slots=True)
class _Stats:
    """The next pair, and mean and standard deviation of the loads after the pairs before it."""

    store: LoadStore
    limits: CycleLimits
    order: Rows  # places of all brokers, the lowest load first
    low: int  # position in `order` of the lowest broker that has not been helped
    high: int  # position in `order` of the highest broker that has not been tried
    count: int  # loads in the mean
    average: float
    square_sum: float
    std: float
    pairs: int = 0  # relieved so far

    @staticmethod
    def before_pairs(store: LoadStore, limits: CycleLimits, loads: Floats) -> _Stats:
        """Return the figures before the first pair. `loads`: those that count in the mean."""
        order = _in_order(store.load)
        average = np.cumsum(loads)[-1] / len(loads)  # added in order, as in the reference
        squares = np.cumsum(loads * loads)[-1]
        std = np.sqrt(squares / len(loads) - average * average)
        return _Stats(store, limits, order, 0, len(order) - 1, len(loads), average, squares, std)

    def soon(self) -> Iterator[int]:
        """Yield the destination of this pair, whose source has been taken, and the pairs after it.

        Without brokers that turn out to have nothing to give.
        """
        most = min(self.limits.max_brokers - self.pairs, self.high + 1 - self.low)
        for ahead in range(most):
            yield int(self.order[self.low + ahead])
            if self.low + ahead < self.high - ahead:
                yield int(self.order[self.high - ahead])

    def why(self) -> Why | None:
        """Return the reason to relieve the next pair; None: the cluster is even."""
        target = self.limits.target_std
        if self.std > target:
            return Why("Overloaded", Decides.STD_ABOVE_TARGET, float(self.std), target)
        return self._underloaded(self.order[self.low]) or self._overloaded(self.order[self.high])

    def _underloaded(self, broker: int) -> Why | None:
        """Return the reason if this broker has too little load or throughput; None: it has not."""
        share = min(0.5, max(0.0, self.limits.target_std / 2.0))
        load, least = self.store.load[broker], self.average * share
        if load < least:
            return Why("Underloaded", Decides.UNDERLOADED_BROKER, float(load), float(least))
        throughput = self.store.throughput_ema[broker]
        least = self.store.throughput_ema[self.order[self.high]] * share
        if throughput < least:
            return Why("Underloaded", Decides.IDLE_BROKER, float(throughput), float(least))
        return None

    def _overloaded(self, broker: int) -> Why | None:
        """Return the reason if this broker has too much load; None: it has not."""
        load = self.store.load[broker]
        limits = (self.limits.overloaded, self.average + self.limits.target_std)
        if all(load > limit for limit in limits):
            return Why("Overloaded", Decides.OVERLOADED_BROKER, float(load), float(max(limits)))
        return None

    def count_pair(self, source: int, destination: int, offload: float) -> None:
        """Count a pair: the source's load falls by `offload`, the destination's rises by it."""
        high, low = self.store.load[source], self.store.load[destination]
        self.square_sum -= high * high + low * low
        after_high, after_low = np.maximum(0.0, high - offload), low + offload
        self.square_sum += after_high * after_high + after_low * after_low
        self.std = np.sqrt(np.abs(self.square_sum / self.count - self.average * self.average))
        self.pairs += 1
        self.low += 1


def _relieve_pairs(
    store: LoadStore, limits: CycleLimits, stats: _Stats, cycle: Cycle, may_take: MayTake
) -> tuple[int, int]:
    """Pair the highest with the lowest until the cluster is even, or `max_brokers` are relieved.

    Returns the number of sources without top bundles, and of others that gave no bundle.
    """
    no_data = few_bundles = 0
    while stats.pairs < limits.max_brokers and stats.low < stats.high:
        # The next pair.
        why = stats.why()
        if why is None:
            break
        source, destination = int(stats.order[stats.high]), int(stats.order[stats.low])
        stats.high -= 1
        top = store.top(source, stats.soon())
        if len(top.bundles) <= 1:
            no_data += len(top.bundles) == 0
            few_bundles += len(top.bundles) == 1
            rule = Refuses.SOLE_BUNDLE if len(top.bundles) else Refuses.NO_TOP_BUNDLES
            bundles = tuple(top.bundles.tolist())
            cycle.kept.append(Kept(rule, source, bundles, (len(bundles),), 2))
            continue

        # Its moves.
        pair = _Pair.before_moves(store, limits, source, destination, top, may_take)
        if pair.relieve():
            offload = (pair.marked - pair.gain) * store.load[source] / store.throughput[source]
            stats.count_pair(source, destination, offload)
            cycle.moves += pair.moves(why)
        else:
            few_bundles += 1
        cycle.kept += pair.explain_kept()
    return no_data, few_bundles


@dataclass(slots=True)
class _Pair:
    """A source and a destination, with the bundles that leave, and those that come back in swaps.

    Amounts are bytes/s.
    """

    store: LoadStore
    limits: CycleLimits
    source: int
    destination: int
    top: Top  # of the source
    returns: Iterator[tuple[int, float]]  # the destination's top bundles; swaps consume them
    may_take: MayTake
    target: float  # the amount that should leave the source
    marked: float = 0.0  # the amount that leaves the source
    returned: float = 0.0  # the amount that comes back
    gain: float = 0.0  # the part of `returned` that makes room for more moves (`counts_gain`)
    chosen: list[tuple[int, bool]] = field(default_factory=list)  # (bundle, comes back)
    not_transferable: list[int] = field(default_factory=list)  # the destination may not take them
    stopped_at: tuple[int, float] | None = None  # the first too heavy bundle, and its bytes/s

    @staticmethod
    def before_moves(
        store: LoadStore,
        limits: CycleLimits,
        source: int,
        destination: int,
        top: Top,
        may_take: MayTake,
    ) -> _Pair:
        """Return the pair before its first move.

        The target is half of the difference in load, converted to throughput of the source.
        """
        offload = (store.load[source] - store.load[destination]) / 2
        target = store.throughput[source] * offload / store.load[source]

        def find_returns() -> Iterator[tuple[int, float]]:
            other = store.top(destination, ())
            yield from zip(other.bundles.tolist(), other.throughput.tolist(), strict=True)

        returns = find_returns()  # only a swap needs them
        return _Pair(store, limits, source, destination, top, returns, may_take, float(target))

    def relieve(self) -> bool:
        """Choose bundles; return whether any throughput would move."""
        remaining = len(self.top.bundles)
        for bundle, throughput, may_leave in zip(
            self.top.bundles.tolist(),
            self.top.throughput.tolist(),
            self.top.may_leave.tolist(),
            strict=True,
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
                    self.stopped_at = bundle, throughput
                    break
                back, brought = found
                self.returned += brought
                if self.limits.counts_gain:
                    self.gain += brought
            self.chosen += [*((returning, True) for returning in back), (bundle, False)]
            self.marked += throughput
            remaining -= 1
        return self.marked > 0

    def explain_kept(self) -> list[Kept]:
        """Return the reasons why bundles stay: rules forbid a move, or no eligible bundle fits."""
        found = []
        if not self.marked > 0 and self.stopped_at is not None:
            bundle, throughput = self.stopped_at
            saw, limit = (throughput,), self.target
            found.append(Kept(Refuses.NO_FITTING_BUNDLE, self.source, (bundle,), saw, limit))
        elif not self.marked > 0 and not self.not_transferable:
            may_leave = int(np.count_nonzero(self.top.may_leave))
            found.append(Kept(Refuses.NO_ELIGIBLE_BUNDLE, self.source, (), (may_leave,), 1))
        if self.not_transferable:
            found.append(Kept(Refuses.NOT_TRANSFERABLE, self.source, tuple(self.not_transferable)))
        return found

    def _swap(self, throughput: float) -> tuple[list[int], float] | None:
        """Return the bundles that come back for a bundle that is too heavy, and their throughput.

        None: no swap is possible.
        """
        most = float(self.store.throughput[self.source])
        high = most - self.marked + self.gain - throughput
        low = float(self.store.throughput[self.destination])
        low = low + self.marked - self.gain + throughput
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
        """Return the chosen bundles as moves, in the order of the choice."""
        high, low = self.store.load[self.source], self.store.load[self.destination]
        offload = (self.marked - self.returned) * high / self.store.throughput[self.source]
        destination = self.destination if self.limits.transfer else None
        less, more = float(high - offload), float(low + offload)
        return [
            CycleMove(bundle, self.destination, self.source, why, more, in_return=True)
            if comes_back
            else CycleMove(bundle, self.source, destination, why, less)
            for bundle, comes_back in self.chosen
        ]
