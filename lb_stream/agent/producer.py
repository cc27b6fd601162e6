"""A Kafka producer that goes on after Kafka was away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from lb_stream.access.refusals import AGAIN_S

log = logging.getLogger(__name__)

PARTING_S = 2.0
"""How long a producer that is replaced may take for what it can still deliver."""


class RecoveringProducer:
    """kafka-python's idempotent producer, replaced by a new one when a record of it is lost.

    One whose batch has expired while Kafka was away discards its producer id and never asks for
    another (3.0.12): it keeps all later records in its memory and tells nothing. One whose batch
    was refused keeps that error for good. `make` connects a new one, or raises KafkaError.
    `refused` tells whether an error, met while writing, is a refusal: then the next one is made
    after AGAIN_S.
    """

    def __init__(
        self, make: Callable[[], KafkaProducer], refused: Callable[[Exception, str], bool]
    ) -> None:
        self._make, self._producer, self._refused = make, make(), refused
        self._failed: KafkaProducer | None = None
        self._wait_until = 0.0  # time.monotonic

    def send(self, topic: str, **record: Any) -> Any:
        """Send a record, as `KafkaProducer.send` does.

        Any thread may call it. Raises KafkaError.
        """
        producer = self._producer

        def note(error: Exception) -> None:
            self._failed = producer
            self._pause_if_refused(error)

        try:
            return producer.send(topic, **record).add_errback(note)
        except KafkaError as error:
            note(error)
            raise

    def tend(self) -> None:
        """Replace the producer if it has lost a record and Kafka answers.

        One thread calls it, often.
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
        _close(old, PARTING_S)

    def _pause_if_refused(self, error: Exception) -> None:
        if self._refused(error, "Write"):
            self._wait_until = time.monotonic() + AGAIN_S

    def close(self, timeout: float) -> None:
        """Deliver what is still waiting, for so many seconds.

        Raises KafkaError when something is left.
        """
        if (error := _close(self._producer, timeout)) is not None:
            raise error


def _close(producer: KafkaProducer, timeout: float) -> KafkaError | None:
    try:
        producer.close(timeout=timeout)
    except KafkaError as error:
        # kafka-python leaves such a producer open and would try again, loudly, when it is
        # collected.
        producer._sender.force_close()
        producer._closed = True
        return error
    return None
