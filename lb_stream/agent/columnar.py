"""Which of a broker's reports are sent as columns or deltas, and what is sent in their place.

Columns are sent while the job says that it reads them, and deltas likewise. Other forms than
modular reports, and reports of few bundles, stay JSON: people can read those, and they cost little.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lb_stream.agent.adapter import JsonReport, Report
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.reads import READS_VALID_S, Reads
from lb_stream.contracts.reports import find_report_kind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lb_stream.contracts.columnar import ColumnarReport, Figures

log = logging.getLogger(__name__)

REPORT = "report"
ROSTER_INTERVAL_S = 600.0
"""How often a roster is sent again that has not changed: the job may have lost it."""

REPORTS_PER_BASE = 10
"""Of so many reports of unchanged bundles, one is a base and sent in full.

More would save at most a tenth of a full report each, while what differs from the base may grow.
"""
MAX_CHANGED = 0.5
"""The part of the rows up to which a delta is sent: with more it is not clearly smaller."""

EncodedRecord = tuple[str, bytes]
"""Kind and value of a record."""


class _Table(NamedTuple):
    """A report's names, sorted, and their figures."""

    own: Mapping[str, Any]
    names: list[str]
    columns: Figures
    measured: NDArray[np.bool_] | None


@dataclass(slots=True)
class _Sent:
    """What was sent of a broker: its last roster, and the last base, maybe of an older roster.

    `begun_s`: when both were sent together. `base`: None: none was sent. `deltas_left`: how many
    reports may follow before the next base. `has_delta`: whether a delta of the base was sent.
    """

    begun_s: float
    roster: str = ""
    names: list[str] = field(default_factory=list)
    base: ColumnarReport | None = None
    base_names: list[str] = field(default_factory=list)
    base_digest: str = ""
    deltas_left: int = 0
    has_delta: bool = False


@dataclass(slots=True)
class ReportEncoder:
    """Encodes the reports of an agent's brokers, as JSON or as columns.

    `min_bundles`: a report of fewer bundles stays JSON; 0: all do. `_until_s`: until when columns
    may be sent. `_sends_deltas`: whether deltas may be sent as well.
    """

    min_bundles: int = 0
    clock: Callable[[], float] = time.monotonic
    _until_s: float = field(default=0.0, init=False)
    _checkpoint: str = field(default="", init=False)
    _sends_deltas: bool = field(default=False, init=False)
    _sent: dict[str, _Sent] = field(default_factory=dict, init=False)
    _can_write: bool | None = field(default=None, init=False)

    def note_reads(self, reads: Reads, brokers: Iterable[str]) -> list[str]:
        """Note which forms the job reads; return the brokers that must report again.

        `brokers`: those of the agent. All must where the job has another checkpoint, which has
        neither their loads nor their rosters; else those whose rosters or bases the job lacks.
        """
        is_new = self._checkpoint not in ("", reads.checkpoint)
        self._checkpoint = reads.checkpoint
        has_columns = "columns" in reads.forms
        self._until_s = self.clock() + READS_VALID_S if has_columns else 0.0
        self._sends_deltas = "deltas" in reads.forms
        again = [broker for broker in brokers if is_new or broker in reads.rosters]
        for broker in again:
            self.forget(broker)
        return again

    def forget(self, broker: str) -> None:
        """Send a broker's next report in full, after its roster: the last ones may be lost.

        The producer's thread calls this, too.
        """
        self._sent.pop(broker, None)

    def encode(self, broker: str, report: Report) -> list[EncodedRecord]:
        """Return the records that a report is sent as. Raises ValueError for NaN in JSON."""
        if self.min_bundles and self.clock() < self._until_s and self._has_columns():
            fields = report if isinstance(report, Mapping) else json.loads(report)
            columns = self._encode_columns(broker, fields)
            if columns is not None:
                return columns
        value = report if isinstance(report, bytes) else canonical_json(report).encode()
        return [(REPORT, value)]

    def _has_columns(self) -> bool:
        """Return whether Arrow's library is there; the first time that it isn't is logged."""
        if self._can_write is None:
            try:
                import lb_stream.contracts.columnar  # noqa: F401, PLC0415

                self._can_write = True
            except ImportError as error:
                log.warning("reports stay JSON: columns need pyarrow (%s)", error)
                self._can_write = False
        return self._can_write

    def _encode_columns(self, broker: str, fields: JsonReport) -> list[EncodedRecord] | None:
        """Return a report as columns, after its roster where that is due; None: it stays JSON."""
        if find_report_kind(dict(fields)) != "modular":
            return None
        try:
            table = _to_table(fields, self.min_bundles)
            return None if table is None else self._encode_table(broker, table)
        except (ValueError, TypeError, AttributeError):  # the job rejects the JSON with a reason
            return None

    def _encode_table(self, broker: str, table: _Table) -> list[EncodedRecord]:
        """Return a delta, or a full report after its roster where that is due."""
        from lb_stream.contracts.columnar import (  # noqa: PLC0415
            COLUMNS,
            ROSTER,
            ColumnarReport,
            digest_of,
            write_columns,
            write_roster,
        )

        sent = self._sent.get(broker)
        begins = sent is None or self.clock() - sent.begun_s >= ROSTER_INTERVAL_S
        if sent is None or begins:
            sent = _Sent(self.clock())
        records: list[EncodedRecord] = []
        if begins or table.names != sent.names:
            roster = write_roster(table.names)
            sent.roster, sent.names = digest_of(roster), table.names
            records.append((ROSTER, roster))
        is_base = self._sends_deltas
        if is_base and sent.deltas_left and sent.base is not None:
            sent.deltas_left -= 1
            delta = _encode_delta(sent, sent.base, table)
            if delta is not None:
                sent.has_delta = True
                return [*records, delta]
            # Where most rows differ each time, each base would be kept for nothing.
            is_base = sent.has_delta
        value = write_columns(table.own, sent.roster, table.columns, table.measured, is_base)
        if is_base:
            sent.base = ColumnarReport(b"", sent.roster, table.columns, table.measured, True)
            sent.base_names, sent.base_digest = table.names, digest_of(value)
            sent.deltas_left, sent.has_delta = REPORTS_PER_BASE - 1, False
        if begins:
            # All agents that are asked at once send their next bases at different times.
            sent.deltas_left = min(sent.deltas_left, _first_deltas(broker))
            self._sent[broker] = sent
        return [*records, (COLUMNS, value)]


def _to_table(fields: JsonReport, min_bundles: int) -> _Table | None:
    """Return the columns of a modular report; None: it has few bundles.

    Raises ValueError, TypeError or AttributeError for figures that are no exact numbers.
    """
    import numpy as np  # noqa: PLC0415

    from lb_stream.contracts.columnar import FIGURES, to_columns  # noqa: PLC0415

    stats: Mapping[str, Mapping[str, Any]] = fields.get("lastStats") or {}
    bundles: Collection[str] = fields.get("bundles") or ()
    if len(bundles) <= len(stats):  # as for JSON: then `bundles` adds nothing
        bundles = ()
    names = sorted({*stats, *bundles}, key=lambda name: name.encode(errors="replace"))
    if len(names) < min_bundles:
        return None
    own = {name: value for name, value in fields.items() if name not in ("lastStats", "bundles")}
    none: Mapping[str, Any] = {}
    rows = [stats.get(name, none) for name in names]
    columns = to_columns({figure: [row.get(figure, 0) for row in rows] for figure in FIGURES})
    measured = None
    if len(stats) < len(names):
        measured = np.array([name in stats for name in names], np.bool_)
    return _Table(own, names, columns, measured)


def _encode_delta(sent: _Sent, base: ColumnarReport, table: _Table) -> EncodedRecord | None:
    """Return a report as a delta; None: too many rows differ."""
    import pyarrow as pa  # noqa: PLC0415

    from lb_stream.contracts.columnar import (  # noqa: PLC0415
        DELTA,
        SharedRows,
        find_changes,
        write_delta,
    )

    if base.roster == sent.roster:
        shared = SharedRows.of_same_roster(base.rows)
    else:
        names, base_names = (pa.array(some, pa.string()) for some in (table.names, sent.base_names))
        shared = SharedRows.find(base_names, names)
    rows = find_changes(base, shared, table.columns, table.measured)
    if len(rows) > MAX_CHANGED * shared.rows:
        return None
    columns = {figure: column[rows] for figure, column in table.columns.items()}
    measured = None if table.measured is None else table.measured[rows]
    value = write_delta(table.own, sent.roster, sent.base_digest, rows, columns, measured)
    return DELTA, value


def _first_deltas(broker: str) -> int:
    """Return after how many deltas a broker that has begun anew sends its next base."""
    return 1 + zlib.crc32(broker.encode()) % (REPORTS_PER_BASE - 1)
