"""Restarts the stream after transient errors, in the same Spark: a new one takes half a minute."""

from __future__ import annotations

import logging
import time

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from pyspark.sql import SparkSession

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import client_options
from lb_stream.io.kafka.outbox import Fenced, KafkaUnavailable
from lb_stream.io.kafka.poison_records import Replan, forgive_last_start
from lb_stream.io.kafka.rights import REFUSALS, build_denial
from lb_stream.io.leadership.leader import is_leader
from lb_stream.io.leadership.membership import Member
from lb_stream.io.messages.errors import error_chain
from lb_stream.job.damage import find_machine_fault
from lb_stream.job.failures import (
    KAFKA_PAUSES,
    PAUSES,
    Patience,
    TransientError,
    find_failure,
)
from lb_stream.job.pipeline import start
from lb_stream.job.running import Running, SharedCheckpoint, Stop, Stuck, never
from lb_stream.job.session import renew_daemon
from lb_stream.store import tables_of
from lb_stream.stream.ports import StreamError

logger = logging.getLogger(__name__)

_ONCE = ", once Kafka answers"

ANSWER_MS = 5_000
"""How long one question whether Kafka answers may take; the client asks each second meanwhile."""
LOOK_S = 0.2
"""Pause between two such questions."""


def run(
    spark: SparkSession, settings: Settings, member: Member, once: bool = False, stop: Stop = never
) -> None:
    """Run the stream until it ends or a stop is requested.

    The stream restarts after a transient error: Kafka or a disk didn't answer, Python workers or
    executors ended. The pause before that grows each time. The stream restarts at once if a batch
    must be planned anew, and, once only, if a fenced job has written into its checkpoint.

    Raises FatalError if it can't go on (a damaged file, a full disk, another job that leads),
    KafkaUnavailable or TransientError if no batch ends for `stream.batch_timeout_ms`, and Stuck,
    without stopping the stream, which would wait for the batch.
    """
    patience = Patience(settings.stream.batch_timeout_ms / 1000)
    has_crossed = False
    backlog = None
    while not stop():
        running = None
        try:
            running = start(spark, settings, member, once, backlog)
            logger.info("%s", describe_ready(settings))
            running.wait(stop)
            return
        except Replan as error:
            logger.warning("%s: the stream begins anew", error)
            # The backlog stays, as the job has missed no record.
            backlog = running.batches.balancer.backlog if running is not None else None
            continue
        except Stuck:
            # Stopping the stream would wait for the batch.
            running = None
            raise
        except Exception as error:
            backlog = None
            reason = _find_reason(settings, error)
            if _is_no_records_fault(reason):
                forgive_last_start(settings)
            # A fenced job may write into the checkpoint before it ends, but only once.
            if not has_crossed and _is_older_job_at_checkpoint(settings, reason):
                has_crossed = True
                logger.warning(
                    "an older job, which is fenced now, has written into the checkpoint: the "
                    "stream begins anew"
                )
                continue
            # After a transient error the stream restarts after a pause; any other ends the job.
            pause_s = _find_pause(patience, reason, running)
            if pause_s is None:
                raise reason from (error if reason is not error else error.__cause__)
            if isinstance(reason, TransientError) and reason.daemon_lost:
                renew_daemon(spark)
            logger.warning(
                "%s: the stream begins anew in %.3g s%s",
                reason,
                pause_s,
                "" if isinstance(reason, TransientError) else _ONCE,
            )
        finally:
            _end(spark, settings, running, stop())
        _wait(pause_s, stop)
        wait_for_kafka(settings, stop)
        require_lead(settings, member)


def _find_pause(patience: Patience, reason: Exception, running: Running | None) -> float | None:
    """Return how long to wait before the next try (s); None if the job ends."""
    if not isinstance(reason, KafkaUnavailable | KafkaError | TransientError):
        return None
    pauses = PAUSES if isinstance(reason, TransientError) else KAFKA_PAUSES
    return patience.next_pause_s(running is not None and running.batches.done > 0, pauses)


def _is_no_records_fault(reason: Exception) -> bool:
    """Return whether the end of a run has a reason that can't be a poison record."""
    if isinstance(reason, TransientError):
        return not reason.by_a_record
    return isinstance(reason, StreamError | KafkaUnavailable | KafkaError)


def _is_older_job_at_checkpoint(settings: Settings, reason: Exception) -> bool:
    """Return whether a job that this one has fenced has written into the checkpoint."""
    return isinstance(reason, SharedCheckpoint) and is_leader(
        tables_of(settings.stream), settings.stream.pipeline_id
    )


def require_lead(settings: Settings, member: Member) -> None:
    """Raise Fenced if this job has led, and another job leads now."""
    stream = settings.stream
    if member.clock.epoch and not is_leader(tables_of(stream), stream.pipeline_id):
        raise Fenced(
            f"another job of the pipeline {stream.pipeline_id!r} has begun to lead while this one "
            "was held up: this one stops"
        )


def _find_reason(settings: Settings, error: Exception) -> Exception:
    """Return the reason of a failure: a missing right, a transient error, a fault of the machine.

    Returns the error itself if no reason is found.
    """
    if isinstance(error, REFUSALS):
        return build_denial(settings, error)
    if isinstance(error, StreamError | KafkaUnavailable | KafkaError):
        return error
    return (
        find_failure("\n".join(map(str, error_chain(error))))
        or find_machine_fault(settings, error)
        or error
    )


def _wait(seconds: float, stop: Stop) -> None:
    """Wait for `seconds`, or until a stop is requested."""
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.2))


def _end(spark: SparkSession, settings: Settings, running: Running | None, requested: bool) -> None:
    """Stop the stream, without Spark's log if the stop was requested."""
    if requested:
        forgive_last_start(settings)
        # Spark logs a long trace for each interrupted thread.
        spark.sparkContext.setLogLevel("OFF")
    if running is not None:
        running.stop()


def describe_ready(settings: Settings) -> str:
    """Return the message of a job that is ready."""
    kafka, topics, stream = settings.kafka.bootstrap_servers, settings.topics, settings.stream
    return (
        f"ready: reads {topics.reports} and {topics.commands} at {kafka}; tables in "
        f"{stream.tables}, checkpoint {stream.checkpoint}; "
        f"Ctrl-C or SIGTERM ends it"
    )


def wait_for_kafka(settings: Settings, stop: Stop = never) -> None:
    """Wait until Kafka answers, or until a stop is requested. Raises AccessDenied."""
    while not stop():
        try:
            KafkaAdminClient(**client_options(settings), bootstrap_timeout_ms=ANSWER_MS).close()
            return
        except REFUSALS as error:
            raise build_denial(settings, error) from error
        except KafkaError:
            _wait(LOOK_S, stop)
