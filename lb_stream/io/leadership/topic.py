"""The signs of one pipeline's jobs on the commands topic: read to the end, or sent."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError
from pydantic import ValidationError
from pydantic_core import from_json

from lb_stream.contracts.commands import LEADERSHIP_RECORDS, LeadershipRecord
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import client_options
from lb_stream.io.leadership.leader import this_host
from lb_stream.io.leadership.succession import ReceivedRecord

LAST_RECORDS = 500
"""So many of the commands topic are looked at for signs: commands may stand between them."""
ANSWER_MS = 2_000
"""Who hasn't answered for this long is away."""
LONGEST_READING_MS = 10_000
LONGEST_SENDING_MS = 5_000
"""A sign that is older says nothing any more."""
FETCH_MS = 100
"""Kafka may keep a fetch that finds nothing for so long.

It answers nothing else on that connection then, not even where topics end.
"""
SILENCE_TICKS = 3
SOON_MS = 1_000
"""A client tries again after this long at the latest: its own 30 s would outlast most absences."""


def silence_ms(settings: Settings) -> int:
    """Who hasn't ticked for this long is dead."""
    return max(settings.stream.failover_after_ms, SILENCE_TICKS * settings.stream.tick_interval_ms)


def build_own_record(
    kind: type[LeadershipRecord], settings: Settings, epoch: int, **fields: Any
) -> Any:
    """A sign of this process, of the model `kind`."""
    name, now_ms = settings.stream.pipeline_id, time.time_ns() // 1_000_000
    given: Mapping[str, Any] = {
        "id": str(uuid.uuid4()),
        "sent_ms": now_ms,
        "host": this_host(),
        "pid": os.getpid(),
    } | fields
    return kind(pipeline=name, epoch=epoch, **given)


class LeadershipSender:
    """Puts signs on the topic."""

    def __init__(self, settings: Settings) -> None:
        self._topic = settings.topics.commands
        waits = (
            "request_timeout_ms",
            "delivery_timeout_ms",
            "max_block_ms",
            "bootstrap_timeout_ms",
        )
        patience = dict.fromkeys(waits, LONGEST_SENDING_MS)
        options = (
            client_options(settings)
            | patience
            | {"acks": "all", "linger_ms": 0, "reconnect_backoff_max_ms": SOON_MS}
        )
        self._producer = KafkaProducer(**options)

    def send(self, sign: LeadershipRecord) -> None:
        """Send one; returns when Kafka has it.

        Raises KafkaError: then Kafka may take it yet, within the same time again.
        """
        self._producer.send(self._topic, key=b"", value=sign.to_json().encode()).get(
            timeout=LONGEST_SENDING_MS / 1000
        )

    def close(self) -> None:
        """Release the connections; what waits to be sent is given up."""
        self._producer.close(timeout=0.5)


class LeadershipReader:
    """Reads signs, from the last records on. Raises KafkaError when nobody answers.

    Without a topic there is nothing to read: `there` tells.
    """

    def __init__(self, settings: Settings) -> None:
        self._pipeline = settings.stream.pipeline_id
        soon = {"reconnect_backoff_max_ms": SOON_MS, "fetch_max_wait_ms": FETCH_MS}
        self._consumer = KafkaConsumer(**client_options(settings), enable_auto_commit=False, **soon)
        topic = settings.topics.commands
        self._places = [
            TopicPartition(topic, number)
            for number in sorted(self._consumer.partitions_for_topic(topic) or ())
        ]
        self._consumer.assign(self._places)
        ends = self._ends()
        for place, begin in (
            self._consumer.beginning_offsets(self._places) if self._places else {}
        ).items():
            self._consumer.seek(place, max(begin, ends[place] - LAST_RECORDS))

    def to_end(self) -> list[ReceivedRecord]:
        """All that is new, up to where the topic ends now.

        Raises KafkaError when that can't be read soon.
        """
        ends, found = self._ends(), list[ReceivedRecord]()
        until = time.monotonic() + LONGEST_READING_MS / 1000
        while any(
            (self._consumer.position(place, timeout_ms=ANSWER_MS) or 0) < end
            for place, end in ends.items()
        ):
            if time.monotonic() > until:
                raise KafkaTimeoutError("the commands topic can't be read to its end")
            found += self._poll(100)
        return found

    @property
    def there(self) -> bool:
        """Whether there is a topic."""
        return bool(self._places)

    def next(self, within_ms: float) -> list[ReceivedRecord]:
        """The first that come within this time; none: none have."""
        until = time.monotonic() + within_ms / 1000
        while self._places and (left := until - time.monotonic()) > 0:
            if found := list(self._poll(int(left * 1000) + 1)):
                return found
        return []

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()

    def _ends(self) -> dict[TopicPartition, int]:
        return (
            dict(self._consumer.end_offsets(self._places, timeout_ms=ANSWER_MS))
            if self._places
            else {}
        )

    def _poll(self, timeout_ms: int) -> Iterator[ReceivedRecord]:
        for some in self._consumer.poll(timeout_ms=timeout_ms).values():
            for record in some:
                sign = parse_leadership_record(record.value or b"")
                if sign is not None and sign.pipeline == self._pipeline:
                    yield ReceivedRecord(sign, record.timestamp)


def parse_leadership_record(value: bytes) -> LeadershipRecord | None:
    """A sign; None: the record is something else, a command mostly."""
    try:
        fields = from_json(value)
        kind = LEADERSHIP_RECORDS.get(str(fields.get("kind"))) if isinstance(fields, dict) else None
        return None if kind is None else kind.model_validate_json(value)
    except (ValueError, ValidationError):
        return None
