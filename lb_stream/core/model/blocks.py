"""Blocks: the Arrow tables of the stream, of a shard's bundles and brokers and a batch's reports.

Rows of bundles and of brokers are sorted by name (UTF-8 bytes). A bundle's `owner` is the row of
its broker in the same shard, or -1. Rates are messages/s, throughputs bytes/s, times ms since the
epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lb_stream.core.model.rates import RATE_COLUMNS

RESOURCES = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")


def _rate_fields(prefix: str) -> list[pa.Field]:
    """Return the fields of the four values, with a prefix."""
    return [pa.field(f"{prefix}_{value}", pa.float64()) for value in RATE_COLUMNS]


STATS_SCHEMA = pa.schema(
    [
        *_rate_fields("latest"),
        ("topics", pa.int64()),
        ("producers", pa.int64()),
        ("consumers", pa.int64()),
        ("cache_size_bytes", pa.int64()),
    ]
)
BUNDLE_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("owner", pa.int32()),
        # Append time of the record that made this broker the owner, or the bundle unassigned.
        ("owner_since_ms", pa.int64()),
        ("reported_ms", pa.int64()),  # append time of the last report that names it
        ("place", pa.int32()),  # place among this shard's bundles in that report
        ("gained", pa.bool_()),  # the owner changed in this batch
        ("appeared", pa.bool_()),  # a report named it for the first time in this batch
        ("system", pa.bool_()),  # of a heartbeat or SLA-monitor namespace
        *STATS_SCHEMA,
        ("short_samples", pa.int32()),
        *_rate_fields("short"),
        ("long_samples", pa.int32()),
        *_rate_fields("long"),
        # Its topics' shares of its load (topic_shares.pack_shares); null: its owner reports none.
        ("topic_shares", pa.binary()),
    ]
)
REPORT_FIELDS: list[pa.Field] = [
    pa.field("kind", pa.string()),
    pa.field("digest", pa.binary(8)),  # of the report's bytes: with an equal one it is no sample
    pa.field("start_timestamp_ms", pa.int64()),
    pa.field("last_update_ms", pa.int64()),
    *[
        pa.field(f"{resource}_{part}", pa.float64())
        for resource in RESOURCES
        for part in ("usage", "limit")
    ],
    *_rate_fields("latest"),
    pa.field("topics", pa.int64()),
    pa.field("bundles", pa.int64()),
    pa.field("producers", pa.int64()),
    pa.field("consumers", pa.int64()),
    pa.field("bundle_gains", pa.int64()),
    pa.field("bundle_losses", pa.int64()),
    pa.field("persistent_topics", pa.bool_()),
    pa.field("non_persistent_topics", pa.bool_()),
    pa.field("version", pa.string()),
    pa.field("load_manager", pa.string()),
    # Smoothed usage (ratio) and throughput that the broker reports; null: none.
    pa.field("load_ema", pa.float64()),
    pa.field("throughput_ema_bytes_per_s", pa.float64()),
]
BROKER_SCHEMA = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("seen_ms", pa.int64()),  # append time of its last record of any kind
        pa.field("reported_ms", pa.int64()),  # append time of its last accepted report; 0: none
        pa.field("heartbeats", pa.bool_()),  # it has ever sent a heartbeat
        pa.field("left", pa.bool_()),  # departed
        # Partition of its last record in the reports' topic; null: not known.
        pa.field("partition", pa.int32()),
        pa.field("sampled", pa.bool_()),  # it sent a new sample in this batch
        pa.field("signed_us", pa.int64()),  # the latest time of its records' signatures, µs
        *REPORT_FIELDS,
    ]
)
POSITION_FIELDS: list[pa.Field] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("append_ms", pa.int64()),
    pa.field("signed_us", pa.int64()),  # the time of its signature, µs; null: no verified one
]
REPORT_SCHEMA = pa.schema(
    [
        pa.field("name", pa.string()),
        *POSITION_FIELDS,
        *REPORT_FIELDS,
        pa.field("some_bundles", pa.bool_()),  # it names some of the broker's bundles; null: all
        pa.field("no_load", pa.bool_()),  # it has no figures of the broker itself; null: it has
    ]
)
"""The reports of a batch, with a row for each."""

SAMPLE_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("report", pa.int32()),
        ("has_stats", pa.bool_()),
        *STATS_SCHEMA,
        ("topic_shares", pa.binary()),  # as in BUNDLE_SCHEMA
    ]
)
"""The bundles that a batch's reports name; `report` is the row of the report."""

EVENT_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("broker", pa.string()),
        *POSITION_FIELDS,
        pa.field("payload", pa.string()),
    ]
)
"""All other records of a batch: heartbeats, acks, goodbyes, commands, rejected records, the clock.

`payload` is the record's JSON. Of a rejected record it is {"field", "value", "expected"}; of the
clock {"first", "last"}, the offsets that were read of one partition.
"""

NO_BROKERS, NO_BUNDLES, NO_REPORTS, NO_SAMPLES, NO_EVENTS = (
    schema.empty_table()
    for schema in (BROKER_SCHEMA, BUNDLE_SCHEMA, REPORT_SCHEMA, SAMPLE_SCHEMA, EVENT_SCHEMA)
)
"""Empty tables, made once: Arrow takes longer to make one than to read a block."""


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. It is copied only if it has several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def to_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    write_stream(sink, table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


SMALL_ROWS = 4_096
"""The parts of a stream of so many rows are made in memory, which takes a fifth of the time."""


def write_stream(
    sink: pa.NativeFile, table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None
) -> None:
    """Write a table as an Arrow IPC stream of one batch."""
    table = table.combine_chunks()
    if options is None and 0 < len(table) <= SMALL_ROWS:
        schema = table.schema.serialize().to_pybytes()
        if _read_schema(schema) is not None:  # it has no dictionaries
            # The same bytes as Arrow's writer gives, which takes 50 µs for a stream of any size.
            (batch,) = table.to_batches()
            for part in (schema, batch.serialize(), END_OF_STREAM):
                sink.write(part)
            return
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def from_bytes(data: bytes) -> pa.Table:
    """Return the table of an Arrow IPC stream, without copying it. Raises ArrowInvalid."""
    return read_stream(pa.py_buffer(data))


def read_stream(data: pa.Buffer) -> pa.Table:
    """Return the table of an Arrow IPC stream. Raises ArrowInvalid if it is damaged."""
    try:
        return _read_stream(data)
    # Arrow raises these for some damage, too; no disk is read here.
    except (OSError, pa.ArrowNotImplementedError) as error:
        raise pa.ArrowInvalid(f"a damaged block: {error}") from error


def _read_stream(data: pa.Buffer) -> pa.Table:
    """Return the table of a stream, with its schema from the cache if it was read before.

    Nearly all streams are one batch of a known schema. Arrow's own reader takes four times as long,
    because it reads the schema again.
    """
    length = _length_of_schema(data)
    schema = _read_schema(data.slice(0, length).to_pybytes()) if length else None
    if schema is not None:
        rest = pa.BufferReader(data.slice(length))
        with suppress(EOFError):  # the stream has no batch
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(rest), schema)
            if data.size - length - rest.tell() == len(END_OF_STREAM):
                return pa.Table.from_batches([batch])
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def _length_of_schema(data: pa.Buffer) -> int:
    """Return the bytes of a stream's first message; 0: no batch follows, or it is not known."""
    if data.size < 2 * len(END_OF_STREAM):
        return 0
    mark, length = struct.unpack("<Ii", memoryview(data)[: len(END_OF_STREAM)])
    end = len(END_OF_STREAM) + length
    is_known = mark == 0xFFFFFFFF and length > 0 and end + len(END_OF_STREAM) < data.size
    return end if is_known else 0


@lru_cache(maxsize=64)
def _read_schema(message: bytes) -> pa.Schema | None:
    """Return the schema in a message; None: it has dictionaries, which precede the first batch."""
    schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(message))
    return None if any(pa.types.is_dictionary(field.type) for field in schema) else schema


def with_columns(bundles: pa.Table, columns: Mapping[str, NDArray[np.generic]]) -> pa.Table:
    """Return a shard's bundles with these columns in the place of their own."""
    for name, values in columns.items():
        index = BUNDLE_SCHEMA.get_field_index(name)
        bundles = bundles.set_column(
            index, BUNDLE_SCHEMA.field(index), pa.array(values, BUNDLE_SCHEMA.field(index).type)
        )
    return bundles


@dataclass(frozen=True, slots=True)
class Shard:
    """The averages of one part of a cluster's bundles, and of all its brokers."""

    brokers: pa.Table
    bundles: pa.Table

    @staticmethod
    def empty() -> Shard:
        """Return a shard before its first report."""
        return Shard(NO_BROKERS, NO_BUNDLES)


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of a batch for one shard: its cluster's reports and events, its samples."""

    reports: pa.Table
    samples: pa.Table
    events: pa.Table

    @staticmethod
    def empty() -> Batch:
        """Return a batch without records."""
        return Batch(NO_REPORTS, NO_SAMPLES, NO_EVENTS)
