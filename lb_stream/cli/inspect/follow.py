"""Follow a topic as agents do: committed records only, from some records before its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from kafka import KafkaConsumer, TopicPartition

if TYPE_CHECKING:
    from kafka.consumer.fetcher import ConsumerRecord


def follow_records(
    options: Mapping[str, object], topic: str, last: int, cluster: str | None = None
) -> Iterator[ConsumerRecord]:
    """Yield the last `last` records, ordered by append time, then every new record, endlessly.

    With `cluster`, only records with a key `<cluster>/…`.
    """
    prefix = f"{cluster}/".encode() if cluster else b""
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
            past = _read_past(consumer, partitions, ends, prefix)
            past.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
            yield from past[-last:]
        for partition, end in ends.items():
            consumer.seek(partition, end)
        while True:
            for polled in consumer.poll(timeout_ms=500).values():
                yield from (record for record in polled if (record.key or b"").startswith(prefix))


def _read_past(
    consumer: KafkaConsumer,
    partitions: list[TopicPartition],
    ends: dict[TopicPartition, int],
    prefix: bytes,
) -> list[ConsumerRecord]:
    """Read all records below the ends. Decisions are few: the whole topic is read in a moment."""
    found: list[ConsumerRecord] = []
    consumer.seek_to_beginning(*partitions)
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        for partition, polled in consumer.poll(timeout_ms=500).items():
            found += [
                record
                for record in polled
                if record.offset < ends[partition] and (record.key or b"").startswith(prefix)
            ]
    return found
