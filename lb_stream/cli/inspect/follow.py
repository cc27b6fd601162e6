"""Follow a topic as agents do: committed records only, from some records before its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lb_stream.io.kafka.reading import POLL_MS, open_topic, read_below

if TYPE_CHECKING:
    from kafka.consumer.fetcher import ConsumerRecord


def follow_records(
    options: Mapping[str, object], topic: str, last: int, cluster: str | None = None
) -> Iterator[ConsumerRecord]:
    """Yield the last `last` records, ordered by append time, then every new record, endlessly.

    With `cluster`, only records with a key `<cluster>/…`.
    """
    prefix = f"{cluster}/".encode() if cluster else b""
    with open_topic(options, topic) as (consumer, partitions):
        ends = consumer.end_offsets(partitions)
        if last:
            consumer.seek_to_beginning(*partitions)
            # decisions are few: the whole topic is read in a moment
            records = read_below(consumer, ends)
            past = [record for record in records if (record.key or b"").startswith(prefix)]
            past.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
            yield from past[-last:]
        for partition, end in ends.items():
            consumer.seek(partition, end)
        while True:
            for polled in consumer.poll(timeout_ms=POLL_MS).values():
                yield from (record for record in polled if (record.key or b"").startswith(prefix))
