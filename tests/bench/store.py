"""`python -m tests.bench.store`: what the log and the tables of a batch ask of an object store, by kind of request.

They are written as the job writes them, without Spark, to a bucket of a small server that answers as S3 does and notes each request. The
last line of stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lb_stream.contracts.tables import BUNDLE_AVERAGES
from lb_stream.store import Store
from lb_stream.stream.figures import write_file
from tests.support.s3_server import Request, s3_server
from tests.support.written_tables import JobInBucket, decision, ownership

FIRST = 3
"""Batches before this one are left out: they open and make what later ones have."""


def figures(batches: Sequence[Sequence[Request]]) -> dict[str, Any]:
    """Requests of a batch: median, mean, most, and the mean of each kind."""
    counts = [Counter(one.kind for one in batch) for batch in batches]
    totals = [count.total() for count in counts]
    kinds = sorted({kind for count in counts for kind in count})
    means = {kind: round(statistics.mean(count[kind] for count in counts), 1) for kind in kinds}
    return {"median": statistics.median(totals), "mean": round(statistics.mean(totals), 1), "most": max(totals), "mean_by_kind": means}


def of_tables(count: int) -> list[list[Request]]:
    """The requests of each of `count` batches.

    Each batch logs a round with two decisions, replaces two of twelve rows of ownership, brings broker loads and a part of the averages.
    """
    batches = []
    with s3_server() as server:
        job = JobInBucket(Store.at("s3://lb/alone", server.options))
        job.tables_of.catch_up(job.log.since)
        for number in range(FIRST + count):
            owners = [ownership("a", f"t/n/{bundle % 12}", f"b-{number % 3}", number) for bundle in (number, number + 5)]
            assert job.log.find(number) is None
            logged = job.log.append_once(number, job.rounds(number, decisions=[decision("a")] * 2, ownership=owners, loads=3))
            job.tables_of.project(logged)
            job.tables_of.put_parts(job.log.app, number, {"00": {BUNDLE_AVERAGES.name: _averages(job, number)}})
            batches.append(server.requests())
    return batches[FIRST:]


def _averages(job: JobInBucket, number: int) -> Mapping[str, Any]:
    fields = [field for field in BUNDLE_AVERAGES.schema if field.name != BUNDLE_AVERAGES.partition_by]
    rows = [{field.name: None for field in fields} | {"cluster": "a", "bundle": f"t/n/{bundle}", "now_ms": number} for bundle in range(12)]
    return write_file(job.root / "tables", BUNDLE_AVERAGES, pa.Table.from_pylist(rows, pa.schema(fields)), f"u-1-{number:09d}", "00")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.store", description=__doc__)
    parser.add_argument("--batches", type=int, default=120, help=f"that are counted (120); the first {FIRST} aren't")
    given = parser.parse_args()
    print(json.dumps({"batches": given.batches, "log_and_tables": figures(of_tables(given.batches))}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
