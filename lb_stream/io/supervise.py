"""The stream, begun anew when Kafka was away: what a supervisor would do, without the half minute that a new Spark takes."""

from __future__ import annotations

import logging
import time

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from pyspark.sql import SparkSession

from lb_stream.contracts.settings import Settings
from lb_stream.io.damage import fault_of_machine
from lb_stream.io.kafka_options import client_options
from lb_stream.io.outbox import KafkaAway
from lb_stream.io.pipeline import start
from lb_stream.io.running import Stuck, WorkerDied
from lb_stream.stream.ports import Stopped

logger = logging.getLogger(__name__)

MOST_RESTARTS = 5
"""So often the stream begins anew without having finished a batch in between."""


def run(spark: SparkSession, settings: Settings, once: bool = False) -> None:
    """Run the stream until it ends. When Kafka was away it begins anew, as after a restart, as soon as Kafka answers; at once when a
    batch was lost with its Python workers.

    Raises Stopped when it can't go on (a file that is damaged and a full disk are told so, too), KafkaAway when beginning anew doesn't help
    either; Stuck without having stopped it: that would take as long as the batch.
    """
    restarts = 0
    while True:
        running = None
        try:
            running = start(spark, settings, once)
            running.wait()
            return
        except (KafkaAway, KafkaError, WorkerDied) as error:
            restarts = 0 if running is not None and running.batches.done else restarts + 1
            if restarts > MOST_RESTARTS:
                raise
            logger.warning("%s: the stream begins anew%s", error, "" if isinstance(error, WorkerDied) else " once Kafka answers")
        except Stuck:
            running = None
            raise
        except Stopped:
            raise
        except Exception as error:
            if (fault := fault_of_machine(settings, error)) is not None:
                raise fault from error
            raise
        finally:
            if running is not None:
                running.stop()
        wait_for_kafka(settings)


def wait_for_kafka(settings: Settings) -> None:
    """Come back when Kafka answers, which may be never."""
    while True:
        try:
            KafkaAdminClient(**client_options(settings)).close()
            return
        except KafkaError:
            time.sleep(2)
