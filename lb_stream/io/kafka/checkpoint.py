"""Reads Spark's checkpoint, and compares it with what Kafka has.

The checkpoint says which query it belongs to, how far each batch reads, and how its state is
divided. Kafka may have deleted the records that come next.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka import KafkaConsumer, TopicPartition

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import client_options
from lb_stream.io.kafka.rights import require_job_rights
from lb_stream.store import Store, checkpoint_of
from lb_stream.stream.ports import FatalError

Partition = tuple[str, int]
"""A partition of a topic: the topic's name and the partition's number."""
Offsets = dict[Partition, int]
"""Partition → offset of the next record to be read."""
Ranges = Mapping[Partition, tuple[int, int]]
"""Partition → the offsets that a batch reads of it: [from, to)."""


class LostRecords(FatalError):
    """Kafka no longer has records that come next; the text names them and says how to go on."""


def checkpoint_uuid(checkpoint: Store) -> str | None:
    """Return the id that Spark gave the query with this checkpoint; None if there is none yet."""
    text = checkpoint.read_text("metadata")
    return str(json.loads(text)["id"]) if text else None


def last_batch(checkpoint: Store) -> int | None:
    """Return the newest batch that was planned, finished or not; None if there is none yet."""
    numbers = [int(entry.name) for entry in checkpoint.list("offsets") if entry.name.isdigit()]
    return max(numbers, default=None)


def is_finished(checkpoint: Store, batch_id: int) -> bool:
    """Return whether Spark has written down that a batch is done."""
    return checkpoint.stat(f"commits/{batch_id}") is not None


def planned_offsets(checkpoint: Store, batch_id: int | None) -> Offsets:
    """Return where a batch ends. Spark writes that down before the batch begins.

    The file has a version line, a line of metadata, then a line for each source.
    """
    text = checkpoint.read_text(f"offsets/{batch_id}") if batch_id is not None else None
    return _parse_offsets((text or "").splitlines()[2:])


def first_offsets(checkpoint: Store, batch_id: int) -> Offsets:
    """Return where a batch begins: where the one before it ends.

    Where the first batch begins is in a file of its own: a zero byte, a version, one line of JSON.
    """
    if batch_id:
        return planned_offsets(checkpoint, batch_id - 1)
    return _parse_offsets((checkpoint.read_text("sources/0/0") or "").splitlines())


def next_offsets(checkpoint: Store) -> Offsets:
    """Return where the next batch begins; empty without a checkpoint.

    That is behind the last batch, or at its beginning if it was not finished.
    """
    last = last_batch(checkpoint)
    if last is None:
        return {}
    if is_finished(checkpoint, last):
        return planned_offsets(checkpoint, last)
    return first_offsets(checkpoint, last)


def _parse_offsets(lines: Iterable[str]) -> Offsets:
    sources: list[Mapping[str, Mapping[str, int]]] = [
        json.loads(line) for line in lines if line.startswith("{")
    ]
    return {
        (topic, int(number)): end
        for source in sources
        for topic, ends in source.items()
        for number, end in ends.items()
    }


def state_partitions(checkpoint: Store) -> int | None:
    """Return the number of partitions of the checkpoint's state; None without a checkpoint.

    The number can't be changed later.
    """
    last = last_batch(checkpoint)
    text = checkpoint.read_text(f"offsets/{last}") if last is not None else None
    if not text:
        return None
    metadata = json.loads(text.splitlines()[1])
    partitions = metadata["conf"].get("spark.sql.shuffle.partitions")
    return int(partitions) if partitions is not None else None


def read_offset_bounds(settings: Settings) -> tuple[Offsets, Offsets]:
    """Return the first offset that Kafka has of each partition, and the one behind its last record.

    These are the partitions that the job reads. Raises AccessDenied, KafkaError.
    """
    consumer = KafkaConsumer(**client_options(settings), enable_auto_commit=False)
    try:
        topics = (settings.topics.reports, settings.topics.commands)
        partitions = [
            TopicPartition(topic, number)
            for topic in topics
            for number in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        if {place.topic for place in partitions} != set(topics):
            # A topic that may not be described looks like one that doesn't exist.
            require_job_rights(settings)
        begin, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    finally:
        consumer.close()
    first, following = (
        {(place.topic, place.partition): offsets[place] for place in partitions}
        for offsets in (begin, end)
    )
    return first, following


def require_none_lost(settings: Settings, wanted: Offsets, new_checkpoint: bool) -> str:
    """Require that Kafka has what is read next, from `wanted` on.

    Returns a warning if records are lost and `stream.lost_records` allows to skip them, else an
    empty text. Raises LostRecords for all others, AccessDenied, KafkaError.
    """
    begin, end = read_offset_bounds(settings)
    deleted, recreated = [], []
    for place, first in sorted(wanted.items()):
        name = f"topic {place[0]}, partition {place[1]}"
        if place not in begin:
            recreated.append(f"{name}: offset {first} comes next, and the partition is gone")
        elif first > end[place]:
            recreated.append(f"{name}: offset {first} comes next, and it ends at {end[place]}")
        elif first < begin[place]:
            deleted.append(
                f"{name}: offsets {first} to {begin[place] - 1}, {begin[place] - first} records"
            )
    skips = settings.stream.lost_records == "skip"
    if recreated and not (new_checkpoint and skips):
        raise LostRecords(
            "topics were deleted and created again after the job had read them "
            f"({'; '.join(recreated)}): the checkpoint {settings.stream.checkpoint} does not fit "
            "them. Start with a new one; decisions and their numbers go on: --set "
            "stream.checkpoint=FOLDER --set stream.lost_records=skip"
        )
    warning = f"Kafka has deleted records that the job has not read ({'; '.join(deleted)})"
    if deleted and not skips:
        raise LostRecords(
            f"{warning}. To go on behind them and keep averages and decisions: --set "
            "stream.lost_records=skip. To prevent this, raise the topic's retention.ms and "
            "retention.bytes, or keep the job's absences shorter"
        )
    return "; ".join([warning] * bool(deleted) + recreated)


def starting_offsets(settings: Settings, wanted: Offsets) -> dict[str, dict[str, int]]:
    """Return where a new checkpoint begins to read: topic → partition → offset.

    That is the wanted offset if Kafka has it, else the first that Kafka has.
    """
    begin, end = read_offset_bounds(settings)
    starts: dict[str, dict[str, int]] = {}
    for (topic, number), first in begin.items():
        offset = wanted.get((topic, number), first)
        exists = first <= offset <= end[topic, number]
        starts.setdefault(topic, {})[str(number)] = offset if exists else first
    return starts


@dataclass(slots=True)
class StartBacklog:
    """Whether the job has read all records that were there when it started.

    Until then a broker's silence may be the job's own delay. `behind`: where each partition ended
    at the start, of those that have not been read so far.
    """

    checkpoint: Store | None
    behind: Offsets = field(default_factory=dict)

    @staticmethod
    def at_start(settings: Settings) -> StartBacklog:
        """Ask Kafka where the topics end now, and the checkpoint how far it has read."""
        begin, end = read_offset_bounds(settings)
        checkpoint = checkpoint_of(settings.stream)
        behind = {place: offset for place, offset in end.items() if offset > begin[place]}
        backlog = StartBacklog(checkpoint, behind)
        backlog.record_batch(last_batch(checkpoint))
        return backlog

    @property
    def is_read(self) -> bool:
        """Return whether all of them have been read."""
        return not self.behind

    def record_batch(self, batch_id: int | None) -> None:
        """Note that a batch has been read, or will be before any other."""
        if self.behind and self.checkpoint is not None:
            planned = planned_offsets(self.checkpoint, batch_id)
            self.behind = {
                place: end for place, end in self.behind.items() if planned.get(place, 0) < end
            }
