"""Which of a broker's reports are sent as columns, and what is sent in their place.

Columns are sent while the job says that it reads them. Other forms than modular reports, and
reports of few bundles, stay JSON: people can read those, and they cost little.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lb_stream.agent.adapter import JsonReport, Report
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.reads import READS_VALID_S, Reads
from lb_stream.contracts.reports import find_report_kind

log = logging.getLogger(__name__)

REPORT = "report"
ROSTER_INTERVAL_S = 600.0
"""How often a roster is sent again that has not changed: the job may have lost it."""

EncodedRecord = tuple[str, bytes]
"""Kind and value of a record."""


@dataclass(slots=True)
class ReportEncoder:
    """Encodes the reports of an agent's brokers, as JSON or as columns.

    `min_bundles`: a report of fewer bundles stays JSON; 0: all do. `_until_s`: until when columns
    may be sent. `_rosters`: broker → the digest of its last roster, the names in it, and when it
    was sent.
    """

    min_bundles: int = 0
    clock: Callable[[], float] = time.monotonic
    _until_s: float = field(default=0.0, init=False)
    _checkpoint: str = field(default="", init=False)
    _rosters: dict[str, tuple[str, list[str], float]] = field(default_factory=dict, init=False)
    _can_write: bool | None = field(default=None, init=False)

    def note_reads(self, reads: Reads, brokers: Iterable[str]) -> list[str]:
        """Note which forms the job reads; return the brokers that must report again.

        `brokers`: those of the agent. All must where the job has another checkpoint, which has
        neither their loads nor their rosters; else those whose rosters the job lacks.
        """
        is_new = self._checkpoint not in ("", reads.checkpoint)
        self._checkpoint = reads.checkpoint
        has_columns = "columns" in reads.forms
        self._until_s = self.clock() + READS_VALID_S if has_columns else 0.0
        again = [broker for broker in brokers if is_new or broker in reads.rosters]
        for broker in again:
            self.forget(broker)
        return again

    def forget(self, broker: str) -> None:
        """Send a broker's roster again with its next report: the last one may be lost.

        The producer's thread calls this, too.
        """
        self._rosters.pop(broker, None)

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
        from lb_stream.contracts.columnar import (  # noqa: PLC0415
            COLUMNS,
            FIGURES,
            ROSTER,
            digest_of,
            write_columns,
            write_roster,
        )

        stats: Mapping[str, Mapping[str, Any]] = fields.get("lastStats") or {}
        bundles: Collection[str] = fields.get("bundles") or ()
        if find_report_kind(dict(fields)) != "modular":
            return None
        if len(bundles) <= len(stats):  # as for JSON: then `bundles` adds nothing
            bundles = ()
        names = sorted({*stats, *bundles}, key=lambda name: name.encode(errors="replace"))
        if len(names) < self.min_bundles:
            return None
        own = {
            name: value for name, value in fields.items() if name not in ("lastStats", "bundles")
        }
        records: list[EncodedRecord] = []
        try:
            digest, known, sent_s = self._rosters.get(broker, ("", [], 0.0))
            if names != known or self.clock() - sent_s >= ROSTER_INTERVAL_S:
                roster = write_roster(names)
                digest = digest_of(roster)
                records.append((ROSTER, roster))
            none: Mapping[str, Any] = {}
            rows = [stats.get(name, none) for name in names]
            columns = {figure: [row.get(figure, 0) for row in rows] for figure in FIGURES}
            measured = None
            if len(stats) < len(names):
                measured = [name in stats for name in names]
            records.append((COLUMNS, write_columns(own, digest, columns, measured)))
        except (ValueError, TypeError, AttributeError):  # the job rejects the JSON with a reason
            return None
        if len(records) > 1:
            self._rosters[broker] = (digest, names, self.clock())
        return records
