"""Reads what a topic holds, without a consumer group: nothing is committed, no topic is created."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from kafka import KafkaConsumer, TopicPartition

from lb_stream.contracts.base import LARGEST_RECORD_BYTES

if TYPE_CHECKING:
    from kafka.consumer.fetcher import ConsumerRecord

POLL_MS = 500
PATIENCE_S = 30.0
"""How long a consumer may wait for the next record below an end that Kafka has named."""


@contextmanager
def open_topic(
    options: Mapping[str, object], topic: str
) -> Iterator[tuple[KafkaConsumer, list[TopicPartition]]]:
    """Give a consumer of a topic's committed records, and its partitions.

    `options`: arguments of a kafka-python client. A topic that doesn't exist has no partition.
    """
    fetch = {
        "max_partition_fetch_bytes": LARGEST_RECORD_BYTES,
        "fetch_max_bytes": 5 * LARGEST_RECORD_BYTES,
    }
    consumer = KafkaConsumer(
        **fetch | dict(options),
        isolation_level="read_committed",
        enable_auto_commit=False,
        allow_auto_create_topics=False,
    )
    with closing(consumer):
        partitions = [
            TopicPartition(topic, number)
            for number in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(partitions)
        yield consumer, partitions


def seek_since(
    consumer: KafkaConsumer, partitions: list[TopicPartition], since_ms: int
) -> dict[TopicPartition, int]:
    """Go to each partition's first record at or after a time. Returns their end offsets."""
    ends: dict[TopicPartition, int] = consumer.end_offsets(partitions)
    found = consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
    for partition in partitions:
        first = found.get(partition)
        consumer.seek(partition, first.offset if first else ends[partition])
    return ends


def read_below(
    consumer: KafkaConsumer, ends: Mapping[TopicPartition, int], patience_s: float = PATIENCE_S
) -> Iterator[ConsumerRecord]:
    """Yield the records from the consumer's positions to these ends.

    Raises TimeoutError if none comes for `patience_s`.
    """
    until = time.monotonic() + patience_s
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        polled = consumer.poll(timeout_ms=POLL_MS)
        if polled:
            until = time.monotonic() + patience_s
        elif time.monotonic() > until:
            raise TimeoutError(f"Kafka has sent no record for {patience_s:g} s")
        for partition, records in polled.items():
            yield from (record for record in records if record.offset < ends[partition])
