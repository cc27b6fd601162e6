"""When a job announces on the decisions topic which forms of reports it reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lb_stream.contracts.reads import FORMS, READS_INTERVAL_S, Reads


@dataclass(slots=True)
class ReadsAnnouncer:
    """Announces it of every known cluster each READS_INTERVAL_S, and of a new cluster at once.

    It also announces at once that rosters are missing. The records follow from no log: they decide
    nothing, and the next ones replace them.
    """

    clock: Callable[[], float] = time.monotonic
    _announced_s: float = field(default=-READS_INTERVAL_S, init=False)
    _clusters: frozenset[str] = field(default=frozenset(), init=False)

    def list_due(self, clusters: Mapping[str, Sequence[str]], checkpoint: str) -> tuple[Reads, ...]:
        """Return the records that are to be published now; usually none.

        `clusters`: each known cluster, with the brokers whose rosters are missing.
        """
        now_s = self.clock()
        due = set(clusters)
        if now_s - self._announced_s < READS_INTERVAL_S:
            due = {name for name in due if name not in self._clusters or clusters[name]}
        else:
            self._announced_s = now_s
        self._clusters = frozenset(clusters)
        sent_ms = time.time_ns() // 1_000_000
        return tuple(
            Reads(
                cluster=cluster,
                forms=list(FORMS),
                checkpoint=checkpoint,
                rosters=list(clusters[cluster]),
                sent_ms=sent_ms,
            )
            for cluster in sorted(due)
        )
