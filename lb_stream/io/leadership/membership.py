"""Makes this process a member of its pipeline's jobs, by a thread.

The thread reads the leadership records of the others, says that this job stands by, and claims when
it is time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import closing

from kafka.errors import UnknownTopicOrPartitionError

from lb_stream.access.refusals import AGAIN_S, RefusalLog
from lb_stream.contracts.commands import Claim, HandOver, LeadershipRecord, Standby
from lb_stream.contracts.settings import Settings
from lb_stream.io.leadership.clock import Clock
from lb_stream.io.leadership.succession import Action, Follower, ReceivedRecord, Standing
from lb_stream.io.leadership.topic import (
    LeadershipReader,
    LeadershipSender,
    build_own_record,
    silence_ms,
)

logger = logging.getLogger(__name__)

LOOK_MS = 200.0
"""How often Kafka is asked where the topic ends; records that come in between are read at once."""
BEAT_MS = 5_000.0
"""How often a job says that it stands by."""
FRESH_MS = 3 * BEAT_MS
"""After this time without that record a job does not stand by any more."""
RETRY_S = 0.5
"""Pause after an error of Kafka's."""


class StandbyTracker:
    """Knows which jobs stand by, from all leadership records."""

    def __init__(self) -> None:
        self._last: dict[str, ReceivedRecord] = {}
        self._newest_ms = 0

    def take(self, received: Iterable[ReceivedRecord]) -> None:
        """Take some more records into account."""
        for item in received:
            self._newest_ms = max(self._newest_ms, item.append_ms)
            if isinstance(item.record, Standby):
                self._last[item.record.instance] = item
            else:  # a job that ticks leads, and one that claims is about to
                self._last.pop(item.record.instance, None)

    @property
    def active(self) -> dict[str, Standby]:
        """Return instance → its last record, of the jobs that stand by now, by append times."""
        last = sorted(self._last.copy().items())
        return {
            name: item.record
            for name, item in last
            if isinstance(item.record, Standby) and self._newest_ms - item.append_ms <= FRESH_MS
        }


class Member:
    """This job, as the leader or as a standby. Call `start` first and `stop` at last.

    `ready`: it may claim, because Spark runs; `warm`: it could lead at once. The caller sets both.
    `hand_over`: the record by which an operator asks that another job leads. `took_over`: how this
    job has come to lead; empty: it was simply started, or this was noted. `connection_error`:
    why it can't read the others' records; None: it can.
    """

    def __init__(self, settings: Settings, leads: bool) -> None:
        self._settings = settings
        self.instance: str = build_own_record(Standby, settings, 0).instance
        self._follower = Follower(self.instance, silence_ms(settings))
        self._leading, self._begin_anew = leads, False
        self._stop = threading.Event()
        self._called = threading.Event()
        self._thread = threading.Thread(target=self._run, name="member", daemon=True)
        self._standby_tracker = StandbyTracker()
        self._beat_at = 0.0
        self._refusals = RefusalLog(settings.kafka.bootstrap_servers, settings.kafka.options)
        self._doing = "Read"
        self.clock = Clock(settings)
        self.ready = self.warm = False
        self.hand_over: HandOver | None = None
        self.took_over = ""
        self.connection_error: str | None = "no record has been read yet"

    def start(self) -> None:
        """Begin to read the records of the others."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def wait_to_lead(self, within_s: float) -> bool:
        """Wait until this job is to lead, at most this long. Returns whether it is."""
        return self._called.wait(within_s)

    def begin_leading(self) -> None:
        """Note that this job leads; its clock ticks once `lead` is called with the epoch."""
        self.clock, self.hand_over = Clock(self._settings), None

    def lead(self, epoch: int) -> None:
        """Tick from now on with this epoch."""
        self.clock.lead(epoch)

    def end_leading(self, in_order: bool) -> None:
        """Note that this job leads no more; it stands by from now on.

        `in_order`: it wasn't shut out, so another job may take over at once.
        """
        self.clock.stop(ends=in_order, to=self.hand_over.to if self.hand_over is not None else "")
        self.hand_over = None
        self._called.clear()
        self._begin_anew = True

    @property
    def standing(self) -> Standing:
        """Return who leads, as far as this job has read."""
        return self._follower.standing

    @property
    def others(self) -> Mapping[str, Standby]:
        """Return the other jobs that stand by: instance → its last record."""
        active = self._standby_tracker.active
        return {name: record for name, record in active.items() if name != self.instance}

    def _run(self) -> None:
        """Read until stopped.

        While Kafka is away, or refuses this user, nothing is concluded. Each attempt has new
        clients.
        """
        while not self._stop.is_set():
            self._doing = "Read"
            try:
                with (
                    closing(LeadershipReader(self._settings)) as reader,
                    closing(LeadershipSender(self._settings)) as sender,
                ):
                    if not reader.topic_exists:
                        raise UnknownTopicOrPartitionError(self._settings.topics.commands)
                    early: list[ReceivedRecord] = []
                    while not self._stop.is_set():
                        self._look(reader, sender, early)
                        early = reader.next(LOOK_MS)
            except Exception as error:
                # Whatever the clients raise: without records nothing may be concluded, and the
                # thread must go on.
                self._follower.observe(None, _now_ms())
                refused = self._refusals.note(error, self._doing)
                if self.connection_error is None and not refused:
                    logger.warning(
                        "the records of the other jobs can't be read (%s: %s); trying again",
                        type(error).__name__,
                        error,
                    )
                self.connection_error = f"{type(error).__name__}: {error}"
                self._stop.wait(AGAIN_S if refused else RETRY_S)

    def _look(
        self, reader: LeadershipReader, sender: LeadershipSender, early: list[ReceivedRecord]
    ) -> None:
        """Read to the topic's end, and do what is to be done next.

        `early`: records that have been read since the last look.
        """
        if self._begin_anew:
            self._begin_anew = self._leading = False
            self._follower.begin_anew()
            self._beat_at = 0.0

        # What is new, and what follows from it.
        asked_at = _now_ms()
        received = [*early, *reader.to_end()]
        self.connection_error = None
        self._standby_tracker.take(received)
        action = self._follower.observe(received, asked_at, _now_ms())

        # A leader takes requests to hand over; a standby leads, claims, or says that it stands by.
        if self._leading:
            self._take_hand_over(received)
        elif action is Action.LEAD:
            self._leading = True
            self.took_over = describe_take_over(self.standing)
            self._follower.begin_anew()
            self._called.set()
        elif action is Action.CLAIM and self.ready:
            claim = build_own_record(Claim, self._settings, self._epoch)
            self._follower.claimed(claim, _now_ms())
            self._send(sender, claim)
        elif _now_ms() - self._beat_at >= BEAT_MS:
            self._beat_at = _now_ms()
            standby = build_own_record(Standby, self._settings, self._epoch, warm=self.warm)
            self._send(sender, standby)

    def _send(self, sender: LeadershipSender, record: LeadershipRecord) -> None:
        self._doing = "Write"
        sender.send(record)
        self._doing = "Read"

    def _take_hand_over(self, received: list[ReceivedRecord]) -> None:
        """Note an operator's request to hand over, if the job that it names stands by."""
        for item in received:
            record = item.record
            if not isinstance(record, HandOver):
                continue
            if not self.clock.first_epoch <= record.epoch <= self.clock.epoch:
                continue
            can_lead = record.to in self.others if record.to else bool(self.others)
            if can_lead:
                self.hand_over = record
            else:
                logger.warning(
                    "%s asks to hand over to %s, and no such job stands by",
                    record.by or "an operator",
                    record.to or "another job",
                )

    @property
    def _epoch(self) -> int:
        tick = self.standing.tick
        return tick.record.epoch if tick is not None else 0


def describe_take_over(standing: Standing) -> str:
    """Describe how a standby has come to lead. `standing`: what the topic said then."""
    last = standing.tick
    if last is None:
        return "leads as a standby: no leader was known"
    tick = last.record
    end = "it had stopped in order" if standing.vacant else "its ticks had stopped"
    return f"leads as a standby after {tick.instance} (epoch {tick.epoch}): {end}"


def _now_ms() -> float:
    return time.monotonic() * 1000
