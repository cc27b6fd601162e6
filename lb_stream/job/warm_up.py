"""Makes a job that stands by warm: the whole stream, on a few of the last records, with a
checkpoint and tables of its own.

So classes are loaded, code is generated, Python workers run. Done several times at first, as the
JVM compiles what has run often; then now and then, as idle workers end after a minute.
"""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import suppress
from threading import Event, Thread

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from lb_stream.contracts.settings import Settings
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

EVERY_S = 40.0
AT_FIRST = 8
"""So often one after another, before that."""
LAST_RECORDS = 60
"""Of each partition."""
PARTITIONS = "spark.sql.shuffle.partitions"
IN_A_BATCH = 60
"""Records: a start, and batches after it."""


class NoPublisher:
    """A publisher that publishes nothing."""

    def publish(self, logged: Logged) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class WarmUp:
    """Runs beside whoever waits: `keep` begins one when it is due."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark, self._settings = spark, settings
        self._thread: Thread | None = None
        self._stop = Event()
        self._due, self._runs = 0.0, 0
        self.done = False

    def run_if_due(self, somebody_leads: bool) -> None:
        """Begin one, if it is time for it.

        Where nobody leads this job is about to, and gets warm by that.
        """
        if (
            not somebody_leads
            or time.monotonic() < self._due
            or (self._thread is not None and self._thread.is_alive())
        ):
            return
        self._due = time.monotonic() + EVERY_S
        self._stop.clear()
        self._thread = Thread(target=self._run, name="warm-up", daemon=True)
        self._thread.start()

    def cancel(self, patience_s: float) -> None:
        """End the one under way; it may go on ending after so long."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=patience_s)
        self._due = 0.0

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._stream()
        except (
            Exception
        ) as error:  # whatever it is: a job that isn't warm takes over all the same, only later
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
            self._due = time.monotonic() + (EVERY_S if self._runs >= AT_FIRST else 0.0)

    def _stream(self) -> None:
        """Read the last records, decide, log, project; then forget it all."""
        stream = self._settings.stream
        folder = f"{stream.checkpoint.rstrip('/')}-warm-up-{this_host()}-{os.getpid()}"
        changed = {
            "tables": f"{folder}/tables",
            "checkpoint": f"{folder}/checkpoint",
            "crash_at": "",
            "max_offsets_per_trigger": IN_A_BATCH,
            "shuffle_partitions": int(
                self._spark.conf.get(PARTITIONS) or stream.shuffle_partitions
            ),  # those of the last checkpoint
        }
        own = self._settings.model_copy(update={"stream": stream.model_copy(update=changed)})
        left = Store.at(folder, stream.store_options, "stream.checkpoint")
        _remove(left)
        try:
            query = self._started(own)
            while query.isActive and not self._stop.is_set():
                query.awaitTermination(0.2)  # type: ignore[arg-type] # takes parts of a second, too
            query.stop()
        finally:
            _remove(left)

    def _started(self, own: Settings) -> StreamingQuery:
        stream = own.stream
        root, checkpoint = tables_of(stream), checkpoint_of(stream)
        write_directory(checkpoint, 0, 1, {})
        log, tables = (
            RoundLog(root, stream.pipeline_id, checkpoint),
            Projections(root, stream.pipeline_id),
        )
        balancer = Balancer(own, log, NoPublisher(), tables, StartBacklog(checkpoint), epoch=1)
        begin, end = read_offset_bounds(own)
        starting: dict[str, dict[str, int]] = {}
        for (topic, number), offset in end.items():
            starting.setdefault(topic, {})[str(number)] = max(
                begin[topic, number], offset - LAST_RECORDS
            )
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


def _remove(folder: Store) -> None:
    with suppress(OSError):
        folder.delete_all()
