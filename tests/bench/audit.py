"""Time to find what was done to an audit of 100,000 rows: `python -m tests.bench.audit`.

Prints a line of JSON for each: what was done, what was found, and the seconds of the check. The
first line has what a job takes for the same rows: to read the ends of the chains at its first
command, and to look for answers in a batch of 5,000 clusters without any.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from lb_stream.contracts.tables import AUDIT
from lb_stream.io.tables.audit import audit_rows as logged_rows
from lb_stream.io.tables.audit import read_heads
from lb_stream.io.tables.delta import append_rows, open_table
from lb_stream.query.lake import open_lake
from lb_stream.query.past.audit import Anchor, verify_audit
from lb_stream.store import Store
from lb_stream.stream.ports import Logged
from tests.support.audit_chain import audit_rows
from tests.support.written_tables import Job

AT = 60_000
"""The row that something is done to."""
Rows = list[dict[str, Any]]


def measure(name: str, rows: Rows, anchor: Anchor) -> None:
    with TemporaryDirectory() as folder:
        root = Store.at(Path(folder))
        append_rows(open_table(root, AUDIT), AUDIT, pa.Table.from_pylist(rows, AUDIT.schema), "x")
        begin = time.perf_counter()
        (report,) = verify_audit(open_lake(root), [anchor])
        seconds = time.perf_counter() - begin
    found = [f"row {fault.number} {fault.what}" for fault in report.faults]
    print(json.dumps({"done": name, "found": found, "rows": len(rows), "s": round(seconds, 2)}))


def measure_job(rows: Rows) -> None:
    with TemporaryDirectory() as folder:
        job = Job(Path(folder))
        table = open_table(Store.at(job.tables), AUDIT)
        append_rows(table, AUDIT, pa.Table.from_pylist(rows, AUDIT.schema), "x")
        begin = time.perf_counter()
        heads = read_heads(table, {rows[0]["cluster"]})
        heads_s = time.perf_counter() - begin
        size = sum(file.stat().st_size for file in (job.tables / AUDIT.name).glob("*.parquet"))
        clusters = [f"c{number}" for number in range(5_000)]
        logged = Logged(0, job.rounds(0, clusters))
        begin = time.perf_counter()
        found = logged_rows(logged)
        answers_s = time.perf_counter() - begin
    assert len(heads) == 1 and not found
    figures = {"heads_s": heads_s, "no_answers_s": answers_s, "bytes_of_a_row": size / len(rows)}
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


def main(count: int) -> None:
    rows = audit_rows(count)
    measure_job(rows)
    anchor = Anchor(rows[-1]["cluster"], count, rows[-1]["hash"])
    changed = rows[AT - 1] | {"by": "mallory"}
    measure("nothing", rows, anchor)
    measure("one changed", [*rows[: AT - 1], changed, *rows[AT:]], anchor)
    measure("one removed", [*rows[: AT - 1], *rows[AT:]], anchor)
    measure("one cut at the end", rows[:-1], anchor)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
