"""Whether a job runs this pipeline, by its signs of life: its process on this machine, the ticks of its clock from elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from kafka import KafkaConsumer, TopicPartition
from pydantic import ValidationError

from lb_stream.contracts.commands import Tick
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import client_options
from lb_stream.io.kafka.outbox import Outbox
from lb_stream.io.leadership.leader import Leader, last_leader
from lb_stream.stream.ports import Stopped

logger = logging.getLogger(__name__)

LAST_RECORDS = 200
"""So many of the commands topic are looked at for ticks: commands may stand between them."""
SILENCE_TICKS, SILENCE_LEAST_MS = 3, 3_000
"""Who hasn't ticked for this long is dead."""
LONG_AGO_MS = 600_000
"""A last tick this old needs no waiting for the next one; no two machines' clocks differ so much."""
LONGEST_END_S = 90.0
"""How long a job that was shut out is given to end: its next batch finds out."""


@dataclass(frozen=True, slots=True)
class Sign:
    """The last tick of a job: whose, and Kafka's time of it."""

    leader: Leader
    append_ms: int


def silence_ms(settings: Settings) -> int:
    """How long after a tick the next one is due at the latest."""
    return max(SILENCE_LEAST_MS, SILENCE_TICKS * settings.stream.tick_interval_ms)


class Ticks:
    """Reads the ticks of one pipeline. Raises KafkaError when nobody answers."""

    def __init__(self, settings: Settings) -> None:
        self._pipeline = settings.stream.pipeline_id
        self._consumer = KafkaConsumer(**client_options(settings), enable_auto_commit=False)
        topic = settings.topics.commands
        places = [TopicPartition(topic, number) for number in sorted(self._consumer.partitions_for_topic(topic) or ())]
        self._consumer.assign(places)
        self._ends = self._consumer.end_offsets(places) if places else {}
        for place, begin in (self._consumer.beginning_offsets(places) if places else {}).items():
            self._consumer.seek(place, max(begin, self._ends[place] - LAST_RECORDS))

    def last(self) -> Sign | None:
        """The last one there is now; None: there is none among the last records."""
        found: Sign | None = None
        while any(self._consumer.position(place) < end for place, end in self._ends.items()):
            found = max([*([found] if found else []), *self._poll(500)], key=lambda sign: sign.append_ms, default=None)
        return found

    def next(self, within_ms: float) -> Sign | None:
        """One that comes within this time; None: none has."""
        until = time.monotonic() + within_ms / 1000
        while self._ends and (left := until - time.monotonic()) > 0:
            if (sign := next(self._poll(int(left * 1000) + 1), None)) is not None:
                return sign
        return None

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()

    def _poll(self, timeout_ms: int) -> Iterator[Sign]:
        for some in self._consumer.poll(timeout_ms=timeout_ms).values():
            for record in some:
                try:
                    tick = Tick.model_validate_json(record.value or b"")
                except ValidationError:  # a command
                    continue
                if tick.pipeline == self._pipeline:
                    yield Sign(Leader(tick.pipeline, tick.epoch, tick.host, tick.pid), record.timestamp)


def who_runs(settings: Settings) -> Leader | None:
    """The job that runs this pipeline now; None: nobody does. Raises KafkaError when nobody answers.

    On this machine its process tells at once. Of another machine's job a tick must come while we wait: who was killed a moment ago
    has ticked a moment ago.
    """
    leader = last_leader(settings.stream.tables)
    if leader is not None and leader.is_here:
        return leader if leader.runs_here else None
    with closing(Ticks(settings)) as ticks:
        last = ticks.last()
        if last is None or time.time() * 1000 - last.append_ms > LONG_AGO_MS:
            return None
        sign = ticks.next(silence_ms(settings))
    if sign is None:
        return None
    return leader if leader is not None and leader.epoch == sign.leader.epoch else sign.leader


def told(leader: Leader) -> str:
    """A job in words."""
    since = f", since {datetime.fromtimestamp(leader.since_ms / 1000):%Y-%m-%d %H:%M:%S}" if leader.since_ms else ""
    return f"process {leader.pid} on {leader.host} (epoch {leader.epoch}{since})"


def make_way(settings: Settings, take_over: bool) -> None:
    """Make sure that this job is the only one of its pipeline. Raises Stopped when another one runs and isn't to be replaced.

    Raises KafkaError when nobody answers.
    """
    leader = who_runs(settings)
    if leader is None:
        return
    pipeline = settings.stream.pipeline_id
    if not take_over:
        raise Stopped(
            f"the pipeline {pipeline!r} is run already by {told(leader)}, which goes on undisturbed. To replace it stop it first, or "
            f"start this one with --take-over: that shuts it out of publishing, waits for its end and goes on where its log ends. A job "
            f"beside it needs a stream.pipeline_id, tables and a checkpoint of its own"
        )
    logger.info(
        "taking over the pipeline %r from %s: it is shut out of publishing now and ends with its next batch, exit code 1; this job waits "
        "for that, then goes on where its log ends. A supervisor that starts it again has it refused",
        pipeline, told(leader),
    )  # fmt: skip
    if shut_out(settings, leader):
        logger.info("%s has ended", told(leader))
    else:
        logger.warning("%s has not ended within %.0f s; it can publish nothing any more: end it", told(leader), LONGEST_END_S)


def shut_out(settings: Settings, leader: Leader, wait_s: float = LONGEST_END_S) -> bool:
    """Let a job publish no more, and wait until it has ended. Returns whether it has; it can't do any harm either way."""
    outbox = Outbox(settings)
    try:
        outbox.fence()
    finally:
        outbox.close()
    until = time.monotonic() + wait_s
    while (now := who_runs(settings)) is not None and now.epoch == leader.epoch:
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True
