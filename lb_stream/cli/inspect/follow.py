"""Reads a topic as an agent does (committed records only), from a little before its end, for
ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, TopicPartition


def records(
    options: dict[str, Any], topic: str, last: int, cluster: str | None = None
) -> Iterator[Any]:
    """First the `last` records that are there, in the order of their append times, then every new
    one as it comes.

    With a cluster only its own records, told by the key `<cluster>/…`.
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
        past = _past(consumer, partitions, ends, mine) if last else []
        yield from (
            sorted(past, key=lambda record: (record.timestamp, record.partition, record.offset))[
                -last:
            ]
            if last
            else []
        )
        for partition, end in ends.items():
            consumer.seek(partition, end)
        while True:
            for some in consumer.poll(timeout_ms=500).values():
                yield from (record for record in some if (record.key or b"").startswith(mine))


def _past(
    consumer: KafkaConsumer,
    partitions: list[TopicPartition],
    ends: dict[TopicPartition, int],
    mine: bytes,
) -> list[Any]:
    """All records below the ends.

    Decisions are few: a topic's whole retention is read in a moment.
    """
    found: list[Any] = []
    consumer.seek_to_beginning(*partitions)
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        for partition, some in consumer.poll(timeout_ms=500).items():
            found += [
                record
                for record in some
                if record.offset < ends[partition] and (record.key or b"").startswith(mine)
            ]
    return found
