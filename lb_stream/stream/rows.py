"""Rows that the stages of the stream exchange, as Python values."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class RecordPosition(TypedDict):
    """The position of a record in Kafka, and its append time.

    `signed_us`: the time of its verified signature, µs since the epoch.
    """

    topic: str
    partition: int
    offset: int
    append_ms: int
    signed_us: NotRequired[int]


class ClusterEvent(RecordPosition):
    """Anything but a load report that a batch brings to a cluster: a row of EVENT_SCHEMA.

    `kind`: heartbeat, goodbye, ack, ask, command, rejected or error. `payload`: its JSON.
    """

    kind: str
    broker: str
    payload: str


class PartitionClock(TypedDict):
    """The part of one Kafka partition that a batch has read.

    `first`, `last`: offsets of the first and the last record. `append_ms`: the latest append time.
    """

    topic: str
    partition: int
    first: int
    last: int
    append_ms: int


class ShardRow(TypedDict):
    """One shard after a batch: a row of SHARD_DDL.

    `clock`: JSON of each partition's PartitionClock, in the row of shard 0. `brokers`, `names`,
    `values`: references to the shard's blocks; null if the cluster has just been forgotten.
    `events`: a table of EVENT_SCHEMA as Arrow bytes; null if there are none.
    """

    cluster: str
    shard: int
    clock: str | None
    brokers: str | None
    names: str
    values: str
    events: bytes | None


class BlockRow(TypedDict, total=False):
    """The records of one decoding task for one shard: a row of BLOCK_SCHEMA or MEMBER_SCHEMA."""

    cluster: str
    slot: int
    shard: int
    shards: int
    known: bool
    inherited: str | None
    leaving: bool
    first: str
    clock: str
    reports: bytes
    samples: bytes
    stored_reports: str
    stored_samples: str
    events: bytes
    members: bytes
    blocks: tuple[str, ...]


class FigureFile(TypedDict):
    """A Parquet file with rows of one table.

    `path`: relative to the table's folder. `partition`: its value, null if the table has none.
    `slots`: of history, the first and the last slot.
    """

    path: str
    bytes: int
    rows: int
    partition: str | None
    slots: NotRequired[list[int]]
