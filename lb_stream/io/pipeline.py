"""The whole stream, from both topics to the tables: put together and started."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from lb_stream.contracts.settings import Settings
from lb_stream.io.checkpoint import CaughtUp, last_batch, offsets_to_start
from lb_stream.io.clock import Clock
from lb_stream.io.kafka_options import spark_options
from lb_stream.io.log import LogError, RoundLog
from lb_stream.io.outbox import Outbox
from lb_stream.io.projections import Projections
from lb_stream.stream.batch import Balancer
from lb_stream.stream.crash import crash_point
from lb_stream.stream.directory import write_directory
from lb_stream.stream.source import read_records
from lb_stream.stream.transforms import to_blocks, to_shards

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Running:
    """A started stream."""

    query: StreamingQuery
    clock: Clock
    outbox: Outbox

    def stop(self) -> None:
        """Stop ticking, let the query end, release the connections."""
        self.clock.stop()
        try:
            self.query.stop()
        finally:
            self.outbox.close()


def prepare(settings: Settings) -> tuple[Balancer, str]:
    """Fence the publisher before us, open the log, finish what an earlier run has left: all that comes before the first batch.

    Returns the balancer and where a new checkpoint begins to read. Raises LogError when log, tables and Kafka don't belong together.
    """
    stream = settings.stream
    outbox = Outbox(settings)
    outbox.fence()  # before the log is read: nobody else appends to it from now on
    crash_point("after_fence")
    log = RoundLog(stream.tables, stream.pipeline_id, stream.checkpoint)
    tables = Projections(stream.tables, stream.pipeline_id)
    outbox.resume(otherwise=0 if tables.newest is None else tables.newest + 1)
    if outbox.watermark > log.last_seq + 1:
        raise LogError(
            f"{outbox.watermark} batches of the pipeline {stream.pipeline_id!r} have been published, but the log in {stream.tables} "
            f"ends with number {log.last_seq}: restore its tables, or start a new pipeline with another stream.pipeline_id"
        )
    published = outbox.catch_up(log.since)
    crash_point("in_catch_up")
    projected = tables.catch_up(log.since)
    if published or projected:
        logger.info("finished an earlier run: %d batches published, %d projected", published, projected)
    starting = stream.starting_offsets
    if last_batch(stream.checkpoint) is None:
        write_directory(stream.checkpoint, 0, dict.fromkeys(log.memories, 1))
        if log.last_seq >= 0:  # a new checkpoint goes on where the log ends: what has been decided on isn't read again
            starting = json.dumps(offsets_to_start(settings, log.next_offsets()))
    return Balancer(settings, log, outbox, tables, CaughtUp.at_start(settings), epoch=log.last_epoch + 1), starting


def start(spark: SparkSession, settings: Settings, once: bool = False) -> Running:
    """Start the stream. `once`: read what is there now, then end; the clock stands still. Raises LogError as `prepare` does."""
    balancer, starting = prepare(settings)
    records = read_records(spark, settings, spark_options(settings), starting)
    shards = records.transform(to_blocks(settings)).transform(to_shards(settings))
    writer = shards.writeStream.queryName(settings.stream.pipeline_id).outputMode("update").foreachBatch(balancer)
    writer = writer.option("checkpointLocation", settings.stream.checkpoint)
    if once:
        writer = writer.trigger(availableNow=True)
    elif settings.stream.trigger_interval_ms:
        writer = writer.trigger(processingTime=f"{settings.stream.trigger_interval_ms} milliseconds")
    running = Running(writer.start(), Clock(settings, balancer.epoch), balancer.outbox)
    if not once:
        running.clock.start()
    logger.info("epoch %d, continuing after batch %d of the log", balancer.epoch, balancer.log.last_seq)
    return running
