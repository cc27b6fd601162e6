"""Columnar records of a decoding task: rosters and bases are kept, deltas become whole reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from lb_stream.contracts.arrow_stream import ColumnarError
from lb_stream.contracts.columnar import (
    DELTA,
    ROSTER,
    ROW,
    ColumnarReport,
    read_columns,
    read_delta,
)
from lb_stream.store import Store
from lb_stream.stream.columns import record_files
from lb_stream.stream.columns.bases import BASES, Base
from lb_stream.stream.columns.content_digests import RowHashes, digest_content
from lb_stream.stream.columns.record_files import RecordFiles
from lb_stream.stream.columns.rosters import KNOWN_ROSTER, ROSTERS, Roster, parse_roster
from lb_stream.stream.records import RecordRejected, ReportRecord, parse_own_fields
from lb_stream.stream.rows import RecordPosition


class WholeReport(NamedTuple):
    """A columnar report with all its rows, however it was sent.

    `own`: the broker's own fields. `roster`: the names of the rows. `digest`: of what it says.
    """

    own: ReportRecord
    columns: ColumnarReport
    roster: Roster
    digest: bytes


@dataclass(slots=True)
class ColumnarReader:
    """Reads the columnar records of a task. `checkpoint`: None: rosters and bases stay in it."""

    checkpoint: Store | None = None
    batch_id: int = 0
    _rosters: RecordFiles[Roster] = field(init=False)
    _bases: RecordFiles[Base] = field(init=False)

    def __post_init__(self) -> None:
        self._rosters = RecordFiles(ROSTERS, self.checkpoint, self.batch_id)
        self._bases = RecordFiles(BASES, self.checkpoint, self.batch_id)

    def read(
        self,
        cluster: str,
        broker: str,
        kind: str,
        value: bytes,
        position: RecordPosition,
        require_few: Callable[[int], None],
    ) -> WholeReport | None:
        """Return the report of a record; None: it is a roster, which is kept.

        `kind`: one of COLUMNAR_KINDS. `require_few` raises for too many bundles: such a report is
        no base. Raises RecordRejected.
        """
        if kind == ROSTER:
            self._take_roster(cluster, broker, value, position)
            return None
        find_roster = partial(self._find_roster, cluster, broker, position)
        try:
            if kind == DELTA:
                delta = read_delta(value)
                base = self._bases.require(cluster, broker, delta.base, position)
                roster = find_roster(delta.roster)
                require_few(len(roster))
                columns, digest = base.compose(delta, lambda other: find_roster(other).names.names)
            else:
                columns = read_columns(value)
                roster = find_roster(columns.roster)
                require_few(len(roster))
                hashes = RowHashes.of(columns)
                digest = digest_content(columns, hashes.total)
        except ColumnarError as error:
            raise RecordRejected(error.field, error.value, error.expected) from None
        if columns.rows != len(roster):
            expected = f"{len(roster)} rows, as many as the roster's names"
            raise RecordRejected("columns", f"{columns.rows} rows", expected)
        own = parse_own_fields(columns.fields, broker, roster)
        if columns.is_base:
            # A base beyond what a batch may have is a report alone.
            self._bases.take(cluster, broker, value, position, lambda: Base(columns, hashes))
        return WholeReport(own, columns, roster, digest)

    def _find_roster(
        self, cluster: str, broker: str, position: RecordPosition, digest: str
    ) -> Roster:
        """Return the roster of a report. Raises RecordRejected."""
        return self._rosters.require(cluster, broker, digest, position)

    def _take_roster(
        self, cluster: str, broker: str, value: bytes, position: RecordPosition
    ) -> None:
        """Keep a roster. Raises RecordRejected."""
        parse = partial(parse_roster, cluster, broker, value)
        if not self._rosters.take(cluster, broker, value, position, parse):
            expected = f"{record_files.MAX_NEW_BYTES} bytes of new rosters in a batch"
            raise RecordRejected("value", f"{len(value)} bytes", expected)


def needs_full_report(rejection: Mapping[str, str]) -> bool:
    """Return whether a record was rejected that its roster and a full report would have replaced.

    Either its roster or base is unknown, or it is a delta that can't be of its base. `rejection`:
    as `describe_rejection` gives it.
    """
    field_ = rejection["field"]
    if field_ == "roster":
        return rejection["expected"] == KNOWN_ROSTER
    return field_ in ("base", ROW)
