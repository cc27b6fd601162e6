"""The time by which decisions expire: that of the Kafka brokers which stamp the records, not this
machine's."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_TRIP_MS = 5_000
"""A record that took longer to be acknowledged tells too little: its stamp may lie anywhere in that
time."""


def wall_clock_ms() -> int:
    """This machine's time, ms since the epoch."""
    return time.time_ns() // 1_000_000


class RecordClock:
    """This machine's clock, put right by the stamps of records that were sent and acknowledged.

    Until the first one it is as it is.
    """

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        """`clock` gives the time of this machine, ms since the epoch."""
        self.local_ms = clock
        self.ahead_ms = 0  # how far the stamps are ahead of this machine's clock

    def now_ms(self) -> int:
        """The time, ms since the epoch, as records appended now will say."""
        return self.local_ms() + self.ahead_ms

    def note(self, sent_ms: int, append_ms: int) -> None:
        """A record sent at `sent_ms` by this machine's clock was stamped `append_ms`, and its
        acknowledgement has just come."""
        trip_ms = self.local_ms() - sent_ms
        if append_ms > 0 and 0 <= trip_ms <= LONGEST_TRIP_MS:
            self.ahead_ms = append_ms - (sent_ms + trip_ms // 2)
