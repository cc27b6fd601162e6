"""A started stream: waits for its end, finds the reason, and stops it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from kafka.errors import KafkaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.checkpoint import last_batch, next_offsets, require_none_lost
from lb_stream.io.kafka.outbox import KafkaUnavailable
from lb_stream.io.kafka.poison_records import BatchGuard, Replan
from lb_stream.io.kafka.rights import REFUSALS, build_denial, find_denial
from lb_stream.job.failures import find_failure
from lb_stream.job.metrics.monitor import Monitor
from lb_stream.store import checkpoint_of
from lb_stream.stream.batch import Balancer
from lb_stream.stream.ports import FatalError, Publisher, StreamError

logger = logging.getLogger(__name__)

_NO_ANSWER = re.compile(
    r"common\.errors\."
    r"(Timeout|Disconnect|Network|Coordinator|BrokerNotAvailable|LeaderNotAvailable)"
    r"|Cannot fetch record"
)
"""Texts of Spark's Kafka client when no broker of Kafka answers."""

_NOT_EMPTY = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
"""Spark's text when it finds state that another query has written since this one began."""

POLL_S = 0.5
"""How often the running batch's time is checked."""
MAX_MESSAGE_LENGTH = 500
NEW_LINE = "\n"
STOP_GRACE_S = 20.0
"""How long a stop waits for the running batch.

An interrupted batch logs a long trace, and runs again at the next start.
"""

Stop = Callable[[], bool]
"""A function that returns whether a stop is requested, called where the job can end in order."""


def never() -> bool:
    """Return False: no stop is requested."""
    return False


class SharedCheckpoint(FatalError):
    """Another job writes into this job's checkpoint."""

    def __init__(self, checkpoint: str) -> None:
        super().__init__(
            f"another job reads with the checkpoint {checkpoint}: this one stops (each needs one "
            "of its own)"
        )


class BatchFailed(RuntimeError):
    """A batch's failure as one line: a long trace overflows one of Spark's regular expressions."""


class Stuck(FatalError):
    """A batch doesn't end.

    Stopping the query would wait for it, so the caller ends the process without that.
    """


@dataclass(slots=True)
class WatchedBatches:
    """The function that Spark calls for each batch; it keeps the exception of a failed one.

    Spark itself passes on only the exception's text. `guard`: examines a batch before it is read.
    `done`: number of finished batches. `current`: number of the running batch, and when it began
    (time.monotonic).
    """

    balancer: Balancer
    guard: BatchGuard | None = None
    done: int = 0
    failure: Exception | None = None
    current: tuple[int, float] | None = None

    def __call__(self, shards: DataFrame, batch_id: int) -> None:
        self.current = batch_id, time.monotonic()
        try:
            if self.guard is not None:
                self.guard.require_readable(batch_id)
            self.balancer(shards, batch_id)
        except Exception as error:
            self.failure = error
            raise BatchFailed(
                f"{type(error).__name__}: {str(error).partition(NEW_LINE)[0][:MAX_MESSAGE_LENGTH]}"
            ) from None
        finally:
            self.current = None
        self.done += 1


@dataclass(slots=True)
class Running:
    """A started stream."""

    query: StreamingQuery
    outbox: Publisher
    monitor: Monitor
    settings: Settings
    batches: WatchedBatches

    def wait(self, stop: Stop = never) -> None:
        """Wait until the stream ends, or a stop is requested.

        Raises the reason of a failure: StreamError, KafkaUnavailable, Replan, or Stuck if a batch
        doesn't end; StreamingQueryException if no reason is found.
        """
        try:
            while not stop():
                # Its type is int, but it takes fractions of a second.
                if self.query.awaitTermination(POLL_S):  # type: ignore[arg-type]
                    return
                self._require_progress()
        except StreamingQueryException as error:
            reason = self._find_reason(error)
            cause = self.batches.failure or error
            raise reason from (None if cause is reason else cause)

    def _require_progress(self) -> None:
        """Raise Stuck if the running batch takes longer than `stream.batch_timeout_ms`.

        If an error ends one of Spark's threads, others may wait for it for ever.
        """
        limit_ms, current = self.settings.stream.batch_timeout_ms, self.batches.current
        if current is None or not limit_ms:
            return
        number, began = current
        if (time.monotonic() - began) * 1000 > limit_ms:
            raise Stuck(
                f"batch {number} has not ended within {limit_ms / 1000:.0f} s "
                "(stream.batch_timeout_ms): this job ends, and the next start runs the batch "
                "again. The lines above may have the reason. After an OutOfMemoryError give a "
                "larger --driver-memory. If the batch is only large, set a longer "
                "stream.batch_timeout_ms or a smaller stream.max_offsets_per_trigger"
            )

    def _find_reason(self, error: StreamingQueryException) -> Exception:
        """Return the reason of Spark's error, or the error itself if no reason is found."""
        # The batch's own exception.
        if isinstance(self.batches.failure, StreamError | KafkaUnavailable | Replan):
            return self.batches.failure
        # A missing right or a shared checkpoint, by the texts.
        text = f"{error}\n{self.batches.failure}"
        if (refusal := find_denial(self.settings, text)) is not None:
            return refusal
        if "CONCURRENT_STREAM_LOG_UPDATE" in text or self._began_beside_another(text):
            return SharedCheckpoint(self.settings.stream.checkpoint)
        # Records that Kafka has deleted, a missing right, or no answer, by a question to Kafka.
        try:
            require_none_lost(
                self.settings,
                next_offsets(checkpoint_of(self.settings.stream)),
                new_checkpoint=False,
            )
        except REFUSALS as refused:
            return build_denial(self.settings, refused)
        except FatalError as fatal:
            return fatal
        except KafkaError as away:
            return KafkaUnavailable(f"Kafka does not answer ({away})")
        if (failure := find_failure(text)) is not None:
            return failure
        if _NO_ANSWER.search(text):
            return KafkaUnavailable("Kafka did not answer Spark")
        return error

    def _began_beside_another(self, text: str) -> bool:
        """Return whether another job has begun the same new checkpoint at the same time."""
        return _NOT_EMPTY in text and last_batch(checkpoint_of(self.settings.stream)) is not None

    def _write_pending_averages(self) -> None:
        """Write what `bundle_averages` lacks; if that fails, the next start does it."""
        try:
            self.batches.balancer.write_pending_averages()
        except Exception as error:
            logger.warning("bundle_averages is written by the next start: %s", error)

    def stop(self) -> None:
        """Wait for the running batch, end the query, and release the connections."""
        try:
            deadline = time.monotonic() + STOP_GRACE_S
            while (
                self.query.isActive
                and self.query.status["isTriggerActive"]
                and time.monotonic() < deadline
            ):
                time.sleep(0.1)
            self.query.stop()
            if self.batches.failure is None and self.query.exception() is None:
                self._write_pending_averages()
        finally:
            self.monitor.stop()
            self.outbox.close()
