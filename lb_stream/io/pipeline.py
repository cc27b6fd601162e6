"""The whole stream, from both topics to the tables: put together and started."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from kafka.errors import KafkaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from lb_stream.contracts.settings import Settings
from lb_stream.io.checkpoint import CaughtUp, LostRecords, check_none_lost, last_batch, next_offsets, offsets_to_start
from lb_stream.io.clock import Clock
from lb_stream.io.kafka_options import spark_options
from lb_stream.io.log import LogError, RoundLog
from lb_stream.io.monitor import Monitor
from lb_stream.io.outbox import Outbox
from lb_stream.io.projections import Projections
from lb_stream.stream.batch import Balancer
from lb_stream.stream.crash import crash_point
from lb_stream.stream.directory import NEW, write_directory
from lb_stream.stream.ports import Logged, Stopped
from lb_stream.stream.source import read_records
from lb_stream.stream.transforms import to_blocks, to_shards

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Running:
    """A started stream."""

    query: StreamingQuery
    clock: Clock
    outbox: Outbox
    monitor: Monitor
    settings: Settings
    failures: list[Exception]

    def wait(self) -> None:
        """Wait until the stream ends. Raises Stopped when it failed for a reason that is known, else Spark's StreamingQueryException."""
        try:
            self.query.awaitTermination()
        except StreamingQueryException as error:
            raise self._reason(error) from error

    def _reason(self, error: StreamingQueryException) -> Exception:
        """What stands behind Spark's error: a batch's own exception, or records that Kafka has lost while we ran."""
        checkpoint = self.settings.stream.checkpoint
        if self.failures:
            return self.failures[-1] if isinstance(self.failures[-1], Stopped) else error
        if "CONCURRENT_STREAM_LOG_UPDATE" in str(error):
            return Stopped(f"another job reads with the checkpoint {checkpoint}: this one stops (each needs one of its own)")
        try:
            check_none_lost(self.settings, next_offsets(checkpoint), new_checkpoint=False)
        except LostRecords as lost:
            return lost
        except KafkaError as away:
            logger.warning("Kafka can't be asked whether it has lost records: %s", away)
        return error

    def stop(self) -> None:
        """Stop ticking, let the query end, release the connections."""
        self.clock.stop()
        try:
            self.query.stop()
        finally:
            self.monitor.stop()
            self.outbox.close()


def _open(settings: Settings, outbox: Outbox, fenced: bool) -> tuple[RoundLog, Projections]:
    """Log and tables. Raises LogError when log, tables and Kafka don't belong together."""
    stream = settings.stream
    log = RoundLog(stream.tables, stream.pipeline_id, stream.checkpoint)
    tables = Projections(stream.tables, stream.pipeline_id)
    outbox.resume(otherwise=0 if tables.newest is None else tables.newest + 1, fenced=fenced)
    if outbox.watermark > log.last_seq + 1:
        raise LogError(
            f"{outbox.watermark} batches of the pipeline {stream.pipeline_id!r} have been published, but the log in {stream.tables} "
            f"ends with number {log.last_seq}: restore its tables, or start a new pipeline with another stream.pipeline_id"
        )
    return log, tables


def _starting(settings: Settings, log: RoundLog) -> str:
    """Where a new checkpoint begins: where the log ends, so that what has been decided on isn't read again. Raises LostRecords."""
    stream, topics = settings.stream, (settings.topics.reports, settings.topics.commands)
    new = last_batch(stream.checkpoint) is None
    wanted = next_offsets(stream.checkpoint)
    if new:
        wanted = {place: offset for place, offset in log.next_offsets().items() if place[0] in topics}
    if warning := check_none_lost(settings, wanted, new):
        logger.warning("%s", warning)
    return json.dumps(offsets_to_start(settings, wanted)) if new and log.last_seq >= 0 else stream.starting_offsets


def prepare(settings: Settings) -> tuple[Balancer, str]:
    """Fence the publisher before us, open the log, finish what an earlier run has left: all that comes before the first batch.

    Returns the balancer and where a new checkpoint begins to read. Raises Stopped: LogError when log, tables and Kafka don't belong
    together, LostRecords when Kafka has deleted what comes next.
    """
    stream = settings.stream
    outbox = Outbox(settings)
    log, _ = _open(settings, outbox, fenced=False)  # a job that can't run shuts none out that does
    starting = _starting(settings, log)
    outbox.fence()  # before the log is read: whoever logs after this can't publish it
    crash_point("after_fence")
    log, tables = _open(settings, outbox, fenced=True)
    published = outbox.catch_up(log.since)
    crash_point("in_catch_up")
    projected = tables.catch_up(log.since)
    if published or projected:
        logger.info("finished an earlier run: %d batches published, %d projected", published, projected)
    if last_batch(stream.checkpoint) is None:
        write_directory(stream.checkpoint, 0, dict.fromkeys(log.memories, NEW))

    def finish(logged: Logged) -> None:
        outbox.publish(logged)
        tables.project(logged)

    log.meanwhile = finish
    return Balancer(settings, log, outbox, tables, CaughtUp.at_start(settings), epoch=log.last_epoch + 1), starting


def start(spark: SparkSession, settings: Settings, once: bool = False) -> Running:
    """Start the stream. `once`: read what is there now, then end; the clock stands still. Raises Stopped as `prepare` does."""
    balancer, starting = prepare(settings)
    monitor = Monitor(settings.stream, balancer.epoch, app=lambda: balancer.log.app, memories=lambda: balancer.log.memories)
    balancer.observer = monitor
    failures: list[Exception] = []

    def batch(shards: DataFrame, batch_id: int) -> None:
        try:
            balancer(shards, batch_id)
        except Exception as error:  # Spark's own exception tells it as text only
            failures.append(error)
            raise

    records = read_records(spark, settings, spark_options(settings), starting)
    shards = records.transform(to_blocks(settings)).transform(to_shards(settings))
    writer = shards.writeStream.queryName(settings.stream.pipeline_id).outputMode("update").foreachBatch(batch)
    writer = writer.option("checkpointLocation", settings.stream.checkpoint)
    if once:
        writer = writer.trigger(availableNow=True)
    elif settings.stream.trigger_interval_ms:
        writer = writer.trigger(processingTime=f"{settings.stream.trigger_interval_ms} milliseconds")
    running = Running(writer.start(), Clock(settings, balancer.epoch), balancer.outbox, monitor, settings, failures)
    monitor.start(running.query)
    if not once:
        running.clock.start()
    logger.info("epoch %d, continuing after batch %d of the log", balancer.epoch, balancer.log.last_seq)
    return running
