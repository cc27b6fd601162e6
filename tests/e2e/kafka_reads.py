"""Topics read to their end, as a consumer with read_committed sees them."""

import time
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from lb_stream.contracts.reads import is_reads

LONGEST_S = 30


def _assigned(
    bootstrap: str, topic: str, **login: Any
) -> tuple[KafkaConsumer, list[TopicPartition]]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **login,
    )
    partitions = [
        TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))
    ]
    consumer.assign(partitions)
    return consumer, partitions


def end_offsets(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """Where each partition ends.

    Transactions leave marks of their own, so an end may lie behind the last record.
    """
    consumer, partitions = _assigned(bootstrap, topic)
    ends: dict[TopicPartition, int] = consumer.end_offsets(partitions)
    consumer.close()
    return ends


def committed(bootstrap: str, topic: str, **login: Any) -> list[Any]:
    """All records, in the order of each partition, but those that say what a job reads.

    `login`: kafka-python's options of who reads.
    """
    consumer, partitions = _assigned(bootstrap, topic, **login)
    ends, found = consumer.end_offsets(partitions), []
    deadline = time.monotonic() + LONGEST_S
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        assert time.monotonic() < deadline, f"{topic} could not be read to its end"
        found += [
            record
            for records in consumer.poll(timeout_ms=200).values()
            for record in records
            if not is_reads(record.headers)
        ]
    consumer.close()
    return found
