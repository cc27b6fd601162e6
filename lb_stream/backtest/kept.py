"""Where the rows of back-tests are kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lb_stream.contracts.tables import BACKTESTS
from lb_stream.io.tables.delta import append_rows, open_table
from lb_stream.store import Store


def keep_rows(root: Store, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Append the rows of one run to `backtests`. Returns them with their time."""
    made_ms = time.time_ns() // 1_000_000
    whole = [{**row, "made_ms": made_ms} for row in rows]
    append_rows(
        open_table(root, BACKTESTS),
        BACKTESTS,
        pa.Table.from_pylist(whole, BACKTESTS.schema),
        rows[0]["run"],
    )
    return whole
