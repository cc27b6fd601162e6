"""Notices that Kafka was away: a broker that could not send anything then is not to blame.

The job's own ticks make a batch due all the time. So where it waited for a batch, or for Kafka to
take one, Kafka was away. The first records after that may be those of a few brokers: the others
need some time to be heard again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from lb_stream.contracts.settings import StreamSettings

SLACK_S = 5.0
"""How much longer than between two ticks the job may wait without a reason to think so."""
GRACE_S = 12.0
"""How long brokers have to be heard again: two heartbeats of an agent, and a second to connect."""


@dataclass(slots=True)
class KafkaAbsence:
    """Measures the job's waits, by its own clock.

    `longest_wait_s`: longest wait while Kafka answers; None: the job sends no ticks, so any wait
    may mean that there is nothing to read.
    """

    longest_wait_s: float | None
    _waits_since: float | None = None
    _grace_until: float = 0.0

    @staticmethod
    def from_settings(stream: StreamSettings) -> KafkaAbsence:
        """Return it for a job with these settings."""
        if not stream.tick_interval_ms:
            return KafkaAbsence(None)
        return KafkaAbsence((stream.tick_interval_ms + stream.trigger_interval_ms) / 1000 + SLACK_S)

    def begin_wait(self) -> None:
        """Note that the job waits for Kafka from now on."""
        self._waits_since = time.monotonic()

    def end_wait(self) -> None:
        """Note that Kafka has answered."""
        began, now = self._waits_since, time.monotonic()
        self._waits_since = None
        if self.longest_wait_s is None or began is None:
            return
        if now - began > self.longest_wait_s:
            self._grace_until = now + GRACE_S

    @property
    def is_recent(self) -> bool:
        """Whether brokers may be silent because of an absence of Kafka's."""
        return time.monotonic() < self._grace_until
