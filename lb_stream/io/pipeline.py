"""The whole stream, from both topics to the tables: put together and started."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from lb_stream.contracts.settings import Settings
from lb_stream.io.checkpoint import CaughtUp, last_batch
from lb_stream.io.clock import Clock
from lb_stream.io.kafka_options import spark_options
from lb_stream.io.log import RoundLog
from lb_stream.io.outbox import Outbox
from lb_stream.io.projections import Projections
from lb_stream.stream.batch import Balancer
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
        self.query.stop()
        self.outbox.close()


def prepare(settings: Settings) -> Balancer:
    """Fence the publisher before us, open the log, finish what an earlier run has left: all that comes before the first batch."""
    stream = settings.stream
    outbox = Outbox(settings)
    outbox.open()
    log = RoundLog(stream.tables, stream.pipeline_id, stream.checkpoint)
    tables = Projections(stream.tables, stream.pipeline_id)
    published, projected = outbox.catch_up(log.since), tables.catch_up(log.since)
    if published or projected:
        logger.info("finished an earlier run: %d batches published, %d projected", published, projected)
    if last_batch(stream.checkpoint) is None:
        write_directory(stream.checkpoint, 0, dict.fromkeys(log.memories, 1))
    return Balancer(settings, log, outbox, tables, CaughtUp.at_start(settings), epoch=log.last_epoch + 1)


def start(spark: SparkSession, settings: Settings, once: bool = False) -> Running:
    """Start the stream. `once`: read what is there now, then end; the clock stands still."""
    balancer = prepare(settings)
    shards = read_records(spark, settings, spark_options(settings)).transform(to_blocks(settings)).transform(to_shards(settings))
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
