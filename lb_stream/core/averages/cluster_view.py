"""Build a cluster's view from its shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.model.blocks import (
    BROKER_SCHEMA,
    BUNDLE_SCHEMA,
    RESOURCES,
    Shard,
    one_array,
)
from lb_stream.core.model.rates import RATE_COLUMNS
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.topic_shares import NO_TOPIC_SHARES, TopicShares
from lb_stream.core.model.view import Bools, Brokers, Bundles, ClusterView, Floats, Ints, Rates

T = TypeVar("T", bound=np.generic)
NO_TIMES: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class NameOrder:
    """The order of the bundles of several shards in the view."""

    names: pa.StringArray  # of all bundles, sorted
    places: Ints  # of each of them in the columns of all shards, one behind another
    rows: tuple[Ints, ...]  # the rows of each shard's bundles


def name_order(shards: Sequence[pa.ChunkedArray]) -> NameOrder:
    """Return the order of several shards' bundles. `shards`: the names of each, sorted."""
    joined = pa.concat_arrays(
        [chunk for names in shards for chunk in names.chunks] or [pa.array([], pa.string())]
    )
    order = pc.sort_indices(joined)
    places = order.to_numpy().astype(np.int64)
    rows = np.empty(len(joined), np.int64)
    rows[places] = np.arange(len(joined))
    ends = np.cumsum([len(names) for names in shards])
    return NameOrder(joined.take(order), places, tuple(np.split(rows, ends[:-1])))


def view_of(
    cluster: str,
    shards: Iterable[Shard],
    now_ms: int,
    weights: Mapping[str, float],
    order: NameOrder | None = None,
    times: Mapping[int, int] = NO_TIMES,
) -> ClusterView:
    """Return a cluster's view: rows sorted by name, brokers' sums added in that order.

    The view doesn't depend on the number or order of shards. `order`: that of their names, if
    known. `times`: partition → append time up to which this batch has read it; other partitions
    have been read to their end.
    """
    # Brokers, and owners as their rows.
    shards = list(shards)
    brokers = _all_brokers(shards)
    clock_ms = _clocks(brokers["partition"], times, now_ms)
    owners = [shard.bundles["owner"].to_numpy() for shard in shards]
    if brokers is not shards[0].brokers:
        rows = (
            pc.index_in(shard.brokers["name"], value_set=one_array(brokers["name"])).to_numpy()
            for shard in shards
        )
        owners = [
            np.append(row.astype(np.int32), np.int32(-1))[owner]
            for row, owner in zip(rows, owners, strict=True)
        ]
    # Bundles of the only shard.
    if len(shards) == 1:
        columns = dict(zip(shards[0].bundles.schema.names, shards[0].bundles.columns, strict=True))
        bundles = _bundles(one_array(columns["name"]), owners[0], columns.__getitem__)
        return ClusterView(
            cluster,
            now_ms,
            _brokers(brokers, clock_ms, bundles, weights),
            bundles,
            topic_shares=_topic_shares(shards, [np.arange(len(bundles))]),
        )
    # Bundles of several shards.
    known = order or name_order([shard.bundles["name"] for shard in shards])

    def merged(name: str) -> pa.ChunkedArray:
        return pa.chunked_array(
            [_merged([shard.bundles[name].to_numpy() for shard in shards], known.places)]
        )

    bundles = _bundles(known.names, _merged(owners, known.places), merged)
    return ClusterView(
        cluster,
        now_ms,
        _brokers(brokers, clock_ms, bundles, weights),
        bundles,
        topic_shares=_topic_shares(shards, known.rows),
    )


MAX_JOINED_BUNDLES = 4_096
"""A shard of more bundles has a view of its own: to copy its columns would cost more."""


def may_be_joined(shard: Shard) -> bool:
    """Whether a cluster's only shard may be one of `JoinedViews`."""
    return (
        len(shard.bundles) <= MAX_JOINED_BUNDLES
        and shard.brokers.schema.equals(BROKER_SCHEMA)
        and shard.bundles.schema.equals(BUNDLE_SCHEMA)
    )


class JoinedViews:
    """The views of small clusters, made of columns that all of them share.

    To make an array of a column takes as long for a hundred rows as for thousands. So the rows of
    all clusters lie behind one another, and a view has slices of the columns. It equals that of
    `view_of`. A caller that gets an exception builds each view by itself: one shard is damaged.
    """

    def __init__(
        self, shards: Mapping[str, Shard], now_ms: int, times: Mapping[int, int] = NO_TIMES
    ) -> None:
        """Join the only shard of each cluster: those for which `may_be_joined` is true.

        `times`: as in `view_of`. Raises ArrowInvalid if a column lacks values, or an owner is none
        of the cluster's brokers. O(rows).
        """
        self._shards, self._now_ms = shards, now_ms
        own = list(shards.values())
        of_broker, self._broker_rows = _row_ranges([len(shard.brokers) for shard in own])
        of_bundle, self._bundle_rows = _row_ranges([len(shard.bundles) for shard in own])
        self._number = {cluster: number for number, cluster in enumerate(shards)}
        brokers = pa.concat_tables(shard.brokers for shard in own).combine_chunks()
        bundles = pa.concat_tables(shard.bundles for shard in own).combine_chunks()
        _require_numbers(brokers, except_for=("partition", "signed_us"))
        _require_numbers(bundles)
        # Each bundle's owner as a row of its own cluster's brokers, and of all brokers.
        columns = dict(zip(bundles.schema.names, bundles.columns, strict=True))
        counts = np.diff(of_bundle)
        self._owner = columns["owner"].to_numpy()
        owner = np.where(self._owner < 0, -1, self._owner + np.repeat(of_broker[:-1], counts))
        if (self._owner < -1).any() or (owner >= np.repeat(of_broker[1:], counts)).any():
            raise pa.ArrowInvalid("a bundle belongs to a broker that its cluster does not have")
        # The columns.
        names = one_array(columns["name"])
        self._bundles = _bundles(names, owner.astype(np.int32), columns.__getitem__)
        clock_ms = _clocks(brokers["partition"], times, now_ms)
        self._brokers = _brokers(brokers, clock_ms, self._bundles, None)
        self._usage: tuple[Mapping[str, float], Floats] | None = None  # by the weights of most
        self._have_topic_shares = columns["topic_shares"].null_count < len(bundles)

    def view(self, cluster: str, weights: Mapping[str, float]) -> ClusterView | None:
        """Return the view of a cluster; None: it is none of those that are joined.

        `weights`: of resources.
        """
        number = self._number.get(cluster)
        if number is None:
            return None
        if self._usage is None:
            self._usage = weights, max_weighted_usage(self._brokers.resources, weights)
        known_weights, usage = self._usage
        rows, mine = self._broker_rows[number], self._bundle_rows[number]
        resources = {
            name: (used[rows], limit[rows])
            for name, (used, limit) in self._brokers.resources.items()
        }
        same = known_weights == weights
        brokers = _slice_rows(
            self._brokers,
            rows,
            usage=usage[rows] if same else max_weighted_usage(resources, weights),
            resources=resources,
            weights=weights,
        )
        bundles = _slice_rows(self._bundles, mine, owner=self._owner[mine])
        shares = NO_TOPIC_SHARES
        if self._have_topic_shares:
            shares = _topic_shares([self._shards[cluster]], [np.arange(len(bundles))])
        return ClusterView(cluster, self._now_ms, brokers, bundles, topic_shares=shares)


def _row_ranges(counts: Sequence[int]) -> tuple[Ints, list[slice]]:
    """Return where each part's rows begin, with the number of all at the end, and its rows."""
    begins = [0, *accumulate(counts)]
    return np.array(begins, np.int64), [slice(*ends) for ends in pairwise(begins)]


def _require_numbers(table: pa.Table, except_for: Sequence[str] = ()) -> None:
    """Raise ArrowInvalid if a column of integers has a null: NumPy makes floats of them all."""
    for field, column in zip(table.schema, table.columns, strict=True):
        is_integer = pa.types.is_integer(field.type) and field.name not in except_for
        if is_integer and column.null_count:
            raise pa.ArrowInvalid(f"the column {field.name} lacks a value")


Part = TypeVar("Part", Brokers, Bundles)


def _slice_rows(columns: Part, rows: slice, **own: Any) -> Part:
    """Return these rows of all columns, except of those that are given."""
    for name in columns.__slots__:
        if name not in own:
            column = getattr(columns, name)
            own[name] = (
                Rates(*(rate[rows] for rate in column.columns))
                if isinstance(column, Rates)
                else column[rows]
            )
    return type(columns)(**own)


def _topic_shares(shards: Sequence[Shard], rows: Sequence[Ints]) -> TopicShares:
    """Return the topics' shares that the shards hold; `rows`: of each shard's bundles."""
    found, packed = [], []
    for shard, own in zip(shards, rows, strict=True):
        column = shard.bundles["topic_shares"]
        if column.null_count < len(column):
            found.append(own[column.is_valid().to_numpy()])
            packed += column.drop_null().to_pylist()
    return TopicShares.from_packed(
        np.concatenate(found) if found else np.empty(0, np.int64), packed
    )


def _clocks(partitions: pa.ChunkedArray, times: Mapping[int, int], now_ms: int) -> Ints:
    """Return the time (ms) up to which each broker's partition has been read."""
    rows = (partitions.fill_null(-1) if partitions.null_count else partitions).to_numpy()
    return np.array([times.get(partition, now_ms) for partition in rows.tolist()], np.int64)


def _all_brokers(shards: Sequence[Shard]) -> pa.Table:
    """Return the brokers of the cluster, from any shard, as every shard gets all their records.

    If the shards differ because one has failed, the latest row of each broker counts.
    """
    first, *others = (shard.brokers for shard in shards)
    if all(brokers.equals(first) for brokers in others):
        return first
    brokers = pa.concat_tables([first, *others]).sort_by(
        [("name", "ascending"), ("seen_ms", "descending")]
    )
    names = brokers["name"].to_numpy(zero_copy_only=False)
    is_latest = np.append(True, names[1:] != names[:-1])[: len(names)]
    return brokers.filter(pa.array(is_latest))


def _merged(parts: Sequence[NDArray[T]], places: Ints) -> NDArray[T]:
    """Return one column of all bundles from each shard's column and the bundles' places in these.

    To read each shard from its beginning to its end is quicker than to write into gaps.
    """
    return np.concatenate(parts)[places]


def _bools(column: pa.ChunkedArray) -> Bools:
    """Return a column of truth values as an array."""
    result: Bools = column.to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)
    return result


def _texts(column: pa.ChunkedArray) -> tuple[str, ...]:
    """Return a column of texts, with "" for null."""
    return tuple(column.fill_null("").to_pylist())


def _brokers(
    brokers: pa.Table, clock_ms: Ints, bundles: Bundles, weights: Mapping[str, float] | None
) -> Brokers:
    """Return the brokers of a view, with sums over their bundles; all of them alive.

    `weights`: None: they are not known yet, and the usages are 0.
    """
    resources = {
        name: (brokers[f"{name}_usage"].to_numpy(), brokers[f"{name}_limit"].to_numpy())
        for name in RESOURCES
    }
    return Brokers(
        names=tuple(brokers["name"].to_pylist()),
        usage=(
            np.zeros(len(brokers)) if weights is None else max_weighted_usage(resources, weights)
        ),
        resources=resources,
        latest=Rates.from_table(brokers, "latest"),
        short=bundles.short.sums_by(bundles.owner, len(brokers)),
        long=bundles.long.sums_by(bundles.owner, len(brokers)),
        topics=brokers["topics"].to_numpy(),
        bundles=brokers["bundles"].to_numpy(),
        load_ema=brokers["load_ema"].to_numpy(),
        throughput_ema=brokers["throughput_ema_bytes_per_s"].to_numpy(),
        seen_ms=brokers["seen_ms"].to_numpy(),
        clock_ms=clock_ms,
        reported_ms=brokers["reported_ms"].to_numpy(),
        heartbeats=_bools(brokers["heartbeats"]),
        left=_bools(brokers["left"]),
        sampled=_bools(brokers["sampled"]),
        alive=np.ones(len(brokers), np.bool_),
        speaking=np.ones(len(brokers), np.bool_),
        persistent_topics=_bools(brokers["persistent_topics"]),
        non_persistent_topics=_bools(brokers["non_persistent_topics"]),
        versions=_texts(brokers["version"]),
        load_managers=_texts(brokers["load_manager"]),
        weights=weights or {},
        start_ms=brokers["start_timestamp_ms"].to_numpy(),
    )


def _bundles(
    names: pa.StringArray, owner: NDArray[np.int32], column: Callable[[str], pa.ChunkedArray]
) -> Bundles:
    """Return the bundles of a view; `column`: name → that column in the order of names."""
    latest, short, long = (
        Rates(*(column(f"{span}_{value}").to_numpy() for value in RATE_COLUMNS))
        for span in ("latest", "short", "long")
    )
    return Bundles(
        names=names,
        owner=owner,
        owner_since_ms=column("owner_since_ms").to_numpy(),
        reported_ms=column("reported_ms").to_numpy(),
        gained=_bools(column("gained")),
        appeared=_bools(column("appeared")),
        in_flight=np.zeros(len(names), np.bool_),
        system=_bools(column("system")),
        topics=column("topics").to_numpy(),
        sessions=column("producers").to_numpy() + column("consumers").to_numpy(),
        cache_bytes=column("cache_size_bytes").to_numpy(),
        short_samples=column("short_samples").to_numpy(),
        long_samples=column("long_samples").to_numpy(),
        latest=latest,
        short=short,
        long=long,
    )
