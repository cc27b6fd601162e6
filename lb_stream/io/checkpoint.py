"""What the job reads from Spark's checkpoint: its uuid, and how far each batch reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka import KafkaConsumer, TopicPartition
from pyarrow import fs

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka_options import client_options

Offsets = dict[tuple[str, int], int]
"""(topic, partition) → first offset that is not read any more."""


def _read(checkpoint: str, name: str) -> str | None:
    filesystem, root = fs.FileSystem.from_uri(checkpoint) if "://" in checkpoint else (fs.LocalFileSystem(), checkpoint)
    path = f"{root.rstrip('/')}/{name}"
    if filesystem.get_file_info(path).type != fs.FileType.File:
        return None
    with filesystem.open_input_stream(path) as source:
        return str(source.read().decode())


def checkpoint_uuid(checkpoint: str) -> str | None:
    """The id that Spark gave the query when it made this checkpoint; None when there is none yet."""
    text = _read(checkpoint, "metadata")
    return str(json.loads(text)["id"]) if text else None


def last_batch(checkpoint: str) -> int | None:
    """The newest batch that was planned, finished or not."""
    filesystem, root = fs.FileSystem.from_uri(checkpoint) if "://" in checkpoint else (fs.LocalFileSystem(), checkpoint)
    found = filesystem.get_file_info(fs.FileSelector(f"{root.rstrip('/')}/offsets", allow_not_found=True))
    return max((int(info.base_name) for info in found if info.base_name.isdigit()), default=None)


def planned_offsets(checkpoint: str, batch_id: int | None) -> Offsets:
    """How far a batch reads. Spark writes it down before the batch begins: a version line, metadata, then one line for each source."""
    text = _read(checkpoint, f"offsets/{batch_id}") if batch_id is not None else None
    sources: list[Mapping[str, Mapping[str, int]]] = [json.loads(line) for line in (text or "").splitlines()[2:] if line.startswith("{")]
    return {(topic, int(number)): end for source in sources for topic, ends in source.items() for number, end in ends.items()}


def _bounds(settings: Settings) -> tuple[Offsets, Offsets]:
    """The first offset that Kafka has, and the one that comes next, of each partition that is read."""
    consumer = KafkaConsumer(**client_options(settings), enable_auto_commit=False)
    try:
        topics = (settings.topics.reports, settings.topics.commands)
        partitions = [TopicPartition(topic, number) for topic in topics for number in sorted(consumer.partitions_for_topic(topic) or ())]
        begin, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    finally:
        consumer.close()
    return tuple({(place.topic, place.partition): bounds[place] for place in partitions} for bounds in (begin, end))


def offsets_to_start(settings: Settings, wanted: Offsets) -> dict[str, dict[str, int]]:
    """Topic → partition → where to begin: the wanted offset as far as Kafka still has it, else the first that it has."""
    begin, end = _bounds(settings)
    starts: dict[str, dict[str, int]] = {}
    for (topic, number), first in begin.items():
        starts.setdefault(topic, {})[str(number)] = min(max(wanted.get((topic, number), first), first), end[topic, number])
    return starts


@dataclass(slots=True)
class CaughtUp:
    """Whether the job has read all that was there when it started. Until then a broker's silence may be the job's own."""

    checkpoint: str
    behind: Offsets = field(default_factory=dict)

    @staticmethod
    def at_start(settings: Settings) -> CaughtUp:
        """Ask Kafka where the topics end now, and the checkpoint how far it has come."""
        begin, end = _bounds(settings)
        checkpoint = settings.stream.checkpoint
        caught_up = CaughtUp(checkpoint, {place: offset for place, offset in end.items() if offset > begin[place]})
        caught_up.read(last_batch(checkpoint))
        return caught_up

    @property
    def now(self) -> bool:
        """Nothing of it is left."""
        return not self.behind

    def read(self, batch_id: int | None) -> None:
        """Note that a batch has been read (or will be, first of all)."""
        if self.behind:
            planned = planned_offsets(self.checkpoint, batch_id)
            self.behind = {partition: end for partition, end in self.behind.items() if planned.get(partition, 0) < end}
