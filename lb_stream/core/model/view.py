"""The view: one cluster's brokers and bundles as columns, sorted by name.

Usages are ratios (1.0 = 100 %), rates messages/s, throughputs bytes/s, times ms since the epoch.
Arrays are never changed in place: a changed view is a new view.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lb_stream.contracts.decisions import RESHAPES, Decision
from lb_stream.core.model.memory import Pending
from lb_stream.core.model.names import parse_bundle
from lb_stream.core.model.policies import NO_POLICIES, Policies
from lb_stream.core.model.quotas import Learned
from lb_stream.core.model.rates import RATE_COLUMNS
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.topic_shares import NO_TOPIC_SHARES, TopicShares

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Rates:
    """The four rates of bundles or brokers, with a row for each."""

    throughput_in: Floats
    throughput_out: Floats
    rate_in: Floats
    rate_out: Floats

    @staticmethod
    def from_table(table: pa.Table, span: str) -> Rates:
        """Return the columns of a block whose names begin with `span` (latest, short, long)."""
        return Rates(*(table[f"{span}_{value}"].to_numpy() for value in RATE_COLUMNS))

    @property
    def throughput(self) -> Floats:
        """Return bytes/s, in and out."""
        return self.throughput_in + self.throughput_out

    @property
    def rate(self) -> Floats:
        """Return messages/s, in and out."""
        return self.rate_in + self.rate_out

    def row(self, index: int) -> tuple[float, float, float, float]:
        """Return the four values of one row."""
        return (
            float(self.throughput_in[index]),
            float(self.throughput_out[index]),
            float(self.rate_in[index]),
            float(self.rate_out[index]),
        )

    def sums_by(self, group: NDArray[np.integer], groups: int) -> Rates:
        """Return the sums of each group 0..groups-1, added in the order of the rows.

        Rows of group -1 count nowhere.
        """
        # Group -1 becomes number 0, whose sum is dropped: cheaper than leaving out its rows.
        number = np.add(group, 1, dtype=np.intp)
        return Rates(
            *(
                np.bincount(number, column, groups + 1)[1:].astype(np.float64, copy=False)
                for column in self.columns
            )
        )

    @property
    def columns(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the four columns in the order of RATE_COLUMNS."""
        return self.throughput_in, self.throughput_out, self.rate_in, self.rate_out

    def moved(self, rows: Rows, amounts: Rates, sign: int) -> Rates:
        """Return the rates with `sign` * `amounts` added to the given rows, never below 0."""
        changed = []
        for column, amount in zip(self.columns, amounts.columns, strict=True):
            total = column.copy()
            np.add.at(total, rows, sign * amount)
            changed.append(np.maximum(total, 0.0))
        return Rates(*changed)

    def take(self, rows: Rows) -> Rates:
        """Return the given rows."""
        return Rates(*(column[rows] for column in self.columns))


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers that have ever reported, with a row for each."""

    names: tuple[str, ...]
    usage: Floats  # maximum weighted usage
    resources: Mapping[str, tuple[Floats, Floats]]  # resource → usage, limit
    latest: Rates  # of its last report
    short: Rates  # sums over its bundles
    long: Rates
    topics: Ints  # as last reported
    bundles: Ints  # number in the last report
    # Smoothed usage and throughput that brokers of the extensible manager report; NaN: none.
    load_ema: Floats
    throughput_ema: Floats
    seen_ms: Ints  # append time of the last record
    # Append time up to which the broker's partition has been read: unread records are no silence.
    clock_ms: Ints
    reported_ms: Ints  # append time of the last load report
    heartbeats: Bools  # it has ever sent a heartbeat
    left: Bools  # departed
    sampled: Bools  # it sent a new sample in this batch
    alive: Bools
    speaking: Bools  # not silent
    persistent_topics: Bools  # it serves such topics
    non_persistent_topics: Bools
    versions: tuple[str, ...]  # empty: not reported
    load_managers: tuple[str, ...]  # class names; empty: not reported
    weights: Mapping[str, float]  # resource → weight in the usage
    start_ms: Ints | None = None  # start of its process, by its own clock; 0, None: not reported

    def __len__(self) -> int:
        return len(self.names)

    def starts(self) -> dict[str, int]:
        """Map each broker to the start of its process (ms, by its own clock), where reported."""
        if self.start_ms is None:
            return {}
        each = zip(self.names, self.start_ms.tolist(), strict=True)
        return {name: start_ms for name, start_ms in each if start_ms}

    @property
    def silence_ms(self) -> Ints:
        """Return for how long each broker has been silent, by the time of its own partition."""
        return self.clock_ms - self.seen_ms

    @property
    def reachable(self) -> Bools:
        """Return which brokers are alive and not silent: they can receive a decision."""
        return self.alive & self.speaking


@dataclass(frozen=True, slots=True)
class Bundles:
    """The bundles that a report has named within the retention time, with a row for each."""

    names: pa.StringArray
    owner: NDArray[np.int32]  # row of the broker; -1: unassigned
    owner_since_ms: Ints
    reported_ms: Ints  # when a report last named it
    gained: Bools  # the owner changed in this batch
    appeared: Bools  # named for the first time in this batch
    in_flight: Bools  # a decision about it is pending
    system: Bools  # heartbeat and SLA-monitor namespaces
    topics: Ints
    sessions: Ints  # producers and consumers, as last reported
    cache_bytes: Ints
    short_samples: NDArray[np.int32]
    long_samples: NDArray[np.int32]
    latest: Rates
    short: Rates
    long: Rates

    def __len__(self) -> int:
        return len(self.names)

    def name(self, row: int) -> str:
        """Return the name in one row."""
        return str(self.names[row].as_py())

    def first_after(self, name: str) -> int:
        """Return the first row whose name follows the given one."""
        return bisect_right(SortedNames.from_array(self.names), name.encode())

    def rows_of_namespace(self, namespace: str) -> slice:
        """Return the rows of a namespace's bundles, which follow one another."""
        names = SortedNames.from_array(self.names)
        first = bisect_left(names, f"{namespace}/0x".encode())
        if first == len(names) or not names[first].startswith(f"{namespace}/0x".encode()):
            return slice(first, first)
        return slice(first, bisect_left(names, f"{namespace}/0y".encode(), first))

    def rows_inside(self, bundle: str) -> Rows:
        """Return the rows of the other bundles inside of a bundle's range, as a split makes them.

        In the order of their ranges. O(log n), and those that begin there.
        """
        namespace, lower, upper = parse_bundle(bundle)
        names = SortedNames.from_array(self.names)
        begin = bisect_left(names, f"{namespace}/{lower:#010x}".encode())
        end = bisect_left(names, f"{namespace}/{upper:#010x}_".encode())
        last, whole = f"{upper:#010x}".encode(), bundle.encode()
        inside = [
            row
            for row in range(begin, end)
            if (name := names[row])[-len(last) :] <= last and name != whole
        ]
        return np.array(inside, np.intp)

    def rows_of(self, names: Iterable[str]) -> Rows:
        """Return the rows of the given names; -1: not in the view.

        A few names are looked up one by one. For many names, or if one is not found, all rows are
        looked up among the names, not the other way round: for a million rows that takes 6 to 30 ms
        instead of 200.
        """
        given = list(names)
        if not given:
            return np.empty(0, np.intp)
        if len(given) <= FEW_NAMES + len(self.names) // ROWS_PER_NAME:
            rows_of_few = SortedNames.from_array(self.names).find(given)
            if rows_of_few is not None:
                return rows_of_few
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = pa.array(given, pa.string()).dictionary_encode()
        rows = np.full(len(wanted.dictionary), -1, np.intp)
        if len(rows):
            found = pc.index_in(self.names, value_set=wanted.dictionary)
            here = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            rows[found.take(pa.array(here)).to_numpy()] = here
        result: Rows = rows[wanted.indices.to_numpy()]
        return result


FEW_NAMES, ROWS_PER_NAME = 8, 500
"""Up to FEW_NAMES names, and one more for each ROWS_PER_NAME rows, are looked up one by one."""


@dataclass(frozen=True, slots=True)
class SortedNames:
    """Sorted names as bytes, for `bisect`. Access through the array takes four times as long."""

    offsets: memoryview  # of int32, one more than names
    content: memoryview

    @staticmethod
    def from_array(names: pa.StringArray) -> SortedNames:
        """Return names, which have no nulls. O(1)."""
        _, offsets, content = names.buffers()
        if not len(names):
            return SortedNames(memoryview(bytes(4)).cast("i"), memoryview(b""))
        begin, end = names.offset, names.offset + len(names) + 1
        return SortedNames(
            memoryview(offsets).cast("i")[begin:end],
            memoryview(b"" if content is None else content),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> bytes:
        return bytes(self.content[self.offsets[row] : self.offsets[row + 1]])

    def find(self, names: Iterable[str]) -> Rows | None:
        """Return the rows of the given names; None: one of them is not found."""
        rows, size = [], len(self)
        for name in names:
            wanted = name.encode()
            row = bisect_left(self, wanted)
            if row == size or self[row] != wanted:
                return None
            rows.append(row)
        return np.array(rows, np.intp)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One cluster at one moment."""

    cluster: str
    now_ms: int
    brokers: Brokers
    bundles: Bundles
    policies: Policies = NO_POLICIES
    quotas: Learned | None = None  # the simple manager's, rows as the bundles; None: not learned
    topic_shares: TopicShares = NO_TOPIC_SHARES  # of the few bundles whose owners report them

    @property
    def active(self) -> Bools:
        """Return which brokers are alive, not silent and not draining: they count in means."""
        if not self.policies.drained:
            return self.brokers.reachable
        return self.brokers.reachable & ~np.isin(self.brokers.names, list(self.policies.drained))

    def find_owner(self, bundle: int) -> str | None:
        """Return the name of a bundle's owner; None: it is unassigned, or its row is -1."""
        owner = int(self.bundles.owner[bundle]) if bundle >= 0 else -1
        return self.brokers.names[owner] if owner >= 0 else None

    def bundle_counts(self, *, system: bool = True) -> Ints:
        """Return the number of bundles of each broker. O(bundles).

        `system`: whether system bundles count.
        """
        owner, numbers = self.bundles.owner, len(self.brokers) + 1  # number 0: unassigned
        counts: Ints = np.bincount(owner + 1, minlength=numbers)[1:]
        if system:
            return counts
        system_owner = owner[self.bundles.system]
        others: Ints = counts - np.bincount(system_owner + 1, minlength=numbers)[1:]
        return others


def with_moves(view: ClusterView, bundles: Rows, destinations: Rows) -> ClusterView:
    """Return the view with the bundles at their destinations (rows of brokers; -1: unassigned).

    Short-term rates, throughputs and topics move with a bundle, and the amount of each resource
    that it uses at its owner (`resources_used`). That is an absolute amount: the destination's
    usage follows from the destination's limit.
    """
    # Rates, resources and topics leave the sources and arrive at the destinations.
    sources = view.bundles.owner[bundles].astype(np.intp)
    amounts = view.bundles.short.take(bundles)
    leaves, arrives = sources >= 0, destinations >= 0
    latest = view.brokers.latest.moved(sources[leaves], amounts.take(np.flatnonzero(leaves)), -1)
    latest = latest.moved(destinations[arrives], amounts.take(np.flatnonzero(arrives)), +1)
    resources = _moved_resources(view.brokers, sources, destinations, amounts.throughput)
    topics = view.brokers.topics.copy()
    np.subtract.at(topics, sources[leaves], view.bundles.topics[bundles[leaves]])
    np.add.at(topics, destinations[arrives], view.bundles.topics[bundles[arrives]])

    # The bundles have other owners, and decisions about them are pending.
    owner = view.bundles.owner.copy()
    owner[bundles] = destinations
    in_flight = view.bundles.in_flight.copy()
    in_flight[bundles] = True
    brokers = replace(
        view.brokers,
        usage=max_weighted_usage(resources, view.brokers.weights),
        resources=resources,
        latest=latest,
        short=view.bundles.short.sums_by(owner, len(view.brokers)),
        long=view.bundles.long.sums_by(owner, len(view.brokers)),
        topics=np.maximum(topics, 0),
    )
    return replace(
        view, brokers=brokers, bundles=replace(view.bundles, owner=owner, in_flight=in_flight)
    )


def _moved_resources(
    brokers: Brokers, sources: Rows, destinations: Rows, throughput: Floats
) -> dict[str, tuple[Floats, Floats]]:
    """Return brokers' resources (usage, limit) once bundles have moved.

    `sources`, `destinations`: rows of brokers; -1: none. `throughput`: of each bundle.
    """
    leaves, arrives = sources >= 0, destinations >= 0
    amounts, changed = resources_used(brokers, sources, throughput), {}
    for name, (usage, limit) in brokers.resources.items():
        moved = usage.copy()
        np.subtract.at(moved, sources[leaves], amounts[name][leaves])
        np.add.at(moved, destinations[arrives], amounts[name][arrives])
        changed[name] = (np.where(usage > 0, np.maximum(moved, 0.0), moved), limit)
    return changed


def resources_used(brokers: Brokers, sources: Rows, throughput: Floats) -> dict[str, Floats]:
    """Return how much of each resource bundles use, estimated by their throughput.

    A bundle uses the same part of its broker's resources as of its throughput, 1 at most.
    `sources`: the bundles' brokers; an unassigned bundle (-1) uses what it would at the average
    broker.
    """
    carried, used = 0.0, dict.fromkeys(brokers.resources, 0.0)
    if (sources < 0).any():
        carried, used = average_broker(brokers)
    total = np.append(brokers.latest.throughput, carried)
    share = np.zeros(len(throughput))
    np.divide(throughput, total[sources], out=share, where=total[sources] > 0)
    share = np.minimum(share, 1.0)
    return {
        name: share * np.append(np.maximum(usage, 0.0), used[name])[sources]
        for name, (usage, _) in brokers.resources.items()
    }


def average_broker(brokers: Brokers) -> tuple[float, dict[str, float]]:
    """Return the mean throughput, and mean use of each resource, of live brokers with throughput.

    All are 0 if there is no such broker.
    """
    busy = brokers.alive & (brokers.latest.throughput > 0)
    if not busy.any():
        return 0.0, dict.fromkeys(brokers.resources, 0.0)
    used = {
        name: float(np.maximum(usage, 0.0)[busy].mean())
        for name, (usage, _) in brokers.resources.items()
    }
    return float(brokers.latest.throughput[busy].mean()), used


def apply_pending_moves(
    view: ClusterView, decisions: Sequence[Pending | Decision], moves_count: bool
) -> ClusterView:
    """Return the view with these decisions applied, so that no load is decided on twice.

    Splits and merges move nothing. Without `moves_count` the bundles are only marked in flight.
    """
    if not decisions:
        return view

    # Bundles at their destinations.
    rows = view.bundles.rows_of(decision.bundle for decision in decisions)
    names = {name: row for row, name in enumerate(view.brokers.names)}
    destinations = np.array(
        [names.get(decision.destination or "", -1) for decision in decisions], np.intp
    )
    stays = np.array([decision.kind in RESHAPES for decision in decisions], np.bool_)
    moves = (rows >= 0) & ~stays & moves_count
    view = with_moves(view, rows[moves], destinations[moves])

    # The others, and neighbours in merges, are in flight.
    held = np.append(
        rows[~moves],
        view.bundles.rows_of(
            decision.neighbour for decision in decisions if decision.neighbour is not None
        ),
    )
    if not len(held):
        return view
    in_flight = view.bundles.in_flight.copy()
    in_flight[held[held >= 0]] = True
    return replace(view, bundles=replace(view.bundles, in_flight=in_flight))
