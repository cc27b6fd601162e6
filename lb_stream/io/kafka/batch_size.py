"""How many records a micro-batch may have to fit into memory.

One report or command has between hundreds of bytes and megabytes.

After a day without the job a backlog of large reports would otherwise be read in pieces that no
machine can hold, at every start anew.
"""

from __future__ import annotations

import logging
import time

from kafka import TopicPartition

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.measuring import build_measuring_consumer

logger = logging.getLogger(__name__)

BATCH_BYTES = 1 << 30
"""Bytes of a micro-batch's records.

Decoding takes 3.4 times as much, in all tasks together (two million bundles, 10 000 in each
report).
"""
LOOKED_AT = 200
"""Number of newest records of each partition that are measured; most are heartbeats."""
LONGEST_LOOK_S = 5.0


def limit_batch_size(settings: Settings, piece: int = 0) -> Settings:
    """Return settings with a smaller batch if records are large. Raises KafkaError.

    `piece`: most records that a batch may have; 0: no such limit. A batch that was planned before
    runs as planned.
    """
    most = piece or settings.stream.max_offsets_per_trigger
    largest = measure_largest_record(settings) if most else 0
    fitting = max(BATCH_BYTES // largest, 1) if largest else most
    if fitting >= most:
        return settings if not piece else _reading(settings, piece)
    logger.info(
        "records have up to %.1f MB: a batch reads %d records at most, not %d",
        largest / 1e6,
        fitting,
        most,
    )
    return _reading(settings, fitting)


def _reading(settings: Settings, records: int) -> Settings:
    return settings.model_copy(
        update={"stream": settings.stream.model_copy(update={"max_offsets_per_trigger": records})}
    )


def measure_largest_record(settings: Settings) -> int:
    """Return the bytes of the largest of the newest records of both topics; 0 if there are none.

    One fetch of each partition is measured.
    """
    topics, largest = (settings.topics.reports, settings.topics.commands), 0
    consumer = build_measuring_consumer(settings)
    try:
        places = [
            TopicPartition(topic, number)
            for topic in topics
            for number in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(places)
        begin, end = consumer.beginning_offsets(places), consumer.end_offsets(places)
        waiting = {place for place in places if begin[place] < end[place]}
        for place in waiting:
            consumer.seek(place, max(begin[place], end[place] - LOOKED_AT))
        until = time.monotonic() + LONGEST_LOOK_S
        while waiting and time.monotonic() < until:
            for place, records in consumer.poll(timeout_ms=500).items():
                largest = max(
                    [largest, *(record.size for record in records if record.trouble is None)]
                )
                waiting.discard(place)
    finally:
        consumer.close()
    return largest
