"""The job's clock: a thread that puts a tick on the commands topic now and then.

So time passes in a silent cluster, and others see that the job lives.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import closing

from kafka import KafkaProducer

from lb_stream.access.refusals import AGAIN_S, Refusals
from lb_stream.contracts.commands import Tick
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import client_options
from lb_stream.io.leadership.leader import this_host

logger = logging.getLogger(__name__)

LONGEST_TICK_S = 30
RETRY_S = 5


class Clock:
    """Sends ticks until it is stopped. `epoch` makes their ids unique."""

    def __init__(self, settings: Settings, epoch: int) -> None:
        self._settings, self._epoch = settings, epoch
        self._refusals = Refusals(settings.kafka.bootstrap_servers, settings.kafka.options)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)

    def start(self) -> None:
        """Begin to tick; an interval of 0 never does."""
        if self._settings.stream.tick_interval_ms:
            self._thread.start()

    def stop(self) -> None:
        """Send no more ticks."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _tick(self, number: int) -> Tick:
        name, epoch = self._settings.stream.pipeline_id, self._epoch
        now_ms = time.time_ns() // 1_000_000
        return Tick(id=f"tick:{epoch}:{number}", sent_ms=now_ms, pipeline=name, epoch=epoch, host=this_host(), pid=os.getpid())

    def _run(self) -> None:
        """Tick until stopped. While Kafka is away no tick is sent; each new try has a client of its own."""
        number = 0
        while not self._stop.is_set():
            try:
                with closing(KafkaProducer(**client_options(self._settings), acks="all", linger_ms=0)) as producer:
                    while not self._stop.wait(self._settings.stream.tick_interval_ms / 1000):
                        number += 1
                        sent = producer.send(self._settings.topics.commands, key=b"", value=self._tick(number).to_json().encode())
                        sent.get(timeout=LONGEST_TICK_S)
            except Exception as error:  # whatever the client raises: without ticks no silent cluster would be noticed any more
                if self._refusals.note(error, "Write"):
                    self._stop.wait(AGAIN_S)
                    continue
                logger.warning("no tick could be sent (%s: %s); trying again in %d s", type(error).__name__, error, RETRY_S)
                self._stop.wait(RETRY_S)
