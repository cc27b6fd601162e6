"""Records that would end the job again at every start: found before Spark reads them, stepped over,
told of in `rejected_reports`.

Spark's Kafka source has no hook, so the plan of the batch is changed while no query runs:
`offsets/N` of a batch that was planned, not committed and not logged may end earlier; where a batch
begins is the end of the one before it. docs/decisions/0009 says why this is safe.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.checkpoint import (
    Offsets,
    first_offsets,
    is_finished,
    last_batch,
    planned_offsets,
    read_offset_bounds,
)
from lb_stream.io.kafka.fairness import Fairness, fair_ends
from lb_stream.io.kafka.measuring import RecordSize, build_measuring_consumer, measure
from lb_stream.io.kafka.poison_file import RecoveryState, write_file
from lb_stream.store import Store, checkpoint_of

logger = logging.getLogger(__name__)

AHEAD = 500
"""Kafka's client hands over so many records at once, decompressed, wherever the batch ends."""
GUARDED_BATCHES = 1_000
"""So many batches are looked at before they are read, once such a record has been found."""
LONGEST_LOOK_S = 60.0
MAX_CRASHES = 4
"""So often a batch ends the job before it is cut (from then on to an eighth each time), and again
before its one record is blamed."""
SURVIVED = "a record that the job survives"
KEPT = 100
"""Records set aside that are remembered."""

Place = tuple[str, int]


class Replan(RuntimeError):
    """The batch must not be read as it is planned: the stream begins anew, and the plan is changed
    first."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How the next query may read.

    `one_at_a_time`: one record at a time, and one batch only. `max_records`: records in a batch;
    0: as set.
    """

    one_at_a_time: bool = False
    max_records: int = 0


def _begin_of(batch: int) -> str:
    """The file that says where a batch begins."""
    return f"offsets/{batch - 1}" if batch else "sources/0/0"


def _range(checkpoint: Store, batch: int) -> dict[Place, tuple[int, int]]:
    begin, end = first_offsets(checkpoint, batch), planned_offsets(checkpoint, batch)
    return {place: (begin[place], end[place]) for place in sorted(end) if place in begin}


def _rewrite(checkpoint: Store, name: str, changed: Offsets) -> None:
    """Other offsets in one of Spark's files; its other lines stay."""
    lines = (checkpoint.read_text(name) or "").splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("{"))
    offsets = json.loads(lines[last])
    for (topic, partition), offset in changed.items():
        offsets[topic][str(partition)] = offset
    lines[last] = json.dumps(offsets, separators=(",", ":"))
    write_file(checkpoint, name, "\n".join(lines))


def plan_recovery(settings: Settings, is_logged: bool) -> ReadPlan:
    """Look at the batch that is planned and not finished, if there is one, and take out of its way
    what can't be read.

    Call it while no query runs. `is_logged`: that batch has been decided, so its records could be
    read and its plan stays.
    """
    checkpoint = checkpoint_of(settings.stream)
    batch = last_batch(checkpoint)
    kept = RecoveryState.read(checkpoint)
    if batch is None or is_finished(checkpoint, batch):
        return ReadPlan(max_records=kept.max_records)
    share, starts = kept.share, kept.starts + 1 if kept.batch == batch else 1
    kept = replace(kept, batch=batch, starts=starts, share=0).write(checkpoint)
    if share and not is_logged:
        _rewrite(
            checkpoint,
            f"offsets/{batch}",
            fair_ends(_range(checkpoint, batch), read_offset_bounds(settings)[1], share),
        )
    planned = _range(checkpoint, batch)
    found = _unreadable(settings, planned)
    begin, end, stepped = _around(planned, found)
    one_at_a_time = any(
        record.offset >= begin[place] for place, records in found.items() for record in records
    )
    if is_logged:
        return ReadPlan(one_at_a_time, kept.max_records)
    if found:
        kept = replace(kept, guarded_until=batch + GUARDED_BATCHES)
    kept, begin, end = _in_pieces(kept, planned, begin, end, stepped)
    stepped = [
        (place, record if record.append_ms else _looked_up(settings, place, record))
        for place, record in stepped
    ]
    kept = _noted(kept, stepped).write(checkpoint)
    if end != {place: last for place, (_, last) in planned.items()}:
        _rewrite(
            checkpoint, f"offsets/{batch}", end
        )  # first: a batch never ends before its beginning
    if begin != {place: first for place, (first, _) in planned.items()}:
        _rewrite(checkpoint, _begin_of(batch), begin)
    return ReadPlan(one_at_a_time, kept.max_records)


def forgive_last_start(settings: Settings) -> None:
    """Note that no record is to blame for the end of this run: Kafka was away, or somebody stopped
    the job."""
    with suppress(OSError):  # the disk may be what is at fault
        kept = RecoveryState.read(checkpoint_of(settings.stream))
        if kept.starts:
            replace(kept, starts=kept.starts - 1).write(checkpoint_of(settings.stream))


def _unreadable(
    settings: Settings, ranges: Mapping[Place, tuple[int, int]]
) -> dict[Place, list[RecordSize]]:
    """What can't be read in the ranges, or so little behind them that Kafka's client would
    decompress it all the same."""
    found: dict[Place, list[RecordSize]] = {}
    consumer: KafkaConsumer = build_measuring_consumer(settings)
    try:
        ends = consumer.end_offsets([TopicPartition(*place) for place in ranges])
        windows = {
            place: (begin, min(end + AHEAD, ends[TopicPartition(*place)]))
            for place, (begin, end) in ranges.items()
        }
        for place, record in measure(consumer, windows, LONGEST_LOOK_S):
            if record.trouble is not None:
                found.setdefault(place, []).append(record)
    except (KafkaError, TimeoutError) as error:
        logger.warning("what the next batch reads can't be looked at first: %s", error)
    finally:
        consumer.close()
    return found


def _looked_up(settings: Settings, place: Place, blamed: RecordSize) -> RecordSize:
    """A record that was only alone when the job ended, with its key, size and time."""
    consumer: KafkaConsumer = build_measuring_consumer(settings)
    try:
        for _, record in measure(
            consumer, {place: (blamed.offset, blamed.offset + 1)}, LONGEST_LOOK_S
        ):
            if record.offset == blamed.offset:
                return replace(record, last=blamed.last, trouble=blamed.trouble)
    except (KafkaError, TimeoutError) as error:
        logger.warning("whose record is set aside can't be seen: %s", error)
    finally:
        consumer.close()
    return replace(blamed, append_ms=time.time_ns() // 1_000_000)  # its row is kept by it


def _around(
    planned: Mapping[Place, tuple[int, int]], found: Mapping[Place, list[RecordSize]]
) -> tuple[Offsets, Offsets, list[tuple[Place, RecordSize]]]:
    """Where the batch begins and ends now, and what was stepped over: it begins behind what can't
    be read and ends before the next."""
    begin = {place: first for place, (first, _) in planned.items()}
    end = {place: last for place, (_, last) in planned.items()}
    stepped = []
    for place in planned:
        for record in found.get(place, ()):
            if record.offset > begin[place] or record.offset >= end[place]:
                end[place] = min(end[place], record.offset)
                break
            stepped.append((place, record))
            begin[place] = record.last + 1
        end[place] = max(begin[place], end[place])
    return begin, end, stepped


def _in_pieces(
    kept: RecoveryState,
    planned: Mapping[Place, tuple[int, int]],
    begin: Offsets,
    end: Offsets,
    stepped: list[tuple[Place, RecordSize]],
) -> tuple[RecoveryState, Offsets, Offsets]:
    """A batch that has ended the job again and again is cut; one that is a single record is to
    blame, and stepped over."""
    total = sum(end[place] - begin[place] for place in planned)
    if stepped or not total or kept.starts < (1 if kept.max_records and total > 1 else MAX_CRASHES):
        return kept, begin, end
    if total == 1:
        if any(
            record["blamed"] and record["batch"] in (None, kept.batch) for record in kept.records
        ):
            logger.error(
                "batch %d ends the job without the record that was blamed for it: it is not the "
                "records",
                kept.batch,
            )
            return kept, begin, end
        place = next(place for place in planned if end[place] > begin[place])
        offset = begin[place]
        trouble = f"{SURVIVED}: it ended {kept.starts} times while it read nothing else"
        stepped.append((place, RecordSize(offset, 0, 0, offset, trouble=trouble)))
        return replace(kept, starts=0), {**begin, place: offset + 1}, end
    max_records = max(1, (kept.max_records or total) // 8) if kept.max_records != 1 else 1
    until = kept.until or {
        f"{topic}/{partition}": end[topic, partition] for topic, partition in end
    }
    logger.warning(
        "batch %d has ended the job %d times: it is read %d records at a time",
        kept.batch,
        kept.starts,
        max_records,
    )
    left = max_records
    cut = {}
    for place in planned:
        cut[place] = min(end[place], begin[place] + left)
        left -= cut[place] - begin[place]
    return replace(kept, starts=0, max_records=max_records, until=until), begin, cut


def _noted(kept: RecoveryState, stepped: list[tuple[Place, RecordSize]]) -> RecoveryState:
    known = {(record["topic"], record["partition"], record["offset"]) for record in kept.records}
    new = []
    for (topic, partition), record in stepped:
        behind = (
            f"; with the {record.last - record.offset} records behind it in its producer's batch"
            * (record.last > record.offset)
        )
        expected = f"{record.trouble}{behind}"
        logger.warning(
            "topic %s, partition %d, offset %d is set aside: expected %s",
            topic,
            partition,
            record.offset,
            expected,
        )
        if (topic, partition, record.offset) not in known:
            shown = {"field": "value", "value": f"{record.size} bytes", "expected": expected}
            place = {
                "topic": topic,
                "partition": partition,
                "offset": record.offset,
                "append_ms": record.append_ms,
            }
            key = record.key.decode(errors="replace")
            blamed = str(record.trouble).startswith(SURVIVED)
            new.append(
                {
                    "kind": "rejected",
                    "key": key,
                    "payload": canonical_json(shown),
                    "batch": None,
                    "blamed": blamed,
                }
                | place
            )
    return replace(kept, records=(*kept.records, *new)[-KEPT:])


@dataclass(slots=True)
class BatchGuard:
    """Looks at batches before they are read, while that is wanted."""

    settings: Settings
    read_plan: ReadPlan
    kept: RecoveryState
    fairness: Fairness = field(default_factory=Fairness)
    done: int = 0

    def require_readable(self, batch_id: int) -> None:
        """Raises Replan when the batch must not be read as it is planned."""
        checkpoint, kept = checkpoint_of(self.settings.stream), self.kept
        if self.read_plan.one_at_a_time and self.done:
            raise Replan(f"batch {batch_id} comes after the one that was read with care")
        ranges = (
            _range(checkpoint, batch_id)
            if kept.max_records or batch_id <= kept.guarded_until
            else {}
        )
        if kept.max_records and all(
            begin >= kept.until.get(f"{place[0]}/{place[1]}", 0)
            for place, (begin, _) in ranges.items()
        ):
            replace(kept, max_records=0, until={}, starts=0).write(checkpoint)
            raise Replan(f"batch {batch_id}: what had to be read in pieces has been read")
        if (
            not self.read_plan.one_at_a_time
            and batch_id <= kept.guarded_until
            and _unreadable(self.settings, ranges)
        ):
            raise Replan(
                f"batch {batch_id} has records that can't be read, or they come soon after it"
            )
        if self.fairness.limit and (
            told := self.fairness.violated(self.settings, _range(checkpoint, batch_id))
        ):
            replace(kept, share=self.fairness.limit).write(checkpoint)
            raise Replan(f"batch {batch_id}: {told}")
        self.done += 1

    def rejected_events(
        self, batch_id: int, known: Collection[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """Cluster → the records set aside that this batch tells of, as rejected events: the same
        ones when it is run again."""
        checkpoint = checkpoint_of(self.settings.stream)
        if not known or all(
            record["batch"] not in (None, batch_id) for record in self.kept.records
        ):
            return {}
        if all(begin == end for begin, end in _range(checkpoint, batch_id).values()):
            return {}  # nobody has a round in a batch of nothing
        records = tuple(
            {**record, "batch": batch_id} if record["batch"] is None else record
            for record in self.kept.records
        )
        if records != self.kept.records:
            self.kept = replace(self.kept, records=records).write(checkpoint)
        default = self.settings.stream.default_cluster
        fallback = default if default in known else min(known)
        told: dict[str, list[dict[str, Any]]] = {}
        for record in records:
            if record["batch"] == batch_id:
                cluster, _, broker = record["key"].rpartition("/")
                event = {
                    name: value
                    for name, value in record.items()
                    if name not in ("key", "batch", "blamed")
                }
                named = cluster in known
                told.setdefault(cluster if named else fallback, []).append(
                    event | {"broker": broker[:200] if named else ""}
                )
        return told
