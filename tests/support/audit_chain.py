"""Rows of the audit as a job chains them, and a lake that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from lb_stream.contracts.tables import AUDIT
from lb_stream.io.tables.audit import audit_row, chain
from tests.support.written_tables import answer

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake


def audit_rows(count: int, clusters: Sequence[str] = ("eu-1",)) -> list[dict[str, Any]]:
    """Chained rows, one round after another; the clusters take turns."""
    rows = [
        audit_row(
            {"cluster": clusters[number % len(clusters)], "seq": number, "now_ms": 60_000 * number},
            number,
            answer(number),
        )
        for number in range(count)
    ]
    return chain(rows, {})


def lake_of(rows: Sequence[dict[str, Any]] | pa.Table) -> Lake:
    """A lake whose table `audit` has these rows."""
    lake = duckdb.connect()
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), AUDIT.schema)
    lake.register("audit", table)
    return lake
