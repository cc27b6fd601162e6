"""Which clusters exist and how each is cut into shards, batch by batch: written by the driver, read
by the decoders.

One small JSON file for each batch in the checkpoint, so that a batch that is run again sees what it
saw at first. Its name has the epoch of the job that wrote it: what a job writes that was shut out
and goes on all the same isn't read by its heir.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from lb_stream.contracts.base import canonical_json
from lb_stream.core.model.memory import Pending
from lb_stream.store import Store
from lb_stream.stream.shards.block_files import file_of

FOLDER = "lb-shards"


class ShardMap(msgspec.Struct, frozen=True, gc=False):
    """One cluster's shards.

    `blocks`: references to what each held after the batch before (brokers, names, values), in their
    order.

    `since_ms`: since when they are the same, and nothing has been heard of the cluster. `leaving`:
    unless something is heard of it in this batch, it is forgotten. `asked`: of each decision under
    way, who was asked and about which bundle. `history_ms`: time of the batch that was the last to
    add to the cluster's history.
    """

    shards: int = 1
    blocks: tuple[tuple[str, ...], ...] = ()
    since_ms: int | None = None
    leaving: bool = False
    asked: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    history_ms: int | None = None

    @property
    def before(self) -> str | None:
        """JSON of the blocks, if there were more or fewer of them than there are shards now: each
        must take its part of them."""
        return (
            canonical_json(self.blocks) if self.blocks and len(self.blocks) != self.shards else None
        )

    @property
    def alone(self) -> bool:
        """Whether it had one shard and keeps it: then it needs no state."""
        return self.shards == len(self.blocks) == 1 and all(self.blocks[0]) and not self.leaving

    @property
    def told(self) -> str | None:
        """As `before`, and for an only shard in any case: its blocks are known from here, not from
        a state."""
        return canonical_json(self.blocks) if self.blocks and self.shards == 1 else self.before


NEW = ShardMap()
"""A cluster that nobody has heard of before."""

_to_json = msgspec.json.Encoder(order="sorted").encode
_from_json = msgspec.json.Decoder(dict[str, ShardMap]).decode


class _Remembered(msgspec.Struct):
    """What of a cluster's memory is read after every round."""

    pending: tuple[Pending, ...] = ()


_read_memory = msgspec.json.Decoder(_Remembered).decode


def read_asked(memory: str) -> dict[str, tuple[str, str]]:
    """Of each decision under way in a cluster's memory: who was asked, and about which bundle."""
    try:
        pending = _read_memory(memory).pending
    except msgspec.DecodeError:
        return {}  # its rounds fail, and say so
    return {one.decision_id: (one.asked or "", one.bundle) for one in pending}


def _place_of(name: str) -> tuple[int, int] | None:
    """The batch and the epoch that a file's name tells; None for other files."""
    found = re.fullmatch(r"(\d+)-e(\d+)\.json", name)
    return (int(found[1]), int(found[2])) if found else None


def write_directory(
    checkpoint: Store, batch_id: int, epoch: int, clusters: Mapping[str, ShardMap]
) -> bool:
    """Write down what batch `batch_id` sees.

    What this job has written for it already stays as it is: False then.
    """
    return checkpoint.put_if_absent(_file(batch_id, epoch), _to_json(clusters))


def read_directory(checkpoint: Store, batch_id: int, epoch: int) -> dict[str, ShardMap]:
    """What batch `batch_id` sees: what this job wrote, else the last one before it.

    Raises FileNotFoundError when nobody has.
    """
    try:
        return _read(checkpoint, _file(batch_id, epoch))
    except FileNotFoundError:
        before = [
            (place[1], name)
            for place, name in _directories(checkpoint)
            if place[0] == batch_id and place[1] < epoch
        ]
        if not before:
            raise
        return _read(checkpoint, f"{FOLDER}/{max(before)[1]}")


def _file(batch_id: int, epoch: int) -> str:
    return f"{FOLDER}/{batch_id}-e{epoch}.json"


def _directories(checkpoint: Store) -> list[tuple[tuple[int, int], str]]:
    """Batch and epoch of each file that is there."""
    return [
        (place, entry.name)
        for entry in checkpoint.list(FOLDER)
        if (place := _place_of(entry.name)) is not None
    ]


def _read(checkpoint: Store, name: str) -> dict[str, ShardMap]:
    return _from_json(checkpoint.get(name))


def delete_directories(checkpoint: Store, oldest_batch: int) -> set[str]:
    """Delete the files of batches before `oldest_batch`.

    Returns the block files that the others name.
    """
    used: set[str] = set()
    for (batch, _), name in _directories(checkpoint):
        if batch < oldest_batch:
            checkpoint.delete(f"{FOLDER}/{name}")
        else:
            known = _read(checkpoint, f"{FOLDER}/{name}").values()
            used.update(
                file_of(reference)
                for slices in known
                for block in slices.blocks
                for reference in block
            )
    return used


LISTENED_MS = 3_600_000
"""How long the job must have listened: a living broker reports at least every
`report_max_interval_ms` (15 min)."""
BREAK_MS = 60_000
"""When batches are so far apart, what came in between may not have been read yet."""


@dataclass(slots=True)
class ListeningGap:
    """Since when this job has read what comes, without a break.

    When it didn't, or was behind, nobody's silence means anything.
    """

    since_ms: int | None = None
    last_ms: int = 0

    def record_batch(self, now_ms: int, caught_up: bool) -> None:
        """A batch has been read."""
        if not caught_up:
            self.since_ms = None
        elif self.since_ms is None or now_ms - self.last_ms > BREAK_MS:
            self.since_ms = now_ms
        self.last_ms = max(self.last_ms, now_ms)

    def forgotten(
        self, clusters: Mapping[str, ShardMap], now_ms: int, retention_ms: int
    ) -> list[str]:
        """The clusters that are to be forgotten. `retention_ms` 0: none ever."""
        if (
            not retention_ms
            or self.since_ms is None
            or now_ms - self.since_ms < min(retention_ms, LISTENED_MS)
        ):
            return []
        return [
            name
            for name, slices in clusters.items()
            if slices.since_ms is not None and now_ms - slices.since_ms >= retention_ms
        ]
