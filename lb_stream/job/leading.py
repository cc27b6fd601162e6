"""The two roles of a job: it leads a pipeline, or stands by to take over.

A standby that leads stands by again once it is fenced or hands over.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.outbox import Fenced
from lb_stream.io.leadership.leader import is_leader
from lb_stream.io.leadership.membership import Member
from lb_stream.job.metrics.standby import StandbyPage
from lb_stream.job.running import MAX_MESSAGE_LENGTH, NEW_LINE, SharedCheckpoint, Stop, Stuck
from lb_stream.job.supervise import run
from lb_stream.job.warm_up import WarmUp
from lb_stream.store import tables_of
from lb_stream.stream.ports import FatalError, StreamError

logger = logging.getLogger(__name__)

POLL_S = 0.2
"""How often a standby checks whether to warm up or stop."""
STOP_GRACE_S = 10.0
"""How long a stop waits for the warm-up to end."""
SPARK_LOG_LEVEL = "WARN"
"""The level in conf/log4j2.properties."""


class ShutOut(FatalError):
    """Another job leads now, and has fenced this one."""


def lead(spark: SparkSession, settings: Settings, member: Member, once: bool, stop: Stop) -> None:
    """Run the stream until it ends, a stop is requested, or this job is to hand over.

    Raises ShutOut, else what `run` raises.
    """
    in_order = True
    member.begin_leading()
    try:
        run(spark, settings, member, once, lambda: stop() or member.hand_over is not None)
    except Stuck:
        # The caller ends the process at once.
        raise
    except Exception as error:
        if (shut_out := find_shut_out(settings, member, error)) is None:
            raise
        in_order = False
        raise shut_out from error
    finally:
        if member.hand_over is not None and not stop():
            logger.info(
                "handed over to %s, as %s asked",
                member.hand_over.to or "any standby",
                member.hand_over.by or "an operator",
            )
        member.end_leading(in_order)


def stand_by(spark: SparkSession, settings: Settings, member: Member, stop: Stop) -> None:
    """Stand by and lead, in turns, until a stop is requested.

    Raises the error that ends a leader, unless that is ShutOut.
    """
    warm_up = WarmUp(spark, settings)
    member.ready = True
    while not stop():
        if not _wait_for_turn(settings, member, warm_up, stop):
            return
        logger.info("taking over the pipeline %r", settings.stream.pipeline_id)
        spark.sparkContext.setLogLevel(SPARK_LOG_LEVEL)
        try:
            lead(spark, settings, member, False, stop)
        except ShutOut as error:
            logger.warning("%s. It stands by", error)
        member.warm = True


def _wait_for_turn(settings: Settings, member: Member, warm_up: WarmUp, stop: Stop) -> bool:
    """Stand by until it is this job's turn. Returns False if a stop was requested first."""
    logger.info(
        "standing by for the pipeline %r as %s", settings.stream.pipeline_id, member.instance
    )
    page = StandbyPage(settings.stream, member, settings.metrics)
    try:
        while not (is_to_lead := member.wait_to_lead(POLL_S)) and not stop():
            warm_up.run_if_due(
                has_leader=member.standing.tick is not None and not member.standing.vacant
            )
            member.warm = member.warm or warm_up.done
        return is_to_lead
    finally:
        # A job that is to lead doesn't wait for the end of its warm-up.
        warm_up.cancel(STOP_GRACE_S if stop() else 0.0)
        page.stop()


def find_shut_out(settings: Settings, member: Member, error: Exception) -> ShutOut | None:
    """Return ShutOut if the reason of an error is that another job leads; None: it is not.

    None also if this job has never led.
    """
    stream = settings.stream
    if not isinstance(error, Fenced | SharedCheckpoint | CommitFailedError) and not (
        member.clock.epoch and _another_leads(settings)
    ):
        return None
    if isinstance(error, StreamError):
        return ShutOut(str(error))
    message = str(error).partition(NEW_LINE)[0][:MAX_MESSAGE_LENGTH]
    return ShutOut(
        f"another job of the pipeline {stream.pipeline_id!r} leads now, so this one has failed "
        f"({type(error).__name__}: {message})"
    )


def _another_leads(settings: Settings) -> bool:
    """Return whether another job leads; False if the table can't be read."""
    with suppress(Exception):
        return not is_leader(tables_of(settings.stream), settings.stream.pipeline_id)
    return False
