"""The decoding stage: from Kafka records to columnar blocks, a row for each (cluster, shard).

A report goes to all shards of its cluster, because it also matters which bundles it omits; each
shard gets the samples of its own bundles. A record that is not taken becomes a `rejected` event of
its cluster, and never stops the stream.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Literal, cast

import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.access.rights import Principal, Rights
from lb_stream.access.signatures import Signature, digest_value
from lb_stream.contracts.base import CLUSTER_PATTERN, LONGEST_BROKER
from lb_stream.contracts.columnar import COLUMNAR_KINDS, COLUMNS, DELTA, ROSTER
from lb_stream.core.averages.acknowledgements import strip_unexpected_bundle
from lb_stream.core.commands.base import Operation, named
from lb_stream.core.commands.responder import NOT_ALLOWED, UNSIGNED
from lb_stream.stream.admission import (
    ANSWERS_FACTOR,
    MAX_TRIES,
    TOP_BUNDLES,
    Storm,
    find_storms,
    without_storms,
)
from lb_stream.stream.columns.content_digests import DIGEST_BYTES
from lb_stream.stream.columns.reading import ColumnarReader
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.partition_records import (
    LONGEST_SHOWN,
    PartitionRecords,
    describe_rejection,
    to_payload,
)
from lb_stream.stream.records import (
    MAX_RECORD_BYTES,
    RecordRejected,
    find_command_sender,
    parse_agent_record,
    parse_command,
    parse_report,
)
from lb_stream.stream.rows import PartitionClock, RecordPosition
from lb_stream.stream.shard_blocks import build_clock_rows, build_shard_rows
from lb_stream.stream.shards.directory import NEW
from lb_stream.stream.signed_records import SenderRejected

RECORD_FIELDS = ("key", "value", "kind", "topic", "partition", "offset", "append_ms")
SIGNATURE_FIELDS = ("key_id", "signed_us", "signature")
"""Columns of records whose signatures are checked; null: without such a header."""

MAX_FANNED_OUT = 20_000
"""Commands of single clusters that a task makes of commands to all clusters, at most.

A record of a hundred bytes is one command for each of a thousand clusters.
"""

MAX_ANSWERED = 100
"""Commands that can't be read, or that nobody has signed, that a task answers.

Anybody may send them, and each answer is a record, and a row of several tables.
"""

Clock = dict[tuple[str, int], PartitionClock]
"""Topic and partition → the part that a task has read."""

RawRecord = tuple[bytes | None, bytes | None, str | None, Signature | None, RecordPosition]
"""A record's key, value, kind, signature and position."""
Outcome = Literal["taken", "rejected", "forged"]
"""What came of a record; forged: its signature is missing or wrong."""


def decode(
    batches: Iterable[pa.RecordBatch],
    config: DecodeConfig,
    store: Callable[[pa.Table], str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task, as batches of BLOCK_SCHEMA.

    `batches`: columns RECORD_FIELDS, and SIGNATURE_FIELDS if signatures are checked; `key` and
    `value` are binary, `kind` is the header's text. First come the rows with the clock, one for
    each partition of the next stage. Then comes a row for each shard of each cluster of the
    records; the batch's first task adds all other known clusters. `store` writes a block of many
    samples and returns its reference.
    """
    if config.columnar is None:
        config = replace(config, columnar=ColumnarReader())
    records = PartitionRecords(config.admission.rejected_rows)
    clock: Clock = {}
    was_enabled = gc.isenabled()
    # A million short-lived structs are made here, none of them in a cycle.
    gc.disable()
    try:
        for batch in batches:
            _advance_clock(clock, batch)
            storms = find_storms(
                batch,
                config.admission.records_per_second,
                config.commands_topic,
                config.signatures is not None and config.signatures.reports == "signed",
            )
            _read_batch(records, config, batch, storms)
        if clock:
            yield build_clock_rows(list(clock.values()), config.partitions)
        if clock or config.first:
            yield from build_shard_rows(records, config, _first_record(clock), store)
    finally:
        if was_enabled:
            gc.enable()


def _read_batch(
    records: PartitionRecords, config: DecodeConfig, batch: pa.RecordBatch, storms: list[Storm]
) -> None:
    """Add the records of a batch that count: those in no storm, then those of storms.

    A report may refer to a roster, and a delta to a base. So rosters are the first storms and
    deltas the last ones, and a storm of columnar reports comes before all deltas.
    """
    single = without_storms(batch, storms)
    deltas = single.slice(0, 0)
    if any(storm.kind == COLUMNS for storm in storms):
        is_delta = pc.fill_null(pc.equal(single.column("kind"), DELTA), False)
        deltas = single.filter(is_delta)
        single = single.filter(pc.invert(is_delta))
    for record in _raw_records(single, config):
        _read_record(records, config, record)
    for storm in sorted(storms, key=lambda storm: storm.kind != ROSTER):
        if storm.kind != DELTA:
            _read_storm(records, config, storm, batch)
    for record in _raw_records(deltas, config):
        _read_record(records, config, record)
    for storm in storms:
        if storm.kind == DELTA:
            _read_storm(records, config, storm, batch)


def _read_signatures(batch: pa.RecordBatch, config: DecodeConfig) -> Sequence[Signature | None]:
    """Return the signature of each record, None where there is none or where it doesn't matter."""
    if config.signatures is None:
        return [None] * len(batch)
    columns = [batch.column(name).to_pylist() for name in SIGNATURE_FIELDS]
    return [None if None in fields else Signature(*fields) for fields in zip(*columns, strict=True)]


def _raw_records(batch: pa.RecordBatch, config: DecodeConfig) -> Iterator[RawRecord]:
    """Yield the records of a batch."""
    columns = [batch.column(name).to_pylist() for name in RECORD_FIELDS]
    for record in zip(*columns, _read_signatures(batch, config), strict=True):
        key, value, kind, topic, partition, offset, append_ms, signature = record
        position: RecordPosition = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "append_ms": append_ms,
        }
        yield key, value, kind, signature, position


def _raw_record(batch: pa.RecordBatch, row: int, config: DecodeConfig) -> RawRecord:
    """Return one record of a batch."""
    return next(_raw_records(batch.slice(row, 1), config))


def _advance_clock(clock: Clock, batch: pa.RecordBatch) -> None:
    """Note that the partitions of a batch's records have been read up to these."""
    columns = [batch.column(name).to_pylist() for name in _CLOCK_FIELDS]
    for topic, partition, offset, append_ms in zip(*columns, strict=True):
        seen = clock.get((topic, partition))
        if seen is None:
            clock[topic, partition] = {
                "topic": topic,
                "partition": partition,
                "first": offset,
                "last": offset,
                "append_ms": append_ms,
            }
            continue
        seen["first"] = min(seen["first"], offset)
        seen["last"] = max(seen["last"], offset)
        seen["append_ms"] = max(seen["append_ms"], append_ms)


_CLOCK_FIELDS = ("topic", "partition", "offset", "append_ms")


def _first_record(clock: Clock) -> str:
    """Return a task's first record, as a text that sorts like topic, partition, offset."""
    return min(
        (
            f"{topic}/{partition:010d}/{seen['first']:020d}"
            for (topic, partition), seen in clock.items()
        ),
        default="",
    )


def _read_storm(
    records: PartitionRecords, config: DecodeConfig, storm: Storm, batch: pa.RecordBatch
) -> None:
    """Add the records of a storm that count, and note how many others there are."""
    try:
        cluster, broker = _parse_key(storm.key, config)
    except RecordRejected:
        cluster, broker = config.default_cluster, ""
    if storm.is_of_answers:
        asked = config.known.get(cluster, NEW).asked.values()
        pending = sum(name == broker for name, _ in asked)
        most = config.admission.records_per_second * ANSWERS_FACTOR + 2 * pending
        read = _read_answers(records, config, storm, batch, most)
    elif storm.kind == ROSTER:
        newest = storm.rows[: config.admission.records_per_second]
        for row in newest:
            _read_record(records, config, _raw_record(batch, row, config))
        read = len(newest)
    else:
        read = _read_newest(records, config, storm, batch)
    if config.share.includes(cluster) and read < len(storm.rows):
        *_, position = _raw_record(batch, storm.rows[0], config)
        records.add_surplus(cluster, len(storm.rows) - read, position)


def _read_newest(
    records: PartitionRecords, config: DecodeConfig, storm: Storm, batch: pa.RecordBatch
) -> int:
    """Add the newest record that can be taken; return how many were read.

    Of reports, both of the newest records that an extensible manager sends are added. Records whose
    signature is wrong displace none: anybody can send them.
    """
    is_of_reports = storm.kind in (None, "report")
    wanted = {False, True} if is_of_reports else {False}  # whether of top bundles
    read = tries = 0
    for row in storm.rows:
        record = _raw_record(batch, row, config)
        of_bundles = is_of_reports and TOP_BUNDLES in (record[1] or b"")
        if of_bundles in wanted:
            outcome = _read_record(records, config, record)
            read += 1
            tries += outcome == "rejected"
            if outcome == "taken":
                wanted.remove(of_bundles)
        else:
            tries += 1
        if not wanted or tries >= MAX_TRIES:
            break
    return read


def _read_answers(
    records: PartitionRecords,
    config: DecodeConfig,
    storm: Storm,
    batch: pa.RecordBatch,
    most: int,
) -> int:
    """Add the first records, up to `most` of them; return how many were read."""
    read = counted = 0
    for row in reversed(storm.rows):
        if counted >= most:
            break
        outcome = _read_record(records, config, _raw_record(batch, row, config))
        read += 1
        counted += outcome != "forged"
    return read


def _read_record(records: PartitionRecords, config: DecodeConfig, record: RawRecord) -> Outcome:
    """Add one record, taken or rejected, unless its cluster is another pipeline's."""
    key, value, kind, signature, position = record
    cluster, broker = config.default_cluster, ""
    try:
        if value is not None and len(value) > MAX_RECORD_BYTES:
            raise RecordRejected(
                "value",
                f"{len(value)} bytes",
                f"at most {MAX_RECORD_BYTES} bytes when decompressed",
            )
        if position["topic"] == config.commands_topic:
            cluster = config.fallback_cluster
            _read_command(records, config, key, value, signature, position)
            return "taken"
        cluster, broker = _parse_key(key, config)
        if not config.share.includes(cluster):
            return "taken"
        _read_broker_record(
            records, config, cluster, broker, key or b"", value or b"", kind, signature, position
        )
        return "taken"
    except RecordRejected as rejection:
        if config.share.includes(cluster):
            records.reject(cluster, broker, rejection, position)
        return "forged" if isinstance(rejection, SenderRejected) else "rejected"
    except Exception as error:
        # Every restart would read this record again: it must not end the stream, whatever fails.
        if config.share.includes(cluster):
            expected = f"a readable record ({type(error).__name__}: {error})"
            shown = repr((value or b"")[:LONGEST_SHOWN])
            records.reject(cluster, broker, RecordRejected("value", shown, expected), position)
        return "rejected"


def _read_command(
    records: PartitionRecords,
    config: DecodeConfig,
    key: bytes | None,
    value: bytes | None,
    signature: Signature | None,
    position: RecordPosition,
) -> None:
    """Add a command to its cluster; one without a cluster goes to every known cluster.

    A command that can't be read is answered too, if it has an id: MAX_ANSWERED of them. If its key
    can't be read, only the pipeline with the default cluster answers.
    """
    cluster, key_id = config.fallback_cluster, None
    answers = config.share.includes(config.default_cluster)
    try:
        clusters = _find_addressees(key, config)
        if clusters is None:
            return
        answers = True
        if len(clusters) == 1:
            cluster = clusters[0]
        command = parse_command(value)
        if command is not None and config.signatures is not None:
            key_id = config.signatures.check_command(
                signature,
                key or b"",
                partial(digest_value, value or b""),
                command.by,
                position,
                lambda rejection: records.reject(cluster, "", rejection, position),
            )
        if command is not None and not key:
            _count_fanned_out(records, len(clusters))
    except RecordRejected as rejection:
        if not answers:
            return
        records.reject(cluster, "", rejection, position)
        sender = find_command_sender(value)
        if sender is not None and records.answered < MAX_ANSWERED:
            records.answered += 1
            rejected = describe_rejection(rejection)
            if isinstance(rejection, SenderRejected):
                rejected["rule"] = UNSIGNED
            payload = _build_payload(sender, rejected)
            records.add_event(cluster, "command", "", payload, position)
        return
    if command is not None:
        payload = _build_payload(command.model_dump(mode="json"), None, key_id)
        for name in clusters:
            if config.rights is not None:
                payload = _check_rights(config.rights, cast("Operation", command), name, key_id)
            records.add_event(name, "command", "", payload, position)


def _count_fanned_out(records: PartitionRecords, clusters: int) -> None:
    """Count a command to all clusters. Raises RecordRejected if there are too many of them.

    The first one always counts.
    """
    if records.fanned_out and records.fanned_out + clusters > MAX_FANNED_OUT:
        raise RecordRejected(
            "key",
            "",
            f"<cluster>: commands to all clusters make {MAX_FANNED_OUT:,} commands in a batch at "
            "most; send it again later, or name the cluster",
        )
    records.fanned_out += clusters


def _check_rights(rights: Rights, command: Operation, cluster: str, key_id: str | None) -> str:
    """Return the payload of a command in a cluster, as one that is refused without its rights."""
    required = command.required_rights()
    missing = rights.find_missing(Principal(command.by, key_id), cluster, required)
    if missing is None:
        right = named(right.describe() for right in required)
        return _build_payload(command.model_dump(mode="json"), None, key_id, right)
    expected = (
        f"a sender with the right {missing.describe()} in {cluster}, which an administrator grants "
        "in security.rights"
    )
    rejected = describe_rejection(RecordRejected("by", command.by, expected))
    sender = {"id": command.id, "kind": command.kind, "by": command.by}
    return _build_payload(sender, rejected | {"rule": NOT_ALLOWED}, key_id, missing.describe())


def _build_payload(
    record: Mapping[str, object],
    rejected: Mapping[str, str] | None,
    key_id: str | None = None,
    right: str | None = None,
) -> str:
    """Return the payload of a command's event; see `core.commands.responder.Received`."""
    return to_payload({"record": record, "rejected": rejected, "key_id": key_id, "right": right})


def _find_addressees(key: bytes | None, config: DecodeConfig) -> list[str] | None:
    """Return the clusters that a command is for; None if it is for another pipeline's cluster.

    Raises RecordRejected.
    """
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
    config.require_allowed(text)
    return [text]


def _parse_key(key: bytes | None, config: DecodeConfig) -> tuple[str, str]:
    """Return cluster and broker of a record's key `<cluster>/<broker>`.

    A key without a cluster belongs to the default cluster. Raises RecordRejected.
    """
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
    config.require_allowed(cluster)
    return cluster, broker


def _read_broker_record(
    records: PartitionRecords,
    config: DecodeConfig,
    cluster: str,
    broker: str,
    key: bytes,
    value: bytes,
    header: str | None,
    signature: Signature | None,
    position: RecordPosition,
) -> None:
    """Add a broker's load report, or another record of its agent. Raises RecordRejected.

    `header`: the kind that the record's header names; None: it has none, and is a report.
    """
    # For the signature, and to know a report that comes again.
    digest = cache(partial(digest_value, value))

    def check_signature(broker: str) -> None:
        if config.signatures is not None:
            config.signatures.check_broker_record(
                signature,
                key,
                header or "",
                digest,
                f"{cluster}/{broker}",
                position,
                lambda rejection: records.reject(cluster, broker, rejection, position),
            )

    kind = header or "report"
    if broker:
        check_signature(broker)
    if kind != "report":
        if not broker:
            raise RecordRejected(
                "key", cluster, "<cluster>/<broker>: a broker's record names its broker"
            )
        if kind in COLUMNAR_KINDS:
            _read_columnar(records, config, cluster, broker, kind, value, position)
            return
        payload = parse_agent_record(kind, value)
        if kind == "ack":
            payload = strip_unexpected_bundle(payload, broker, config.known.get(cluster, NEW).asked)
        records.add_event(cluster, kind, broker, payload, position)
        return
    # An empty report withdraws the broker, as when Pulsar deletes a broker's registration.
    if not value:
        if not broker:
            raise RecordRejected(
                "key",
                cluster,
                "<cluster>/<broker>: an empty report withdraws the broker that its key names",
            )
        records.add_event(cluster, "goodbye", broker, "{}", position)
        return
    report = parse_report(value, broker)
    _require_few_bundles(config, len(report.stats) + len(report.unmeasured))
    if not broker:
        check_signature(report.broker)
    records.add_report(cluster, report, digest()[:DIGEST_BYTES], position)


def _read_columnar(
    records: PartitionRecords,
    config: DecodeConfig,
    cluster: str,
    broker: str,
    kind: str,
    value: bytes,
    position: RecordPosition,
) -> None:
    """Take a roster, or add a columnar report or a delta. Raises RecordRejected."""
    assert config.columnar is not None
    require_few = partial(_require_few_bundles, config)
    report = config.columnar.read(cluster, broker, kind, value, position, require_few)
    if report is not None:
        records.add_columns(cluster, report, position)


def _require_few_bundles(config: DecodeConfig, count: int) -> None:
    """Raise RecordRejected for a report with more bundles than one may have."""
    most = config.admission.report_bundles
    if most and count > most:
        raise RecordRejected(
            "bundles", f"{count} bundles", f"at most {most} bundles (admission.report_bundles)"
        )
