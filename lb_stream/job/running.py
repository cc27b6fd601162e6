"""A stream that has been started: waiting for it, what its end means, stopping it."""

from __future__ import annotations

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

_AWAY = re.compile(
    r"common\.errors\.(Timeout|Disconnect|Network|Coordinator|BrokerNotAvailable|LeaderNotAvailable)|Cannot "
    r"fetch record"
)
"""What Spark's own Kafka client says, among other things, when nobody answers."""

_NOT_EMPTY = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
"""What Spark says when it finds state although no batch was planned when it looked."""

LOOK_EVERY_S = 0.5
MAX_MESSAGE_LENGTH, NEW_LINE = 500, "\n"
PATIENCE_S = 20.0
"""How long a stop waits for the batch under way.

One that is interrupted says so at length, and is run again at the next start.
"""

Stop = Callable[[], bool]
"""Whether a stop has been asked for: looked at where the job can end in order."""


def never() -> bool:
    """No stop is ever asked for."""
    return False


class SharedCheckpoint(FatalError):
    """Another job writes into this job's checkpoint."""

    def __init__(self, checkpoint: str) -> None:
        super().__init__(
            f"another job reads with the checkpoint {checkpoint}: this one stops (each needs one "
            "of its own)"
        )


class BatchFailed(RuntimeError):
    """A failure as one line for Spark, which reads the text with a regular expression that a long
    trace overflows."""


class Stuck(FatalError):
    """A batch doesn't end.

    Stopping the query wouldn't end either, so whoever catches this ends the process without it.
    """


@dataclass(slots=True)
class WatchedBatches:
    """The `foreachBatch`, and how it went: Spark's own exception tells a failure as text only."""

    balancer: Balancer
    guard: BatchGuard | None = None  # who looks at a batch before it is read
    done: int = 0
    failure: Exception | None = None
    under_way: tuple[int, float] | None = (
        None  # number of the batch, when it began (time.monotonic)
    )

    def __call__(self, shards: DataFrame, batch_id: int) -> None:
        self.under_way = batch_id, time.monotonic()
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
            self.under_way = None
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
        """Wait until the stream ends, or a stop is asked for.

        Raises StreamError, KafkaUnavailable or Replan when it failed for one of their reasons,
        Stuck when a batch doesn't end, else StreamingQueryException.
        """
        try:
            # takes parts of a second, too
            while not stop() and not self.query.awaitTermination(LOOK_EVERY_S):  # type: ignore[arg-type]
                self._look()
        except StreamingQueryException as error:
            reason, cause = self._reason(error), self.batches.failure or error
            raise reason from (None if cause is reason else cause)

    def _look(self) -> None:
        """Raise Stuck when a batch takes too long: an error that ends one of Spark's threads leaves
        others waiting for it for ever."""
        limit_ms, under_way = self.settings.stream.batch_timeout_ms, self.batches.under_way
        if under_way is None or not limit_ms:
            return
        number, began = under_way
        if (time.monotonic() - began) * 1000 > limit_ms:
            raise Stuck(
                f"batch {number} has not come to an end within {limit_ms / 1000:.0f} s "
                "(stream.batch_timeout_ms): this job ends, the next "
                "start runs the batch again. The lines above may tell more; after an "
                "OutOfMemoryError: a larger --driver-memory. A batch "
                "that is only large wants a longer stream.batch_timeout_ms or a smaller "
                "stream.max_offsets_per_trigger"
            )

    def _reason(self, error: StreamingQueryException) -> Exception:
        """The cause of Spark's error: a batch's own exception, records that Kafka has lost
        meanwhile, or Kafka's absence."""
        checkpoint, said = self.settings.stream.checkpoint, f"{error}\n{self.batches.failure}"
        if isinstance(self.batches.failure, StreamError | KafkaUnavailable | Replan):
            return self.batches.failure
        if (refusal := find_denial(self.settings, said)) is not None:
            return refusal
        if "CONCURRENT_STREAM_LOG_UPDATE" in said or self._began_beside_another(said):
            return SharedCheckpoint(checkpoint)
        try:
            require_none_lost(
                self.settings,
                next_offsets(checkpoint_of(self.settings.stream)),
                new_checkpoint=False,
            )
        except REFUSALS as refused:
            return build_denial(self.settings, refused)
        except FatalError as stopped:  # lost records, a right that is missing
            return stopped
        except KafkaError as away:
            return KafkaUnavailable(f"Kafka does not answer ({away})")
        return find_failure(said) or (
            KafkaUnavailable("Kafka did not answer Spark") if _AWAY.search(said) else error
        )

    def _began_beside_another(self, said: str) -> bool:
        """Whether the checkpoint was empty when the query looked, and then held another one's first
        batch."""
        return _NOT_EMPTY in said and last_batch(checkpoint_of(self.settings.stream)) is not None

    def stop(self) -> None:
        """Let the batch under way come to its end, end the query, release the connections."""
        try:
            patience = time.monotonic() + PATIENCE_S
            while (
                self.query.isActive
                and self.query.status["isTriggerActive"]
                and time.monotonic() < patience
            ):
                time.sleep(0.1)
            self.query.stop()
        finally:
            self.monitor.stop()
            self.outbox.close()
