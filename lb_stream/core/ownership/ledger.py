"""The ownership records that a round makes: of decisions, reports, and brokers that die or return.

One state machine serves all load managers. `records` knows versions and the records so far.

The memory has no entry for a bundle whose first record still holds. Of the others it keeps the
version, and for unassigned ones since when.

See docs/decisions/0008-what-an-ownership-record-may-say.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from lb_stream.contracts.decisions import MOVES, Decision, DecisionKind, OwnershipState
from lb_stream.core.model.memory import Memory, Pending
from lb_stream.core.model.view import Bools, ClusterView, Rows
from lb_stream.core.observing.overlaps import find_overlapping_rows
from lb_stream.core.ownership.records import (
    OwnershipRecords,
    RecordedOwner,
    ReleasedBundle,
)
from lb_stream.core.ownership.unit_states import FIRST_VERSION, ServiceUnit, accepts

STATES: dict[DecisionKind, OwnershipState] = {
    "assign": "Assigning",
    "unload": "Releasing",
    "transfer": "Releasing",
    "split": "Splitting",
    "merge": "Merging",
}
"""The state of a bundle while a decision about it is pending."""

MAX_PUBLISHED = 1_000
"""Records that a round may add to those of its events: a million at once would delay decisions."""

SLACK_MS = 60_000
"""How much earlier a record may be appended that is read later: partitions are read at different
paces."""


class EndedDecision(NamedTuple):
    """A decision that ended in this round, for its bundles' records."""

    pending: Pending
    replaced: bool  # other bundles have taken its bundles' place
    at_ms: int


@dataclass(slots=True)
class Ledger:
    """The events of one round as ownership records, in the order in which they happen."""

    view: ClusterView  # without the owners of dead brokers' bundles
    reported: ClusterView  # with them, as reported
    records: OwnershipRecords
    published_to: str | None  # the last bundle with a published record; None: all have one
    max_published: int  # records that are added to those of events, of each cause
    _returned: frozenset[str] = frozenset()  # living brokers that counted as dead before
    _rows: dict[str, int] = field(default_factory=dict)  # bundle → its row in the view
    # Row → rows of bundles that it overlaps, once that was needed.
    _overlapping: dict[int, list[int]] | None = None

    @staticmethod
    def build(
        view: ClusterView,
        reported: ClusterView,
        memory: Memory,
        dry_run: bool,
        max_published: int | None = None,
    ) -> Ledger:
        """Return the ledger before the round's first record.

        After failed rounds every owner that may have changed since counts as changed.
        `max_published`: at least 1; None: MAX_PUBLISHED.
        """
        if memory.missed_ms is not None:
            missed = view.bundles.owner_since_ms >= memory.missed_ms - SLACK_MS
            view = replace(view, bundles=replace(view.bundles, gained=view.bundles.gained | missed))
        records = OwnershipRecords.build(view, memory, dry_run)
        limit = MAX_PUBLISHED if max_published is None else max_published
        return Ledger(view, reported, records, memory.published_to, limit)

    def version(self, bundle: str, row: int) -> int:
        """Return the version of the record that a decision about a bundle follows; 0: no record.

        `row`: the bundle's row in the view.
        """
        self._rows[bundle] = row
        return self.records.version(bundle, row)

    def former(self, bundle: str) -> str | None:
        """Return the broker that had the bundle before, as its record of this round names it."""
        return self.records.units[bundle].source if bundle in self.records.units else None

    # --- what has happened ---

    def record_events(
        self,
        ended: Sequence[EndedDecision],
        pending: Iterable[Pending],
        dead_before: Collection[str],
        tombstone_delay_ms: int,
    ) -> None:
        """Record what reports show, how decisions ended, and which brokers died or returned.

        `dead_before`: brokers that were dead before this round. `tombstone_delay_ms`: how long a
        bundle is unassigned before its record is deleted.
        """
        names, alive = self.view.brokers.names, self.view.brokers.alive.tolist()
        living = {name for name, is_alive in zip(names, alive, strict=True) if is_alive}
        self._returned = frozenset(living.intersection(dead_before))
        still_pending = {bundle for decision in pending for bundle in decision.bundles}
        just_ended = {bundle for decision in ended for bundle in decision.pending.bundles}
        decided = still_pending | just_ended
        self._follow_reports(decided)
        bundles = [(name, decision) for decision in ended for name in decision.pending.bundles]
        rows = self.view.bundles.rows_of(name for name, _ in bundles).tolist()
        for (name, decision), row in zip(bundles, rows, strict=True):
            self._record_ending(name, row, decision)
        self._follow_deaths_and_returns(decided, dead_before)
        self._restore_deleted(decided)
        if not self.records.dry_run:
            self._publish_unpublished(decided)
            self._delete_long_unserved(decided, tombstone_delay_ms)

    def _follow_reports(self, decided: Collection[str]) -> None:
        """Record owners that this batch's reports changed, and bundles whose turn has come.

        `decided`: bundles of decisions, which have records of their own.
        """
        bundles, records = self.view.bundles, self.records
        if self.published_to is None and not (bundles.gained.any() or bundles.appeared.any()):
            return
        changed = bundles.gained & (not records.nothing_published)
        in_turn = self._take_next_rows(changed)
        rows = np.flatnonzero(_mark_rows(changed, in_turn) & ~bundles.system)
        for row in rows.tolist():
            name = bundles.name(row)
            if name not in decided:
                self._follow_report(name, row, bool(changed[row]))

    def _take_next_rows(self, changed: Bools) -> Rows:
        """Return the owned bundles that are next to be published, and advance `published_to`.

        In a cluster's first rounds, and when very many bundles are new, owned bundles are published
        in the order of their names, `max_published` in each round. New bundles that come later in
        this order are taken out of `changed`, in place.
        """
        bundles = self.view.bundles
        if self.records.dry_run:
            return np.empty(0, np.intp)
        owned = bundles.owner >= 0
        if self.published_to is None and np.count_nonzero(owned & bundles.appeared) > MAX_PUBLISHED:
            self.published_to = ""
        if self.published_to is None:
            return np.empty(0, np.intp)
        begin = bundles.first_after(self.published_to) if self.published_to else 0
        waiting = begin + np.flatnonzero(owned[begin:] & ~bundles.system[begin:])
        in_turn: Rows = waiting[: self.max_published]
        self.published_to = bundles.name(int(in_turn[-1])) if len(in_turn) < len(waiting) else None
        changed[begin:] &= ~(owned & bundles.appeared)[begin:]
        return in_turn

    def _follow_report(self, name: str, row: int, changed: bool) -> None:
        """Record the owner that reports show; `changed`: it is another one than before."""
        bundles, records, owner = self.view.bundles, self.records, self.records.owner(row)
        since_ms, appeared = int(bundles.owner_since_ms[row]), bool(bundles.appeared[row])
        if owner is None:
            if appeared:  # a command has created it
                self._release(name, row, None, since_ms)
            elif name not in records.unserved:
                self._record_loss(name, row, None, since_ms)
        elif changed or name not in records.versions:  # else it was published before its turn
            self._record_gain(name, row, owner, since_ms, moved=changed and not appeared)

    def _follow_deaths_and_returns(
        self, decided: Collection[str], dead_before: Collection[str]
    ) -> None:
        """Record the bundles of brokers that have just died, and of those that have returned."""
        brokers, bundles, records = self.reported.brokers, self.reported.bundles, self.records
        alive = self.view.brokers.alive
        if records.nothing_published or (not dead_before and alive.all()):
            return
        was_dead = np.array([name in dead_before for name in brokers.names], np.bool_)
        for row in self._rows_of(was_dead & alive):
            name, owner = bundles.name(row), records.owner(row)
            lost = name in records.unserved or name not in records.versions
            if owner is not None and lost and name not in records.units and name not in decided:
                self._record_gain(name, row, owner, self.view.now_ms)
        for row in self._rows_of(~was_dead & ~alive):
            name = bundles.name(row)
            if name not in decided:
                self._release(name, row, self.reported.find_owner(row), self.view.now_ms)

    def _rows_of(self, brokers: Bools) -> list[int]:
        """Return the bundles that these brokers reported last, without system bundles."""
        if not brokers.any():
            return []
        bundles = self.reported.bundles
        theirs = np.append(brokers, False)[bundles.owner] & ~bundles.system
        rows: list[int] = np.flatnonzero(theirs).tolist()
        return rows

    def _publish_unpublished(self, decided: Collection[str]) -> None:
        """Publish what dry runs have changed, `max_published` bundles in each round."""
        records, now_ms = self.records, self.view.now_ms
        names = sorted(records.unpublished)[: self.max_published]
        records.unpublished.difference_update(names)
        for name, row in zip(names, self.view.bundles.rows_of(names).tolist(), strict=True):
            if name in decided:
                continue
            owner = records.owner(row)
            if owner is not None and not self._is_replaced(name, row, owner):
                records.write(name, row, RecordedOwner.owned(owner, now_ms), forced=True)
            elif name in records.unserved and name not in records.released:
                last = records.unserved[name]
                state: OwnershipState = "Deleted" if last.state == "Deleted" else "Free"
                entry = RecordedOwner.unserved(state, last.source, last.since_ms)
                records.write(name, row, entry, forced=True)

    def _delete_long_unserved(self, decided: Collection[str], tombstone_delay_ms: int) -> None:
        """Delete the records of bundles that no broker has served for the delay."""
        records, latest_ms = self.records, self.view.now_ms - tombstone_delay_ms
        old = [
            name
            for name, last in records.unserved.items()
            if last.since_ms <= latest_ms and name not in decided and name not in records.released
        ]
        old.sort()
        rows = self.view.bundles.rows_of(old).tolist()
        # A broker that was told of a split or merge may not have obeyed yet.
        unowned = [name for name, row in zip(old, rows, strict=True) if records.owner(row) is None]
        for name in unowned[: self.max_published]:
            records.delete(name)

    def _record_ending(self, name: str, row: int, ended: EndedDecision) -> None:
        """Record a bundle whose decision ended: owned, unassigned, or replaced by other bundles."""
        pending, at_ms, decision_id = ended.pending, ended.at_ms, ended.pending.decision_id
        last_owner = pending.former if pending.kind == "assign" else pending.source
        owner = self.records.owner(row)
        if ended.replaced:
            entry = RecordedOwner.unserved("Deleted", pending.source, at_ms, decision_id)
            self.records.write(name, row, entry)
            return
        if owner is None:
            self._record_loss(name, row, last_owner, at_ms, decision_id)
            return
        if pending.kind in MOVES and owner == pending.destination:
            # The source has handed the bundle over itself: no assign was decided.
            entry = RecordedOwner("Assigning", None, pending.source, owner, at_ms, decision_id)
            self.records.write(name, row, entry)
        source = None if last_owner == owner else last_owner
        self.records.write(name, row, RecordedOwner.owned(owner, at_ms, source, decision_id))

    def _record_gain(
        self, name: str, row: int, owner: str, since_ms: int, moved: bool = False
    ) -> None:
        """Record that a broker serves a bundle without a decision; `moved`: another one did before.

        Such a record is forced, unless it is the bundle's first. For a bundle that was replaced by
        others it is Deleted: then the broker gives the bundle up.
        """
        records = self.records
        known = moved or name in records.versions or name in records.unserved
        entry = RecordedOwner.owned(owner, since_ms)
        if self._is_replaced(name, row, owner):
            entry = RecordedOwner.unserved("Deleted", owner, since_ms)
        if known:
            records.write(name, row, entry, forced=True)
        else:
            records.write(name, row, entry, version=FIRST_VERSION)

    def _is_replaced(self, name: str, row: int, owner: str) -> bool:
        """Whether a broker names a bundle that was split or merged while it counted as dead.

        Then the bundle's record is Deleted, or the broker has just returned, and another broker
        owns a part of its range: by a record that isn't Deleted, and without having just returned.
        """
        if not self._is_deleted(name) and owner not in self._returned:
            return False
        if self._overlapping is None:
            self._overlapping = find_overlapping_rows(self.view)
        for beside in self._overlapping.get(row, ()):
            other = self.records.owner(beside)
            if other in (None, owner) or other in self._returned:
                continue
            if not self._is_deleted(self.view.bundles.name(beside)):
                return True
        return False

    def _is_deleted(self, name: str) -> bool:
        """Whether a bundle's record says that it was split or merged."""
        last = self.records.unserved.get(name)
        return last is not None and last.state == "Deleted"

    def _restore_deleted(self, decided: Collection[str]) -> None:
        """Record who serves Deleted bundles, once no other broker owns a part of their ranges."""
        names = [name for name in sorted(self.records.unserved) if self._is_deleted(name)]
        for name, row in zip(names, self.view.bundles.rows_of(names).tolist(), strict=True):
            owner = self.records.owner(row)
            if owner is None or name in decided or self._is_replaced(name, row, owner):
                continue
            self._record_gain(name, row, owner, self.view.now_ms)

    def _record_loss(
        self, name: str, row: int, source: str | None, since_ms: int, decision_id: str | None = None
    ) -> None:
        """Record that no broker serves a bundle any more.

        Where the states don't allow Free yet, a decision of this round may follow the loss.
        """
        current = self.records.unit(name, row)
        if current is not None and accepts(
            current, ServiceUnit("Free", None, source, current.version + 1), "metadata_store"
        ):
            entry = RecordedOwner.unserved("Free", source, since_ms, decision_id)
            self.records.write(name, row, entry)
        else:
            self._release(name, row, source, since_ms)

    def _release(self, name: str, row: int, source: str | None, since_ms: int) -> None:
        """Note an unassigned bundle whose record a decision of this round may write."""
        self.records.released[name] = ReleasedBundle(source, since_ms)
        self._rows[name] = row

    # --- what is decided ---

    def record_decision(self, decision: Decision) -> None:
        """Record the bundles of a decision as in progress. Their `version` was asked for before."""
        for name in decision.bundles:
            self._record_in_progress(name, decision)

    def _record_in_progress(self, name: str, decision: Decision) -> None:
        """Record one bundle of a decision, after its first record if that is not published yet."""
        row, state, source = self._rows[name], STATES[decision.kind], decision.source
        if decision.kind == "assign":
            last_owner = self._last_owner(name, row)
            source = None if last_owner == decision.destination else last_owner
        elif source is not None and self._awaits_first_record(name):
            entry = RecordedOwner.owned(source, int(self.view.bundles.owner_since_ms[row]))
            self.records.write(name, row, entry, version=FIRST_VERSION)
        entry = RecordedOwner(
            state=state,
            owner=None if state == "Assigning" else decision.source,
            source=source,
            destination=decision.destination,
            since_ms=decision.issued_ms,
            decision_id=decision.decision_id,
            children=decision.children,
        )
        self.records.write(name, row, entry)
        self.records.released.pop(name, None)

    def finish(self) -> None:
        """Record the released bundles that no decision of this round is about."""
        for name, released in self.records.released.items():
            entry = RecordedOwner.unserved("Free", released.source, released.since_ms)
            self.records.write(name, self._rows[name], entry)
        self.records.released.clear()

    def _last_owner(self, name: str, row: int) -> str | None:
        """Return the broker that a bundle to be assigned had last; None where it is Free."""
        if name in self.records.released:
            return self.records.released[name].source
        current = self.records.unit(name, row)
        return None if current is None or current.state == "Free" else current.source

    def _awaits_first_record(self, name: str) -> bool:
        """Whether an owned bundle's turn to be published has not come yet."""
        if self.published_to is None or name.encode() <= self.published_to.encode():
            return False
        records = self.records
        return not (name in records.versions or name in records.units or name in records.unserved)


def _mark_rows(rows: Bools, more: Rows) -> Bools:
    """Return a copy of `rows` in which `more` are set."""
    result = rows.copy()
    result[more] = True
    return result
