"""`python -m tests.bench.store`: what a batch asks of an object store, by whom and by which kind of
request.

One job reads a backlog in which every batch decides something. Its tables and its checkpoint are in
a bucket of a small server that answers as S3 does and notes each request. A batch begins when Spark
writes its plan; what follows up to the next plan is counted to it, whatever thread asks. Before
that the log and the tables are written without Spark, for more batches. The last line of stdout is
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from lb_stream.contracts.tables import BUNDLE_AVERAGES
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.kit.fetch_jars import fetch_jars
from lb_stream.store import Store
from lb_stream.stream.figures import write_file
from tests.e2e import backlog
from tests.e2e.pipeline import Pipeline
from tests.support.s3_server import Request, s3_server
from tests.support.topics import topics_named
from tests.support.written_tables import JobInBucket, decision, ownership

FIRST = 3
"""Batches before this one are left out: they open and make what later ones have."""
TABLES_BATCHES = 100
"""Without Spark: enough for several checkpoints of each table, and for one tidying."""
BUCKET = "lb"
_PLAN = re.compile(rf"{BUCKET}/checkpoint/offsets/\d+")
_DECISIONS = f"{BUCKET}/tables/decisions/_delta_log/"


def by_batch(requests: Iterable[Request]) -> list[list[Request]]:
    """The requests of each batch, the last one's left out: what comes after it is the job's end."""
    batches: list[list[Request]] = []
    for request in requests:
        if request.kind == "PUT" and request.status == 200 and _PLAN.fullmatch(request.key):
            batches.append([])
        if batches:
            batches[-1].append(request)
    return batches[:-1]


def is_sparks(one: Request) -> bool:
    """Whether Hadoop has asked, for Spark's own checkpoint; else the job has."""
    return "aws-sdk-java" in one.agent


def decides(batch: Iterable[Request]) -> bool:
    """Whether a batch has added to the table of decisions."""
    return any(one.kind == "PUT" and one.key.startswith(_DECISIONS) for one in batch)


def figures(batches: Sequence[Sequence[Request]]) -> dict[str, Any]:
    """Requests of a batch, all together and by who asks: median, mean, and the median of each
    kind."""
    sides = {
        "all": lambda _: True,
        "job": lambda one: not is_sparks(one),
        "spark_checkpoint": is_sparks,
    }
    found: dict[str, Any] = {}
    for name, side in sides.items():
        counts = [Counter(one.kind for one in batch if side(one)) for batch in batches]
        totals = [count.total() for count in counts]
        kinds = sorted({kind for count in counts for kind in count})
        medians = {kind: statistics.median(count[kind] for count in counts) for kind in kinds}
        found[name] = {
            "median": statistics.median(totals),
            "mean": round(statistics.mean(totals), 1),
            "median_by_kind": medians,
        }
    return found


def of_tables(count: int) -> dict[str, Any]:
    """The same figures of `count` batches without Spark: of the log, and of the tables that follow
    from a batch.

    Each batch logs a round with two decisions, replaces two of twelve rows of ownership, brings
    broker loads and a part of the averages.
    """
    batches = []
    with s3_server() as server:
        job = JobInBucket(Store.at(f"s3://{BUCKET}/alone", server.options))
        job.tables_of.catch_up(job.log.since)
        for number in range(FIRST + count):
            owners = [
                ownership("a", f"t/n/{bundle % 12}", f"b-{number % 3}", number)
                for bundle in (number, number + 5)
            ]
            assert job.log.find(number) is None
            logged = job.log.append_once(
                number, job.rounds(number, decisions=[decision("a")] * 2, ownership=owners, loads=3)
            )
            job.tables_of.project(logged)
            job.tables_of.replace_parts(
                job.log.app, number, {"00": {BUNDLE_AVERAGES.name: _averages(job, number)}}
            )
            batches.append(server.requests())
    return figures(batches[FIRST:])["job"]


def _averages(job: JobInBucket, number: int) -> Mapping[str, Any]:
    fields = [
        field for field in BUNDLE_AVERAGES.schema if field.name != BUNDLE_AVERAGES.partition_by
    ]
    rows = [
        {field.name: None for field in fields}
        | {"cluster": "a", "bundle": f"t/n/{bundle}", "now_ms": number}
        for bundle in range(12)
    ]
    return write_file(
        job.root / "tables",
        BUNDLE_AVERAGES,
        pa.Table.from_pylist(rows, pa.schema(fields)),
        f"u-1-{number:09d}",
        "00",
    )


def measured(folder: Path, count: int, longest_s: float) -> list[list[Request]]:
    """Run the job until as many batches have decided something, or until the time is over."""
    kafka, found = EmbeddedKafka(folder / "kafka"), list[Request]()
    end = time.monotonic() + longest_s
    kafka.start(timeout_s=longest_s)
    with ExitStack() as stack:
        stack.callback(kafka.stop)
        server = stack.enter_context(s3_server())
        pipeline = Pipeline(
            kafka.bootstrap,
            topics_named("bench-store"),
            folder,
            backlog.SETTINGS | server.settings(BUCKET),
        )
        pipeline.create_topics(reports=backlog.PARTITIONS)
        pipeline.send(backlog.records(FIRST + count + 2))
        job = stack.enter_context(pipeline.running("--once"))
        while job.poll() is None and time.monotonic() < end and len(counted(found)) < count:
            time.sleep(1)
            found += server.requests()
        if job.poll():
            raise RuntimeError(f"the measured job has ended: {pipeline.log()[-4_000:]}")
    return counted(found)


def counted(requests: Iterable[Request]) -> list[list[Request]]:
    """Of each batch that counts: it isn't among the first, and it decides something."""
    return [batch for batch in by_batch(requests)[FIRST:] if decides(batch)]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.store", description=__doc__)
    parser.add_argument(
        "--batches", type=int, default=40, help=f"that are counted (40); the first {FIRST} aren't"
    )
    parser.add_argument(
        "--seconds", type=float, default=3_600, help="then it ends with what there is (3600)"
    )
    parser.add_argument(
        "--tables-only",
        action="store_true",
        help="without Spark and Kafka: only the log and the tables",
    )
    parser.add_argument(
        "--keep", type=Path, help="a file for the requests, a line of JSON for each batch"
    )
    given = parser.parse_args()
    alone = of_tables(TABLES_BATCHES)
    if given.tables_only:
        print(json.dumps({"log_and_tables": alone}))
        return 0
    fetch_jars(extras=["s3"])
    with tempfile.TemporaryDirectory() as folder:
        batches = measured(Path(folder), given.batches, given.seconds)
    if given.keep is not None:
        rows = (
            [[one.kind, one.key, one.status, is_sparks(one)] for one in some] for some in batches
        )
        given.keep.write_text("".join(json.dumps(some) + "\n" for some in rows))
    if not batches:
        print(
            f"no batch has decided anything within {given.seconds} s: more --seconds",
            file=sys.stderr,
        )
        return 1
    print(json.dumps({"batches": len(batches), **figures(batches), "log_and_tables": alone}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
