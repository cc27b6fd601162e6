"""Records that later ones refer to, in files of the checkpoint: rosters and bases.

The decoder keeps no state, and its tasks run in several processes. So the task that reads such a
record writes it as a file, under a name that follows from broker, partition and digest; tasks of
later batches find it there. A process keeps those that it has used.

A report may use a record of an earlier batch, or one that its own task has read before it. So a
batch that runs again takes and rejects the same records, although the first run has left its files.
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


@dataclass(slots=True)
class RecordFiles(Generic[Content]):
    """The records of one kind that a decoding task knows.

    `folder`: of the checkpoint; None as `checkpoint`: the records stay in `cache`. `parse`: makes a
    record's content of the value in its file. `_own`: file → offset of the first such record that
    this task has read.
    """

    folder: str
    parse: Callable[[bytes], Content]
    cache: Cache[Content]
    checkpoint: Store | None
    batch_id: int
    _own: dict[str, int] = field(default_factory=dict)
    _new_bytes: int = 0

    def take(
        self, name: str, value: bytes, position: RecordPosition, parse: Callable[[], Content]
    ) -> bool:
        """Keep a record; return False if the batch has too many of them. Raises as `parse`.

        `name`: its file's, as `file_name` gives it. `parse`: makes the record's content of its
        value, which nobody has checked yet.
        """
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
            self.cache.put((self.checkpoint, name), Kept(content, self.batch_id))
        else:
            self._refresh(name, value, kept.batch_id)
        self._own[name] = position["offset"]
        return True

    def find_usable(self, name: str, position: RecordPosition) -> Content | None:
        """Return the record that a report refers to; None: the report may use none."""
        kept = self._find(name)
        if kept is None:
            return None
        is_usable = (
            kept.batch_id < self.batch_id
            or self._own.get(name, position["offset"]) < position["offset"]
        )
        return kept.content if is_usable else None

    def _find(self, name: str) -> Kept[Content] | None:
        """Return a record that this process keeps, or that a file has."""
        kept = self.cache.get((self.checkpoint, name))
        if kept is None and self.checkpoint is not None:
            kept = self._read_file(self.checkpoint, name)
            if kept is not None:
                self.cache.put((self.checkpoint, name), kept)
        return kept

    def _read_file(self, checkpoint: Store, name: str) -> Kept[Content] | None:
        """Return the record in a file; None: there is none, or it is damaged."""
        path = f"{self.folder}/{name}"
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
        return Kept(self.parse(value), batch_id)

    def _write(self, name: str, value: bytes, batch_id: int) -> None:
        if self.checkpoint is not None:
            self.checkpoint.put(f"{self.folder}/{name}", _header(batch_id) + value)

    def _refresh(self, name: str, value: bytes, batch_id: int) -> None:
        """Give the file of a record that is sent again a new time, if it is old."""
        if self.checkpoint is None:
            return
        found = self.checkpoint.stat(f"{self.folder}/{name}")
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
