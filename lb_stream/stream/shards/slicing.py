"""The number of a cluster's shards, and the parts of `bundle_averages` that they write."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray

from lb_stream.stream.rows import FigureFile
from lb_stream.stream.shards.block_files import BlockRefs
from lb_stream.stream.shards.directory import NEW, ShardMap
from lb_stream.stream.shards.history import Slot, next_slot

TABLE_PARTS = 16
"""Number of parts that clusters of one shard share; each shard of a larger cluster has its own."""


PartFiles = Mapping[str, Mapping[str, FigureFile]]
"""Part of `bundle_averages` → table → the file with the part's rows."""


@dataclass(frozen=True, slots=True)
class ClusterBlocks:
    """The blocks of a cluster's shards after a batch; empty if the cluster was forgotten.

    `sampled`: the batch has a new sample of the cluster. `bundles`: their number; None: not known.
    `error`: the cluster's round has failed. `confirmed`: more than one report of one broker has
    been heard of it; False: that isn't known. `waits`: the next round needs a record.
    `missing_rosters`: brokers whose columnar reports could not be read without their rosters or
    bases. `part_files`: the parts of `bundle_averages` that are written already.
    """

    now_ms: int
    blocks: tuple[BlockRefs, ...]
    sampled: bool
    bundles: int | None = None
    error: bool = False
    confirmed: bool = False
    waits: bool = False
    missing_rosters: tuple[str, ...] = ()
    part_files: PartFiles = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether a shard has no blocks: it has never been folded, or could not be resharded."""
        return any("" in references for references in self.blocks)


def history_slot(before: ShardMap, after: ClusterBlocks, resolution_ms: int) -> Slot | None:
    """Return the slot of the cluster's history that begins with this batch.

    None: no slot begins, or the batch has no new sample.
    """
    if not after.sampled or after.failed:
        return None
    return next_slot(before.history_ms, after.now_ms, resolution_ms)


def next_shard_map(
    before: ShardMap,
    after: ClusterBlocks,
    shard_bundles: int,
    resolution_ms: int = 0,
    averages_written: bool = True,
) -> ShardMap:
    """Return a cluster's shard map in the next batch.

    After a failure it is that of this batch, so that resharding is tried again. `shard_bundles`:
    bundles of one shard. `resolution_ms`: length of a slot of history; 0: there is no history.
    `averages_written`: this batch writes `bundle_averages`.
    """
    unchanged = after.blocks == before.blocks and before.since_ms is not None and not after.error
    since_ms = before.since_ms if unchanged else after.now_ms
    new_ms = after.now_ms if before is NEW else before.new_ms
    if after.confirmed:
        new_ms = None
    if after.failed:
        return replace(
            before,
            blocks=_blocks_after_failure(before, after),
            since_ms=since_ms,
            leaving=False,
            new_ms=new_ms,
            waits=False,
        )
    shards = len(after.blocks)
    if after.bundles is not None:
        shards = wanted_shards(after.bundles, shards, shard_bundles)
    slot_begins = history_slot(before, after, resolution_ms) is not None
    history_ms = after.now_ms if slot_begins else before.history_ms
    is_behind = after.sampled or before.averages_behind
    averages_ms = after.now_ms if is_behind and averages_written else before.averages_ms
    return ShardMap(
        shards,
        after.blocks,
        since_ms,
        asked=before.asked,
        history_ms=history_ms,
        new_ms=new_ms,
        waits=after.waits,
        averages_ms=averages_ms,
        averages_behind=is_behind and not averages_written,
    )


def _blocks_after_failure(before: ShardMap, after: ClusterBlocks) -> tuple[tuple[str, ...], ...]:
    """Return references to what the shards of a cluster have, some of which have failed.

    The state of the others names new blocks, whose files must stay. A cluster that could not be
    resharded begins from its old blocks again.
    """
    if len(before.blocks) != len(after.blocks):
        return before.blocks
    return tuple(
        new if all(new) else old for old, new in zip(before.blocks, after.blocks, strict=True)
    )


def wanted_shards(bundles: int, shards: int, shard_bundles: int) -> int:
    """Return the number of shards for this number of bundles: a power of two.

    `shards`: the present number. It stays while a shard has between 1/4 and 3/2 of `shard_bundles`
    on average.
    """
    too_few = 2 * bundles > 3 * shard_bundles * shards
    too_many = 4 * bundles < shard_bundles * shards
    if not (too_few or too_many):
        return shards
    needed: int = -(-bundles // shard_bundles)
    return 1 << max(needed - 1, 0).bit_length()


def name_hashes(names: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the CRC-32 of each bundle name.

    Modulo the number of shards, a power of two, it is the number of the bundle's shard.
    """
    return np.fromiter(map(zlib.crc32, map(str.encode, names.to_pylist())), np.int64, len(names))


def table_part(cluster: str, shard: int, shards: int) -> str:
    """Return the part of `bundle_averages` with a shard's bundles; it is rewritten as a whole."""
    if shards > 1:
        return f"{cluster}.{shard}"
    return f"{zlib.crc32(cluster.encode()) % TABLE_PARTS:02d}"


class DueShard(NamedTuple):
    """A shard whose bundles a batch writes to the tables.

    `slot`: of the cluster's history, if one begins.
    """

    cluster: str
    shard: int
    now_ms: int
    blocks: BlockRefs
    slot: Slot | None = None


Parts = dict[str, list[DueShard]]
"""Part of the table → each shard in it."""


def _has_left_parts(before: ShardMap, after: ClusterBlocks) -> bool:
    """Return whether the cluster has been resharded or forgotten, and so has left its old parts."""
    return (before.is_resharded or not after.blocks) and not after.failed


def averages_written_ms(directory: Mapping[str, ShardMap]) -> int | None:
    """Return the time of the last batch that wrote `bundle_averages`; None: there was none."""
    times = (found.averages_ms for found in directory.values() if found.averages_ms is not None)
    return max(times, default=None)


def is_interval_over(written_ms: int | None, now_ms: int, interval_ms: int) -> bool:
    """Return whether no batch has written `bundle_averages` for `interval_ms`.

    `written_ms`: time of the last one that did.
    """
    return written_ms is None or not written_ms <= now_ms < written_ms + interval_ms


@dataclass(frozen=True, slots=True)
class LastWritten:
    """When tables got their last rows: what tasks need to know to write those that are due.

    `averages_ms`: time of the last batch that wrote `bundle_averages`. `history_ms`: of each
    cluster of several shards, time of the last batch that added to its history.
    """

    averages_ms: int | None
    history_ms: Mapping[str, int | None]

    @staticmethod
    def from_directory(directory: Mapping[str, ShardMap]) -> LastWritten:
        """Return what the directory of a batch says."""
        large = {name: found.history_ms for name, found in directory.items() if found.shards > 1}
        return LastWritten(averages_written_ms(directory), large)


def are_averages_due(
    directory: Mapping[str, ShardMap], clusters: Mapping[str, ClusterBlocks], interval_ms: int
) -> bool:
    """Return whether a batch writes what `bundle_averages` lacks.

    That is so when no batch has done it for `interval_ms`, and when a cluster leaves its parts: no
    bundle may be in two parts. It follows from the directory, so it is the same when the batch runs
    again.
    """
    now_ms = max((after.now_ms for after in clusters.values()), default=0)
    if is_interval_over(averages_written_ms(directory), now_ms, interval_ms):
        return True
    return any(
        _has_left_parts(directory.get(cluster, NEW), after) for cluster, after in clusters.items()
    )


def history_parts(
    directory: Mapping[str, ShardMap], clusters: Mapping[str, ClusterBlocks], resolution_ms: int
) -> Parts:
    """Return the shards whose history gets rows in a batch that doesn't write `bundle_averages`."""
    parts = due_parts(directory, clusters, resolution_ms)
    begun = {
        part: [entry for entry in entries if entry.slot is not None]
        for part, entries in parts.items()
    }
    return {part: entries for part, entries in begun.items() if entries}


def due_parts(
    directory: Mapping[str, ShardMap],
    clusters: Mapping[str, ClusterBlocks],
    resolution_ms: int = 0,
) -> Parts:
    """Return the parts of `bundle_averages` that lack something, with all their shards.

    They include the parts that a resharded or forgotten cluster has left. `directory`: the shard
    maps of the batch. `resolution_ms`: as for `next_shard_map`.
    """
    due: set[str] = set()
    content: Parts = {}
    # The bundles of clusters that rest are in the parts of others.
    now_ms = max((after.now_ms for after in clusters.values()), default=0)
    for cluster, shard_map in directory.items():
        if shard_map.rests and cluster not in clusters:
            (brokers, names, values), part = shard_map.blocks[0], table_part(cluster, 0, 1)
            rest = DueShard(cluster, 0, now_ms, (brokers, names, values))
            content.setdefault(part, []).append(rest)
    for cluster, after in sorted(clusters.items()):
        before = directory.get(cluster, NEW)
        # The shards of each part after this batch, due or not.
        shards = len(after.blocks)
        parts = [table_part(cluster, shard, shards) for shard in range(shards)]
        slot = history_slot(before, after, resolution_ms)
        for shard, (part, blocks) in enumerate(zip(parts, after.blocks, strict=True)):
            entry = DueShard(cluster, shard, after.now_ms, blocks, slot)
            content.setdefault(part, []).append(entry)
        # The parts that have changed.
        leaves = _has_left_parts(before, after)
        if leaves or ((after.sampled or before.averages_behind) and not after.failed):
            due.update(parts)
            old = len(before.blocks) if leaves else 0
            due.update(table_part(cluster, shard, old) for shard in range(old))
    whole = {
        part: sorted(entry for entry in content.get(part, []) if all(entry.blocks)) for part in due
    }
    return dict(sorted(whole.items()))
