"""The views of the clusters whose rounds one task makes, from the blocks of their shards."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.core.averages.cluster_view import (
    JoinedViews,
    NameOrder,
    may_be_joined,
    name_order,
    view_of,
)
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.view import ClusterView
from lb_stream.store import Store
from lb_stream.stream.averages_ahead import AveragesAhead
from lb_stream.stream.cluster_input import ClusterInput
from lb_stream.stream.shards.block_files import BlockRefs, OpenFiles
from lb_stream.stream.shards.shard_files import read_shard

logger = logging.getLogger(__name__)

JOINED_BUNDLES = 1 << 16
"""Clusters of one shard are read ahead until they have this many bundles together."""


class ClusterViews:
    """Reads the shards of a task's clusters, and makes their views.

    Small clusters are read ahead, and their views share columns. A cluster that can't be read ahead
    is read when its view is asked for, so that its round alone fails. `topic`: of load reports.
    `ahead`: begins to write the averages of large clusters when their shards have been read.
    """

    def __init__(self, blocks: OpenFiles, topic: str, ahead: AveragesAhead | None = None) -> None:
        self._blocks, self._topic, self._ahead = blocks, topic, ahead
        self._shards: dict[str, Shard] = {}  # that have been read ahead
        self._joined: JoinedViews | None = None

    def read_ahead(self, inputs: Iterable[ClusterInput]) -> Iterator[ClusterInput]:
        """Yield the inputs; the shards of the next ones have been read then."""
        portion: list[ClusterInput] = []
        bundles = 0
        for cluster_input in inputs:
            portion.append(cluster_input)
            bundles += self._read(cluster_input)
            if bundles >= JOINED_BUNDLES:
                self._join(portion)
                yield from portion
                portion, bundles = [], 0
                self._shards, self._joined = {}, None
        self._join(portion)
        yield from portion

    def complete(self, cluster_input: ClusterInput, config: ClusterConfig) -> ClusterView:
        """Return the view of a cluster. `config`: the settings in force.

        Raises RuntimeError while a shard waits for reports, and what `read_shard` raises.
        """
        cluster, weights = cluster_input.cluster, config.balancer.weights
        if self._joined is not None:
            view = self._joined.view(cluster, weights)
            if view is not None:
                return view
        known = self._shards.get(cluster)
        shards = read_shards(self._blocks, cluster_input.blocks) if known is None else [known]
        now_ms = cluster_input.now_ms
        require_complete(shards, now_ms - config.balancer.report_timeout_ms)
        if self._ahead is not None:
            self._ahead.begin(cluster_input, shards)
        times = cluster_input.clock.times(self._topic)
        return cluster_view(cluster, shards, cluster_input.blocks, now_ms, weights, times)

    def _read(self, cluster_input: ClusterInput) -> int:
        """Read a cluster's only shard; return the number of its bundles."""
        if cluster_input.forgotten or len(cluster_input.blocks) != 1:
            return 0
        try:
            shard = read_shard(self._blocks, cluster_input.blocks[0])
        except Exception:
            return 0  # `complete` reads it again, and raises the error in the cluster's round
        self._shards[cluster_input.cluster] = shard
        return len(shard.bundles)

    def _join(self, portion: Sequence[ClusterInput]) -> None:
        """Join the small shards that have been read, if they have the same clock."""
        clock = portion[0].clock if portion else None
        small = {
            cluster_input.cluster: shard
            for cluster_input in portion
            if (shard := self._shards.get(cluster_input.cluster)) is not None
            and cluster_input.clock is clock
            and may_be_joined(shard)
        }
        if clock is None or len(small) < 2:
            return
        try:
            self._joined = JoinedViews(small, clock.now_ms, clock.times(self._topic))
        except Exception:
            logger.warning(
                "the views of %d clusters are made one by one, as one is damaged",
                len(small),
                exc_info=True,
            )


def read_shards(checkpoint: Store | OpenFiles, blocks: Iterable[BlockRefs]) -> list[Shard]:
    """Return a cluster's shards. Raises FileNotFoundError."""
    return [read_shard(checkpoint, references) for references in blocks]


def cluster_view(
    cluster: str,
    shards: Sequence[Shard],
    blocks: Iterable[BlockRefs],
    now_ms: int,
    weights: Mapping[str, float],
    times: Mapping[int, int],
) -> ClusterView:
    """Return a round's view of its cluster's shards.

    `blocks`: those that the shards were read from. `weights`: of resources, as in force. `times`:
    partition of the reports' topic → latest append time.
    """
    order = None
    if len(shards) > 1:
        order = cached_order(
            tuple(names for _, names, _ in blocks), [shard.bundles["name"] for shard in shards]
        )
    return view_of(cluster, shards, now_ms, weights, order, times)


def require_complete(shards: Sequence[Shard], since_ms: int) -> None:
    """Raise RuntimeError while a shard lacks the report of a broker heard after `since_ms`.

    A report goes to every shard. A shard that lacks a broker's report has begun anew, and its
    bundles of that broker seem to be unassigned.
    """
    if len(shards) < 2:
        return
    reported = [_recent_reporters(shard, since_ms) for shard in shards]
    everywhere = set.intersection(*reported)
    if waiting := sorted(set.union(*reported) - everywhere):
        more = f" and {len(waiting) - 5} others" if len(waiting) > 5 else ""
        raise RuntimeError(
            "a shard has begun anew, and its bundles are not known before these brokers report: "
            f"{', '.join(waiting[:5])}{more}"
        )


def _recent_reporters(shard: Shard, since_ms: int) -> set[str]:
    """Return the brokers that have reported to the shard, and were heard after `since_ms`."""
    brokers = shard.brokers
    has_report = pc.greater(brokers["reported_ms"], 0)
    is_recent = pc.greater(brokers["seen_ms"], since_ms)
    return set(brokers["name"].filter(pc.and_(has_report, is_recent)).to_pylist())


_orders: OrderedDict[tuple[str, ...], NameOrder] = OrderedDict()
_MAX_ORDERS = 4


def cached_order(blocks: tuple[str, ...], names: list[pa.ChunkedArray]) -> NameOrder:
    """Return the order of the names of several shards, from the cache if possible.

    `blocks`: references to the names' blocks, which never change. Sorting 1,000,000 takes 1 s.
    """
    order = _orders.pop(blocks, None) or name_order(names)
    _orders[blocks] = order
    while len(_orders) > _MAX_ORDERS:
        _orders.popitem(last=False)
    return order
