"""How many shards a cluster has, and which parts of the table of averages follow from that."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray

from lb_stream.stream.shards.block_files import Blocks
from lb_stream.stream.shards.directory import NEW, ShardMap
from lb_stream.stream.shards.history import Slot, next_slot

TABLE_PARTS = 16
"""Clusters of one shard share this many parts of the table; each shard of a larger one has its
own."""


@dataclass(frozen=True, slots=True)
class ClusterBlocks:
    """Where a cluster's whole view is after a batch; without blocks: it has been forgotten.

    `bundles`: how many there are, None if that isn't known. `error`: its round has failed.
    """

    now_ms: int
    blocks: tuple[Blocks, ...]
    sampled: bool  # there is something new to see
    bundles: int | None = None
    error: bool = False

    @property
    def failed(self) -> bool:
        """A shard has no view: its fold has failed from the beginning, or it could not take over
        what it should."""
        return any("" in blocks for blocks in self.blocks)


def history_slot(before: ShardMap, view: ClusterBlocks, resolution_ms: int) -> Slot | None:
    """The slot of the cluster's history that begins with this batch.

    None: no new one does, or there is nothing new to see.
    """
    return (
        next_slot(before.history_ms, view.now_ms, resolution_ms)
        if view.sampled and not view.failed
        else None
    )


def next_shard_map(
    before: ShardMap, view: ClusterBlocks, shard_bundles: int, resolution_ms: int = 0
) -> ShardMap:
    """How the next batch cuts a cluster into shards.

    After a failure, as this batch did: what was to be handed over still is.

    `resolution_ms`: of the tables of history; 0: there are none.
    """
    same = view.blocks == before.blocks and before.since_ms is not None and not view.error
    since_ms = before.since_ms if same else view.now_ms
    if view.failed:
        return replace(before, since_ms=since_ms, leaving=False)
    shards = len(view.blocks)
    wanted = shards if view.bundles is None else wanted_shards(view.bundles, shards, shard_bundles)
    history_ms = (
        before.history_ms if history_slot(before, view, resolution_ms) is None else view.now_ms
    )
    return ShardMap(wanted, view.blocks, since_ms, asked=before.asked, history_ms=history_ms)


def wanted_shards(bundles: int, shards: int, shard_bundles: int) -> int:
    """A power of two, one for each `shard_bundles`; changed only when the present number is well
    off."""
    fitting = 1 << max(-(-bundles // shard_bundles) - 1, 0).bit_length()
    too_few, too_many = (
        2 * bundles > 3 * shard_bundles * shards,
        4 * bundles < shard_bundles * shards,
    )
    return fitting if too_few or too_many else shards


def name_hashes(names: pa.ChunkedArray) -> NDArray[np.int64]:
    """The CRC-32 of each name: modulo the number of shards, a power of two, it is the bundle's
    shard."""
    return np.fromiter(map(zlib.crc32, map(str.encode, names.to_pylist())), np.int64, len(names))


def table_part(cluster: str, shard: int, shards: int) -> str:
    """Which part of `bundle_averages` holds a shard's bundles: a part is written anew as a
    whole."""
    return (
        f"{cluster}.{shard}" if shards > 1 else f"{zlib.crc32(cluster.encode()) % TABLE_PARTS:02d}"
    )


class DueShard(NamedTuple):
    """One shard whose bundles a batch writes to the tables."""

    cluster: str
    shard: int
    now_ms: int
    blocks: Blocks
    slot: Slot | None = None  # of the cluster's history, if one begins


Parts = dict[str, list[DueShard]]
"""Part of the table → each shard in it."""


def due_parts(
    directory: Mapping[str, ShardMap], views: Mapping[str, ClusterBlocks], resolution_ms: int = 0
) -> Parts:
    """The parts of the table that a batch makes old, with all that belongs in them.

    `directory`: how the batch was sliced.

    A cluster that has just been sliced anew, or forgotten, leaves its old parts. `resolution_ms` as
    in `next_shard_map`.
    """
    due: set[str] = set()
    content: Parts = {}
    for cluster, view in sorted(views.items()):
        shards = len(view.blocks)
        parts = [table_part(cluster, shard, shards) for shard in range(shards)]
        before = directory.get(cluster, NEW)
        slot = history_slot(before, view, resolution_ms)
        for shard, (part, blocks) in enumerate(zip(parts, view.blocks, strict=True)):
            content.setdefault(part, []).append(DueShard(cluster, shard, view.now_ms, blocks, slot))
        leaves = before.before is not None or not view.blocks
        if (view.sampled or leaves) and not view.failed:
            due.update(parts)
            old = len(before.blocks) if leaves else 0
            due.update(table_part(cluster, shard, old) for shard in range(old))
    whole = {part: [entry for entry in content.get(part, []) if all(entry.blocks)] for part in due}
    return dict(sorted(whole.items()))
