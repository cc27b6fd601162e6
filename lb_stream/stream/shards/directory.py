"""The directory of a batch: the known clusters, and how each is cut into shards.

The driver writes it, the decoding tasks read it. Each batch has a small JSON file of its own in the
checkpoint, so a batch that runs again reads the same directory. The file's name has the epoch of
the job that wrote it, so that no job reads a directory of a fenced job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from lb_stream.contracts.base import canonical_json
from lb_stream.core.model.memory import Pending
from lb_stream.store import Store
from lb_stream.stream.shards.block_files import files_of

FOLDER = "lb-shards"


class ShardMap(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How one cluster is cut into shards in a batch.

    `shards`: their number in this batch. `blocks`: references to each shard's blocks (brokers,
    names, values) after the last batch, in the shards' order. `since_ms`: since when the cluster is
    silent and its blocks are the same. `leaving`: the cluster is forgotten unless this batch has a
    record of it. `asked`: pending decision → the asked broker, and the bundle. `history_ms`: time
    of the last batch that added to the cluster's history. `new_ms`: since when the cluster is
    known, while only one report of one broker has been heard of it; None: it is confirmed. `waits`:
    its last round had nothing to do, nor has the next one without a record.
    `averages_ms`: time of the last batch that wrote the cluster's rows of `bundle_averages`.
    `averages_behind`: the table lacks what later batches have changed.
    """

    shards: int = 1
    blocks: tuple[tuple[str, ...], ...] = ()
    since_ms: int | None = None
    leaving: bool = False
    asked: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    history_ms: int | None = None
    new_ms: int | None = None
    waits: bool = False
    averages_ms: int | None = None
    averages_behind: bool = False

    @property
    def is_resharded(self) -> bool:
        """Whether this batch cuts the cluster into another number of shards than the last one."""
        return bool(self.blocks) and len(self.blocks) != self.shards

    @property
    def is_stateless(self) -> bool:
        """Whether the cluster had one shard and keeps it: such a shard needs no state."""
        return self.shards == len(self.blocks) == 1 and all(self.blocks[0]) and not self.leaving

    @property
    def rests(self) -> bool:
        """Whether a batch without a record of the cluster leaves it out: it is unconfirmed.

        It stays until `bundle_averages` has its rows.
        """
        return (
            self.waits
            and self.new_ms is not None
            and self.is_stateless
            and not self.averages_behind
        )

    @property
    def inherited(self) -> str | None:
        """The blocks from which the shards begin, as JSON; None: each begins from its state.

        Shards begin from blocks if their number has just changed, or if there is only one.
        """
        if self.is_resharded or (self.blocks and self.shards == 1):
            return canonical_json(self.blocks)
        return None


NEW = ShardMap()
"""The shard map of a cluster that is not known yet."""

_to_json = msgspec.json.Encoder(order="sorted").encode
_from_json = msgspec.json.Decoder(dict[str, ShardMap]).decode


class _PendingMemory(msgspec.Struct):
    """The part of a cluster's memory that is read after every round."""

    pending: tuple[Pending, ...] = ()


_read_memory = msgspec.json.Decoder(_PendingMemory).decode


def read_asked(memory: str) -> dict[str, tuple[str, str]]:
    """Return pending decision → the asked broker, and the bundle, from a memory's JSON.

    Empty if the memory can't be read: then the cluster's rounds fail with that error.
    """
    try:
        pending = _read_memory(memory).pending
    except msgspec.DecodeError:
        return {}
    return {decision.decision_id: (decision.asked or "", decision.bundle) for decision in pending}


class _DirectoryFile(NamedTuple):
    """A directory's batch, epoch and file name."""

    batch_id: int
    epoch: int
    name: str


def write_directory(
    checkpoint: Store, batch_id: int, epoch: int, clusters: Mapping[str, ShardMap]
) -> bool:
    """Write the directory of a batch. Returns False if this job has written it before."""
    return checkpoint.put_if_absent(_path(batch_id, epoch), _to_json(clusters))


def read_directory(checkpoint: Store, batch_id: int, epoch: int) -> dict[str, ShardMap]:
    """Return the directory that this job, or else the last earlier job, wrote for a batch.

    Raises FileNotFoundError when there is none.
    """
    try:
        return _read(checkpoint, _path(batch_id, epoch))
    except FileNotFoundError:
        earlier = [
            file
            for file in _list_directories(checkpoint)
            if file.batch_id == batch_id and file.epoch < epoch
        ]
        if not earlier:
            raise
        found = _read(checkpoint, f"{FOLDER}/{max(earlier).name}")
        # This job may have other settings: each cluster has a round with them.
        return {name: replace(shard_map, waits=False) for name, shard_map in found.items()}


AccessFile = Literal["signers", "rights"]
"""A file of `[security]` that counts in a batch. A record that was taken once is taken again."""


def write_access_file(checkpoint: Store, batch_id: int, name: AccessFile, text: str) -> None:
    """Write such a file as it counts in a batch, unless the batch has one.

    The first one counts for every job that runs the batch.
    """
    checkpoint.put_if_absent(_access_path(batch_id, name), text.encode())


def read_access_file(checkpoint: Store, batch_id: int, name: AccessFile) -> str:
    """Return such a file as it counts in a batch. Raises FileNotFoundError."""
    return str(checkpoint.get(_access_path(batch_id, name)).to_pybytes(), "utf-8")


def _access_path(batch_id: int, name: AccessFile) -> str:
    return f"{FOLDER}/{batch_id}.{name}"


def _path(batch_id: int, epoch: int) -> str:
    return f"{FOLDER}/{batch_id}-e{epoch}.json"


def _list_directories(checkpoint: Store) -> list[_DirectoryFile]:
    """Return all directories of the checkpoint; other files of the folder are left out."""
    found = (re.fullmatch(r"(\d+)-e(\d+)\.json", entry.name) for entry in checkpoint.list(FOLDER))
    return [_DirectoryFile(int(name[1]), int(name[2]), name[0]) for name in found if name]


def _read(checkpoint: Store, path: str) -> dict[str, ShardMap]:
    return _from_json(checkpoint.get(path))


def delete_directories(checkpoint: Store, oldest_batch: int) -> set[str]:
    """Delete the directories of batches before `oldest_batch`.

    Returns the block files that the remaining directories name.
    """
    for entry in checkpoint.list(FOLDER):
        batch, _, name = entry.name.partition(".")
        if name in get_args(AccessFile) and batch.isdecimal() and int(batch) < oldest_batch:
            checkpoint.delete(f"{FOLDER}/{entry.name}")
    used: set[str] = set()
    for file in _list_directories(checkpoint):
        path = f"{FOLDER}/{file.name}"
        if file.batch_id < oldest_batch:
            checkpoint.delete(path)
            continue
        used.update(
            name
            for shard_map in _read(checkpoint, path).values()
            for references in shard_map.blocks
            for reference in references
            for name in files_of(reference)
        )
    return used


LISTENED_MS = 3_600_000
"""How long the job must have listened before a silence counts.

A live broker reports at least every `report_max_interval_ms` (15 min).
"""
BREAK_MS = 60_000
"""A longer time between two batches is a break: records of that time may still be unread."""


@dataclass(slots=True)
class ListeningTime:
    """The time since which this job has read all records without a break.

    A cluster counts as silent only in this time: before, its records may not have been read.
    """

    since_ms: int | None = None
    last_ms: int = 0

    def record_batch(self, now_ms: int, caught_up: bool) -> None:
        """Note that a batch has been read."""
        if not caught_up:
            self.since_ms = None
        elif self.since_ms is None or now_ms - self.last_ms > BREAK_MS:
            self.since_ms = now_ms
        self.last_ms = max(self.last_ms, now_ms)

    def silent_clusters(
        self, clusters: Mapping[str, ShardMap], now_ms: int, retention_ms: int
    ) -> list[str]:
        """Return the clusters that have been silent for `retention_ms`; none if that is 0."""
        if not self._has_listened(now_ms, retention_ms):
            return []
        return [
            name
            for name, shard_map in clusters.items()
            if shard_map.since_ms is not None and now_ms - shard_map.since_ms >= retention_ms
        ]

    def unconfirmed_clusters(
        self, clusters: Mapping[str, ShardMap], now_ms: int, expires_ms: int
    ) -> list[str]:
        """Return the clusters that nothing has confirmed for `expires_ms`; none if that is 0."""
        if not self._has_listened(now_ms, expires_ms):
            return []
        return [
            name
            for name, shard_map in clusters.items()
            if shard_map.new_ms is not None and now_ms - shard_map.new_ms >= expires_ms
        ]

    def _has_listened(self, now_ms: int, duration_ms: int) -> bool:
        """Whether the job has listened for so long that a silence of this duration counts."""
        if not duration_ms or self.since_ms is None:
            return False
        return now_ms - self.since_ms >= min(duration_ms, LISTENED_MS)
