"""Finds partitions that a flood in another one holds back, and a fair share of the batch.

Spark divides `maxOffsetsPerTrigger` by what waits in each partition. Where all have a backlog that
is right: their times stay together. But beside a flood a partition with few waiting records gets
one record in each batch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kafka.errors import KafkaError

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.checkpoint import Offsets, StartBacklog, read_offset_bounds
from lb_stream.stream.ports import Backlog

LONGEST_WAIT_S = 15.0
"""How long few records may wait behind many; a new plan of the batch costs a restart."""

Ranges = Mapping[tuple[str, int], tuple[int, int]]
"""Offsets that a batch reads of each partition: [from, to)."""


def fair_ends(planned: Ranges, newest: Offsets, limit: int) -> Offsets:
    """Return where a batch of `limit` records ends if partitions share it equally.

    What a partition doesn't need goes to the others.
    """
    waiting = {
        place: max(newest.get(place, end) - begin, 0) for place, (begin, end) in planned.items()
    }
    ends, left = {}, limit
    for number, place in enumerate(sorted(planned, key=lambda place: (waiting[place], place))):
        taken = min(waiting[place], left // (len(planned) - number))
        ends[place] = planned[place][0] + taken
        left -= taken
    return ends


def held_back(planned: Ranges, newest: Offsets, limit: int) -> list[tuple[str, int]]:
    """Return the partitions that get less than half of an equal share."""
    fair = fair_ends(planned, newest, limit)
    return [
        place for place, (begin, end) in planned.items() if 2 * (end - begin) < fair[place] - begin
    ]


@dataclass(slots=True)
class Fairness:
    """Notices when few records have waited behind many for too long.

    `limit`: records that a batch may have; 0: never look.
    """

    limit: int = 0
    backlog: Backlog = field(default_factory=lambda: StartBacklog(None))
    since: float | None = (
        None  # when the row of batches began in which some partition was held back (time.monotonic)
    )

    def violated(self, settings: Settings, planned: Ranges) -> str | None:
        """Describe which partitions have waited too long, and for which; None if none have.

        A backlog from before the start is read as Spark divides it.
        """
        is_full = sum(end - begin for begin, end in planned.values()) >= self.limit - len(
            planned
        )  # it rounds each share down
        newest: Offsets = {}
        if is_full and self.backlog.is_read:
            with suppress(KafkaError):  # whoever reads the batch will notice
                newest = read_offset_bounds(settings)[1]
        held = held_back(planned, newest, self.limit)
        if not held:
            self.since = None
            return None
        now = time.monotonic()
        self.since = self.since or now
        if now - self.since < LONGEST_WAIT_S:
            return None
        topic, number = max(planned, key=lambda place: newest.get(place, 0) - planned[place][0])
        of = ", ".join(f"{topic}/{number}" for topic, number in held)
        return (
            f"few records have waited for {LONGEST_WAIT_S:.0f} s behind the many of topic "
            f"{topic}, partition {number} (of {of})"
        )
