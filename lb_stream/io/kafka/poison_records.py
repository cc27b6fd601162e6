"""Finds poison records before Spark reads them, steps over them and reports them as rejected.

A poison record would end the job at every start. Spark's Kafka source has no hook, so the plan of
the batch is changed while no query runs. A batch that is planned, but neither committed nor logged,
may get an earlier end (in `offsets/N`). Where a batch begins is the end of the one before it.
docs/decisions/0009-what-cannot-be-read-is-stepped-over.md says why this is safe.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.checkpoint import (
    Offsets,
    Partition,
    Ranges,
    first_offsets,
    is_finished,
    last_batch,
    planned_offsets,
    read_offset_bounds,
)
from lb_stream.io.kafka.fairness import Fairness, fair_ends
from lb_stream.io.kafka.measuring import RecordSize, build_measuring_consumer, measure
from lb_stream.io.kafka.poison_file import PoisonRecord, RecoveryState, write_checkpoint_file
from lb_stream.store import Store, checkpoint_of

logger = logging.getLogger(__name__)

AHEAD = 500
"""Records that Kafka's client decompresses at once, wherever the batch ends."""
GUARDED_BATCHES = 1_000
"""Batches whose records are measured before Spark reads them, once a poison record was found."""
LONGEST_LOOK_S = 60.0
"""How long a batch's records may be measured; then Spark reads them unmeasured."""
MAX_CRASHES = 4
"""Starts after which a batch that ends the job is cut, and then those after which it is cut again.

So many ends are also needed before a batch's only record is blamed.
"""
CUT = 8
"""A batch that is cut has this fraction of the records that it had."""
SURVIVED = "a record that the job survives"
"""What is expected of a record that is blamed for the job's ends."""
KEPT = 100
"""Newest poison records that the file keeps."""
LONGEST_NAME = 200
"""Characters of a broker's name that a rejected event repeats."""

Rejected = dict[str, object]
"""A rejected event, as a row of `rejected_reports` needs it."""
Found = tuple[Partition, RecordSize]
"""A record that can't be read, and the partition that it is in."""


class Replan(RuntimeError):
    """The batch must not be read as it is planned.

    The stream begins anew, and the plan is changed before that.
    """


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How the next query may read.

    `one_at_a_time`: one record at a time, and one batch only. `max_records`: records of a batch at
    most; 0: as many as the settings say.
    """

    one_at_a_time: bool = False
    max_records: int = 0


def plan_recovery(settings: Settings, is_logged: bool) -> ReadPlan:
    """Change the plan of the unfinished batch so that no poison record is in it.

    Returns how the next query may read. Call this while no query runs. `is_logged`: the batch has
    been decided; then its records could be read, and its plan stays.
    """
    checkpoint = checkpoint_of(settings.stream)
    batch = last_batch(checkpoint)
    state = RecoveryState.read(checkpoint)
    if batch is None or is_finished(checkpoint, batch):
        return ReadPlan(max_records=state.max_records)

    # Count this start first: if the batch ends the job, the next start knows.
    share = state.share
    starts = state.starts + 1 if state.batch == batch else 1
    state = replace(state, batch=batch, starts=starts, share=0).write(checkpoint)

    # Partitions that a flood held back get an equal share of the batch.
    if share and not is_logged:
        newest = read_offset_bounds(settings)[1]
        ends = fair_ends(_planned_ranges(checkpoint, batch), newest, share)
        _rewrite_offsets(checkpoint, f"offsets/{batch}", ends)

    # Find what can't be read, and where the batch can begin and end without it.
    planned = _planned_ranges(checkpoint, batch)
    unreadable = _find_unreadable(settings, planned)
    begin, end, stepped_over = _step_over(planned, unreadable)
    one_at_a_time = any(
        record.offset >= begin[place] for place, records in unreadable.items() for record in records
    )
    if is_logged:
        return ReadPlan(one_at_a_time, state.max_records)
    if unreadable:
        state = replace(state, guarded_until=batch + GUARDED_BATCHES)

    # A batch that keeps ending the job without a reason that can be seen is cut.
    if not stepped_over:
        state, begin, end, stepped_over = _cut_or_blame(state, planned, begin, end)

    # Write the state first: the plan may be changed again, a record that is not listed is lost.
    stepped_over = [
        (place, record if record.append_ms else _measure_blamed(settings, place, record))
        for place, record in stepped_over
    ]
    state = _add_poison_records(state, stepped_over).write(checkpoint)

    # Write the end before the beginning: a batch never ends before it begins.
    if end != {place: last for place, (_, last) in planned.items()}:
        _rewrite_offsets(checkpoint, f"offsets/{batch}", end)
    if begin != {place: first for place, (first, _) in planned.items()}:
        _rewrite_offsets(checkpoint, _file_of_beginning(batch), begin)
    return ReadPlan(one_at_a_time, state.max_records)


def forgive_last_start(settings: Settings) -> None:
    """Take back the count of this start: no record is to blame for its end.

    Kafka was away, for example, or an operator stopped the job.
    """
    with suppress(OSError):  # the disk may be what is at fault
        checkpoint = checkpoint_of(settings.stream)
        state = RecoveryState.read(checkpoint)
        if state.starts:
            replace(state, starts=state.starts - 1).write(checkpoint)


def _file_of_beginning(batch: int) -> str:
    """Return the checkpoint's file that says where a batch begins."""
    return f"offsets/{batch - 1}" if batch else "sources/0/0"


def _planned_ranges(checkpoint: Store, batch: int) -> dict[Partition, tuple[int, int]]:
    begin, end = first_offsets(checkpoint, batch), planned_offsets(checkpoint, batch)
    return {place: (begin[place], end[place]) for place in sorted(end) if place in begin}


def _rewrite_offsets(checkpoint: Store, name: str, changed: Offsets) -> None:
    """Change offsets in a file of Spark's checkpoint; its other lines stay."""
    lines = (checkpoint.read_text(name) or "").splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("{"))
    offsets = json.loads(lines[last])
    for (topic, partition), offset in changed.items():
        offsets[topic][str(partition)] = offset
    lines[last] = json.dumps(offsets, separators=(",", ":"))
    write_checkpoint_file(checkpoint, name, "\n".join(lines))


def _find_unreadable(settings: Settings, ranges: Ranges) -> dict[Partition, list[RecordSize]]:
    """Find the records that can't be read, within the ranges and up to AHEAD records behind them.

    Kafka's client decompresses those records, too.
    """
    found: dict[Partition, list[RecordSize]] = {}
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
        logger.warning("the records of the next batch can't be measured before: %s", error)
    finally:
        consumer.close()
    return found


def _measure_blamed(settings: Settings, place: Partition, blamed: RecordSize) -> RecordSize:
    """Add key, size and append time to a record of which only the offset is known."""
    consumer: KafkaConsumer = build_measuring_consumer(settings)
    try:
        ranges = {place: (blamed.offset, blamed.offset + 1)}
        for _, record in measure(consumer, ranges, LONGEST_LOOK_S):
            if record.offset == blamed.offset:
                return replace(record, last=blamed.last, trouble=blamed.trouble)
    except (KafkaError, TimeoutError) as error:
        logger.warning("the key of a record that is stepped over can't be read: %s", error)
    finally:
        consumer.close()
    # The age of the row in `rejected_reports` counts from this time.
    return replace(blamed, append_ms=time.time_ns() // 1_000_000)


def _step_over(
    planned: Ranges, unreadable: Mapping[Partition, list[RecordSize]]
) -> tuple[Offsets, Offsets, list[Found]]:
    """Return where the batch begins and ends now, and the records that are stepped over.

    In each partition it begins behind the records that can't be read, and ends before the next one.
    """
    begin = {place: first for place, (first, _) in planned.items()}
    end = {place: last for place, (_, last) in planned.items()}
    stepped_over: list[Found] = []
    for place in planned:
        for record in unreadable.get(place, ()):
            if record.offset > begin[place] or record.offset >= end[place]:
                end[place] = min(end[place], record.offset)
                break
            stepped_over.append((place, record))
            begin[place] = record.last + 1
        end[place] = max(begin[place], end[place])
    return begin, end, stepped_over


def _cut_or_blame(
    state: RecoveryState, planned: Ranges, begin: Offsets, end: Offsets
) -> tuple[RecoveryState, Offsets, Offsets, list[Found]]:
    """Cut a batch that has ended the job too often; blame its record if it has only one.

    Returns the new state, beginning and end, and the record that is stepped over.
    """
    total = sum(end[place] - begin[place] for place in planned)
    is_cut = state.max_records > 0 and total > 1
    if not total or state.starts < (1 if is_cut else MAX_CRASHES):
        return state, begin, end, []
    if total > 1:
        state, end = _cut(state, planned, begin, end)
        return state, begin, end, []
    if any(record["blamed"] and record["batch"] in (None, state.batch) for record in state.records):
        logger.error(
            "batch %d ends the job without the record that was blamed for it: no record is the "
            "cause",
            state.batch,
        )
        return state, begin, end, []
    place = next(place for place in planned if end[place] > begin[place])
    offset = begin[place]
    trouble = f"{SURVIVED}: it ended {state.starts} times while it read nothing else"
    blamed = RecordSize(offset, 0, 0, offset, trouble=trouble)
    return replace(state, starts=0), {**begin, place: offset + 1}, end, [(place, blamed)]


def _cut(
    state: RecoveryState, planned: Ranges, begin: Offsets, end: Offsets
) -> tuple[RecoveryState, Offsets]:
    """Return the state and end of a batch that has an eighth of its records."""
    total = sum(end[place] - begin[place] for place in planned)
    max_records = max(1, (state.max_records or total) // CUT)
    logger.warning(
        "batch %d has ended the job %d times: it is read %d records at a time",
        state.batch,
        state.starts,
        max_records,
    )
    left = max_records
    cut: Offsets = {}
    for place in planned:
        cut[place] = min(end[place], begin[place] + left)
        left -= cut[place] - begin[place]
    until = state.until or {
        f"{topic}/{partition}": end[topic, partition] for topic, partition in end
    }
    return replace(state, starts=0, max_records=max_records, until=until), cut


def _add_poison_records(state: RecoveryState, stepped_over: list[Found]) -> RecoveryState:
    """Return the state with the records that are stepped over, and log each of them."""
    known = {(record["topic"], record["partition"], record["offset"]) for record in state.records}
    added: list[PoisonRecord] = []
    for (topic, partition), record in stepped_over:
        expected = str(record.trouble)
        if record.last > record.offset:
            expected += (
                f"; with the {record.last - record.offset} records behind it in its producer's "
                "batch"
            )
        logger.warning(
            "topic %s, partition %d, offset %d is stepped over: expected %s",
            topic,
            partition,
            record.offset,
            expected,
        )
        if (topic, partition, record.offset) not in known:
            payload = {"field": "value", "value": f"{record.size} bytes", "expected": expected}
            added.append(
                PoisonRecord(
                    kind="rejected",
                    topic=topic,
                    partition=partition,
                    offset=record.offset,
                    append_ms=record.append_ms,
                    key=record.key.decode(errors="replace"),
                    payload=canonical_json(payload),
                    batch=None,
                    blamed=expected.startswith(SURVIVED),
                )
            )
    return replace(state, records=(*state.records, *added)[-KEPT:])


@dataclass(slots=True)
class BatchGuard:
    """Decides before each batch whether Spark may read it as it is planned.

    `batches`: how many this query has begun.
    """

    settings: Settings
    read_plan: ReadPlan
    state: RecoveryState
    fairness: Fairness = field(default_factory=Fairness)
    batches: int = 0

    def require_readable(self, batch_id: int) -> None:
        """Raise Replan if the batch must not be read as it is planned."""
        checkpoint, state = checkpoint_of(self.settings.stream), self.state
        if self.read_plan.one_at_a_time and self.batches:
            raise Replan(f"batch {batch_id} follows the one that was read record by record")

        # Batches have their usual size again once all of the cut batch has been read.
        is_guarded = batch_id <= state.guarded_until
        ranges = _planned_ranges(checkpoint, batch_id) if state.max_records or is_guarded else {}
        if state.max_records and all(
            begin >= state.until.get(f"{topic}/{partition}", 0)
            for (topic, partition), (begin, _) in ranges.items()
        ):
            replace(state, max_records=0, until={}, starts=0).write(checkpoint)
            raise Replan(f"batch {batch_id}: what had to be read in pieces has been read")

        # One poison record seldom comes alone.
        may_look = is_guarded and not self.read_plan.one_at_a_time
        if may_look and _find_unreadable(self.settings, ranges):
            raise Replan(
                f"batch {batch_id} has records that can't be read, or ends soon before one"
            )

        # No partition waits for long behind a flood in another one.
        if self.fairness.limit:
            planned = _planned_ranges(checkpoint, batch_id)
            if violation := self.fairness.describe_violation(self.settings, planned):
                replace(state, share=self.fairness.limit).write(checkpoint)
                raise Replan(f"batch {batch_id}: {violation}")
        self.batches += 1

    def rejected_events(self, batch_id: int, known: Collection[str]) -> dict[str, list[Rejected]]:
        """Return the poison records that this batch reports: known cluster → rejected events.

        A batch that runs again reports the same ones. A record whose key names no known cluster
        stands under the default cluster.
        """
        checkpoint, records = checkpoint_of(self.settings.stream), self.state.records
        if not known or all(record["batch"] not in (None, batch_id) for record in records):
            return {}
        if all(begin == end for begin, end in _planned_ranges(checkpoint, batch_id).values()):
            return {}  # a batch of no records has no round that could report them

        # Write the batch's number down first, so that it reports the same when it runs again.
        reported = [
            record if record["batch"] is not None else PoisonRecord({**record, "batch": batch_id})
            for record in records
        ]
        if tuple(reported) != records:
            self.state = replace(self.state, records=tuple(reported)).write(checkpoint)

        default = self.settings.stream.default_cluster
        fallback = default if default in known else min(known)
        events: dict[str, list[Rejected]] = {}
        for record in reported:
            if record["batch"] != batch_id:
                continue
            cluster, _, broker = record["key"].rpartition("/")
            is_known = cluster in known
            event: Rejected = {
                name: value
                for name, value in record.items()
                if name not in ("key", "batch", "blamed")
            }
            event["broker"] = broker[:LONGEST_NAME] if is_known else ""
            events.setdefault(cluster if is_known else fallback, []).append(event)
        return events
