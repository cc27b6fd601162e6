"""Follows a topic as an agent does: committed records only, from a little before its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, TopicPartition


def records(
    options: dict[str, Any], topic: str, last: int, cluster: str | None = None
) -> Iterator[Any]:
    """Yield the last `last` records, ordered by append time, then every new record, endlessly.

    With `cluster` only records with a key `<cluster>/…`.
    """
    mine = f"{cluster}/".encode() if cluster else b""
    with closing(
        KafkaConsumer(**options, isolation_level="read_committed", enable_auto_commit=False)
    ) as consumer:
        partitions = [
            TopicPartition(topic, number)
            for number in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        if last:
            past = _read_past(consumer, partitions, ends, mine)
            past.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
            yield from past[-last:]
        for partition, end in ends.items():
            consumer.seek(partition, end)
        while True:
            for polled in consumer.poll(timeout_ms=500).values():
                yield from (record for record in polled if (record.key or b"").startswith(mine))


def _read_past(
    consumer: KafkaConsumer,
    partitions: list[TopicPartition],
    ends: dict[TopicPartition, int],
    mine: bytes,
) -> list[Any]:
    """Read all records below the ends. Decisions are few: the whole topic is read in a moment."""
    found: list[Any] = []
    consumer.seek_to_beginning(*partitions)
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        for partition, polled in consumer.poll(timeout_ms=500).items():
            found += [
                record
                for record in polled
                if record.offset < ends[partition] and (record.key or b"").startswith(mine)
            ]
    return found
