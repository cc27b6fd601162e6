"""The leader's clock: a thread that sends ticks to the commands topic.

Ticks make time pass in a silent cluster, and show the other jobs that this one lives.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing, suppress

from lb_stream.access.refusals import AGAIN_S, RefusalLog
from lb_stream.contracts.commands import Tick
from lb_stream.contracts.settings import Settings
from lb_stream.io.leadership.topic import LeadershipSender, build_own_record

logger = logging.getLogger(__name__)

RETRY_S = 1.0


class Clock:
    """Sends ticks from the first `lead` until `stop`, also while the stream restarts.

    The epoch makes their ids unique.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._refusals = RefusalLog(settings.kafka.bootstrap_servers, settings.kafka.options)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)
        self._number = 0
        self.first_epoch = self.epoch = 0

    def lead(self, epoch: int) -> None:
        """Tick from now on with this epoch; never, where `stream.tick_interval_ms` is 0."""
        self.first_epoch, self.epoch = self.first_epoch or epoch, epoch
        if (
            self._settings.stream.tick_interval_ms
            and not self._thread.is_alive()
            and not self._stop.is_set()
        ):
            self._thread.start()

    def stop(self, ends: bool = False, to: str = "") -> None:
        """Send no more ticks.

        `ends`: send a last one, which says that this job has stopped in order. `to`: the job
        (host:pid) that takes over.
        """
        ticked = self._thread.is_alive()
        self._stop.set()
        if ticked:
            self._thread.join(timeout=5)
        if ticked and ends:
            # Without the last tick the other jobs only wait longer.
            with suppress(Exception), closing(LeadershipSender(self._settings)) as sender:
                sender.send(self._tick(ends=True, to=to))

    def _tick(self, ends: bool = False, to: str = "") -> Tick:
        self._number += 1
        tick: Tick = build_own_record(
            Tick,
            self._settings,
            self.epoch,
            id=f"tick:{self.epoch}:{self._number}",
            ends=ends,
            to=to,
        )
        return tick

    def _run(self) -> None:
        """Tick until stopped. Each attempt after an error has a new client."""
        while not self._stop.is_set():
            try:
                with closing(LeadershipSender(self._settings)) as sender:
                    while not self._stop.is_set():
                        sender.send(self._tick())
                        self._stop.wait(self._settings.stream.tick_interval_ms / 1000)
            except Exception as error:
                # Whatever the client raises: without ticks no silent cluster would be noticed.
                if self._refusals.note(error, "Write"):
                    self._stop.wait(AGAIN_S)
                    continue
                logger.warning(
                    "no tick could be sent (%s: %s); trying again", type(error).__name__, error
                )
                self._stop.wait(RETRY_S)
