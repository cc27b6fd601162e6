"""The ownership records of one round, one after another: which version comes next, and whether the
states let it through.

Versions start at 1 and grow by one with each record. What the states alone would not let through (a
bundle taken from a dead broker, a move that came to nothing, what brokers do by themselves) is
forced, as the reference's repairs are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lb_stream.contracts.decisions import Ownership, OwnershipState
from lb_stream.core.model.memory import Memory, Pending, Unserved
from lb_stream.core.model.view import ClusterView
from lb_stream.core.ownership.unit_states import FIRST_VERSION, ServiceUnit, accepts


@dataclass(frozen=True, slots=True)
class RecordedOwner:
    """What a record says of a bundle, beside its version."""

    state: OwnershipState
    owner: str | None
    source: str | None
    destination: str | None
    since_ms: int
    decision_id: str | None = None
    children: Sequence[str] = ()

    @staticmethod
    def owned(
        owner: str, since_ms: int, source: str | None = None, decision_id: str | None = None
    ) -> RecordedOwner:
        """Somebody serves the bundle."""
        return RecordedOwner("Owned", owner, source, owner, since_ms, decision_id)

    @staticmethod
    def left(
        state: OwnershipState, source: str | None, since_ms: int, decision_id: str | None = None
    ) -> RecordedOwner:
        """Nobody serves it: Free, Deleted or Init. `source`: who did last."""
        return RecordedOwner(state, None, source, None, since_ms, decision_id)


@dataclass(slots=True)
class OwnershipRecords:
    """The records so far.

    `view` has the dead brokers' bundles unowned. `new`: nothing has ever been told.

    In a dry run nothing is told; bundles whose records change meanwhile are `unpublished` and come after
    it, unless nothing was told before it.
    """

    view: ClusterView
    epoch: int
    dry_run: bool
    new: bool
    versions: dict[str, int]  # where not 1
    unserved: dict[str, Unserved]
    unpublished: set[str]
    units: dict[str, ServiceUnit]  # of this round, and of decisions under way
    published: list[Ownership] = field(default_factory=list)
    released: dict[str, tuple[str | None, int]] = field(
        default_factory=dict
    )  # nobody's, not recorded yet: who let it go, since when

    @staticmethod
    def of(view: ClusterView, memory: Memory, dry_run: bool) -> OwnershipRecords:
        """Before the round's first record."""
        units = {
            pending.bundle: _pending_unit(pending, pending.version) for pending in memory.pending
        }
        merged = (
            (pending, pending.neighbour)
            for pending in memory.pending
            if pending.neighbour is not None
        )
        units |= {
            neighbour: _pending_unit(pending, memory.versions[neighbour])
            for pending, neighbour in merged
        }
        new = memory.published_to == ""
        return OwnershipRecords(
            view,
            memory.epoch,
            dry_run,
            new,
            dict(memory.versions),
            dict(memory.unserved),
            set(memory.unpublished),
            units,
        )

    def owner(self, row: int) -> str | None:
        """Who has the bundle in that row."""
        return find_owner(self.view, row)

    def version(self, name: str, row: int) -> int:
        """The version of a bundle's last record; 0: there is none.

        `row`: the bundle's in the view.
        """
        if name in self.versions:
            return self.versions[name]
        known = name in self.units or name in self.unserved or self.owner(row) is not None
        return (
            FIRST_VERSION
            if known or (name in self.released and not self.view.bundles.appeared[row])
            else 0
        )

    def unit(self, name: str, row: int) -> ServiceUnit | None:
        """A bundle's record as it is now."""
        if name in self.units:
            return self.units[name]
        if (last := self.unserved.get(name)) is not None:
            state: OwnershipState = "Deleted" if last.state == "Deleted" else "Free"
            return ServiceUnit(state, None, last.source, self.version(name, row))
        owner, moved = self.owner(row), row >= 0 and bool(self.view.bundles.gained[row])
        if name in self.released and not self.view.bundles.appeared[row]:
            owner = self.released[name][0]
        elif self.new or (
            owner is None
            and name not in self.versions
            and not (moved and not self.view.bundles.appeared[row])
        ):
            return None
        return ServiceUnit(
            "Owned", None if moved else owner, None, self.versions.get(name, FIRST_VERSION)
        )

    def write(
        self,
        name: str,
        row: int,
        entry: RecordedOwner,
        *,
        version: int | None = None,
        forced: bool = False,
    ) -> None:
        """Add the bundle's next record, or its first of that version."""
        if self.dry_run and self.new:
            return
        current = None if version is not None else self.unit(name, row)
        if version is None:
            version = (
                FIRST_VERSION if current is None else current.version + (0 if self.dry_run else 1)
            )
        unit = ServiceUnit(entry.state, entry.destination, entry.source, version)
        force = forced or not accepts(current, unit, "metadata_store")
        self.units[name] = unit
        if entry.state in ("Free", "Deleted"):
            self.unserved[name] = Unserved(entry.state, entry.since_ms, entry.source)
        else:
            self.unserved.pop(name, None)
        if self.dry_run:
            self.unpublished.add(name)
            return
        self.unpublished.discard(name)
        if version != FIRST_VERSION or entry.state != "Owned":
            self.versions[name] = version
        self._tell(name, entry, version, force)

    def forget(self, name: str) -> None:
        """An empty record; nothing is remembered of the bundle."""
        self._tell(
            name,
            RecordedOwner.left("Init", None, self.view.now_ms),
            self.version(name, -1),
            force=False,
        )
        del self.unserved[name]
        self.versions.pop(name, None)
        self.units.pop(name, None)

    def _tell(self, name: str, entry: RecordedOwner, version: int, force: bool) -> None:
        record = Ownership(
            cluster=self.view.cluster,
            bundle=name,
            state=entry.state,
            owner=entry.owner,
            source=entry.source,
            destination=entry.destination,
            children=list(entry.children),
            version=version,
            force=force,
            since_ms=entry.since_ms,
            epoch=self.epoch,
            decision_id=entry.decision_id,
        )
        self.published.append(record)


def find_owner(view: ClusterView, row: int) -> str | None:
    """Who has the bundle in that row of a view."""
    owner = int(view.bundles.owner[row]) if row >= 0 else -1
    return view.brokers.names[owner] if owner >= 0 else None


def _pending_unit(pending: Pending, version: int) -> ServiceUnit:
    """The record that a decision has led to."""
    match pending.kind:
        case "assign":
            return ServiceUnit("Assigning", pending.destination, pending.former, version)
        case "split":
            return ServiceUnit("Splitting", None, pending.source, version)
        case "merge":
            return ServiceUnit("Merging", None, pending.source, version)
        case _:
            return ServiceUnit("Releasing", pending.destination, pending.source, version)
