"""This process among the jobs of its pipeline: a thread that hears their signs, says that it stands
by, and claims when it is time."""

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
"""How often the topic's end is asked for; what comes in between is heard at once."""
BEAT_MS = 5_000.0
"""How often a job says that it stands by."""
FRESH_MS = 3 * BEAT_MS
"""Who hasn't said so for this long stands by no more."""
RETRY_S = 0.5


class StandbyTracker:
    """The jobs that stand by, by what all signs say."""

    def __init__(self) -> None:
        self._last: dict[str, ReceivedRecord] = {}
        self._newest_ms = 0

    def take(self, heard: Iterable[ReceivedRecord]) -> None:
        """Hear some more."""
        for one in heard:
            self._newest_ms = max(self._newest_ms, one.append_ms)
            if isinstance(one.record, Standby):
                self._last[one.record.instance] = one
            else:  # whoever ticks leads, and whoever claims is about to
                self._last.pop(one.record.instance, None)

    @property
    def active(self) -> dict[str, Standby]:
        """Instance → its last word, of those that have said it lately, by Kafka's time."""
        last = sorted(self._last.copy().items())
        return {
            name: one.record
            for name, one in last
            if isinstance(one.record, Standby) and self._newest_ms - one.append_ms <= FRESH_MS
        }


class Member:
    """Begins as the leader, or as one that stands by. First `start`, at last `stop`.

    `ready`: it may claim, as Spark is there; `warm`: it could lead at once. Both are told by
    whoever runs the job. `asked`: somebody wishes that another job leads. `away`: why it can't hear
    the others; None: it can.
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
        self.connection_error: str | None = "nothing has been heard yet"

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def wait_to_lead(self, within_s: float) -> bool:
        """Wait at most so long; whether this job is to lead now."""
        return self._called.wait(within_s)

    def begin_leading(self) -> None:
        """It leads from now on; its clock ticks once `lead` has told the epoch."""
        self.clock, self.hand_over = Clock(self._settings), None

    def lead(self, epoch: int) -> None:
        """Tick from now on, with this epoch."""
        self.clock.lead(epoch)

    def end_leading(self, in_order: bool) -> None:
        """It leads no more, and stands by if it claims at all.

        `in_order`: it wasn't shut out, so another one may take over at once.
        """
        self.clock.stop(ends=in_order, to=self.hand_over.to if self.hand_over is not None else "")
        self.hand_over = None
        self._called.clear()
        self._begin_anew = True

    @property
    def standing(self) -> Standing:
        """Who leads, as far as it has heard."""
        return self._follower.standing

    @property
    def others(self) -> Mapping[str, Standby]:
        """The other jobs that stand by."""
        return {
            name: sign
            for name, sign in self._standby_tracker.active.items()
            if name != self.instance
        }

    def _run(self) -> None:
        """Listen until stopped.

        While Kafka is away, or refuses this user, nothing is concluded; each new try has clients of
        its own.
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
                # whatever the clients raise: who hears nothing may conclude nothing, and must go on
                # listening
                self._follower.observe(None, _now_ms())
                refused = self._refusals.note(error, self._doing)
                if self.connection_error is None and not refused:
                    logger.warning(
                        "the other jobs can't be heard (%s: %s); trying again",
                        type(error).__name__,
                        error,
                    )
                self.connection_error = f"{type(error).__name__}: {error}"
                self._stop.wait(AGAIN_S if refused else RETRY_S)

    def _look(
        self, reader: LeadershipReader, sender: LeadershipSender, early: list[ReceivedRecord]
    ) -> None:
        if self._begin_anew:
            self._begin_anew = self._leading = False
            self._follower.begin_anew()
            self._beat_at = 0.0
        asked_at = _now_ms()
        heard = [*early, *reader.to_end()]
        self.connection_error = None
        self._standby_tracker.take(heard)
        action = self._follower.observe(heard, asked_at, _now_ms())
        if self._leading:
            self._be_asked(heard)
        elif action is Action.LEAD:
            self._leading = True
            self._follower.begin_anew()
            self._called.set()
        elif action is Action.CLAIM and self.ready:
            claim: Claim = build_own_record(Claim, self._settings, self._epoch)
            self._follower.claimed(claim, _now_ms())
            self._send(sender, claim)
        elif _now_ms() - self._beat_at >= BEAT_MS:
            self._beat_at = _now_ms()
            self._send(
                sender, build_own_record(Standby, self._settings, self._epoch, warm=self.warm)
            )

    def _send(self, sender: LeadershipSender, sign: LeadershipRecord) -> None:
        self._doing = "Write"
        sender.send(sign)
        self._doing = "Read"

    def _be_asked(self, heard: list[ReceivedRecord]) -> None:
        """Note the wish of somebody that another job leads, if another one is there."""
        for one in heard:
            if (
                isinstance(one.record, HandOver)
                and self.clock.first_epoch <= one.record.epoch <= self.clock.epoch
            ):
                if one.record.to in self.others if one.record.to else self.others:
                    self.hand_over = one.record
                else:
                    logger.warning(
                        "%s asks to hand over to %s, who doesn't stand by",
                        one.record.by or "somebody",
                        one.record.to or "another",
                    )

    @property
    def _epoch(self) -> int:
        tick = self.standing.tick
        return tick.record.epoch if tick is not None else 0


def _now_ms() -> float:
    return time.monotonic() * 1000
