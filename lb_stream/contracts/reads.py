"""Which forms of load reports a job reads: short records on `lb-decisions`, for agents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lb_stream.contracts.base import Millis, OwnRecord

READS: Literal["reads"] = "reads"
"""Header `kind` of these records, and their field of that name; decisions have no such header."""
READS_INTERVAL_S = 60.0
"""How often a job sends such a record of each cluster."""
READS_VALID_S = 180.0
"""How long a record counts. An older job sends none, and so gets JSON again."""

ReportForm = Literal["json", "columns", "deltas"]
FORMS: tuple[ReportForm, ...] = ("json", "columns", "deltas")


class Reads(OwnRecord):
    """Header `kind` = reads: which forms of load reports the job reads of a cluster.

    It decides nothing. The job sends it every minute, and at once where a roster is missing.
    Programs that look for decisions skip it.
    """

    kind: Literal["reads"] = Field(
        default=READS, description="no kind of a decision: readers that know no header skip it"
    )
    cluster: str
    forms: list[str] = Field(
        description="json, columns for rosters and columnar reports, deltas for deltas of those"
    )
    checkpoint: str = Field(
        description="the job's checkpoint: with another one, all brokers report again, with rosters"
    )
    rosters: list[str] = Field(
        default=[],
        description="brokers whose columns the job can't read, as it lacks their rosters or the "
        "bases of their deltas: they report again, in full and with rosters",
    )
    sent_ms: Millis = 0


def is_reads(headers: object) -> bool:
    """Return whether a record's headers, as kafka-python gives them, are those of such a record."""
    return isinstance(headers, list | tuple) and ("kind", READS.encode()) in headers
