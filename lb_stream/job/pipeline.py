"""Builds and starts the whole stream, from both topics to the tables."""

from __future__ import annotations

import gc
import json
import logging

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from lb_stream.contracts.settings import Settings
from lb_stream.contracts.tables import ROUNDS
from lb_stream.core.commands.audited import TAKE_OVER, JobChange
from lb_stream.io.kafka.batch_size import limit_batch_size
from lb_stream.io.kafka.checkpoint import (
    StartBacklog,
    last_batch,
    next_offsets,
    require_none_lost,
    starting_offsets,
    state_partitions,
)
from lb_stream.io.kafka.fairness import Fairness
from lb_stream.io.kafka.options import spark_options
from lb_stream.io.kafka.outbox import Outbox
from lb_stream.io.kafka.poison_file import RecoveryState
from lb_stream.io.kafka.poison_records import BatchGuard, plan_recovery
from lb_stream.io.leadership.leader import announce_leader
from lb_stream.io.leadership.membership import Member
from lb_stream.io.tables.delta import existing_table
from lb_stream.io.tables.formats import require_format
from lb_stream.io.tables.log import LogError, RoundLog
from lb_stream.io.tables.projections import Projections
from lb_stream.io.telemetry.opening import open_telemetry
from lb_stream.io.telemetry.port import NO_TELEMETRY, Telemetry
from lb_stream.job.metrics.monitor import Monitor
from lb_stream.job.running import Running, SharedCheckpoint, WatchedBatches
from lb_stream.settings.rights import load_rights
from lb_stream.settings.signing import SignersFile
from lb_stream.store import checkpoint_of, tables_of
from lb_stream.stream.batch import Balancer
from lb_stream.stream.ports import Backlog, Logged
from lb_stream.stream.shards.directory import ShardMap, read_asked, write_directory
from lb_stream.stream.shards.share import Share
from lb_stream.stream.source import read_records
from lb_stream.stream.task.crash import crash_point
from lb_stream.stream.transforms import to_blocks, to_shards

logger = logging.getLogger(__name__)


def _open(settings: Settings, outbox: Outbox, fenced: bool) -> tuple[RoundLog, Projections]:
    """Return log and tables.

    Raises LogError if log, tables and Kafka don't belong together, OtherFormat if this version
    can't read them.
    """
    stream = settings.stream
    if (written := existing_table(tables_of(stream), ROUNDS)) is not None:
        require_format(written)  # before anything is read or written
    tables = Projections(tables_of(stream), stream.pipeline_id)
    outbox.read_watermark(default=0 if tables.newest is None else tables.newest + 1, fenced=fenced)
    # The log is opened last, as a job that still runs logs each batch before it publishes it.
    log = RoundLog(tables_of(stream), stream.pipeline_id, checkpoint_of(stream))
    if outbox.watermark > log.last_seq + 1:
        raise LogError(
            f"{outbox.watermark} batches of the pipeline {stream.pipeline_id!r} have been "
            f"published, but the log in {stream.tables} "
            f"ends with number {log.last_seq}: restore its tables, or start a new pipeline with "
            "another stream.pipeline_id"
        )
    return log, tables


def _starting_option(settings: Settings, log: RoundLog) -> str:
    """Return Spark's option startingOffsets for a new checkpoint. Raises LostRecords.

    A new checkpoint begins at the end of the log, so that no record is decided on twice.
    """
    stream = settings.stream
    topics = (settings.topics.reports, settings.topics.commands)
    new = last_batch(checkpoint_of(stream)) is None
    wanted = next_offsets(checkpoint_of(stream))
    if new:
        wanted = log.next_offsets(topics)
    if warning := require_none_lost(settings, wanted, new):
        logger.warning("%s", warning)
    if new and log.last_seq >= 0:
        return json.dumps(starting_offsets(settings, wanted))
    return stream.starting_offsets


def prepare(
    settings: Settings, backlog: Backlog | None = None, telemetry: Telemetry = NO_TELEMETRY
) -> tuple[Balancer, str, BatchGuard]:
    """Fence earlier publishers, open the log, and finish the batches of an earlier run.

    `backlog`: that of this job's last stream, if the stream begins anew. Returns the balancer, the
    option startingOffsets, and the guard that examines each batch first. Raises LogError if log,
    tables and Kafka don't belong together, LostRecords if Kafka has deleted the next records.
    """
    outbox = Outbox(settings, telemetry)
    try:
        return _prepare(settings, outbox, backlog)
    except BaseException:
        outbox.close()
        raise


def _prepare(
    settings: Settings, outbox: Outbox, backlog: Backlog | None
) -> tuple[Balancer, str, BatchGuard]:
    """Do the work of `prepare`, which closes the outbox if this fails."""
    stream = settings.stream
    # Everything is checked before the fence, so that a job that can't run fences none that can.
    log, _ = _open(settings, outbox, fenced=False)
    starting = _starting_option(settings, log)
    # The log is read after the fence: no other job publishes the batches that it logs after that.
    outbox.fence()
    crash_point("after_fence")
    log, tables = _open(settings, outbox, fenced=True)
    # Batches that an earlier run has logged, but not published or projected.
    published = outbox.catch_up(log.since)
    crash_point("in_catch_up")
    projected = tables.catch_up(log.since)
    if published or projected:
        logger.info(
            "finished an earlier run: %d batches published, %d projected", published, projected
        )
    # This job's epoch, and the first directory of a new checkpoint.
    checkpoint = checkpoint_of(stream)
    epoch = announce_leader(tables_of(stream), stream.pipeline_id, log.last_epoch)
    if last_batch(checkpoint) is None:
        tables.clear_averages()
        write_directory(
            checkpoint,
            0,
            epoch,
            {name: ShardMap(asked=read_asked(memory)) for name, memory in log.memories.items()},
        )

    def finish(logged: Logged) -> None:
        """Finish a batch that another job has logged since."""
        outbox.publish(logged)
        tables.project(logged)

    log.on_foreign_batch = finish
    batch = last_batch(checkpoint)
    read_plan = plan_recovery(settings, is_logged=batch is not None and log.has_batch(batch))
    guard = BatchGuard(settings, read_plan, RecoveryState.read(checkpoint))
    backlog = backlog or StartBacklog.at_start(settings)
    return (
        Balancer(
            settings,
            log,
            outbox,
            tables,
            backlog,
            epoch=epoch,
            poison_records=guard,
            signers=SignersFile(settings.security) if settings.security.checks_records else None,
            rights=load_rights(settings.security),
        ),
        starting,
        guard,
    )


def _keep_partitions(spark: SparkSession, settings: Settings) -> Settings:
    """Return the settings with the checkpoint's number of partitions.

    Spark ignores any other number, and the keys of shards depend on it.
    """
    kept = state_partitions(checkpoint_of(settings.stream))
    wanted = settings.stream.shuffle_partitions
    if kept is None or kept == wanted:
        return settings
    logger.warning(
        "stream.shuffle_partitions = %d has no effect: the checkpoint %s was begun with %d, and "
        "another number needs a new checkpoint",
        wanted,
        settings.stream.checkpoint,
        kept,
    )
    spark.conf.set("spark.sql.shuffle.partitions", str(kept))
    return settings.model_copy(
        update={"stream": settings.stream.model_copy(update={"shuffle_partitions": kept})}
    )


def _start_query(writer: DataStreamWriter, settings: Settings) -> StreamingQuery:
    """Start the query.

    Raises SharedCheckpoint if another job begins the same new checkpoint at the same time.
    """
    try:
        return writer.start()
    except Py4JJavaError as error:
        if "Multiple streaming queries are concurrently using" in str(error):
            raise SharedCheckpoint(settings.stream.checkpoint) from error
        raise


def start(
    spark: SparkSession,
    settings: Settings,
    member: Member,
    once: bool = False,
    backlog: Backlog | None = None,
) -> Running:
    """Start the stream.

    `once`: read the present records, then end; send no ticks. `backlog`: as for `prepare`. Raises
    FatalError, as `prepare` does.
    """
    telemetry = open_telemetry(
        settings.otel,
        "lb-stream",
        {"service.instance.id": member.instance, "lb.pipeline": settings.stream.pipeline_id},
    )
    try:
        return _start(spark, settings, member, once, backlog, telemetry)
    except BaseException:
        telemetry.close()
        raise


def _start(
    spark: SparkSession,
    settings: Settings,
    member: Member,
    once: bool,
    backlog: Backlog | None,
    telemetry: Telemetry,
) -> Running:
    """Do the work of `start`, which closes `telemetry` if this fails."""
    # The preparation of the first batch.
    settings = _keep_partitions(spark, settings)
    balancer, starting, guard = prepare(settings, backlog, telemetry)
    if member.took_over:
        balancer.took_over = JobChange(TAKE_OVER, member.instance, member.took_over)
        member.took_over = ""
    # This job announces its lead before the query starts, as standbys wait for that.
    if not once:
        member.lead(balancer.epoch)
    logger.info("epoch %d leads the pipeline %r", balancer.epoch, settings.stream.pipeline_id)
    # The observer, the guard and the size of batches.
    share = Share.from_settings(settings.stream)
    monitor = Monitor(
        settings.stream,
        balancer.epoch,
        app=lambda: balancer.log.app,
        memories=lambda: share.select(balancer.log.memories),
        telemetry=telemetry,
        server=settings.metrics,
    )
    monitor.metrics.standbys.set_function(lambda: len(member.others))
    balancer.observer = monitor
    batches = WatchedBatches(balancer, guard)
    reading = limit_batch_size(settings, guard.read_plan.max_records)
    if not once and not guard.read_plan.max_records:
        guard.fairness = Fairness(reading.stream.max_offsets_per_trigger, balancer.backlog)
    # The query.
    records = read_records(
        spark, reading, spark_options(settings), starting, guard.read_plan.one_at_a_time
    )
    shards = records.transform(to_blocks(settings, balancer.epoch)).transform(
        to_shards(settings, balancer.epoch)
    )
    writer = (
        shards.writeStream.queryName(settings.stream.pipeline_id)
        .outputMode("update")
        .foreachBatch(batches)
    )
    writer = writer.option("checkpointLocation", checkpoint_of(settings.stream).for_hadoop)
    if once:
        writer = writer.trigger(availableNow=True)
    elif settings.stream.trigger_interval_ms:
        writer = writer.trigger(
            processingTime=f"{settings.stream.trigger_interval_ms} milliseconds"
        )
    running = Running(_start_query(writer, settings), balancer.outbox, monitor, settings, batches)
    monitor.start(running.query)
    # What the job has imported stays. To look through it takes 90 ms, every hundred batches.
    gc.freeze()
    logger.info(
        "epoch %d, continuing after batch %d of the log", balancer.epoch, balancer.log.last_seq
    )
    return running
