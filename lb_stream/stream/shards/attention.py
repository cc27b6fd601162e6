"""Which clusters to forget: those that were silent for long enough while the job listened without a break."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lb_stream.stream.shards.directory import ShardMap

LISTENED_MS = 3_600_000
"""How long the job must have listened: a living broker reports at least every `report_max_interval_ms` (15 min)."""
BREAK_MS = 60_000
"""When batches are so far apart, what came in between may not have been read yet."""


@dataclass(slots=True)
class Attention:
    """Since when this job has read what comes, without a break. When it didn't, or was behind, nobody's silence means anything."""

    since_ms: int | None = None
    last_ms: int = 0

    def pay(self, now_ms: int, caught_up: bool) -> None:
        """A batch has been read."""
        if not caught_up:
            self.since_ms = None
        elif self.since_ms is None or now_ms - self.last_ms > BREAK_MS:
            self.since_ms = now_ms
        self.last_ms = max(self.last_ms, now_ms)

    def forgotten(
        self, clusters: Mapping[str, ShardMap], now_ms: int, retention_ms: int
    ) -> list[str]:
        """The clusters that are to be forgotten. `retention_ms` 0: none ever."""
        if (
            not retention_ms
            or self.since_ms is None
            or now_ms - self.since_ms < min(retention_ms, LISTENED_MS)
        ):
            return []
        return [
            name
            for name, slices in clusters.items()
            if slices.since_ms is not None and now_ms - slices.since_ms >= retention_ms
        ]
