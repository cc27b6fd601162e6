"""The clock by which decisions expire: Kafka's, which stamps records, not this machine's."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_TRIP_MS = 5_000
"""A record that took longer to be acknowledged is not used: its stamp is too uncertain."""


def wall_clock_ms() -> int:
    """Return this machine's time, ms since the epoch."""
    return time.time_ns() // 1_000_000


class RecordClock:
    """This machine's clock, corrected by the stamps of acknowledged records."""

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        """Start without a correction; `clock` gives this machine's time, ms since the epoch."""
        self.local_ms = clock
        self.ahead_ms = 0  # how far the stamps are ahead of this machine's clock

    def now_ms(self) -> int:
        """Return the time that Kafka stamps records with now, ms since the epoch."""
        return self.local_ms() + self.ahead_ms

    def note(self, sent_ms: int, append_ms: int) -> None:
        """Learn from a record that was acknowledged just now.

        `sent_ms` is when it was sent by this machine's clock, `append_ms` is its stamp.
        """
        trip_ms = self.local_ms() - sent_ms
        if append_ms > 0 and 0 <= trip_ms <= LONGEST_TRIP_MS:
            self.ahead_ms = append_ms - (sent_ms + trip_ms // 2)
