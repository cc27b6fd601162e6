"""The modular manager's preallocated bundles: placed, but in no report yet, so that placement must
count them itself.

Moves that this project has decided count everywhere until they are confirmed
(`count_pending_moves`); only with that switched off is this what the next placements know of the
last ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from lb_stream.core.filters.candidates import Candidates
from lb_stream.core.model.memory import Pending
from lb_stream.core.model.view import ClusterView
from lb_stream.core.placement.base import Targets

Release = Literal["reference", "on_report"]


@dataclass(frozen=True, slots=True)
class Preallocated:
    """A bundle that a broker was given, and what it counts there: its long-term rate (messages/s)
    and topics.

    They follow the bundle's averages as long as these are known without a break (`followed`).
    """

    bundle: str
    broker: str
    long_rate: float
    topics: int
    followed: bool = True

    @staticmethod
    def from_view(view: ClusterView, row: int, broker: str) -> Preallocated:
        """The bundle in that row, given to the broker."""
        bundles = view.bundles
        rate = float(bundles.long.rate_in[row] + bundles.long.rate_out[row])
        return Preallocated(bundles.name(row), broker, rate, int(bundles.topics[row]))


@dataclass(frozen=True, slots=True)
class Preallocations:
    """All of them, in the order in which they were given.

    A bundle may have been given to one broker after another.
    """

    entries: tuple[Preallocated, ...] = ()
    given: Mapping[str, str] = field(
        default_factory=dict
    )  # bundle → broker that a second placement of it answers

    def given_to(
        self, row: int, broker: int, targets: Targets, candidates: Candidates
    ) -> Preallocations:
        """And the bundle in that row given to that broker, and counted there.

        Given to it anew, it counts once.
        """
        name = targets.view.brokers.names[broker]
        new = Preallocated.from_view(targets.view, row, name)
        before = tuple(
            entry for entry in self.entries if (entry.bundle, entry.broker) == (new.bundle, name)
        )
        count(before, targets, candidates, sign=-1)
        count((new,), targets, candidates)
        kept = tuple(entry for entry in self.entries if entry not in before)
        return Preallocations((*kept, new), {**self.given, new.bundle: name})

    def updated(
        self, view: ClusterView, release: Release, leader_owned: Collection[str] = ()
    ) -> Preallocations:
        """After new reports, which `view` shows. O(entries).

        `reference`: only bundles that the leader itself owns stay, until their broker reports them,
        and no second placement remembers the first. `on_report`: each stays until its broker
        reports it, another broker owns it, or its broker is dead.
        """
        brokers = {
            name: row for row, name in enumerate(view.brokers.names) if view.brokers.alive[row]
        }
        rows = view.bundles.rows_of(entry.bundle for entry in self.entries).tolist()
        kept: list[Preallocated] = []
        for one, row in zip(self.entries, rows, strict=True):
            owner = int(view.bundles.owner[row]) if row >= 0 else -1
            if one.broker not in brokers or owner == brokers[one.broker]:
                continue
            if one.bundle in leader_owned if release == "reference" else owner < 0:
                kept.append(_followed(one, view, row))
        if release == "reference":
            return Preallocations(tuple(kept))
        names = {preallocated.bundle for preallocated in kept}
        return Preallocations(
            tuple(kept),
            {bundle: broker for bundle, broker in self.given.items() if bundle in names},
        )


def _followed(preallocated: Preallocated, view: ClusterView, row: int) -> Preallocated:
    if row < 0 or not preallocated.followed:
        return replace(preallocated, followed=False)
    return Preallocated.from_view(view, row, preallocated.broker)


def waiting(
    view: ClusterView, pending: Sequence[Pending], release: Release
) -> tuple[Preallocated, ...]:
    """The pending assignments that placement still counts, when it alone does: until the next
    reports, and then by `release`."""
    assigned = [
        (one.bundle, one.destination)
        for one in pending
        if one.kind == "assign" and one.destination is not None
    ]
    rows = view.bundles.rows_of(bundle for bundle, _ in assigned).tolist()
    entries = tuple(
        Preallocated.from_view(view, row, broker)
        for row, (_, broker) in zip(rows, assigned, strict=True)
        if row >= 0
    )
    return (
        Preallocations(entries).updated(view, release).entries
        if view.brokers.sampled.any()
        else entries
    )


def count(
    entries: Iterable[Preallocated], targets: Targets, candidates: Candidates, sign: int = 1
) -> None:
    """Count the given bundles at their brokers (or, with sign -1, no more): in the rates and topics
    there, and in the filters' counts."""
    rows = {name: row for row, name in enumerate(targets.view.brokers.names)}
    for entry in entries:
        row = rows.get(entry.broker)
        if row is not None:
            targets.long_rate[row] += sign * entry.long_rate
            targets.topics[row] += sign * entry.topics
            candidates.census.promise(entry.bundle, row, given=sign > 0)
