"""What the tables hold, by their newest versions alone: no file with rows is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.tables import TABLES
from lb_stream.io.tables.delta import existing_table
from lb_stream.store import Store


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of a table; all figures are None while the job has not written it.

    `rows` None: a writer has not noted them. `written_ms`: when its newest file was written.
    """

    table: str
    description: str
    rows: int | None = None
    files: int | None = None
    size_bytes: int | None = None
    written_ms: int | None = None


def list_tables(root: Store) -> Iterator[TableSize]:
    """Yield all tables of this version, in the order of docs/tables.md."""
    for spec in TABLES:
        table = existing_table(root, spec)
        if table is None:
            yield TableSize(spec.name, spec.row)
            continue
        files = pa.table(table.get_add_actions())
        rows = pc.sum(files["num_records"]).as_py() if len(files) else 0
        if files["num_records"].null_count:
            rows = None
        yield TableSize(
            spec.name,
            spec.row,
            rows,
            len(files),
            pc.sum(files["size_bytes"]).as_py() or 0,
            pc.max(files["modification_time"]).as_py(),
        )
