"""Sends operators' commands to their topic and reads the results, for lbctl and the console."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from kafka import KafkaConsumer, TopicPartition
from pydantic import ValidationError

from lb_stream.contracts.base import describe_expected
from lb_stream.contracts.commands import COMMANDS, Command, CommandResult
from lb_stream.io.kafka.signing import SigningProducer

if TYPE_CHECKING:
    from lb_stream.access.signing_keys import Signer

LARGEST_COMMAND = 10 * 1024 * 1024
"""Bytes of a command."""
SEND_S = 30
"""How long Kafka may take to store a command."""
TOGETHER_MS = 200
"""How long commands of one batch wait for each other; they become one append."""
MAX_SHOWN_CHARACTERS = 200
"""Characters of a value that a message repeats."""


class InvalidCommand(ValueError):
    """A command that can't be built: the wrong field (empty: several), and what was expected."""

    def __init__(self, text: str, field: str, value: str, expected: str) -> None:
        super().__init__(text)
        self.field, self.value, self.expected = field, value, expected


def build_command(
    kind: str, fields: Mapping[str, object], by: str, command_id: str | None = None
) -> Command:
    """Return a command of this kind, sent now by an operator. Raises InvalidCommand."""
    head = {"id": command_id or str(uuid.uuid4()), "by": by, "sent_ms": time.time_ns() // 1_000_000}
    try:
        return COMMANDS[kind].model_validate({**head, **fields})
    except ValidationError as error:
        first = error.errors()[0]
        name, given = ".".join(map(str, first["loc"])), repr(first["input"])[:MAX_SHOWN_CHARACTERS]
        expected = describe_expected(first)
        text = f"{name + ': ' if name else ''}{first['msg']}"
        if first["type"] == "string_pattern_mismatch":
            text = f"{name} = {given}: expected {expected}"
        raise InvalidCommand(text, name, given, expected) from None


def send_together(
    options: Mapping[str, object],
    topic: str,
    key: str,
    commands: Sequence[Command],
    signer: Signer | None = None,
) -> None:
    """Send commands in this order and in one append, so that one round reads them all.

    Returns once Kafka has stored them. `key`: the cluster, empty for all. Raises KafkaError.
    """
    values = [command.to_json().encode() for command in commands]
    size = max(LARGEST_COMMAND, 2 * sum(map(len, values)))
    limits = {"max_request_size": size, "batch_size": size, "linger_ms": TOGETHER_MS}
    with closing(SigningProducer(signer, **options, acks="all", **limits)) as producer:
        for sent in [producer.send(topic, key=key.encode(), value=value) for value in values]:
            sent.get(timeout=SEND_S)


def send_command(
    options: Mapping[str, object],
    topic: str,
    key: str,
    command: Command,
    signer: Signer | None = None,
) -> None:
    """Send a command. Returns once Kafka has stored it.

    `key`: the cluster, empty for all. Raises KafkaError.
    """
    limits = {"max_request_size": LARGEST_COMMAND}
    producer = SigningProducer(signer, **options, acks="all", **limits)
    with closing(producer):
        value = command.to_json().encode()
        producer.send(topic, key=key.encode(), value=value).get(timeout=SEND_S)


class ResultReader:
    """Reads the results of one command that are written after this reader was made."""

    def __init__(self, options: Mapping[str, object], topic: str, command_id: str) -> None:
        self._id = command_id.encode()
        self._consumer = KafkaConsumer(
            **options, isolation_level="read_committed", enable_auto_commit=False
        )
        partitions = [
            TopicPartition(topic, number)
            for number in sorted(self._consumer.partitions_for_topic(topic) or ())
        ]
        self._consumer.assign(partitions)
        for partition, end in self._consumer.end_offsets(partitions).items():
            self._consumer.seek(partition, end)

    def poll(self, seconds: float) -> Iterator[CommandResult]:
        """Yield the results that come within this time (s), as soon as there are any."""
        for records in self._consumer.poll(timeout_ms=int(seconds * 1000)).values():
            yield from (
                CommandResult.model_validate_json(record.value)
                for record in records
                if record.key == self._id
            )

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()
