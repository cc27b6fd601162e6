"""Finds partitions that a flood in another one holds back, and a fair share of the batch.

Spark divides `maxOffsetsPerTrigger` by the number of records that wait in each partition. Where all
partitions have a backlog that is right: their times stay together. But beside a flood, a partition
with few waiting records gets one record in each batch.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field

from kafka.errors import KafkaError

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.checkpoint import (
    Offsets,
    Partition,
    Ranges,
    StartBacklog,
    read_offset_bounds,
)
from lb_stream.stream.ports import Backlog

LONGEST_WAIT_S = 15.0
"""How long few records may wait behind many; a new plan of the batch costs a restart."""


def fair_ends(planned: Ranges, newest: Offsets, limit: int) -> Offsets:
    """Return where a batch of `limit` records ends if partitions share it equally.

    What a partition doesn't need goes to the others. `newest`: where each partition ends.
    """
    waiting = {
        place: max(newest.get(place, end) - begin, 0) for place, (begin, end) in planned.items()
    }
    ends: Offsets = {}
    left = limit
    for number, place in enumerate(sorted(planned, key=lambda place: (waiting[place], place))):
        taken = min(waiting[place], left // (len(planned) - number))
        ends[place] = planned[place][0] + taken
        left -= taken
    return ends


def held_back(planned: Ranges, newest: Offsets, limit: int) -> list[Partition]:
    """Return the partitions that get less than half of an equal share."""
    fair = fair_ends(planned, newest, limit)
    return [
        place for place, (begin, end) in planned.items() if 2 * (end - begin) < fair[place] - begin
    ]


@dataclass(slots=True)
class Fairness:
    """Notices when few records have waited behind many for too long.

    `limit`: records that a batch may have; 0: never look. `since`: when some partition began to be
    held back, by time.monotonic; None: none is.
    """

    limit: int = 0
    backlog: Backlog = field(default_factory=lambda: StartBacklog(None))
    since: float | None = None

    def describe_violation(self, settings: Settings, planned: Ranges) -> str | None:
        """Describe which partitions have waited too long, and for which; None if none have.

        A backlog from before the start is read as Spark divides it.
        """
        # Spark rounds each partition's share down.
        is_full = sum(end - begin for begin, end in planned.values()) >= self.limit - len(planned)
        newest: Offsets = {}
        if is_full and self.backlog.is_read:
            with suppress(KafkaError):  # Spark meets the same error when it reads the batch
                newest = read_offset_bounds(settings)[1]
        waiting = held_back(planned, newest, self.limit)
        if not waiting:
            self.since = None
            return None
        now = time.monotonic()
        self.since = self.since or now
        if now - self.since < LONGEST_WAIT_S:
            return None
        flooded = max(planned, key=lambda place: newest.get(place, 0) - planned[place][0])
        names = ", ".join(f"{topic}/{number}" for topic, number in waiting)
        return (
            f"few records have waited for {LONGEST_WAIT_S:.0f} s behind many of "
            f"{flooded[0]}/{flooded[1]}: those of {names}"
        )
