"""Records that later ones refer to, in files of the checkpoint: rosters and bases.

The decoder keeps no state, and its tasks run in several processes. So the task that reads such a
record writes it as a file, under a name that follows from broker, partition and digest; tasks of
later batches find it there. A process keeps those that it has used.

A report may use a record of an earlier batch, or one that its own task has read before it. So a
batch that runs again takes and rejects the same records, although the first run has left its files.

Files are not synced, which would take some milliseconds each: what a power cut takes away counts as
unknown, and the job asks for it.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, TypeVar

from lb_stream.contracts.columnar import digest_of
from lb_stream.store import Store
from lb_stream.stream.records import RecordRejected
from lb_stream.stream.report_names import NamesCache
from lb_stream.stream.rows import RecordPosition

MAX_NEW_BYTES = 256 << 20
"""Bytes of one kind that a task keeps: whoever makes up records fills no disk in one batch."""
REFRESH_MS = 3_600_000
"""The age from which a record that is sent again gets a new file: old files are deleted."""
RETENTION_MS = 86_400_000
"""How long the file of a record is kept that nobody sends again."""

_HEADER = struct.Struct("<qI")
"""What precedes the record's bytes in a file: the batch that took it, and the CRC-32 of its number.

A file that a crash has cut off, or left empty, is found out by its digest.
"""

Content = TypeVar("Content", bound=Sized)
"""A record as it was read; its length is the number of its rows."""


@dataclass(frozen=True, slots=True)
class Kept(Generic[Content]):
    """A record, and the batch that took it first."""

    content: Content
    batch_id: int

    def __len__(self) -> int:
        return len(self.content)


Cache = NamesCache[tuple[Store | None, str], Kept[Content]]
"""The records that a process keeps, by folder and file."""


@dataclass(frozen=True, slots=True)
class RecordKind(Generic[Content]):
    """A kind of records that others refer to.

    `field`: of those that refer to it. `expected`: what is expected there. `folder`: of the
    checkpoint. `parse`: makes a record's content of the value in its file. `most_cached`: rows that
    a process keeps, in `cache`.
    """

    field: str
    expected: str
    folder: str
    parse: Callable[[bytes], Content]
    most_cached: int
    cache: Cache[Content]

    @staticmethod
    def of(
        field: str,
        expected: str,
        folder: str,
        parse: Callable[[bytes], Content],
        most_cached: int,
    ) -> RecordKind[Content]:
        """Return a kind of which this process keeps nothing yet."""
        return RecordKind(field, expected, folder, parse, most_cached, NamesCache(most_cached))


@dataclass(slots=True)
class RecordFiles(Generic[Content]):
    """The records of one kind that a decoding task knows.

    `checkpoint`: None: they stay in this object. `_own`: file → offset of the first such record
    that this task has read.
    """

    kind: RecordKind[Content]
    checkpoint: Store | None
    batch_id: int
    _cache: Cache[Content] = field(init=False)
    _own: dict[str, int] = field(default_factory=dict)
    _new_bytes: int = 0

    def __post_init__(self) -> None:
        has_files = self.checkpoint is not None
        self._cache = self.kind.cache if has_files else NamesCache(self.kind.most_cached)

    def take(
        self,
        cluster: str,
        broker: str,
        value: bytes,
        position: RecordPosition,
        parse: Callable[[], Content],
    ) -> bool:
        """Keep a record; return False if the batch has too many of them. Raises as `parse`.

        `parse`: makes the record's content of its value, which nobody has checked yet.
        """
        name = file_name(cluster, broker, digest_of(value), position)
        if name in self._own:
            self._own[name] = min(self._own[name], position["offset"])
            return True
        self._new_bytes += len(value)
        if self._new_bytes > MAX_NEW_BYTES:
            return False
        kept = self._find(name)
        if kept is None:
            content = parse()
            self._write(name, value, self.batch_id)
            self._cache.put((self.checkpoint, name), Kept(content, self.batch_id))
        else:
            self._refresh(name, value, kept.batch_id)
        self._own[name] = position["offset"]
        return True

    def require(self, cluster: str, broker: str, digest: str, position: RecordPosition) -> Content:
        """Return the record that another one refers to.

        Raises RecordRejected if that one may not use it.
        """
        name = file_name(cluster, broker, digest, position)
        kept, offset = self._find(name), position["offset"]
        if kept is not None and (
            kept.batch_id < self.batch_id or self._own.get(name, offset) < offset
        ):
            return kept.content
        raise RecordRejected(self.kind.field, digest, self.kind.expected)

    def _find(self, name: str) -> Kept[Content] | None:
        """Return a record that this process keeps, or that a file has."""
        kept = self._cache.get((self.checkpoint, name))
        if kept is None and self.checkpoint is not None:
            kept = self._read_file(self.checkpoint, name)
            if kept is not None:
                self._cache.put((self.checkpoint, name), kept)
        return kept

    def _read_file(self, checkpoint: Store, name: str) -> Kept[Content] | None:
        """Return the record in a file; None: there is none, or it is damaged."""
        path = f"{self.kind.folder}/{name}"
        if checkpoint.stat(path) is None:
            return None
        try:
            file = checkpoint.get(path).to_pybytes()
        except FileNotFoundError:
            return None
        if len(file) < _HEADER.size:
            return None
        batch_id, _ = _HEADER.unpack_from(file)
        value = file[_HEADER.size :]
        if file[: _HEADER.size] != _header(batch_id) or not name.endswith(f"-{digest_of(value)}"):
            return None
        return Kept(self.kind.parse(value), batch_id)

    def _write(self, name: str, value: bytes, batch_id: int) -> None:
        if self.checkpoint is not None:
            path = f"{self.kind.folder}/{name}"
            self.checkpoint.put(path, _header(batch_id) + value, durable=False)

    def _refresh(self, name: str, value: bytes, batch_id: int) -> None:
        """Give the file of a record that is sent again a new time, if it is old."""
        if self.checkpoint is None:
            return
        found = self.checkpoint.stat(f"{self.kind.folder}/{name}")
        if found is None or time.time_ns() // 1_000_000 - found.changed_ms > REFRESH_MS:
            self._write(name, value, batch_id)


def file_name(cluster: str, broker: str, digest: str, position: RecordPosition) -> str:
    """Return the name of a record's file.

    Offsets count in one partition, so a record does not count for reports in another one.
    """
    place = f"{position['topic']}/{position['partition']}/{cluster}/{broker}"
    return f"{blake2b(place.encode(errors='replace'), digest_size=8).hexdigest()}-{digest}"


def _header(batch_id: int) -> bytes:
    return _HEADER.pack(batch_id, zlib.crc32(str(batch_id).encode()))
