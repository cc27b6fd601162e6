"""Records that are small in Kafka and end whoever decompresses them."""

import os
from collections.abc import Iterable
from unittest import mock

import zstandard
from kafka import KafkaProducer

MB = 1 << 20


def varint(number: int) -> bytes:
    """A number as Kafka's records have it."""
    rest, out = (number << 1) ^ (number >> 63), b""
    while rest > 0x7F:
        out += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return out + bytes([rest])


def record(delta: int, key: bytes, value: Iterable[bytes], length: int) -> Iterable[bytes]:
    """One record's bytes, piece by piece."""
    head = b"\0" + varint(0) + varint(delta) + varint(len(key)) + key + varint(length)
    yield varint(len(head) + length + 1) + head
    yield from value
    yield varint(0)


def spaces(megabytes: int) -> Iterable[bytes]:
    return (b" " * MB for _ in range(megabytes))


def compressed(records: Iterable[Iterable[bytes]]) -> bytes:
    """Records as one zstd stream, made without holding them."""
    packer, out = zstandard.ZstdCompressor(level=3).compressobj(), []
    for record in records:
        out += [packer.compress(piece) for piece in record]
    return b"".join([*out, packer.flush()])


def bomb(key: bytes, megabytes: int = 1_000) -> bytes:
    """A batch's payload: a record of so many megabytes of spaces."""
    return compressed([record(0, key, spaces(megabytes), megabytes * MB)])


def send(bootstrap: str, topic: str, partition: int, payload: bytes, records: int = 1) -> int:
    """Send a payload that is compressed already as one batch of so many records.

    Returns the offset of the first.
    """
    stand_in = os.urandom(2 * len(payload) // records)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type="zstd",
        linger_ms=10_000,
        batch_size=4 * len(payload),
        max_request_size=10 * MB,
    )
    with mock.patch("kafka.record.default_records.zstd_encode", lambda _: payload):
        sent = [
            producer.send(topic, key=b"k", value=stand_in, partition=partition)
            for _ in range(records)
        ]
        producer.flush()
        producer.close()
    return int(sent[0].get().offset)
