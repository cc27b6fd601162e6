"""Finds out whether a job runs this pipeline: by its process on this machine, else by its ticks."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime

from lb_stream.contracts.commands import Claim, Tick
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.outbox import Outbox
from lb_stream.io.leadership.leader import Leader, last_leader
from lb_stream.io.leadership.membership import StandbyTracker
from lb_stream.io.leadership.succession import ReceivedRecord
from lb_stream.io.leadership.topic import (
    LeadershipReader,
    LeadershipSender,
    build_own_record,
    silence_ms,
)
from lb_stream.store import tables_of
from lb_stream.stream.ports import FatalError

logger = logging.getLogger(__name__)

LONG_AGO_MS = 600_000
"""A last tick older than this needs no wait for the next one; no two clocks differ so much."""
LONGEST_END_S = 90.0
"""How long to wait for the end of a job that was shut out; its next batch ends it."""


class Ticks:
    """Reads the ticks of one pipeline. Raises KafkaError when Kafka doesn't answer."""

    def __init__(self, settings: Settings) -> None:
        self._reader = LeadershipReader(settings)
        self.standby_tracker = StandbyTracker()

    def last(self) -> ReceivedRecord | None:
        """Return the last tick; None if none is found or its job has stopped."""
        last = max(
            self._ticks(self._reader.to_end()), key=lambda tick: tick.append_ms, default=None
        )
        return None if last is None or last.record.ends else last  # type: ignore[attr-defined]

    def next(self, within_ms: float) -> ReceivedRecord | None:
        """Return the first tick within this time; None if none comes."""
        until = time.monotonic() + within_ms / 1000
        while (left_ms := (until - time.monotonic()) * 1000) > 0 and self._reader.topic_exists:
            if (tick := next(self._ticks(self._reader.next(left_ms)), None)) is not None:
                return tick
        return None

    def close(self) -> None:
        """Release the connections."""
        self._reader.close()

    def _ticks(self, received: list[ReceivedRecord]) -> Iterator[ReceivedRecord]:
        self.standby_tracker.take(received)
        return (item for item in received if isinstance(item.record, Tick))


def find_leader(settings: Settings) -> Leader | None:
    """Return the job that runs this pipeline now, or None.

    A job on this machine is known by its process. For a job elsewhere this waits for a tick,
    because a job that has just been killed has just ticked. Raises KafkaError when Kafka doesn't
    answer.
    """
    leader = last_leader(tables_of(settings.stream))
    if leader is not None and leader.is_here:
        return leader if leader.runs_here else None
    with closing(Ticks(settings)) as ticks:
        last = ticks.last()
        if last is None or time.time() * 1000 - last.append_ms > LONG_AGO_MS:
            return None
        received = ticks.next(silence_ms(settings))
    if received is None:
        return None
    tick = received.record
    if leader is not None and leader.epoch == tick.epoch:
        return leader
    return Leader(tick.pipeline, tick.epoch, tick.host, tick.pid)


def describe_absence(settings: Settings) -> str:
    """Describe that the job of these tables is dead and no standby is there; empty otherwise.

    Empty also when it can't be known. A job on this machine is known by its process; for a job
    elsewhere this waits for a tick. Raises KafkaError when Kafka doesn't answer, and AccessRefusal
    when it doesn't let this user read ticks.
    """
    leader = last_leader(tables_of(settings.stream))
    if leader is None or leader.pipeline != settings.stream.pipeline_id:
        return ""
    if leader.is_here and leader.runs_here:
        return ""
    if not settings.stream.tick_interval_ms:
        return _describe_end(leader) if leader.is_here else ""
    with closing(Ticks(settings)) as ticks:
        last = ticks.last()
        if ticks.standby_tracker.active:
            return ""
        if last is None or time.time() * 1000 - last.append_ms > LONG_AGO_MS:
            return _describe_end(leader)
        if leader.is_here and last.record.epoch == leader.epoch:
            return _describe_end(leader)
        return "" if ticks.next(silence_ms(settings)) else _describe_end(leader)


def _describe_end(leader: Leader) -> str:
    if leader.is_here:
        return f"its process {leader.pid} on this machine has ended"
    return f"its clock on {leader.host} doesn't tick"


def describe_leader(leader: Leader) -> str:
    """Describe a job by its process, host, epoch and start."""
    since = (
        f", since {datetime.fromtimestamp(leader.since_ms / 1000):%Y-%m-%d %H:%M:%S}"
        if leader.since_ms
        else ""
    )
    return f"process {leader.pid} on {leader.host} (epoch {leader.epoch}{since})"


def require_no_leader(settings: Settings, take_over: bool) -> None:
    """Make sure that this job is the only one of its pipeline.

    Raises FatalError when another one runs and `take_over` is False; KafkaError when Kafka doesn't
    answer.
    """
    leader = find_leader(settings)
    if leader is None:
        return
    pipeline = settings.stream.pipeline_id
    if not take_over:
        raise FatalError(
            f"the pipeline {pipeline!r} is run already by {describe_leader(leader)}, which goes "
            "on. To replace it, stop it first, or start this job with --take-over: that shuts the "
            "other job out of publishing, waits for its end and goes on where its log ends. To run "
            "a job beside it, give it a stream.pipeline_id, stream.tables and a stream.checkpoint "
            "of its own"
        )
    logger.info(
        "taking over the pipeline %r from %s: that job is shut out of publishing now, and ends "
        "with its next batch, exit code 1. This job waits for its end, then goes on where its log "
        "ends. If a supervisor starts the other job again, its start is refused",
        pipeline,
        describe_leader(leader),
    )
    if shut_out(settings, leader):
        logger.info("%s has ended", describe_leader(leader))
    else:
        logger.warning(
            "%s has not ended within %.0f s; it can't publish any more: end it",
            describe_leader(leader),
            LONGEST_END_S,
        )


def shut_out(settings: Settings, leader: Leader, wait_s: float = LONGEST_END_S) -> bool:
    """Shut a job out of publishing, and wait until it has ended or stands by.

    Returns whether it has. It can do no harm either way.
    """
    tracker, outbox = StandbyTracker(), Outbox(settings)
    with closing(LeadershipReader(settings)) as reader, closing(outbox):
        tracker.take(reader.to_end())
        # Because of the claim the standbys leave the lead to this job.
        with closing(LeadershipSender(settings)) as sender:
            sender.send(build_own_record(Claim, settings, leader.epoch, forced=True))
        outbox.fence()
        until = time.monotonic() + wait_s
        while (
            f"{leader.host}:{leader.pid}" not in tracker.active
            and (now := find_leader(settings)) is not None
            and now.epoch == leader.epoch
        ):
            if time.monotonic() > until:
                return False
            time.sleep(0.2)
            tracker.take(reader.to_end())
    return True
