"""Measures records in Kafka within bounded memory.

Compressed records are decompressed as a stream and never held whole: a thousand megabytes of spaces
are 32 KiB in Kafka, and would exhaust the memory.
"""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import DefaultRecordBatch

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.checkpoint import Partition, Ranges
from lb_stream.io.kafka.options import client_options
from lb_stream.stream.records import MAX_RECORD_BYTES

LONGEST_KEY = 4_096
"""Bytes of a key that are kept."""
_PIECE_BYTES = 1 << 16
"""Bytes that are decompressed at one time."""
_CODECS = {
    DefaultRecordBatch.CODEC_GZIP: "gzip",
    DefaultRecordBatch.CODEC_LZ4: "lz4",
    DefaultRecordBatch.CODEC_ZSTD: "zstd",
}
_XERIAL = b"\x82SNAPPY\x00"
"""Begins what Java's client compresses with snappy: a head of 16 bytes, then blocks."""
_MOST_HEAD_BYTES = 1 << 20
"""Bytes that a snappy block may have beyond the largest record."""


@dataclass(frozen=True, slots=True)
class RecordSize:
    """One record: where it is, its size in bytes, and its key.

    `last`: the last offset that is unreadable with it. Behind a record that is too large that is
    the end of its producer's batch, because the record would have to be decompressed first.
    `trouble`: what was expected of a record that can't be read; None: it can be read.
    """

    offset: int
    append_ms: int
    size: int
    last: int
    key: bytes = b""
    trouble: str | None = None


def measure_batch(batch: DefaultRecordBatch) -> Iterator[RecordSize]:
    """Yield the records of a producer's batch, up to the first one that can't be read.

    That is one that is too large, or that can't be decompressed.
    """
    offset, append_ms, last = batch.base_offset, batch.max_timestamp, batch.last_offset
    try:
        stream = io.BufferedReader(_decompress(batch), _PIECE_BYTES)
        for _ in range(batch.records_count):
            size = _read_varint(stream)
            if size > MAX_RECORD_BYTES:
                delta, key = _read_beginning(stream)
                offset = batch.base_offset + delta
                trouble = f"at most {MAX_RECORD_BYTES} bytes when decompressed"
                yield RecordSize(offset, append_ms, size, last, key, trouble)
                return
            delta, key = _read_beginning(io.BytesIO(stream.read(size)))
            offset = batch.base_offset + delta
            yield RecordSize(offset, append_ms, size, offset, key)
            offset += 1
    except (OSError, EOFError, pa.ArrowException, struct.error) as error:
        trouble = f"a record that can be decompressed ({error})"
        yield RecordSize(min(offset, last), append_ms, 0, last, trouble=trouble)


def _read_beginning(record: IO[bytes] | io.BufferedReader) -> tuple[int, bytes]:
    """Read a record's offset in its batch and its key, which come before its value."""
    record.read(1)  # attributes
    _read_varint(record)  # time
    delta, length = _read_varint(record), _read_varint(record)
    return delta, record.read(min(max(length, 0), LONGEST_KEY))


def _read_varint(stream: IO[bytes] | io.BufferedReader) -> int:
    """Read a number as Kafka's records have it: seven bits a byte, zigzag. Raises EOFError."""
    value = 0
    for shift in range(0, 70, 7):
        byte = stream.read(1)
        if not byte:
            raise EOFError("its end is missing")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise EOFError("a number of more than ten bytes")


def _decompress(batch: DefaultRecordBatch) -> io.RawIOBase:
    """Return a batch's records as a stream that decompresses them as they are read."""
    payload = memoryview(batch._buffer)[DefaultRecordBatch.HEADER_STRUCT.size :]
    if batch.compression_type == DefaultRecordBatch.CODEC_NONE:
        return _Pieces(iter([payload]))
    if batch.compression_type == DefaultRecordBatch.CODEC_SNAPPY:
        return _Pieces(_snappy_blocks(payload))
    if batch.compression_type not in _CODECS:
        raise OSError(f"compression {batch.compression_type} is not known")
    source = pa.CompressedInputStream(
        pa.BufferReader(pa.py_buffer(payload)), _CODECS[batch.compression_type]
    )
    return _Pieces(iter(lambda: source.read(_PIECE_BYTES), b""))


class _Pieces(io.RawIOBase):
    """A stream of pieces of bytes."""

    def __init__(self, pieces: Iterator[bytes | memoryview]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as the current piece goes, and return the number of bytes."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _snappy_blocks(payload: memoryview) -> Iterator[bytes]:
    """Yield the decompressed blocks: several as Java's client writes them, or one.

    Each block begins with its decompressed size. Raises OSError for one that is too large.
    """
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
        if size > MAX_RECORD_BYTES + _MOST_HEAD_BYTES:
            raise OSError(f"a block of {size} bytes")
        yield pa.Codec("snappy").decompress(pa.py_buffer(block), size, asbytes=True)


class _MeasuredRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    """Gives a consumer the sizes of records instead of the records."""

    def _unpack_records(
        self, tp: TopicPartition, records: Any, *_deserializers: object
    ) -> Iterator[RecordSize]:
        while (batch := records.next_batch()) is not None:
            if batch.magic >= 2 and not batch.is_control_batch:
                for record in measure_batch(batch):
                    self.next_fetch_offset = record.last + 1
                    yield record
            self.next_fetch_offset = batch.next_offset
        self.drain()


def build_measuring_consumer(settings: Settings) -> KafkaConsumer:
    """Return a consumer whose `poll` gives RecordSize objects."""
    consumer = KafkaConsumer(
        **client_options(settings), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    consumer._fetcher.PartitionRecords = _MeasuredRecords
    return consumer


def measure(
    consumer: KafkaConsumer, ranges: Ranges, longest_s: float
) -> Iterator[tuple[Partition, RecordSize]]:
    """Yield every record in some ranges of offsets [from, to), with its partition.

    `consumer`: of build_measuring_consumer. Raises KafkaError, and TimeoutError after `longest_s`.
    """
    waiting = {TopicPartition(*place): (begin, end) for place, (begin, end) in ranges.items()}
    waiting = {place: bounds for place, bounds in waiting.items() if bounds[0] < bounds[1]}
    consumer.assign(list(waiting))
    for place, (begin, _) in waiting.items():
        consumer.seek(place, begin)
    until = time.monotonic() + longest_s
    while waiting:
        if time.monotonic() > until:
            raise TimeoutError(f"Kafka has not sent all records within {longest_s:g} s")
        for place, records in consumer.poll(timeout_ms=500).items():
            for record in records:
                if place in waiting and record.offset < waiting[place][1]:
                    yield (place.topic, place.partition), record
        read = [place for place, (_, end) in waiting.items() if consumer.position(place) >= end]
        for place in read:
            del waiting[place]
            consumer.pause(place)
