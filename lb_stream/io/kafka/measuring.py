"""Measures records in Kafka within bounded memory: compressed ones are decompressed as a stream and
never held.

A thousand megabytes of spaces are 32 KiB in Kafka. Decompressing them to look at them would exhaust
the memory.
"""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import DefaultRecordBatch

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import client_options
from lb_stream.stream.records import LARGEST_BYTES

LONGEST_KEY = 4_096
_CODECS = {
    DefaultRecordBatch.CODEC_GZIP: "gzip",
    DefaultRecordBatch.CODEC_LZ4: "lz4",
    DefaultRecordBatch.CODEC_ZSTD: "zstd",
}
_XERIAL = b"\x82SNAPPY\x00"


@dataclass(frozen=True, slots=True)
class RecordSize:
    """One record: where it is, how large, and its key.

    Of one that is too large `last` is the end of its producer's batch.

    To read anything behind it in that batch means to decompress it, so nobody can.
    """

    offset: int
    append_ms: int
    size: int
    last: int
    key: bytes = b""
    trouble: str | None = None  # why it can't be read; None: it can


def measure_batch(batch: DefaultRecordBatch) -> Iterator[RecordSize]:
    """The records of one batch as a producer sent it, up to the first that is too large or can't be
    decompressed."""
    offset, append_ms, last = batch.base_offset, batch.max_timestamp, batch.last_offset
    try:
        stream = io.BufferedReader(_decompressed(batch), 1 << 16)
        for _ in range(batch.records_count):
            size = _varint(stream)
            if size > LARGEST_BYTES:
                taken, key = _beginning(stream)
                offset = batch.base_offset + taken
                trouble = f"at most {LARGEST_BYTES} bytes when decompressed"
                yield RecordSize(offset, append_ms, size, last, key, trouble)
                return
            record = io.BytesIO(stream.read(size))
            taken, key = _beginning(record)
            yield RecordSize(
                batch.base_offset + taken, append_ms, size, batch.base_offset + taken, key
            )
            offset = batch.base_offset + taken + 1
    except (OSError, EOFError, pa.ArrowException, struct.error) as error:
        yield RecordSize(
            min(offset, last),
            append_ms,
            0,
            last,
            trouble=f"a record that can be decompressed ({error})",
        )


def _beginning(record: Any) -> tuple[int, bytes]:
    """A record's offset in its batch and its key, which come before its value."""
    record.read(1)  # attributes
    _varint(record)  # time
    taken, length = _varint(record), _varint(record)
    return taken, record.read(min(max(length, 0), LONGEST_KEY))


def _varint(stream: Any) -> int:
    """A number as Kafka's records have it: seven bits a byte, the sign in the lowest bit."""
    value = 0
    for shift in range(0, 70, 7):
        byte: bytes = stream.read(1)
        if not byte:
            raise EOFError("its end is missing")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise EOFError("a number of more than ten bytes")


def _decompressed(batch: DefaultRecordBatch) -> Any:
    """A batch's records as a stream that decompresses as it is read."""
    payload = memoryview(batch._buffer)[DefaultRecordBatch.HEADER_STRUCT.size :]
    if batch.compression_type == DefaultRecordBatch.CODEC_NONE:
        return io.BytesIO(payload)
    if batch.compression_type == DefaultRecordBatch.CODEC_SNAPPY:
        return _Pieces(_snappy(payload))
    if batch.compression_type not in _CODECS:
        raise OSError(f"compression {batch.compression_type} is not known")
    source = pa.CompressedInputStream(
        pa.BufferReader(pa.py_buffer(payload)), _CODECS[batch.compression_type]
    )
    return _Pieces(iter(lambda: source.read(1 << 16), b""))


class _Pieces(io.RawIOBase):
    """Pieces of bytes as one stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _snappy(payload: memoryview) -> Iterator[bytes]:
    """Blocks as Java's client writes them, or one block; each says itself how large it will be."""
    blocks = [payload]
    if payload[:8] == _XERIAL:
        blocks, at = [], 16
        while at < len(payload):
            (length,) = struct.unpack_from(">i", payload, at)
            blocks.append(payload[at + 4 : at + 4 + length])
            at += 4 + length
    for block in blocks:
        size = shift = 0
        for byte in block[:5]:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if size > LARGEST_BYTES + (1 << 20):
            raise OSError(f"a block of {size} bytes")
        yield pa.Codec("snappy").decompress(pa.py_buffer(block), size, asbytes=True)


class _MeasuredRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    """Hands out what records measure instead of the records."""

    def _unpack_records(
        self, tp: TopicPartition, records: Any, *_deserializers: Any
    ) -> Iterator[RecordSize]:
        while (batch := records.next_batch()) is not None:
            if batch.magic >= 2 and not batch.is_control_batch:
                for record in measure_batch(batch):
                    self.next_fetch_offset = record.last + 1
                    yield record
            self.next_fetch_offset = batch.next_offset
        self.drain()


def build_measuring_consumer(settings: Settings) -> KafkaConsumer:
    """A consumer whose `poll` gives Measured."""
    consumer = KafkaConsumer(
        **client_options(settings), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    consumer._fetcher.PartitionRecords = _MeasuredRecords
    return consumer


def measure(
    consumer: KafkaConsumer, ranges: Mapping[tuple[str, int], tuple[int, int]], longest_s: float
) -> Iterator[tuple[tuple[str, int], RecordSize]]:
    """Everything in some ranges of offsets [from, to), with topic and partition.

    Raises KafkaError, TimeoutError.
    """
    waiting = {
        TopicPartition(*place): bounds for place, bounds in ranges.items() if bounds[0] < bounds[1]
    }
    consumer.assign(list(waiting))
    for place, (begin, _) in waiting.items():
        consumer.seek(place, begin)
    until = time.monotonic() + longest_s
    while waiting:
        if time.monotonic() > until:
            raise TimeoutError(f"Kafka has not shown all records within {longest_s:g} s")
        for place, records in consumer.poll(timeout_ms=500).items():
            for record in records:
                if place in waiting and record.offset < waiting[place][1]:
                    yield (place.topic, place.partition), record
        for place in [
            place for place, (_, end) in waiting.items() if consumer.position(place) >= end
        ]:
            del waiting[place]
            consumer.pause(place)
