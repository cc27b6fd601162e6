"""What the job reads from Spark's checkpoint: its uuid, how far each batch reads, and whether Kafka
still has what comes next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka import KafkaConsumer, TopicPartition

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import client_options
from lb_stream.io.kafka.rights import require_job_rights
from lb_stream.store import Store, checkpoint_of
from lb_stream.stream.ports import FatalError

Offsets = dict[tuple[str, int], int]
"""(topic, partition) → first offset that is not read any more."""


class LostRecords(FatalError):
    """Kafka no longer has records that come next; the text names them and says how to go on."""


def checkpoint_uuid(checkpoint: Store) -> str | None:
    """The id that Spark gave the query when it made this checkpoint; None when there is none
    yet."""
    text = checkpoint.read_text("metadata")
    return str(json.loads(text)["id"]) if text else None


def last_batch(checkpoint: Store) -> int | None:
    """The newest batch that was planned, finished or not."""
    return max(
        (int(entry.name) for entry in checkpoint.list("offsets") if entry.name.isdigit()),
        default=None,
    )


def planned_offsets(checkpoint: Store, batch_id: int | None) -> Offsets:
    """How far a batch reads.

    Spark writes it down before the batch begins: a version line, metadata, then one line for each
    source.
    """
    text = checkpoint.read_text(f"offsets/{batch_id}") if batch_id is not None else None
    return _offsets((text or "").splitlines()[2:])


def _offsets(lines: list[str]) -> Offsets:
    sources: list[Mapping[str, Mapping[str, int]]] = [
        json.loads(line) for line in lines if line.startswith("{")
    ]
    return {
        (topic, int(number)): end
        for source in sources
        for topic, ends in source.items()
        for number, end in ends.items()
    }


def next_offsets(checkpoint: Store) -> Offsets:
    """Where the next batch begins to read: behind the last one, or at its beginning when it was not
    finished. Empty without a checkpoint.

    Where the first batch begins is in a file of its own: a zero byte, a version, one line of JSON.
    """
    last = last_batch(checkpoint)
    if last is None:
        return {}
    return (
        planned_offsets(checkpoint, last)
        if is_finished(checkpoint, last)
        else first_offsets(checkpoint, last)
    )


def is_finished(checkpoint: Store, batch_id: int) -> bool:
    """Whether Spark has written down that a batch is done."""
    return checkpoint.stat(f"commits/{batch_id}") is not None


def first_offsets(checkpoint: Store, batch_id: int) -> Offsets:
    """Where a batch begins to read."""
    return (
        planned_offsets(checkpoint, batch_id - 1)
        if batch_id
        else _offsets((checkpoint.read_text("sources/0/0") or "").splitlines())
    )


def state_partitions(checkpoint: Store) -> int | None:
    """Into how many partitions the checkpoint's state is divided, for ever; None when there is no
    checkpoint yet."""
    last = last_batch(checkpoint)
    text = checkpoint.read_text(f"offsets/{last}") if last is not None else None
    found = (
        json.loads(text.splitlines()[1])["conf"].get("spark.sql.shuffle.partitions")
        if text
        else None
    )
    return int(found) if found is not None else None


def read_offset_bounds(settings: Settings) -> tuple[Offsets, Offsets]:
    """The first offset that Kafka has, and the one that comes next, of each partition that is read.

    Raises AccessDenied.
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
            require_job_rights(settings)  # what may not be seen looks like what isn't there
        begin, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    finally:
        consumer.close()
    first, following = (
        {(place.topic, place.partition): bounds[place] for place in partitions}
        for bounds in (begin, end)
    )
    return first, following


def require_none_lost(settings: Settings, wanted: Offsets, new_checkpoint: bool) -> str:
    """Make sure that Kafka has what is read next, from `wanted` on.

    Returns a warning when records are lost that `stream.lost_records` allows to skip, else "".
    Raises LostRecords for all others.
    """
    begin, end = read_offset_bounds(settings)
    deleted, anew = [], []
    for place, first in sorted(wanted.items()):
        name = f"topic {place[0]}, partition {place[1]}"
        if place not in begin:
            anew.append(f"{name}: next is offset {first}, and it is not there any more")
        elif first > end[place]:
            anew.append(f"{name}: next is offset {first}, and it ends at {end[place]}")
        elif first < begin[place]:
            deleted.append(
                f"{name}: offsets {first} to {begin[place] - 1}, {begin[place] - first} records"
            )
    skips = settings.stream.lost_records == "skip"
    if anew and not (new_checkpoint and skips):
        raise LostRecords(
            f"topics were made anew since they have been read ({'; '.join(anew)}): the checkpoint "
            f"{settings.stream.checkpoint} does not "
            "fit them. Decisions and their numbers go on with a new one: --set "
            "stream.checkpoint=FOLDER --set stream.lost_records=skip"
        )
    told = f"Kafka has deleted records that were not read yet ({'; '.join(deleted)})"
    if deleted and not skips:
        raise LostRecords(
            f"{told}. To go on behind them, with averages and decisions as they are: --set "
            "stream.lost_records=skip. "
            "To prevent it: a longer retention.ms and retention.bytes of the topic, or a job that "
            "is away for less long"
        )
    return "; ".join([told] * bool(deleted) + anew)


def starting_offsets(settings: Settings, wanted: Offsets) -> dict[str, dict[str, int]]:
    """Topic → partition → where a new checkpoint begins: the wanted offset if Kafka has it, else
    the first that it has."""
    begin, end = read_offset_bounds(settings)
    starts: dict[str, dict[str, int]] = {}
    for (topic, number), first in begin.items():
        offset = wanted.get((topic, number), first)
        starts.setdefault(topic, {})[str(number)] = (
            offset if first <= offset <= end[topic, number] else first
        )
    return starts


@dataclass(slots=True)
class StartBacklog:
    """Whether the job has read all that was there when it started.

    Until then a broker's silence may be the job's own.
    """

    checkpoint: Store | None
    behind: Offsets = field(default_factory=dict)

    @staticmethod
    def at_start(settings: Settings) -> StartBacklog:
        """Ask Kafka where the topics end now, and the checkpoint how far it has come."""
        begin, end = read_offset_bounds(settings)
        checkpoint = checkpoint_of(settings.stream)
        backlog = StartBacklog(
            checkpoint, {place: offset for place, offset in end.items() if offset > begin[place]}
        )
        backlog.record_batch(last_batch(checkpoint))
        return backlog

    @property
    def is_read(self) -> bool:
        """Nothing of it is left."""
        return not self.behind

    def record_batch(self, batch_id: int | None) -> None:
        """Note that a batch has been read (or will be, first of all)."""
        if self.behind and self.checkpoint is not None:
            planned = planned_offsets(self.checkpoint, batch_id)
            self.behind = {
                partition: end
                for partition, end in self.behind.items()
                if planned.get(partition, 0) < end
            }
