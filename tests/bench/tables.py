"""`python -m tests.bench.tables [--batches N]`: does the cost of the log and its tables grow with
their age? Without a JVM.

Logs and projects batches as the job does, as quickly as it can; a line for each tenth on stderr,
one JSON object as the last line of stdout. What `_delta_log` keeps of a real job's minute (240
commits at four batches a second) it keeps here of so many commits, too: histories are as much
shorter as batches are quicker, so that the ratio tells of age and not of pace.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from deltalake import DeltaTable

from lb_stream.contracts.tables import TABLES
from tests.support.written_tables import Job, decision, ownership

HISTORY = "interval 4 seconds"
WINDOW = 100


def main() -> int:
    """Print the figures; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=2_000, metavar="N")
    count = parser.parse_args().batches
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), count)))
    return 0


def measure(folder: Path, count: int) -> dict[str, float]:
    """Milliseconds of the first and the last batches, medians, and of a start after them."""
    job = shortened(Job(folder))
    logged, projected = [], []
    for batch in range(count):
        content = {
            "decisions": [decision("a")],
            "ownership": [ownership("a", f"x{batch % 50}", owner=f"b{batch}")],
            "loads": 10,
        }
        rounds = job.rounds(batch, clusters=("a", "b", "c"), **content)
        begin = time.perf_counter()
        job.log.find(batch)
        done = job.log.append_once(batch, rounds)
        middle = time.perf_counter()
        job.tables_of.project(done)
        end = time.perf_counter()
        job.log.run_upkeep()
        logged.append(1000 * (middle - begin))
        projected.append(1000 * (end - middle))
        if (batch + 1) % max(1, count // 10) == 0:
            medians = (statistics.median(logged[-WINDOW:]), statistics.median(projected[-WINDOW:]))
            print(
                "batch {}: log {:.1f} ms, tables {:.1f} ms".format(batch + 1, *medians),
                file=sys.stderr,
            )
    begin = time.perf_counter()
    again = Job(folder)
    caught_up = again.tables_of.catch_up(again.log.since)
    start_ms = 1000 * (time.perf_counter() - begin)
    assert caught_up == 0
    found: dict[str, float] = {"batches": count, "start_ms": round(start_ms, 1)}
    for name, all_ms in (("log", logged), ("tables", projected)):
        first, last = (
            statistics.median(all_ms[WINDOW : 2 * WINDOW]),
            statistics.median(all_ms[-WINDOW:]),
        )
        found |= {
            f"{name}_first_ms": round(first, 2),
            f"{name}_last_ms": round(last, 2),
            f"{name}_growth": round(last / first, 2),
        }
    return found | {"log_files": len(DeltaTable(str(job.tables / "rounds")).file_uris())}


def shortened(job: Job) -> Job:
    """The job with its tables' histories as short as its batches."""
    for spec in TABLES:
        if DeltaTable.is_deltatable(str(job.tables / spec.name)):
            DeltaTable(str(job.tables / spec.name)).alter.set_table_properties(
                {"delta.logRetentionDuration": HISTORY}
            )
    return Job(job.folder)


if __name__ == "__main__":
    sys.exit(main())
