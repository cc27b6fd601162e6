"""Times each batch, counts its results, serves metrics, fills the table `batches`, sends traces.

All but the timing happens in a thread of its own, after the batch. A failure there is logged as a
warning, and the stream goes on.

Spark's own figures of a batch are read once it is over (`lastProgress`, 0.4 ms). A
StreamingQueryListener in Python would get each of their fields by a call of its own: 64 to 460 ms
for one batch with RocksDB's forty counters (PySpark 4.2, 2 cores).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Protocol

import pyarrow as pa

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.servers import MetricsSettings
from lb_stream.contracts.settings import StreamSettings
from lb_stream.contracts.tables import BATCHES
from lb_stream.io.local.http_server import HttpServer
from lb_stream.io.tables.commits import Table
from lb_stream.io.tables.compaction import COMPACT_EVERY, compact_small_files
from lb_stream.io.tables.delta import append_rows, open_table
from lb_stream.io.telemetry.port import NO_TELEMETRY, Telemetry
from lb_stream.job.metrics.batch_spans import BatchFacts, BatchTimes, batch_spans, read_batch
from lb_stream.job.metrics.broker_metrics import BrokerMetrics
from lb_stream.job.metrics.health import Health
from lb_stream.job.metrics.job_metrics import Metrics
from lb_stream.job.metrics.move_spans import move_spans
from lb_stream.job.metrics.round_figures import MemorySource, RoundFigures
from lb_stream.job.metrics.server import PATHS, serve_metrics
from lb_stream.job.metrics.spark_progress import (
    Progress,
    is_batch,
    lag_records,
    read_state,
    spark_phases,
)
from lb_stream.store import tables_of
from lb_stream.stream.ports import Logged

logger = logging.getLogger(__name__)

WRITE_EVERY_S = 10.0
"""Seconds between two writes of `batches`; a commit per batch would cost too much."""
MOST_WAITING = 1_000
"""Rows that are kept while the table can't be written; older ones are dropped."""
POLL_S = 1.0
"""How often Spark is asked when no batch begins."""


class Query(Protocol):
    """The part of Spark's StreamingQuery that gives its progress."""

    @property
    def lastProgress(self) -> Progress | None:
        """Progress of the last batch, or of the last look that found no input."""

    @property
    def recentProgress(self) -> Sequence[Progress]:
        """The last hundred of them, oldest first."""


@dataclass(slots=True, eq=False)
class _Batch:
    """One batch: its times, its counts, Spark's progress. `phases`: seconds of each."""

    batch_id: int
    started_ms: int
    phases: dict[str, float] = field(default_factory=dict)
    ended_s: float = 0.0
    logged: Logged | None = None
    counts: Mapping[str, int | None] = field(default_factory=dict)
    progress: Progress | None = None
    facts: BatchFacts | None = None  # for its trace, which has not been sent yet


class Monitor:
    """A BatchObserver. The stream calls `begin`, `done` and `finish` between `start` and `stop`.

    `app` names pipeline and checkpoint, known only once Spark has made the checkpoint; `memories`
    gives the log's own, by cluster.
    """

    def __init__(
        self,
        settings: StreamSettings,
        epoch: int,
        app: Callable[[], str],
        memories: MemorySource,
        telemetry: Telemetry = NO_TELEMETRY,
        server: MetricsSettings | None = None,
    ) -> None:
        self._server_settings = server
        self._settings, self._epoch, self._app = settings, epoch, app
        self._telemetry = telemetry
        self._figures = RoundFigures(tables_of(settings))
        self.metrics = Metrics(
            settings.pipeline_id, version("lb_stream"), epoch, memories, self._figures
        )
        self._brokers = BrokerMetrics(self._figures, memories)
        telemetry.count_lost(
            lambda signal, reason, count: self.metrics.telemetry_lost.labels(signal, reason).inc(
                count
            )
        )
        self._health = Health(settings, epoch, memories)
        self._server: HttpServer | None = None
        self._query: Query | None = None
        self._now = 0.0
        self._batch: _Batch | None = None
        self._finished: deque[_Batch] = deque()
        self._waiting: deque[_Batch] = deque(maxlen=MOST_WAITING)
        self._progress: Progress | None = None
        self._table: Table | None = None
        self._writes = 0
        self._written = time.monotonic()
        self._warned: set[str] = set()
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    # What the stream calls.

    def begin(self, batch_id: int) -> None:
        """Note that a batch begins; Spark has the progress of the batch before it."""
        self._now = time.perf_counter()
        self._batch = _Batch(batch_id, time.time_ns() // 1_000_000)
        self._wake.set()

    def done(self, phase: str) -> None:
        """Note that a phase has ended."""
        before, self._now = self._now, time.perf_counter()
        if self._batch is not None:
            self._batch.phases[phase] = self._batch.phases.get(phase, 0.0) + self._now - before

    def finish(self, logged: Logged) -> None:
        """Note that the batch has done all its work."""
        self.done("next")
        if self._batch is not None:
            self._batch.logged, self._batch.ended_s = logged, time.time()
            self._finished.append(self._batch)
            self._batch = None

    # The thread.

    def start(self, query: Query) -> None:
        """Begin to serve metrics and to write rows."""
        self._query = query
        self.metrics.last_batch.set(time.time())
        self._health.start()
        self._serve()
        self._telemetry.send_metrics((self.metrics.registry, self._brokers.registry))
        self._thread.start()

    def stop(self) -> None:
        """Count and write all finished batches, then end the server, and the sending of traces.

        Waits for the table for at most 20 s, and for traces for 2 s.
        """
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=20)
        if self._server is not None:
            self._server.stop()
        self._telemetry.close()

    @property
    def url(self) -> str | None:
        """The metrics' URL; None if they are not served."""
        return None if self._server is None else self._server.url + PATHS[0]

    def _serve(self) -> None:
        address = self._settings.metrics_address
        if address in ("", "0"):
            return
        try:
            self._server = serve_metrics(
                address,
                dict(zip(PATHS, (self.metrics.registry, self._brokers.registry), strict=True)),
                self._health.answers,
                self._server_settings,
            )
        except SettingError as error:
            logger.error("no metrics are served: %s. The stream goes on.", error)
            return
        except (OSError, OverflowError) as error:
            logger.warning(
                "no metrics are served, as %s can't be had (%s): set stream.metrics_address to a "
                "free host:port, to 127.0.0.1:0 for any "
                'free port, or to "" for none. The stream goes on.',
                address,
                error,
            )
            return
        logger.info("metrics: %s", self.url)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(POLL_S)
            self._wake.clear()
            self._work()
        self._work()
        with self._guarded("table"):
            self._write()

    def _work(self) -> None:
        while self._finished:
            batch = self._finished.popleft()
            with self._guarded("counts"):
                self._take(batch)
        with self._guarded("progress"):
            self._take_progress()
        with self._guarded("traces"):
            self._send_traces()
        if time.monotonic() - self._written >= WRITE_EVERY_S:
            with self._guarded("table"):
                self._write()

    def _take(self, batch: _Batch) -> None:
        """Count a finished batch."""
        logged, batch.logged = batch.logged, None
        assert logged is not None
        self._waiting.append(batch)
        self.metrics.batches.inc()
        self.metrics.last_batch.set(batch.ended_s)
        for phase, seconds in batch.phases.items():
            self.metrics.phase_seconds.labels(phase).observe(seconds)
        self._health.record_batch(logged, batch.ended_s)
        if self._telemetry.has_traces:
            with self._guarded("traces"):
                self._trace_decisions(batch, logged)
        batch.counts = {
            "log_seq": logged.log_seq if len(logged.rounds) else None
        } | self.metrics.count(logged)
        if self._server is not None:
            self.metrics.count_rejected(self._figures.read_batch(logged))

    def _trace_decisions(self, batch: _Batch, logged: Logged) -> None:
        """Send the spans of a batch's decisions. Its own ones wait for Spark's progress."""
        batch.facts = read_batch(logged)
        kinds = self.metrics.pending_kinds
        self._telemetry.send(move_spans(self._app(), _times(batch), logged, kinds))

    def _send_traces(self) -> None:
        """Send the traces of batches whose progress is known, or will not come any more."""
        newest = max((batch.batch_id for batch in self._waiting), default=0)
        for batch in self._waiting:
            is_due = batch.progress is not None or batch.batch_id < newest
            if batch.facts is not None and (is_due or self._stopping.is_set()):
                facts, batch.facts = batch.facts, None
                spans = batch_spans(self._app(), _times(batch), facts, batch.progress)
                self._telemetry.send(spans)

    def _take_progress(self) -> None:
        """Record Spark's new progress, also of batches that were faster than this thread."""
        last = None if self._query is None else self._query.lastProgress
        if last is None or last == self._progress:
            return
        before = -1 if self._progress is None else self._progress["batchId"]
        self._progress = last
        batches = {batch.batch_id: batch for batch in self._waiting}
        for progress in (*self._missed(before, last["batchId"]), last):
            self.metrics.record_progress(progress)
            self._health.lag_records = sum(lag_records(progress).values())
            if is_batch(progress) and progress["batchId"] in batches:
                batches[progress["batchId"]].progress = progress

    def _missed(self, before: int, last: int) -> list[Progress]:
        """Return the progress of batches between `before` and `last`."""
        if self._query is None or last <= before + 1:
            return []
        return [
            progress
            for progress in self._query.recentProgress
            if before < progress["batchId"] < last and is_batch(progress)
        ]

    def _write(self) -> None:
        """Write the complete rows; all rows once the monitor stops."""
        self._written = time.monotonic()
        newest = max((batch.batch_id for batch in self._waiting), default=0)
        rows = [
            (batch, _row(batch) | {"app": self._app(), "epoch": self._epoch})
            for batch in self._waiting
            if batch.progress is not None or batch.batch_id < newest or self._stopping.is_set()
        ]
        if not rows:
            return
        self._table = self._table or open_table(tables_of(self._settings), BATCHES)
        append_rows(
            self._table,
            BATCHES,
            pa.Table.from_pylist([row for _, row in rows], BATCHES.schema),
            f"{newest:09d}",
        )
        self._writes += 1
        if self._writes % COMPACT_EVERY == 0:
            compact_small_files(self._table)
        for batch, _ in rows:
            self._waiting.remove(batch)

    @contextmanager
    def _guarded(self, part: str) -> Iterator[None]:
        """Count each failure of a part of the monitoring, log the first one, and go on."""
        try:
            yield
        except Exception as error:
            self.metrics.monitoring_errors.labels(part).inc()
            if part not in self._warned:
                self._warned.add(part)
                logger.warning(
                    "the monitoring lacks something (%s: %s); the stream goes on",
                    part,
                    error,
                    exc_info=True,
                )


def _times(batch: _Batch) -> BatchTimes:
    return BatchTimes(batch.batch_id, batch.started_ms, batch.phases)


def _row(batch: _Batch) -> dict[str, object]:
    """Return a row of `batches`, without the columns that are the same for all rows of a run."""
    row: dict[str, object] = {
        "batch_id": batch.batch_id,
        "started_ms": batch.started_ms,
        **batch.counts,
    }
    row |= {f"{phase}_ms": 1000 * seconds for phase, seconds in batch.phases.items()}
    progress = batch.progress
    if progress is not None:
        row |= {
            f"{phase}_ms": milliseconds for phase, milliseconds in spark_phases(progress).items()
        }
        row |= {
            "whole_ms": progress["durationMs"]["triggerExecution"],
            "input_records": progress["numInputRows"],
        }
        row |= {"lag_records": sum(lag_records(progress).values()), **read_state(progress)}
    return row
