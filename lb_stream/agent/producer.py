"""A Kafka producer that recovers after Kafka was unavailable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka import KafkaProducer
from kafka.errors import KafkaError

from lb_stream.access.refusals import AGAIN_S
from lb_stream.io.kafka.clients import close_producer

if TYPE_CHECKING:
    from lb_stream.agent.connection import SendFuture

log = logging.getLogger(__name__)

CLOSE_REPLACED_S = 2.0
"""How long a producer that is replaced may take to deliver its last records."""


class RecoveringProducer:
    """kafka-python's idempotent producer, replaced by a new one when a record of it is lost.

    A producer (3.0.12) whose batch expires while Kafka is unavailable discards its producer id and
    never gets another: it keeps all later records in its memory, without an error. A producer whose
    batch was refused repeats that error for ever.
    """

    def __init__(
        self, make: Callable[[], KafkaProducer], note_refusal: Callable[[Exception, str], bool]
    ) -> None:
        """Connect the first producer. Raises KafkaError.

        `make` connects a producer, or raises KafkaError. `note_refusal` takes an error of writing
        and returns whether it is a refusal: then the next producer is made after AGAIN_S seconds.
        """
        self._make = make
        self._producer = make()
        self._note_refusal = note_refusal
        self._failed: KafkaProducer | None = None
        self._wait_until = 0.0  # time.monotonic

    def send(self, topic: str, **record: object) -> SendFuture:
        """Send a record, as `KafkaProducer.send` does; any thread may. Raises KafkaError."""
        producer = self._producer

        def note(error: Exception) -> None:
            self._failed = producer
            self._pause_if_refused(error)

        try:
            future: SendFuture = producer.send(topic, **record)
        except KafkaError as error:
            note(error)
            raise
        future.add_errback(note)
        return future

    def recover(self) -> None:
        """Replace the producer if it has lost a record and Kafka answers.

        One thread calls this, often.
        """
        if self._failed is not self._producer or time.monotonic() < self._wait_until:
            return
        try:
            new = self._make()
        except KafkaError as error:
            log.debug("no new producer yet: %s", error)
            self._pause_if_refused(error)
            return
        old, self._producer = self._producer, new
        close_producer(old, CLOSE_REPLACED_S)

    def _pause_if_refused(self, error: Exception) -> None:
        if self._note_refusal(error, "Write"):
            self._wait_until = time.monotonic() + AGAIN_S

    def close(self, timeout: float) -> None:
        """Deliver the records that still wait, within `timeout` seconds.

        Raises KafkaError when some are left.
        """
        if (error := close_producer(self._producer, timeout)) is not None:
            raise error
