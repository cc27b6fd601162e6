"""When a job announces which forms of reports it reads, and how long it waits for rosters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lb_stream.contracts.reads import FORMS, READS_INTERVAL_S, Reads
from lb_stream.stream.cluster_input import MAX_MISSING

AWAIT_S = 30.0
"""How long a cluster waits for rosters: agents that are asked report within seconds."""


@dataclass(slots=True)
class AwaitedRosters:
    """The brokers for whose rosters or bases each cluster waits, once for AWAIT_S.

    Once, because anybody who may report could name unknown rosters all the time. `_until_s`: by
    cluster, when its wait ends.
    """

    clock: Callable[[], float] = time.monotonic
    _until_s: dict[str, float] = field(default_factory=dict, init=False)
    _brokers: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)

    def note_missing(self, missing: Mapping[str, Sequence[str]]) -> None:
        """Note the brokers whose rosters or bases a batch has lacked, by cluster."""
        for cluster, brokers in missing.items():
            if brokers:
                self._until_s.setdefault(cluster, self.clock() + AWAIT_S)
                known = self._brokers.get(cluster, ())
                self._brokers[cluster] = tuple(sorted({*known, *brokers})[:MAX_MISSING])

    def of_next_batch(self) -> dict[str, tuple[str, ...] | None]:
        """Return by cluster the brokers that it waits for; None: it waits no longer."""
        now_s = self.clock()
        return {
            cluster: self._brokers[cluster] if now_s < until_s else None
            for cluster, until_s in self._until_s.items()
        }


@dataclass(slots=True)
class ReadsAnnouncer:
    """Announces it of every known cluster each READS_INTERVAL_S, and of a new cluster at once.

    It also announces at once that rosters or bases are missing. The records follow from no log:
    they decide nothing, and the next ones replace them.
    """

    clock: Callable[[], float] = time.monotonic
    _announced_s: float = field(default=-READS_INTERVAL_S, init=False)
    _clusters: frozenset[str] = field(default=frozenset(), init=False)

    def list_due(self, clusters: Mapping[str, Sequence[str]], checkpoint: str) -> tuple[Reads, ...]:
        """Return the records that are to be published now; usually none.

        `clusters`: each known cluster, with the brokers whose rosters or bases are missing.
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
