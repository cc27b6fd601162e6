"""Bases: the columnar reports of which deltas follow, kept in files of the checkpoint.

A base that is read is also a report. What a delta leaves out stands in its base, so both together
are a whole report, which goes on as one that was sent as such.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lb_stream.contracts.columnar import (
    ColumnarDelta,
    ColumnarReport,
    FindNames,
    SharedRows,
    read_columns,
)
from lb_stream.store import Store
from lb_stream.stream.columns.content_digests import RowHashes, digest_content
from lb_stream.stream.columns.record_files import RETENTION_MS, RecordKind

FOLDER = "lb-bases"
CACHED_ROWS = 2_000_000
"""Rows of the bases that a process keeps: 72 bytes each, 144 MB."""
SUPERSEDED_MS = 600_000
"""How long the file of a base is kept after its broker has sent another one.

What a broker sends after a base refers to no earlier one. A batch that runs again still does, and
none takes that long.
"""

KNOWN_BASE = "the digest of a base that this broker has sent before, in this partition"
"""What is expected of a delta's base. Agents send a base again that is missing."""


@dataclass(frozen=True, slots=True)
class Base:
    """A report of which deltas may follow, with the hashes of its rows.

    `_shared`: its rows in the roster of its last delta, by that roster's digest.
    """

    report: ColumnarReport
    hashes: RowHashes
    _shared: dict[str, SharedRows] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.report.rows

    def compose(self, delta: ColumnarDelta, find_names: FindNames) -> tuple[ColumnarReport, bytes]:
        """Return a delta's whole report and its digest. Raises ColumnarError.

        `find_names`: as for `SharedRows.of`.
        """
        shared = self._shared.get(delta.roster)
        if shared is None:
            shared = SharedRows.of(self.report, delta.roster, find_names)
            self._shared.clear()
            self._shared[delta.roster] = shared
        report = delta.compose(self.report, shared)
        if report.roster == self.report.roster:
            total = self.hashes.replace_rows(delta.rows, delta.columns, delta.measured)
        else:  # its rows have other numbers
            total = RowHashes.of(report).total
        return report, digest_content(report, total)


def delete_old_bases(checkpoint: Store, now_ms: int) -> int:
    """Delete the bases that no delta refers to any more; return how many there were.

    Those are all but a broker's last one, and that too if nobody has sent it for RETENTION_MS.
    """
    entries = sorted(checkpoint.list(FOLDER), key=lambda entry: -entry.changed_ms)
    next_ms: dict[str, int] = {}  # the next base's time, by broker and partition
    deleted = 0
    for entry in entries:
        place = entry.name.partition("-")[0]
        superseded_ms = next_ms.get(place)
        next_ms[place] = entry.changed_ms
        is_superseded = superseded_ms is not None and now_ms - superseded_ms > SUPERSEDED_MS
        if is_superseded or now_ms - entry.changed_ms > RETENTION_MS:
            checkpoint.delete(f"{FOLDER}/{entry.name}")
            deleted += 1
    return deleted


def _parse(value: bytes) -> Base:
    report = read_columns(value)
    return Base(report, RowHashes.of(report))


BASES = RecordKind.of("base", KNOWN_BASE, FOLDER, _parse, CACHED_ROWS)
