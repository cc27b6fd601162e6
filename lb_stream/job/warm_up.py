"""Warms a standby up by a run of the whole stream on the last records.

The run has its own checkpoint and tables. After it, Java's classes are loaded, Spark's code is
generated, and Python workers run.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from threading import Event, Thread

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from lb_stream.contracts.reads import Reads
from lb_stream.contracts.settings import SecuritySettings, Settings
from lb_stream.io.kafka.checkpoint import StartBacklog, read_offset_bounds
from lb_stream.io.kafka.options import spark_options
from lb_stream.io.leadership.leader import this_host
from lb_stream.io.tables.log import RoundLog
from lb_stream.io.tables.projections import Projections
from lb_stream.store import Store, checkpoint_of, tables_of
from lb_stream.stream.batch import Balancer
from lb_stream.stream.ports import Logged
from lb_stream.stream.shards.directory import write_directory
from lb_stream.stream.source import read_records
from lb_stream.stream.transforms import to_blocks, to_shards

logger = logging.getLogger(__name__)

INTERVAL_S = 40.0
"""Time between two warm-ups. Idle Python workers end after a minute."""
FIRST_RUNS = 8
"""The first warm-ups follow without a pause, as the JVM compiles code that has run often."""
LAST_RECORDS = 60
"""Records of each partition that a warm-up reads."""
BATCH_RECORDS = 60
"""Most records of a batch, so that there are several batches."""
PARTITIONS = "spark.sql.shuffle.partitions"


class NoPublisher:
    """A publisher that publishes nothing."""

    def publish(self, logged: Logged, reads: Sequence[Reads] = ()) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class WarmUp:
    """Runs warm-ups in a thread of its own, while the job stands by."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark, self._settings = spark, settings
        self._thread: Thread | None = None
        self._stop = Event()
        self._due, self._runs = 0.0, 0
        self.done = False

    def run_if_due(self, has_leader: bool) -> None:
        """Begin a warm-up if one is due.

        None begins without a leader: then this job is about to lead.
        """
        is_running = self._thread is not None and self._thread.is_alive()
        if not has_leader or is_running or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + INTERVAL_S
        self._stop.clear()
        self._thread = Thread(target=self._run, name="warm-up", daemon=True)
        self._thread.start()

    def cancel(self, wait_s: float) -> None:
        """Cancel the running warm-up, and wait at most `wait_s` for its end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=wait_s)
        self._due = 0.0

    def _run(self) -> None:
        """Run one warm-up, and note when the next one is due."""
        began = time.monotonic()
        try:
            self._stream()
        # A failure is no reason to end: a job that isn't warm only takes over more slowly.
        except Exception as error:
            if not self._stop.is_set():
                logger.warning(
                    "the warm-up has failed (%s: %s)",
                    type(error).__name__,
                    str(error).partition("\n")[0],
                )
            return
        if not self._stop.is_set():
            if not self.done:
                logger.info("warm after %.1f s", time.monotonic() - began)
            self.done = True
            self._runs += 1
            self._due = time.monotonic() + (INTERVAL_S if self._runs >= FIRST_RUNS else 0.0)

    def _stream(self) -> None:
        """Run the stream on the last records, then delete its folder."""
        stream = self._settings.stream
        folder = f"{stream.checkpoint.rstrip('/')}-warm-up-{this_host()}-{os.getpid()}"
        # Keep the number of partitions of the session, which is that of the last checkpoint.
        partitions = int(self._spark.conf.get(PARTITIONS) or stream.shuffle_partitions)
        changed = {
            "tables": f"{folder}/tables",
            "checkpoint": f"{folder}/checkpoint",
            "crash_at": "",
            "max_offsets_per_trigger": BATCH_RECORDS,
            "shuffle_partitions": partitions,
        }
        open_ = SecuritySettings()  # records are read to warm up, and nothing is obeyed
        own = self._settings.model_copy(
            update={"stream": stream.model_copy(update=changed), "security": open_}
        )
        store = Store.at(folder, stream.store_options, "stream.checkpoint")
        _delete(store)
        try:
            query = self._start_query(own)
            while query.isActive and not self._stop.is_set():
                query.awaitTermination(0.2)  # type: ignore[arg-type] # takes fractions of a second
            query.stop()
        finally:
            _delete(store)

    def _start_query(self, own: Settings) -> StreamingQuery:
        """Start the stream with the warm-up's settings."""
        stream = own.stream
        root, checkpoint = tables_of(stream), checkpoint_of(stream)
        write_directory(checkpoint, 0, 1, {})
        log = RoundLog(root, stream.pipeline_id, checkpoint)
        tables = Projections(root, stream.pipeline_id)
        balancer = Balancer(own, log, NoPublisher(), tables, StartBacklog(checkpoint), epoch=1)
        begin, end = read_offset_bounds(own)
        # The offsets to begin from.
        starting: dict[str, dict[str, int]] = {}
        for (topic, number), offset in end.items():
            starting.setdefault(topic, {})[str(number)] = max(
                begin[topic, number], offset - LAST_RECORDS
            )
        # The query.
        records = read_records(self._spark, own, spark_options(own), json.dumps(starting))
        shards = records.transform(to_blocks(own, 1)).transform(to_shards(own, 1))
        writer = (
            shards.writeStream.queryName(f"{stream.pipeline_id}-warm-up")
            .outputMode("update")
            .foreachBatch(balancer)
        )
        return (
            writer.option("checkpointLocation", checkpoint.for_hadoop)
            .trigger(availableNow=True)
            .start()
        )


def _delete(folder: Store) -> None:
    """Delete a folder as far as possible."""
    with suppress(OSError):
        folder.delete_all()
