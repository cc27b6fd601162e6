"""The modular manager's preallocated bundles: placed, but in no report yet.

Placement counts them where `count_pending_moves` is off, as in the reference. Where it is on,
pending moves are applied to the view, and count everywhere.
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
    """A bundle that a broker was given, and the load that it adds there.

    The load follows the bundle's averages until these are unknown for the first time (`followed`).
    """

    bundle: str
    broker: str
    long_rate: float  # long-term messages/s
    topics: int
    followed: bool = True

    @staticmethod
    def from_view(view: ClusterView, row: int, broker: str) -> Preallocated:
        """Return the bundle in that row, given to the broker."""
        bundles = view.bundles
        rate = float(bundles.long.rate_in[row] + bundles.long.rate_out[row])
        return Preallocated(bundles.name(row), broker, rate, int(bundles.topics[row]))


@dataclass(frozen=True, slots=True)
class Preallocations:
    """All preallocated bundles of a cluster, in the order in which they were given.

    A bundle may have been given to several brokers, one after another.
    """

    entries: tuple[Preallocated, ...] = ()
    given: Mapping[str, str] = field(default_factory=dict)  # bundle → broker, kept by a repetition

    def given_to(
        self, row: int, broker: int, targets: Targets, candidates: Candidates
    ) -> Preallocations:
        """Return the preallocations with the bundle in that row at that broker; count it there.

        A bundle that is given to the same broker twice counts once.
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
        """Return the preallocations after new reports, which `view` shows. O(entries).

        `reference`: only bundles that the leader itself owns stay, until their broker reports them,
        and `given` is forgotten. `on_report`: each stays until its broker reports it, another
        broker owns it, or its broker is dead.
        """
        brokers = {
            name: row for row, name in enumerate(view.brokers.names) if view.brokers.alive[row]
        }
        rows = view.bundles.rows_of(entry.bundle for entry in self.entries).tolist()
        kept: list[Preallocated] = []
        for entry, row in zip(self.entries, rows, strict=True):
            owner = int(view.bundles.owner[row]) if row >= 0 else -1
            if entry.broker not in brokers or owner == brokers[entry.broker]:
                continue
            stays = entry.bundle in leader_owned if release == "reference" else owner < 0
            if stays:
                kept.append(_followed(entry, view, row))
        if release == "reference":
            return Preallocations(tuple(kept))
        names = {preallocated.bundle for preallocated in kept}
        return Preallocations(
            tuple(kept),
            {bundle: broker for bundle, broker in self.given.items() if bundle in names},
        )


def _followed(preallocated: Preallocated, view: ClusterView, row: int) -> Preallocated:
    """Return the entry with the bundle's averages of now, if they have always been known."""
    if row < 0 or not preallocated.followed:
        return replace(preallocated, followed=False)
    return Preallocated.from_view(view, row, preallocated.broker)


def counted_assignments(
    view: ClusterView, pending: Sequence[Pending], release: Release
) -> tuple[Preallocated, ...]:
    """Return the pending assignments that placement still counts.

    All count until the next reports; after that those that `release` keeps.
    """
    assigned = [
        (decision.bundle, decision.destination)
        for decision in pending
        if decision.kind == "assign" and decision.destination is not None
    ]
    rows = view.bundles.rows_of(bundle for bundle, _ in assigned).tolist()
    entries = tuple(
        Preallocated.from_view(view, row, broker)
        for row, (_, broker) in zip(rows, assigned, strict=True)
        if row >= 0
    )
    if not view.brokers.sampled.any():
        return entries
    return Preallocations(entries).updated(view, release).entries


def count(
    entries: Iterable[Preallocated], targets: Targets, candidates: Candidates, sign: int = 1
) -> None:
    """Add the bundles to the rates, topics and counts of their brokers; sign -1: take them away."""
    rows = {name: row for row, name in enumerate(targets.view.brokers.names)}
    for entry in entries:
        row = rows.get(entry.broker)
        if row is not None:
            targets.long_rate[row] += sign * entry.long_rate
            targets.topics[row] += sign * entry.topics
            candidates.census.promise(entry.bundle, row, given=sign > 0)
