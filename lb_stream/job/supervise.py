"""Begins the stream anew when Kafka was away, as a supervisor would, but without the half minute that a new Spark takes."""

from __future__ import annotations

import logging
import time

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from pyspark.sql import SparkSession

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import client_options
from lb_stream.io.kafka.outbox import KafkaAway
from lb_stream.io.kafka.rights import REFUSALS, denied
from lb_stream.io.kafka.set_aside import Replan, excuse
from lb_stream.io.leadership.leader import leads
from lb_stream.job.damage import fault_of_machine
from lb_stream.job.pipeline import start
from lb_stream.job.running import Running, SharedCheckpoint, Stop, Stuck, WorkerDied, never
from lb_stream.stream.ports import Stopped

logger = logging.getLogger(__name__)

MOST_RESTARTS = 5
"""So often the stream begins anew without having finished a batch in between."""


def run(spark: SparkSession, settings: Settings, once: bool = False, stop: Stop = never) -> None:
    """Run the stream until it ends or a stop is asked for. When Kafka was away it begins anew, as after a restart, once Kafka answers.

    It begins anew at once when a batch was lost with its Python workers or must be planned otherwise, and, a single time, when an older
    job, shut out of publishing but not ended yet, has written into its checkpoint. Raises Stopped when it can't go on (a damaged file and
    a full disk are told so, too), KafkaAway when beginning anew doesn't help, Stuck without having stopped the stream: that would take as
    long as the batch.
    """
    restarts, crossed = 0, False
    caught_up = None
    while not stop():
        running = None
        try:
            running = start(spark, settings, once, caught_up)
            logger.info("%s", ready(settings))
            running.wait(stop)
            return
        except REFUSALS as error:
            excuse(settings)
            raise denied(settings, error) from error
        except Replan as error:
            logger.warning("%s: the stream begins anew", error)
            caught_up = running.batches.balancer.caught_up if running is not None else None  # nothing has been missed meanwhile
            continue
        except (KafkaAway, KafkaError, WorkerDied) as error:
            caught_up = None
            if not isinstance(error, WorkerDied):
                excuse(settings)
            restarts = 0 if running is not None and running.batches.done else restarts + 1
            if restarts > MOST_RESTARTS:
                raise
            logger.warning("%s: the stream begins anew%s", error, "" if isinstance(error, WorkerDied) else " once Kafka answers")
        except Stuck:
            running = None
            raise
        except Stopped as error:
            excuse(settings)
            if crossed or not isinstance(error, SharedCheckpoint) or not leads(settings.stream.tables, settings.stream.pipeline_id):
                raise
            caught_up, crossed = None, True
            logger.warning("an older job, shut out already, wrote into the checkpoint at the same time: the stream begins anew")
            continue
        except Exception as error:
            if (fault := fault_of_machine(settings, error)) is not None:
                excuse(settings)
                raise fault from error
            raise
        finally:
            _end(spark, settings, running, stop())
        wait_for_kafka(settings, stop)


def _end(spark: SparkSession, settings: Settings, running: Running | None, asked: bool) -> None:
    if asked:
        excuse(settings)
        spark.sparkContext.setLogLevel("OFF")  # what is interrupted says so at length
    if running is not None:
        running.stop()


def ready(settings: Settings) -> str:
    """The job's message once it reads."""
    kafka, topics, stream = settings.kafka.bootstrap_servers, settings.topics, settings.stream
    return (
        f"ready: reads {topics.reports} and {topics.commands} at {kafka}; tables in {stream.tables}, checkpoint {stream.checkpoint}; "
        f"Ctrl-C or SIGTERM ends it"
    )


def wait_for_kafka(settings: Settings, stop: Stop = never) -> None:
    """Wait until Kafka answers, however long, or until a stop is asked for. Raises Denied."""
    while not stop():
        try:
            KafkaAdminClient(**client_options(settings), bootstrap_timeout_ms=5_000).close()
            return
        except REFUSALS as error:
            raise denied(settings, error) from error
        except KafkaError:
            time.sleep(2)
