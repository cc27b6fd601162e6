"""Rosters: the bundles' names of columnar reports, in files of the checkpoint.

The decoder keeps no state, and its tasks run in several processes. So the task that reads a roster
writes it as a file, under a name that follows from broker, partition and digest; tasks of later
batches find it there. A process keeps the rosters that it has used.

A report may use a roster of an earlier batch, or one that its own task has read before it. So a
batch that runs again takes and rejects the same records, although the first run has left its files.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.columnar import ColumnarError, digest_of, read_roster
from lb_stream.store import Store
from lb_stream.stream.records import BUNDLE_EXPECTED, RecordRejected
from lb_stream.stream.report_names import NamesCache, ReportNames, check_names
from lb_stream.stream.rows import RecordPosition

FOLDER = "lb-rosters"
MAX_NEW_BYTES = 256 << 20
"""Bytes of the rosters that a task takes: whoever makes up rosters fills no disk in one batch."""
CACHED_NAMES = 4_000_000
"""Names of the rosters that a process keeps: about 250 MB."""
REFRESH_MS = 3_600_000
"""The age from which a roster that is sent again gets a new file: old files are deleted."""
RETENTION_MS = 86_400_000
"""How long the file of a roster is kept that nobody sends again."""

_KNOWN_ROSTER = "the digest of a roster that this broker has sent before, in this partition"
"""What is expected of a report's digest. Agents send a roster again that is missing."""

_HEADER = struct.Struct("<qI")
"""What precedes the record's bytes in a file: the batch that took it, and the CRC-32 of its number.

A file that a crash has cut off, or left empty, is found out by its digest.
"""


@dataclass(frozen=True, slots=True)
class Roster:
    """The names of a broker's bundles, sorted; `batch_id`: the batch that took it first."""

    names: ReportNames
    batch_id: int

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return bool(pc.index(self.names.names, pa.scalar(str(name))).as_py() >= 0)


_Cache = NamesCache[tuple[Store | None, str], "Roster"]
"""The rosters that a process keeps, by folder and file."""
_CACHE: _Cache = NamesCache(CACHED_NAMES)


@dataclass(slots=True)
class Rosters:
    """The rosters that a decoding task knows.

    `checkpoint`: None: the rosters stay in this object. `_own`: file → offset of the first record
    with it that this task has read.
    """

    checkpoint: Store | None = None
    batch_id: int = 0
    _own: dict[str, int] = field(default_factory=dict)
    _kept: _Cache = field(default_factory=lambda: _CACHE)
    _new_bytes: int = 0

    def __post_init__(self) -> None:
        if self.checkpoint is None:
            self._kept = NamesCache(CACHED_NAMES)

    def take(self, cluster: str, broker: str, value: bytes, position: RecordPosition) -> None:
        """Take a roster. Raises RecordRejected."""
        name = _file_name(cluster, broker, digest_of(value), position)
        if name in self._own:
            self._own[name] = min(self._own[name], position["offset"])
            return
        self._new_bytes += len(value)
        if self._new_bytes > MAX_NEW_BYTES:
            raise RecordRejected(
                "value", f"{len(value)} bytes", f"{MAX_NEW_BYTES} bytes of new rosters in a batch"
            )
        roster = self._find(name)
        if roster is None:
            roster = _parse(cluster, broker, value, self.batch_id)
            self._write(name, value, self.batch_id)
            self._kept.put((self.checkpoint, name), roster)
        else:
            self._refresh(name, value, roster.batch_id)
        self._own[name] = position["offset"]

    def require(self, cluster: str, broker: str, digest: str, position: RecordPosition) -> Roster:
        """Return the roster of a report. Raises RecordRejected if the report may not use it."""
        name = _file_name(cluster, broker, digest, position)
        roster = self._find(name)
        is_usable = roster is not None and (
            roster.batch_id < self.batch_id
            or self._own.get(name, position["offset"]) < position["offset"]
        )
        if roster is None or not is_usable:
            raise RecordRejected("roster", digest, _KNOWN_ROSTER)
        return roster

    def _find(self, name: str) -> Roster | None:
        """Return a roster that this process keeps, or that a file has."""
        roster = self._kept.get((self.checkpoint, name))
        if roster is None and self.checkpoint is not None:
            roster = _read_file(self.checkpoint, name)
            if roster is not None:
                self._kept.put((self.checkpoint, name), roster)
        return roster

    def _write(self, name: str, value: bytes, batch_id: int) -> None:
        if self.checkpoint is not None:
            self.checkpoint.put(f"{FOLDER}/{name}", _header(batch_id) + value)

    def _refresh(self, name: str, value: bytes, batch_id: int) -> None:
        """Give the file of a roster that is sent again a new time, if it is old."""
        if self.checkpoint is None:
            return
        found = self.checkpoint.stat(f"{FOLDER}/{name}")
        if found is None or time.time_ns() // 1_000_000 - found.changed_ms > REFRESH_MS:
            self._write(name, value, batch_id)


def delete_old_rosters(checkpoint: Store, now_ms: int) -> int:
    """Delete the rosters that nobody has sent for RETENTION_MS; return how many there were."""
    old = [
        entry.name for entry in checkpoint.list(FOLDER) if now_ms - entry.changed_ms > RETENTION_MS
    ]
    for name in old:
        checkpoint.delete(f"{FOLDER}/{name}")
    return len(old)


def names_unknown_roster(rejection: Mapping[str, str]) -> bool:
    """Return whether a record was rejected because the roster that it names is unknown.

    `rejection`: as `describe_rejection` gives it.
    """
    return rejection["field"] == "roster" and rejection["expected"] == _KNOWN_ROSTER


def _file_name(cluster: str, broker: str, digest: str, position: RecordPosition) -> str:
    """Return the name of a roster's file.

    Offsets count in one partition, so a roster does not count for reports in another one.
    """
    place = f"{position['topic']}/{position['partition']}/{cluster}/{broker}"
    return f"{blake2b(place.encode(errors='replace'), digest_size=8).hexdigest()}-{digest}"


def _parse(cluster: str, broker: str, value: bytes, batch_id: int) -> Roster:
    """Return a roster whose names are all well-formed. Raises RecordRejected."""
    try:
        names = read_roster(value)
    except ColumnarError as error:
        raise RecordRejected(error.field, error.value, error.expected) from None
    checked = check_names(cluster, broker, names)
    if checked.malformed is not None:
        raise RecordRejected("name", str(names[checked.malformed]), BUNDLE_EXPECTED)
    return Roster(checked, batch_id)


def _header(batch_id: int) -> bytes:
    return _HEADER.pack(batch_id, zlib.crc32(str(batch_id).encode()))


def _read_file(checkpoint: Store, name: str) -> Roster | None:
    """Return the roster in a file; None: there is none, or it is damaged."""
    if checkpoint.stat(f"{FOLDER}/{name}") is None:
        return None
    try:
        content = checkpoint.get(f"{FOLDER}/{name}").to_pybytes()
    except FileNotFoundError:
        return None
    if len(content) < _HEADER.size:
        return None
    batch_id, _ = _HEADER.unpack_from(content)
    value = content[_HEADER.size :]
    if content[: _HEADER.size] != _header(batch_id) or not name.endswith(f"-{digest_of(value)}"):
        return None
    return Roster(ReportNames(read_roster(value), malformed=None), batch_id)
