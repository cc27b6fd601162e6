"""Limits how many records a micro-batch may have, so that they fit into memory.

A report or command has between hundreds of bytes and megabytes. After a day without the job a
backlog of large reports would otherwise be read in batches that no machine can hold, at every
start.
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
"""How long the records may be measured."""


def limit_batch_size(settings: Settings, max_records: int = 0) -> Settings:
    """Return settings with a smaller batch if records are large. Raises KafkaError.

    `max_records`: the most records that a batch may have; 0: as many as the settings say. A batch
    that is planned already runs as planned.
    """
    limit = max_records or settings.stream.max_offsets_per_trigger
    largest = measure_largest_record(settings) if limit else 0
    fitting = max(BATCH_BYTES // largest, 1) if largest else limit
    if fitting < limit:
        logger.info(
            "records have up to %.1f MB: a batch reads %d records at most, not %d",
            largest / 1e6,
            fitting,
            limit,
        )
        return _with_batch_size(settings, fitting)
    return _with_batch_size(settings, max_records) if max_records else settings


def _with_batch_size(settings: Settings, records: int) -> Settings:
    stream = settings.stream.model_copy(update={"max_offsets_per_trigger": records})
    return settings.model_copy(update={"stream": stream})


def measure_largest_record(settings: Settings) -> int:
    """Return the bytes of the largest of the newest records of both topics; 0 if there are none.

    One fetch of each partition is measured.
    """
    topics = (settings.topics.reports, settings.topics.commands)
    largest = 0
    consumer = build_measuring_consumer(settings)
    try:
        # Begin a little before the end of each partition that has records.
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

        # Poison records don't count: they are never part of a batch.
        until = time.monotonic() + LONGEST_LOOK_S
        while waiting and time.monotonic() < until:
            for place, records in consumer.poll(timeout_ms=500).items():
                sizes = [record.size for record in records if record.trouble is None]
                largest = max([largest, *sizes])
                waiting.discard(place)
    finally:
        consumer.close()
    return largest
