"""Rosters: the bundles' names of columnar reports, kept in files of the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.arrow_stream import ColumnarError
from lb_stream.contracts.columnar import digest_of, read_roster
from lb_stream.store import Store
from lb_stream.stream.columns import record_files
from lb_stream.stream.columns.record_files import Cache, RecordFiles, file_name
from lb_stream.stream.records import BUNDLE_EXPECTED, RecordRejected
from lb_stream.stream.report_names import NamesCache, ReportNames, check_names
from lb_stream.stream.rows import RecordPosition

FOLDER = "lb-rosters"
CACHED_NAMES = 4_000_000
"""Names of the rosters that a process keeps: about 250 MB."""

KNOWN_ROSTER = "the digest of a roster that this broker has sent before, in this partition"
"""What is expected of a report's digest. Agents send a roster again that is missing."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The names of a broker's bundles, sorted."""

    names: ReportNames

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return bool(pc.index(self.names.names, pa.scalar(str(name))).as_py() >= 0)


CACHE: Cache[Roster] = NamesCache(CACHED_NAMES)


@dataclass(slots=True)
class Rosters:
    """The rosters that a decoding task knows. `checkpoint`: None: they stay in this object."""

    checkpoint: Store | None = None
    batch_id: int = 0
    _files: RecordFiles[Roster] = field(init=False)

    def __post_init__(self) -> None:
        cache: Cache[Roster] = NamesCache(CACHED_NAMES) if self.checkpoint is None else CACHE
        self._files = RecordFiles(FOLDER, _parse_file, cache, self.checkpoint, self.batch_id)

    def take(self, cluster: str, broker: str, value: bytes, position: RecordPosition) -> None:
        """Take a roster. Raises RecordRejected."""
        name = file_name(cluster, broker, digest_of(value), position)
        if not self._files.take(name, value, position, lambda: _parse(cluster, broker, value)):
            expected = f"{record_files.MAX_NEW_BYTES} bytes of new rosters in a batch"
            raise RecordRejected("value", f"{len(value)} bytes", expected)

    def require(self, cluster: str, broker: str, digest: str, position: RecordPosition) -> Roster:
        """Return the roster of a report. Raises RecordRejected if the report may not use it."""
        name = file_name(cluster, broker, digest, position)
        roster = self._files.find_usable(name, position)
        if roster is None:
            raise RecordRejected("roster", digest, KNOWN_ROSTER)
        return roster


def delete_old_rosters(checkpoint: Store, now_ms: int) -> int:
    """Delete the rosters that nobody has sent for RETENTION_MS; return how many there were."""
    old = [
        entry.name
        for entry in checkpoint.list(FOLDER)
        if now_ms - entry.changed_ms > record_files.RETENTION_MS
    ]
    for name in old:
        checkpoint.delete(f"{FOLDER}/{name}")
    return len(old)


def _parse(cluster: str, broker: str, value: bytes) -> Roster:
    """Return a roster whose names are all well-formed. Raises RecordRejected."""
    try:
        names = read_roster(value)
    except ColumnarError as error:
        raise RecordRejected(error.field, error.value, error.expected) from None
    checked = check_names(cluster, broker, names)
    if checked.malformed is not None:
        raise RecordRejected("name", str(names[checked.malformed]), BUNDLE_EXPECTED)
    return Roster(checked)


def _parse_file(value: bytes) -> Roster:
    """Return a roster that was checked before it was written."""
    return Roster(ReportNames(read_roster(value), malformed=None))
