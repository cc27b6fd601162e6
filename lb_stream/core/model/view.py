"""What a strategy sees: one cluster's brokers and bundles as columns, sorted by name.

Usages are ratios (1.0 = 100 %), rates messages/s, throughputs bytes/s, times ms since the epoch.
Arrays are never changed in place: a changed view is a new view.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.contracts.decisions import RESHAPES, Decision
from lb_stream.core.model.blocks import RATE_COLUMNS
from lb_stream.core.model.memory import Pending
from lb_stream.core.model.policies import NO_POLICIES, Policies
from lb_stream.core.model.quotas import Learned
from lb_stream.core.model.resources import max_weighted_usage

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Rates:
    """The four values of a bundle or broker, one row each."""

    throughput_in: Floats
    throughput_out: Floats
    rate_in: Floats
    rate_out: Floats

    @staticmethod
    def from_table(table: pa.Table, span: str) -> Rates:
        """The four columns of a block that begin with `span` (latest, short, long)."""
        return Rates(*(table[f"{span}_{value}"].to_numpy() for value in RATE_COLUMNS))

    @property
    def throughput(self) -> Floats:
        """Bytes/s in and out."""
        return self.throughput_in + self.throughput_out

    @property
    def rate(self) -> Floats:
        """Messages/s in and out."""
        return self.rate_in + self.rate_out

    def row(self, index: int) -> tuple[float, float, float, float]:
        """One row's four values."""
        return (
            float(self.throughput_in[index]),
            float(self.throughput_out[index]),
            float(self.rate_in[index]),
            float(self.rate_out[index]),
        )

    def sums_by(self, group: NDArray[np.integer], groups: int) -> Rates:
        """Sums over rows of each group 0..groups-1, added in the order of the rows; rows of group
        -1 count nowhere."""
        rows = np.add(group, 1, dtype=np.intp)  # nobody's first: cheaper than leaving them out
        return Rates(
            *(
                np.bincount(rows, column, groups + 1)[1:].astype(np.float64, copy=False)
                for column in self.columns
            )
        )

    @property
    def columns(self) -> tuple[Floats, Floats, Floats, Floats]:
        """The four columns in the order of FOUR."""
        return self.throughput_in, self.throughput_out, self.rate_in, self.rate_out

    def moved(self, rows: Rows, amounts: Rates, sign: int) -> Rates:
        """With `amounts` added to (or taken from) the given rows, never below 0."""
        changed = []
        for column, amount in zip(self.columns, amounts.columns, strict=True):
            total = column.copy()
            np.add.at(total, rows, sign * amount)
            changed.append(np.maximum(total, 0.0))
        return Rates(*changed)

    def take(self, rows: Rows) -> Rates:
        """The given rows."""
        return Rates(*(column[rows] for column in self.columns))


@dataclass(frozen=True, slots=True)
class Brokers:
    """One row for each broker that has ever reported."""

    names: tuple[str, ...]
    usage: Floats  # maximum weighted usage
    resources: Mapping[str, tuple[Floats, Floats]]  # resource → usage, limit
    latest: Rates  # of its last report
    short: Rates  # sums over its bundles
    long: Rates
    topics: Ints  # as last reported
    bundles: Ints  # how many it reported
    # smoothed weighted usage that an extensible manager's broker reports; NaN: it has sent no such
    # load data
    load_ema: Floats
    throughput_ema: Floats  # smoothed throughput that it reports; NaN likewise
    seen_ms: Ints
    clock_ms: (
        Ints  # the time in the partition that it speaks in: what is not read yet is no silence
    )
    reported_ms: Ints
    heartbeats: Bools
    left: Bools
    sampled: Bools  # it sent a new sample in this batch
    alive: Bools
    speaking: Bools  # heard lately; who isn't may live, but is no destination
    persistent_topics: Bools
    non_persistent_topics: Bools
    versions: tuple[str, ...]  # empty: not reported
    load_managers: tuple[str, ...]  # class names; empty: not reported
    weights: Mapping[str, float]  # resource → weight in the usage
    start_ms: Ints | None = None  # of its process, by its own clock; 0: not said; None: of none

    def __len__(self) -> int:
        return len(self.names)

    def starts(self) -> dict[str, int]:
        """Map each broker that says so to the start of its process (ms, by its own clock)."""
        if self.start_ms is None:
            return {}
        each = zip(self.names, self.start_ms.tolist(), strict=True)
        return {name: start_ms for name, start_ms in each if start_ms}

    @property
    def silence_ms(self) -> Ints:
        """For how long nothing has been heard of each broker, by the time of its own partition."""
        return self.clock_ms - self.seen_ms

    @property
    def reachable(self) -> Bools:
        """Who can hear a decision: brokers that live and speak."""
        return self.alive & self.speaking


@dataclass(frozen=True, slots=True)
class Bundles:
    """One row for each bundle that a report has named within the retention time."""

    names: pa.StringArray
    owner: NDArray[np.int32]  # row of the broker, -1: nobody
    owner_since_ms: Ints
    reported_ms: Ints  # when a report last named it
    gained: Bools  # the owner changed in this batch
    appeared: Bools  # named for the first time in this batch
    in_flight: Bools  # a decision about it is not confirmed yet
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
        """The name in one row."""
        return str(self.names[row].as_py())

    def first_after(self, name: str) -> int:
        """The first row whose name follows the given one."""
        return bisect_right(_Sorted.of(self.names), name.encode())

    def rows_of_namespace(self, namespace: str) -> slice:
        """The rows of one namespace's bundles: they stand together, because rows are sorted by
        name."""
        names = _Sorted.of(self.names)
        return slice(
            bisect_left(names, f"{namespace}/0x".encode()),
            bisect_left(names, f"{namespace}/0y".encode()),
        )

    def rows_of(self, names: Iterable[str]) -> Rows:
        """The rows of the given names, -1 for those not here.

        A few are looked up one by one. Many, or some that aren't where they would be if rows were
        sorted, are found by looking up all rows among the given names, not the other way round: of
        a million rows in 6 to 30 ms instead of 200.
        """
        given = list(names)
        if not given:
            return np.empty(0, np.intp)
        if len(given) <= FEW + len(self.names) // ROWS_A_NAME:
            few = _Sorted.of(self.names).find(given)
            if few is not None:
                return few
        wanted = pa.array(given, pa.string()).dictionary_encode()
        rows = np.full(len(wanted.dictionary), -1, np.intp)
        if len(rows):
            found = pc.index_in(self.names, value_set=wanted.dictionary)
            here = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            rows[found.take(pa.array(here)).to_numpy()] = here
        result: Rows = rows[wanted.indices.to_numpy()]
        return result


FEW, ROWS_A_NAME = 8, 500
"""So many names, and one more for so many rows, are found sooner one by one than by going through
all rows."""


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Sorted names as the bytes that they are sorted by: what `bisect` wants.

    Asking the array itself takes four times as long.
    """

    offsets: NDArray[np.int32]
    content: memoryview

    @staticmethod
    def of(names: pa.StringArray) -> _Sorted:
        """Names without nulls. O(1)."""
        _, offsets, content = names.buffers()
        if not len(names):
            return _Sorted(np.zeros(1, np.int32), memoryview(b""))
        return _Sorted(
            np.frombuffer(offsets, np.int32, len(names) + 1, 4 * names.offset),
            memoryview(b"" if content is None else content),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> bytes:
        return bytes(self.content[self.offsets[row] : self.offsets[row + 1]])

    def find(self, names: Iterable[str]) -> Rows | None:
        """The rows of the given names; None where one of them isn't here."""
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
    quotas: Learned | None = (
        None  # the simple manager's, rows as the bundles; None: nothing learned yet
    )

    @property
    def active(self) -> Bools:
        """The brokers that means, maxima and what is called even are about.

        They live, have been heard lately, and no operator drains them.
        """
        if not self.policies.drained:
            return self.brokers.reachable
        return self.brokers.reachable & ~np.isin(self.brokers.names, list(self.policies.drained))

    def find_owner(self, bundle: int) -> str | None:
        """Return the name of a bundle's owner; None: it is unassigned, or its row is -1."""
        owner = int(self.bundles.owner[bundle]) if bundle >= 0 else -1
        return self.brokers.names[owner] if owner >= 0 else None

    def bundle_counts(self, *, system: bool = True) -> Ints:
        """Number of bundles of each broker. O(bundles).

        Heartbeat and SLA-monitor bundles only with `system`.
        """
        owner, brokers = self.bundles.owner, len(self.brokers) + 1
        counts: Ints = np.bincount(owner + 1, minlength=brokers)[1:]
        if system:
            return counts
        own: Ints = counts - np.bincount(owner[self.bundles.system] + 1, minlength=brokers)[1:]
        return own


def with_moves(view: ClusterView, bundles: Rows, destinations: Rows) -> ClusterView:
    """The view as it will be when the given bundles are at their destinations (rows of brokers; -1:
    with nobody).

    Rates, throughputs and topics move with the bundle, at its short-term average. Of each resource
    the amount usage x (bundle throughput / broker throughput) of the broker that has it now moves:
    an absolute amount, so its share of the destination follows from the destination's limit. A
    bundle that nobody owns brings what it would use at the average broker (`resources_used`).
    """
    sources = view.bundles.owner[bundles].astype(np.intp)
    amounts = view.bundles.short.take(bundles)
    leaves, arrives = sources >= 0, destinations >= 0
    latest = view.brokers.latest.moved(sources[leaves], amounts.take(np.flatnonzero(leaves)), -1)
    latest = latest.moved(destinations[arrives], amounts.take(np.flatnonzero(arrives)), +1)
    resources = _moved_resources(view.brokers, sources, destinations, amounts.throughput)
    topics = view.brokers.topics.copy()
    np.subtract.at(topics, sources[leaves], view.bundles.topics[bundles[leaves]])
    np.add.at(topics, destinations[arrives], view.bundles.topics[bundles[arrives]])
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
    leaves, arrives = sources >= 0, destinations >= 0
    amounts, changed = resources_used(brokers, sources, throughput), {}
    for name, (usage, limit) in brokers.resources.items():
        moved = usage.copy()
        np.subtract.at(moved, sources[leaves], amounts[name][leaves])
        np.add.at(moved, destinations[arrives], amounts[name][arrives])
        changed[name] = (np.where(usage > 0, np.maximum(moved, 0.0), moved), limit)
    return changed


def resources_used(brokers: Brokers, sources: Rows, throughput: Floats) -> dict[str, Floats]:
    """What bundles are taken to use of each resource: their part of their broker's throughput (1 at
    most) is that part of its usage.

    `sources`: their brokers. Those of nobody (-1) are taken to use what they would at the average
    broker.
    """
    carried, used = (
        average_broker(brokers)
        if (sources < 0).any()
        else (0.0, dict.fromkeys(brokers.resources, 0.0))
    )
    total = np.append(brokers.latest.throughput, carried)
    share = np.zeros(len(throughput))
    np.divide(throughput, total[sources], out=share, where=total[sources] > 0)
    share = np.minimum(share, 1.0)
    return {
        name: share * np.append(np.maximum(usage, 0.0), used[name])[sources]
        for name, (usage, _) in brokers.resources.items()
    }


def average_broker(brokers: Brokers) -> tuple[float, dict[str, float]]:
    """Throughput and use of each resource of the average broker that is alive and carries anything;
    all 0 where there is none."""
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
    """The view with the given decisions carried out: load must not be decided on twice.

    Splits and merges move nothing.

    If moves don't count, their bundles are only marked as on their way.
    """
    if not decisions:
        return view
    rows = view.bundles.rows_of(decision.bundle for decision in decisions)
    names = {name: row for row, name in enumerate(view.brokers.names)}
    destinations = np.array(
        [names.get(decision.destination or "", -1) for decision in decisions], np.intp
    )
    stays = np.array([decision.kind in RESHAPES for decision in decisions], np.bool_)
    moves = (rows >= 0) & ~stays & moves_count
    view = with_moves(view, rows[moves], destinations[moves])
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
