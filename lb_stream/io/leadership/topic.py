"""Leadership records on the commands topic: read up to the topic's end, or sent."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from typing import TypeVar

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError
from pydantic import ValidationError
from pydantic_core import from_json

from lb_stream.access.signatures import is_user
from lb_stream.contracts.commands import LEADERSHIP_RECORDS, HandOver, LeadershipRecord
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import client_options
from lb_stream.io.kafka.signing import RecordCheck, SignedRecord, SigningProducer, job_name
from lb_stream.io.leadership.leader import this_host
from lb_stream.io.leadership.succession import ReceivedRecord
from lb_stream.settings.signing import load_signer

LAST_RECORDS = 500
"""Number of records at the topic's end that are searched; commands may stand between them."""
ANSWER_MS = 2_000
"""After this time without an answer, Kafka counts as unavailable."""
LONGEST_READING_MS = 10_000
LONGEST_SENDING_MS = 5_000
"""How long sending may take: an older leadership record says nothing any more."""
FETCH_MS = 100
"""How long Kafka may hold a fetch that finds no record; it blocks the connection meanwhile."""
SILENCE_TICKS = 3


def silence_ms(settings: Settings) -> int:
    """Return after how many ms without a tick a leader counts as dead."""
    return max(settings.stream.failover_after_ms, SILENCE_TICKS * settings.stream.tick_interval_ms)


_Record = TypeVar("_Record", bound=LeadershipRecord)


def build_own_record(
    kind: type[_Record], settings: Settings, epoch: int, **fields: object
) -> _Record:
    """Return a leadership record of this process, of the model `kind`."""
    given = {
        "id": str(uuid.uuid4()),
        "sent_ms": time.time_ns() // 1_000_000,
        "host": this_host(),
        "pid": os.getpid(),
        "pipeline": settings.stream.pipeline_id,
        "epoch": epoch,
    }
    return kind.model_validate(given | fields)


_TIMEOUTS = (
    "request_timeout_ms",
    "delivery_timeout_ms",
    "max_block_ms",
    "bootstrap_timeout_ms",
)


class LeadershipSender:
    """Sends leadership records."""

    def __init__(self, settings: Settings) -> None:
        self._topic = settings.topics.commands
        timeouts = dict.fromkeys(_TIMEOUTS, LONGEST_SENDING_MS)
        options = client_options(settings) | timeouts | {"acks": "all", "linger_ms": 0}
        self._producer = SigningProducer(load_signer(settings.security), **options)

    def send(self, record: LeadershipRecord) -> None:
        """Send a record and wait until Kafka has stored it.

        Raises KafkaError; then Kafka may still store the record within LONGEST_SENDING_MS.
        """
        sent = self._producer.send(self._topic, key=b"", value=record.to_json().encode())
        sent.get(timeout=LONGEST_SENDING_MS / 1000)

    def close(self) -> None:
        """Release the connections; records that wait to be sent are dropped."""
        self._producer.close(timeout=0.5)


class LeadershipReader:
    """Reads leadership records, from the topic's last records on.

    `topic_exists` is False without a topic. Raises KafkaError when Kafka doesn't answer.
    """

    def __init__(self, settings: Settings) -> None:
        self._pipeline = settings.stream.pipeline_id
        security = settings.security
        self._check = (
            RecordCheck(security, "security.commands", security.commands, by_key=False)
            if security.commands != "open"
            else None
        )
        self._consumer = KafkaConsumer(
            **client_options(settings), enable_auto_commit=False, fetch_max_wait_ms=FETCH_MS
        )
        topic = settings.topics.commands
        self._places = [
            TopicPartition(topic, number)
            for number in sorted(self._consumer.partitions_for_topic(topic) or ())
        ]
        self._consumer.assign(self._places)
        if not self._places:
            return
        ends = self._ends()
        for place, begin in self._consumer.beginning_offsets(self._places).items():
            self._consumer.seek(place, max(begin, ends[place] - LAST_RECORDS))
        if self._check is not None:
            self._seek_before_copies(self._check.window_ms, ends)

    def _seek_before_copies(self, window_ms: int, ends: dict[TopicPartition, int]) -> None:
        """Begin where the first record may be of which a copy could still count."""
        since_ms = time.time_ns() // 1_000_000 - 2 * window_ms
        found = self._consumer.offsets_for_times(dict.fromkeys(self._places, since_ms))
        for place, end in ends.items():
            first = found.get(place)
            offset = end if first is None else first.offset
            if offset < (self._consumer.position(place) or 0):
                self._consumer.seek(place, offset)

    def to_end(self) -> list[ReceivedRecord]:
        """Return all new records up to where the topic ends now.

        Raises KafkaError when they can't be read soon.
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
    def topic_exists(self) -> bool:
        """Return whether the topic exists."""
        return bool(self._places)

    def next(self, within_ms: float) -> list[ReceivedRecord]:
        """Return the first records that come within this time; empty if none come."""
        until = time.monotonic() + within_ms / 1000
        while self._places and (left := until - time.monotonic()) > 0:
            if found := list(self._poll(int(left * 1000) + 1)):
                return found
        return []

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()

    def _ends(self) -> dict[TopicPartition, int]:
        if not self._places:
            return {}
        return dict(self._consumer.end_offsets(self._places, timeout_ms=ANSWER_MS))

    def _poll(self, timeout_ms: int) -> Iterator[ReceivedRecord]:
        for records in self._consumer.poll(timeout_ms=timeout_ms).values():
            for raw in records:
                record = parse_leadership_record(raw.value or b"")
                if record is None or record.pipeline != self._pipeline:
                    continue
                if self._accepts(raw, record):
                    yield ReceivedRecord(record, raw.timestamp)

    def _accepts(self, raw: SignedRecord, record: LeadershipRecord) -> bool:
        """Return whether a record counts: only jobs speak for jobs, and users ask by their name."""
        if self._check is None:
            return True
        signer = job_name(self._pipeline)
        if isinstance(record, HandOver) and is_user(record.by):
            signer = record.by
        return self._check.accepts(raw, signer)


def parse_leadership_record(value: bytes) -> LeadershipRecord | None:
    """Parse a leadership record; None for any other record, mostly a command."""
    try:
        fields = from_json(value)
        kind = LEADERSHIP_RECORDS.get(str(fields.get("kind"))) if isinstance(fields, dict) else None
        return None if kind is None else kind.model_validate_json(value)
    except (ValueError, ValidationError):
        return None
