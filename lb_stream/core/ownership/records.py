"""The ownership records of one round, in their order, with their versions.

Versions start at 1 and grow by one with each record. A record that the states don't allow is
forced, as the reference's repairs are: if a broker is dead, a move fails, or a broker acts
without a decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lb_stream.contracts.decisions import RESHAPES, Ownership, OwnershipState
from lb_stream.core.model.memory import Memory, Pending, UnservedBundle
from lb_stream.core.model.names import parse_bundle
from lb_stream.core.model.view import ClusterView
from lb_stream.core.ownership.unit_states import FIRST_VERSION, ServiceUnit, accepts


@dataclass(frozen=True, slots=True)
class RecordedOwner:
    """An ownership record without its version."""

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
        """Return the record of a bundle that a broker serves; `source`: who served it before."""
        return RecordedOwner("Owned", owner, source, owner, since_ms, decision_id)

    @staticmethod
    def unserved(
        state: OwnershipState, source: str | None, since_ms: int, decision_id: str | None = None
    ) -> RecordedOwner:
        """Return the record of a bundle that no broker serves: Free, Deleted or Init.

        `source`: the broker that served it last.
        """
        return RecordedOwner(state, None, source, None, since_ms, decision_id)


class ReleasedBundle(NamedTuple):
    """An unassigned bundle without a record of that: the broker that had it, and since when."""

    source: str | None
    since_ms: int


@dataclass(slots=True)
class OwnershipRecords:
    """The records of bundles as a round has them so far.

    A dry run publishes the records of bundles that were unassigned, or in progress by a published
    decision, when it began: until a broker has them. Other bundles whose records change meanwhile
    are `unpublished` and follow after it, unless nothing was published before it.
    """

    view: ClusterView  # without the owners of dead brokers' bundles
    epoch: int
    dry_run: bool
    nothing_published: bool  # no record of the cluster has ever been published
    versions: dict[str, int]  # where not 1
    unserved: dict[str, UnservedBundle]
    unpublished: set[str]
    units: dict[str, ServiceUnit]  # of this round, and of pending decisions
    followed: set[str] = field(default_factory=set)  # records that a dry run publishes, too
    reshaped: list[str] = field(default_factory=list)  # bundles that are split or merged
    published: list[Ownership] = field(default_factory=list)  # by this round
    released: dict[str, ReleasedBundle] = field(default_factory=dict)

    @staticmethod
    def build(view: ClusterView, memory: Memory, dry_run: bool) -> OwnershipRecords:
        """Return the records before the round's first one."""
        units: dict[str, ServiceUnit] = {}
        for pending in memory.pending:
            units[pending.bundle] = _pending_unit(pending, pending.version)
        for pending in memory.pending:
            if pending.neighbour is not None:
                version = memory.versions[pending.neighbour]
                units[pending.neighbour] = _pending_unit(pending, version)
        return OwnershipRecords(
            view,
            memory.epoch,
            dry_run,
            nothing_published=memory.published_to == "",
            versions=dict(memory.versions),
            unserved=dict(memory.unserved),
            unpublished=set(memory.unpublished),
            units=units,
            followed=_find_unfinished(memory) if dry_run else set(),
            reshaped=[pending.bundle for pending in memory.pending if pending.kind in RESHAPES],
        )

    def owner(self, row: int) -> str | None:
        """Return the owner of the bundle in that row; None: it is unassigned."""
        return self.view.find_owner(row)

    def version(self, name: str, row: int) -> int:
        """Return the version of a bundle's last record; 0: there is none.

        `row`: the bundle's row in the view.
        """
        if name in self.versions:
            return self.versions[name]
        known = name in self.units or name in self.unserved or self.owner(row) is not None
        if known or self._was_released(name, row):
            return FIRST_VERSION
        return 0

    def _was_released(self, name: str, row: int) -> bool:
        """Whether a broker has let the bundle go; a command's new bundles never had one."""
        return name in self.released and not self.view.bundles.appeared[row]

    def unit(self, name: str, row: int) -> ServiceUnit | None:
        """Return a bundle's record as it is now; None: there is none.

        `row`: the bundle's row in the view.
        """
        # Records of this round, of pending decisions, and of bundles that no broker serves.
        if name in self.units:
            return self.units[name]
        last = self.unserved.get(name)
        if last is not None:
            state: OwnershipState = "Deleted" if last.state == "Deleted" else "Free"
            return ServiceUnit(state, None, last.source, self.version(name, row))
        # Any other bundle is owned. Its recorded owner is not known if this batch has changed it.
        owner, moved = self.owner(row), row >= 0 and bool(self.view.bundles.gained[row])
        if self._was_released(name, row):
            owner = self.released[name].source
        elif self.nothing_published:
            return None
        elif owner is None and name not in self.versions:
            lost_by_report = moved and not self.view.bundles.appeared[row]
            if not lost_by_report:
                return None
        version = self.versions.get(name, FIRST_VERSION)
        return ServiceUnit("Owned", None if moved else owner, None, version)

    def write(
        self,
        name: str,
        row: int,
        entry: RecordedOwner,
        *,
        version: int | None = None,
        forced: bool = False,
    ) -> None:
        """Add the bundle's next record; `version`: its first record, of that version.

        A record that the states don't allow is forced, as if `forced` were given.
        """
        if self.dry_run and self.nothing_published:
            return
        published = not self.dry_run or self._is_followed(name)
        # The record that it follows, and its version. What is not published uses up no version.
        current = None if version is not None else self.unit(name, row)
        if version is None:
            version = FIRST_VERSION
            if current is not None:
                version = current.version + 1 if published else current.version
        unit = ServiceUnit(entry.state, entry.destination, entry.source, version)
        force = forced or not accepts(current, unit, "metadata_store")
        self.units[name] = unit
        # What is remembered of it.
        if entry.state in ("Free", "Deleted"):
            self.unserved[name] = UnservedBundle(entry.state, entry.since_ms, entry.source)
        else:
            self.unserved.pop(name, None)
        if not published:
            self.unpublished.add(name)
            return
        self.unpublished.discard(name)
        if version != FIRST_VERSION or entry.state != "Owned":
            self.versions[name] = version
        self._publish(name, entry, version, force)

    def _is_followed(self, name: str) -> bool:
        """Whether a dry run publishes the bundle's record: that of a published decision.

        So are the records of the bundles that a split or merge makes.
        """
        if name in self.followed:
            return True
        if not self.reshaped:
            return False
        namespace, lower, upper = parse_bundle(name)
        wholes = (parse_bundle(whole) for whole in self.reshaped)
        return any(
            whole.namespace == namespace and whole.lower <= lower and upper <= whole.upper
            for whole in wholes
        )

    def delete(self, name: str) -> None:
        """Publish an empty record of a bundle, and remember nothing of it."""
        entry = RecordedOwner.unserved("Init", None, self.view.now_ms)
        self._publish(name, entry, self.version(name, -1), force=False)
        del self.unserved[name]
        self.versions.pop(name, None)
        self.units.pop(name, None)

    def _publish(self, name: str, entry: RecordedOwner, version: int, force: bool) -> None:
        """Add a record to those that this round publishes."""
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


def _find_unfinished(memory: Memory) -> set[str]:
    """Return the bundles whose published records do not say that a broker serves them.

    They are those of pending decisions, with what a split or merge makes, and unassigned ones.
    """
    decided = {
        bundle for pending in memory.pending for bundle in (*pending.bundles, *pending.children)
    }
    return decided | (memory.unserved.keys() - set(memory.unpublished))


def _pending_unit(pending: Pending, version: int) -> ServiceUnit:
    """Return the record that a pending decision has led to."""
    match pending.kind:
        case "assign":
            return ServiceUnit("Assigning", pending.destination, pending.former, version)
        case "split":
            return ServiceUnit("Splitting", None, pending.source, version)
        case "merge":
            return ServiceUnit("Merging", None, pending.source, version)
        case _:
            return ServiceUnit("Releasing", pending.destination, pending.source, version)
