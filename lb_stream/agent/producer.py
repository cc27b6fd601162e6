"""A Kafka producer that goes on after Kafka was away."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

log = logging.getLogger(__name__)

PARTING_S = 2.0
"""How long a producer that is replaced may take for what it can still deliver."""


class LastingProducer:
    """kafka-python's idempotent producer, replaced by a new one when a record of it is lost.

    One whose batch has expired while Kafka was away discards its producer id and never asks for another (3.0.12): it keeps all later
    records in its memory and tells nothing. One whose batch was refused keeps that error for good. `make` connects a new one, or raises
    KafkaError.
    """

    def __init__(self, make: Callable[[], KafkaProducer]) -> None:
        self._make, self._producer = make, make()
        self._failed: KafkaProducer | None = None

    def send(self, topic: str, **record: Any) -> Any:
        """Send a record, as `KafkaProducer.send` does. Any thread may call it. Raises KafkaError."""
        producer = self._producer

        def note(_: Exception) -> None:
            self._failed = producer

        return producer.send(topic, **record).add_errback(note)

    def tend(self) -> None:
        """Replace the producer if it has lost a record and Kafka answers. One thread calls it, often."""
        if self._failed is not self._producer:
            return
        try:
            new = self._make()
        except KafkaError as error:
            log.debug("no new producer yet: %s", error)
            return
        old, self._producer = self._producer, new
        _close(old, PARTING_S)

    def close(self, timeout: float) -> None:
        """Deliver what is still waiting, for so many seconds. Raises KafkaError when something is left."""
        if (error := _close(self._producer, timeout)) is not None:
            raise error


def _close(producer: KafkaProducer, timeout: float) -> KafkaError | None:
    try:
        producer.close(timeout=timeout)
    except KafkaError as error:
        # kafka-python leaves such a producer open and would try again, loudly, when it is collected.
        producer._sender.force_close()
        producer._closed = True
        return error
    return None
