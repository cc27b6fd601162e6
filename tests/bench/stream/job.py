"""The measured process: the whole job, or its averaged view written to nowhere.

Tells each batch on stdout, ends when stdin does.

Started by `tests.bench.stream.driver`; the first line of stdin says what to run.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import spark_options
from lb_stream.io.leadership.membership import Member
from lb_stream.io.telemetry.port import Telemetry
from lb_stream.job import pipeline
from lb_stream.job.compiler import lower_compiler_priority
from lb_stream.job.pipeline import start
from lb_stream.job.session import spark_session
from lb_stream.store import checkpoint_of
from lb_stream.stream.batch import blocks_of_shards
from lb_stream.stream.shards.block_files import read_block
from lb_stream.stream.shards.directory import NEW, read_directory, write_directory
from lb_stream.stream.shards.slicing import next_shard_map
from lb_stream.stream.source import read_records
from lb_stream.stream.transforms import to_blocks, to_shards
from tests.bench.stream.spark import jvm_pid
from tests.bench.stream.traced import Alternating, open_alternating

EPOCH = 1
_lock = threading.Lock()


def tell(**fields: Any) -> None:
    """One line to whoever measures."""
    with _lock:
        print(json.dumps(fields), flush=True)


class Teller(StreamingQueryListener):
    """Tells of each batch that read something, and of the query's end.

    `tracing`: turned on and off between batches.
    """

    tracing: Alternating | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to tell."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is over."""
        progress = event.progress
        if self.tracing is not None and progress.numInputRows:
            self.tracing.batch_id = progress.batchId + 1
        if progress.numInputRows:
            tell(
                batch=progress.batchId,
                rows=progress.numInputRows,
                took_ms=dict(progress.durationMs),
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """It has ended, or failed."""
        tell(ended=event.exception or "")


class Stoppable(Protocol):
    """A started query, or a started pipeline."""

    def stop(self) -> None:
        """End it."""


def start_view(spark: SparkSession, settings: Settings, clusters: list[str]) -> StreamingQuery:
    """Decode and averages as the job has them, with nothing behind them."""
    checkpoint = checkpoint_of(settings.stream)
    write_directory(checkpoint, 0, EPOCH, dict.fromkeys(clusters, NEW))

    def to_nowhere(shards: DataFrame, batch_id: int) -> None:
        """The view is in files now; the next batch slices it as the job would."""
        directory = read_directory(checkpoint, batch_id, EPOCH)
        for cluster, view in blocks_of_shards(shards.drop("events").toArrow()).items():
            bundles = sum(len(read_block(checkpoint, names)) for _, names, _ in view.blocks)
            directory[cluster] = next_shard_map(
                directory[cluster], replace(view, bundles=bundles), settings.stream.shard_bundles
            )
        write_directory(checkpoint, batch_id + 1, EPOCH, directory)

    records = read_records(spark, settings, spark_options(settings), "earliest")
    shards = records.transform(to_blocks(settings, EPOCH)).transform(to_shards(settings, EPOCH))
    writer = (
        shards.writeStream.outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(to_nowhere)
    )
    if settings.stream.trigger_interval_ms:
        writer = writer.trigger(
            processingTime=f"{settings.stream.trigger_interval_ms} milliseconds"
        )
    return writer.start()


def alternate(teller: Teller) -> None:
    """Have the job open tracing that is on and off in turns, as `teller` says."""

    def open_(*given: Any) -> Telemetry:
        teller.tracing = open_alternating(*given)
        return teller.tracing

    pipeline.open_telemetry = open_


def main() -> None:
    """Run until stdin ends."""
    given = json.loads(sys.stdin.readline())
    settings = Settings.model_validate(given["settings"])
    spark = spark_session(settings)
    lower_compiler_priority(jvm_pid(spark))  # as `lbctl balance` does
    teller = Teller()
    spark.streams.addListener(teller)
    if settings.otel.enabled:
        alternate(teller)
    whole = not given["view_of"]
    running: Stoppable = (
        start(spark, settings, Member(settings, leads=True))
        if whole
        else start_view(spark, settings, given["view_of"])
    )
    sys.stdin.read()
    running.stop()
    spark.stop()


if __name__ == "__main__":
    main()
