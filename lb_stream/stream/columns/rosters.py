"""Rosters: the bundles' names of columnar reports, kept in files of the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.arrow_stream import ColumnarError
from lb_stream.contracts.columnar import read_roster
from lb_stream.store import Store
from lb_stream.stream.columns.record_files import RETENTION_MS, RecordKind
from lb_stream.stream.records import BUNDLE_EXPECTED, RecordRejected
from lb_stream.stream.report_names import ReportNames, check_names

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


def delete_old_rosters(checkpoint: Store, now_ms: int) -> int:
    """Delete the rosters that nobody has sent for RETENTION_MS; return how many there were."""
    old = [
        entry.name for entry in checkpoint.list(FOLDER) if now_ms - entry.changed_ms > RETENTION_MS
    ]
    for name in old:
        checkpoint.delete(f"{FOLDER}/{name}")
    return len(old)


def parse_roster(cluster: str, broker: str, value: bytes) -> Roster:
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


ROSTERS = RecordKind.of("roster", KNOWN_ROSTER, FOLDER, _parse_file, CACHED_NAMES)
