"""Kafka records → validated columnar blocks: one row for each (cluster, shard) of a task's records.

Every report goes to all shards of its cluster (a bundle's absence is news too), with the samples of
that shard's bundles only. What can't be taken becomes a `rejected` event of its cluster; it never
stops the stream.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from lb_stream.contracts.base import CLUSTER_PATTERN, LONGEST_BROKER, canonical_json
from lb_stream.core.averages.acknowledgements import strip_unexpected_bundle
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.partition_records import LONGEST_SHOWN, PartitionRecords, shown
from lb_stream.stream.records import (
    LARGEST_BYTES,
    RecordRejected,
    find_command_sender,
    parse_agent_record,
    parse_command,
    parse_report,
)
from lb_stream.stream.shard_blocks import build_clock_rows, build_shard_rows
from lb_stream.stream.shards.directory import NEW


def decode(
    batches: Iterable[pa.RecordBatch],
    config: DecodeConfig,
    store: Callable[[pa.Table], str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode one task's records.

    Input columns: key, value (binary), kind (string, from the header), topic, partition, offset,
    append_ms. Yields batches of BLOCK_SCHEMA: how far has been read, for each partition of the next
    stage; for each cluster of the records, and in the first task for each known cluster, one row
    for each of its shards. `store` takes a block of many samples and says where it is.
    """
    records = PartitionRecords()
    clock: dict[tuple[str, int], dict[str, Any]] = {}
    collects = gc.isenabled()
    gc.disable()  # a million short-lived structs, none of them in a cycle
    try:
        for batch in batches:
            columns = [
                batch.column(name)
                for name in ("key", "value", "kind", "topic", "partition", "offset", "append_ms")
            ]
            for key, value, kind, topic, partition, offset, append_ms in zip(
                *(column.to_pylist() for column in columns), strict=True
            ):
                position = {
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "append_ms": append_ms,
                }
                _tell_time(clock, position)
                _take(records, config, key, value, kind, position)
        if clock:
            yield build_clock_rows(list(clock.values()), config.partitions)
        if clock or config.first:
            yield from build_shard_rows(records, config, _first(clock), store)
    finally:
        if collects:
            gc.enable()


def _tell_time(clock: dict[tuple[str, int], dict[str, Any]], position: Mapping[str, Any]) -> None:
    """Note how far a record's partition has been read."""
    seen = clock.setdefault(
        (position["topic"], position["partition"]),
        {
            "topic": position["topic"],
            "partition": position["partition"],
            "first": position["offset"],
            "last": -1,
            "append_ms": 0,
        },
    )
    seen["first"] = min(seen["first"], position["offset"])
    seen["last"] = max(seen["last"], position["offset"])
    seen["append_ms"] = max(seen["append_ms"], position["append_ms"])


def _first(clock: Mapping[tuple[str, int], Mapping[str, Any]]) -> str:
    """Where a task has begun to read, as a text that sorts as such places do."""
    return min(
        (
            f"{topic}/{partition:010d}/{seen['first']:020d}"
            for (topic, partition), seen in clock.items()
        ),
        default="",
    )


def _take(
    records: PartitionRecords,
    config: DecodeConfig,
    key: bytes | None,
    value: bytes | None,
    kind: str | None,
    position: dict[str, Any],
) -> None:
    cluster, broker = config.default_cluster, ""
    try:
        if value is not None and len(value) > LARGEST_BYTES:
            raise RecordRejected(
                "value", f"{len(value)} bytes", f"at most {LARGEST_BYTES} bytes when decompressed"
            )
        if position["topic"] == config.commands_topic:
            cluster = config.fallback_cluster
            _take_command(records, config, key, value, position)
            return
        cluster, broker = _key(key, config)
        if not config.share.includes(cluster):
            return
        _take_record(records, config, cluster, broker, value or b"", kind or "report", position)
    except RecordRejected as rejection:
        if config.share.includes(cluster):
            records.reject(cluster, broker, rejection, position)
    except Exception as error:
        # a record that is met again at every restart must not end the stream, whatever it does to
        # us
        expected = f"a readable record ({type(error).__name__}: {error})"
        if config.share.includes(cluster):
            records.reject(
                cluster,
                broker,
                RecordRejected("value", repr((value or b"")[:LONGEST_SHOWN]), expected),
                position,
            )


def _take_command(
    records: PartitionRecords,
    config: DecodeConfig,
    key: bytes | None,
    value: bytes | None,
    position: dict[str, Any],
) -> None:
    """A command goes to its cluster, one without a cluster to every known one.

    What can't be read is answered too, if it has an id.

    To whom it goes can't be read: then the pipeline answers that has the default cluster.
    """
    cluster, answers = config.fallback_cluster, config.share.includes(config.default_cluster)
    try:
        clusters = _addressed(key, config)
        if clusters is None:
            return
        cluster, answers = clusters[0] if len(clusters) == 1 else cluster, True
        command = parse_command(value)
    except RecordRejected as rejection:
        if not answers:
            return
        records.reject(cluster, "", rejection, position)
        if (sender := find_command_sender(value)) is not None:
            records.add_event(
                cluster,
                "command",
                "",
                _payload({"record": sender, "rejected": shown(rejection)}),
                position,
            )
        return
    if command is not None:
        payload = _payload({"record": command.model_dump(mode="json"), "rejected": None})
        for name in clusters:
            records.add_event(name, "command", "", payload, position)


def _payload(content: dict[str, Any]) -> str:
    return canonical_json(content).encode(errors="replace").decode()


def _addressed(key: bytes | None, config: DecodeConfig) -> list[str] | None:
    """The clusters that a command is for; None: it is for another pipeline's."""
    try:
        text = (key or b"").decode()
    except UnicodeDecodeError:
        raise RecordRejected(
            "key", repr(key), "<cluster> in UTF-8, or nothing for all of them"
        ) from None
    if not text:
        return sorted(config.known)
    if not re.fullmatch(CLUSTER_PATTERN, text):
        raise RecordRejected(
            "key",
            text,
            "<cluster> of letters, digits, '.', '_' and '-', or nothing for all of them",
        )
    if not config.share.includes(text):
        return None
    config.check(text)
    return [text]


def _key(key: bytes | None, config: DecodeConfig) -> tuple[str, str]:
    """Cluster and broker of a record's key `<cluster>/<broker>`; a key without a cluster belongs to
    the default one."""
    try:
        text = (key or b"").decode()
    except UnicodeDecodeError:
        raise RecordRejected("key", repr(key), "<cluster>/<broker> in UTF-8") from None
    cluster, slash, broker = text.rpartition("/")
    if not slash or not cluster:
        cluster = config.default_cluster
    if not re.fullmatch(CLUSTER_PATTERN, cluster):
        raise RecordRejected(
            "key", text, "<cluster>/<broker> with a cluster of letters, digits, '.', '_' and '-'"
        )
    if len(broker) > LONGEST_BROKER:
        raise RecordRejected(
            "key", text, f"<cluster>/<broker> with at most {LONGEST_BROKER} characters of a broker"
        )
    config.check(cluster)
    return cluster, broker


def _take_record(
    records: PartitionRecords,
    config: DecodeConfig,
    cluster: str,
    broker: str,
    value: bytes,
    kind: str,
    position: dict[str, Any],
) -> None:
    if kind != "report":
        if not broker:
            raise RecordRejected(
                "key", cluster, "<cluster>/<broker>: a broker's record names its broker"
            )
        payload = parse_agent_record(kind, value)
        if kind == "ack":
            payload = strip_unexpected_bundle(payload, broker, config.known.get(cluster, NEW).asked)
        records.add_event(cluster, kind, broker, payload, position)
        return
    if not value:  # withdrawn: as when the broker's registration vanishes
        if not broker:
            raise RecordRejected(
                "key",
                cluster,
                "<cluster>/<broker>: an empty report withdraws the broker that its key names",
            )
        records.add_event(cluster, "goodbye", broker, "{}", position)
        return
    report = parse_report(value, broker)
    records.add_report(cluster, report, blake2b(value, digest_size=8).digest(), position)
