"""Ownership records: what each decision, each report and each death makes of them.

One state machine for all load managers. Versions start at 1 and grow by one with each record. What the states alone would not let through
(a bundle taken from a dead broker, a move that came to nothing, what brokers do by themselves) is forced, as the reference's repairs are.

Of a bundle that is where its first record says nothing is remembered; of others their version, and of those that nobody serves since when.

See docs/decisions/0008-what-an-ownership-record-may-say.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lb_stream.contracts.decisions import Decision, DecisionKind, Ownership, OwnershipState
from lb_stream.core.model.memory import Memory, Pending, Unserved
from lb_stream.core.model.view import Bools, ClusterView, Rows
from lb_stream.core.ownership.unit_states import FIRST_VERSION, ServiceUnit, State, accepts

STATES: dict[DecisionKind, OwnershipState] = {
    "assign": "Assigning",
    "unload": "Releasing",
    "transfer": "Releasing",
    "split": "Splitting",
}
"""The state of a bundle while a decision about it is under way."""

MOST_PUBLISHED = 1_000
"""Ownership records that one round adds on top of what has happened in it: a million at once would hold up every decision."""


SLACK_MS = 60_000
"""Partitions are not read at the same pace: a record that is read later may have been appended so much earlier."""


@dataclass(slots=True)
class Ledger:
    """The ownership records of one round, in the order in which they come about.

    `view` has the dead brokers' bundles unowned, `reported` has not. `new`: nothing has ever been told. In a dry run nothing is told;
    bundles whose records change meanwhile are `untold` and come after it, unless nothing was told before it either.
    """

    view: ClusterView
    reported: ClusterView
    epoch: int
    dry_run: bool
    new: bool
    versions: dict[str, int]
    unserved: dict[str, Unserved]
    untold: set[str]
    published_to: str | None
    records: list[Ownership] = field(default_factory=list)
    _units: dict[str, ServiceUnit] = field(default_factory=dict)  # the records of this round, and of decisions under way
    _released: dict[str, tuple[str | None, int]] = field(default_factory=dict)  # nobody's, not recorded yet: who let it go, since when
    _rows: dict[str, int] = field(default_factory=dict)  # of bundles that are decided on

    @staticmethod
    def of(view: ClusterView, reported: ClusterView, memory: Memory, dry_run: bool) -> Ledger:
        """Before the round's first record. After rounds that failed whatever may have changed meanwhile counts as changed."""
        if memory.missed_ms is not None:
            missed = view.bundles.owner_since_ms >= memory.missed_ms - SLACK_MS
            view = replace(view, bundles=replace(view.bundles, gained=view.bundles.gained | missed))
        versions, unserved, untold = dict(memory.versions), dict(memory.unserved), set(memory.untold)
        new = memory.published_to == ""
        ledger = Ledger(view, reported, memory.epoch, dry_run, new, versions, unserved, untold, memory.published_to)
        ledger._units = {pending.bundle: _under_way(pending) for pending in memory.pending}
        return ledger

    def version(self, bundle: str, row: int) -> int:
        """The version of the record that a decision about a bundle follows; 0: there is none. `row`: the bundle's in the view."""
        self._rows[bundle] = row
        return self._version(bundle, row)

    def former(self, bundle: str) -> str | None:
        """Who had the bundle before, as its record of this round says."""
        return self._units[bundle].source if bundle in self._units else None

    # --- what has happened ---

    def settle(
        self,
        ended: Sequence[tuple[Pending, bool, int]],
        under_way: Iterable[Pending],
        dead_before: Collection[str],
        tombstone_delay_ms: int,
    ) -> None:
        """What reports have shown, what decisions have come to, whose broker has died or is back, and which bundles are no more.

        `ended`: decisions with whether their bundle was split, and when they ended. `dead_before`: brokers that were dead already.
        """
        busy = {pending.bundle for pending, _, _ in ended} | {pending.bundle for pending in under_way}
        self._follow_reports(busy)
        rows = self.view.bundles.rows_of(pending.bundle for pending, _, _ in ended)
        for (pending, split, at_ms), row in zip(ended, rows.tolist(), strict=True):
            self._end(pending, self._owner(self.view, row), row, at_ms, split)
        self._follow_lives(busy, dead_before)
        if not self.dry_run:
            self._tell_untold(busy)
            self._forget(busy, tombstone_delay_ms)

    def _follow_reports(self, busy: Collection[str]) -> None:
        """Bundles whose owner this batch's reports have changed; at the start, and when very many are new, all owned ones in turn.

        That many records take several rounds, MOST_PUBLISHED in each: `published_to` names the last one so far; None: all are told.
        """
        bundles = self.view.bundles
        owned, told_at_once = bundles.owner >= 0, bundles.gained & (not self.new)
        in_turn = np.empty(0, np.intp)
        if self.published_to is None and not self.dry_run and np.count_nonzero(owned & bundles.appeared) > MOST_PUBLISHED:
            self.published_to = ""
        if self.published_to is not None and not self.dry_run:
            begin = bundles.first_after(self.published_to) if self.published_to else 0
            waiting = begin + np.flatnonzero(owned[begin:] & ~bundles.system[begin:])
            in_turn = waiting[:MOST_PUBLISHED]
            self.published_to = bundles.name(int(in_turn[-1])) if len(in_turn) < len(waiting) else None
            told_at_once[begin:] &= ~(owned & bundles.appeared)[begin:]
        for row in np.flatnonzero(_with(told_at_once, in_turn) & ~bundles.system).tolist():
            name, owner = bundles.name(row), self._owner(self.view, row)
            if name in busy:
                continue
            since_ms = int(bundles.owner_since_ms[row])
            if owner is None:
                if bundles.appeared[row]:  # made by an operator
                    self._released[name], self._rows[name] = (None, since_ms), row
                elif name not in self.unserved:
                    self._lose(name, row, None, since_ms)
            elif told_at_once[row] or name not in self.versions:  # else it has been told before its turn
                self._gain(name, row, owner, since_ms, moved=bool(told_at_once[row] and not bundles.appeared[row]))

    def _follow_lives(self, busy: Collection[str], dead_before: Collection[str]) -> None:
        """Bundles of brokers that have just died, and of those that have come back with them."""
        brokers, reported = self.reported.brokers, self.reported.bundles
        if self.new:
            return
        before = np.array([name in dead_before for name in brokers.names], np.bool_)
        alive = self.view.brokers.alive
        for row in self._rows_of(before & alive):
            name, owner = reported.name(row), self._owner(self.view, row)
            if name not in busy and owner is not None and name not in self._units and (name in self.unserved or name not in self.versions):
                self._gain(name, row, owner, self.view.now_ms)
        for row in self._rows_of(~before & ~alive):
            if (name := reported.name(row)) not in busy:
                self._released[name] = self._owner(self.reported, row), self.view.now_ms
                self._rows[name] = row

    def _rows_of(self, brokers: Bools) -> list[int]:
        """The bundles that these brokers reported last."""
        if not brokers.any():
            return []
        rows: list[int] = np.flatnonzero(np.append(brokers, False)[self.reported.bundles.owner] & ~self.reported.bundles.system).tolist()
        return rows

    def _tell_untold(self, busy: Collection[str]) -> None:
        """What has changed in a dry run, MOST_PUBLISHED bundles in a round."""
        names = sorted(self.untold)[:MOST_PUBLISHED]
        self.untold.difference_update(names)
        for name, row in zip(names, self.view.bundles.rows_of(names).tolist(), strict=True):
            if name in busy:
                continue
            if (owner := self._owner(self.view, row)) is not None:
                self._write(name, row, "Owned", owner, None, owner, self.view.now_ms, forced=True)
            elif name in self.unserved and name not in self._released:
                last = self.unserved[name]
                state: OwnershipState = "Deleted" if last.state == "Deleted" else "Free"
                self._write(name, row, state, None, last.source, None, last.since_ms, forced=True)

    def _forget(self, busy: Collection[str], tombstone_delay_ms: int) -> None:
        """Bundles that nobody has served for long: an empty record, and nothing is remembered of them."""
        latest = self.view.now_ms - tombstone_delay_ms
        old = [name for name, last in self.unserved.items() if last.since_ms <= latest and name not in busy and name not in self._released]
        for name in sorted(old)[:MOST_PUBLISHED]:
            self.records.append(self._record(name, "Init", None, None, None, self.view.now_ms, version=self._version(name, -1)))
            del self.unserved[name]
            self.versions.pop(name, None)
            self._units.pop(name, None)

    def _end(self, pending: Pending, owner: str | None, row: int, at_ms: int, split: bool) -> None:
        """What a decision has come to: its bundle is somebody's, or nobody's, or its children have taken its place."""
        name, decision_id = pending.bundle, pending.decision_id
        moves = pending.kind in ("unload", "transfer")
        if split:
            self._write(name, row, "Deleted", None, pending.source, None, at_ms, decision_id)
        elif owner is None:
            self._lose(name, row, pending.former if pending.kind == "assign" else pending.source, at_ms, decision_id)
        elif pending.kind == "assign":
            self._write(name, row, "Owned", owner, _other(pending.former, owner), owner, at_ms, decision_id)
        else:
            if moves and owner == pending.destination:  # its broker has handed the bundle over by itself
                self._write(name, row, "Assigning", None, pending.source, owner, at_ms, decision_id)
            self._write(name, row, "Owned", owner, _other(pending.source, owner), owner, at_ms, decision_id)

    def _gain(self, name: str, row: int, owner: str, since_ms: int, moved: bool = False) -> None:
        """Somebody serves a bundle that no decision is about. `moved`: another one did before."""
        known = moved or name in self.versions or name in self.unserved
        self._write(name, row, "Owned", owner, None, owner, since_ms, version=None if known else FIRST_VERSION, forced=known)

    def _lose(self, name: str, row: int, source: str | None, since_ms: int, decision_id: str | None = None) -> None:
        """Nobody serves a bundle any more. Where the states don't let it be Free yet, a decision of this round may take it on."""
        current = self._unit(name, row)
        if current is not None and accepts(current, ServiceUnit("Free", None, source, current.version + 1), "metadata_store"):
            self._write(name, row, "Free", None, source, None, since_ms, decision_id)
        else:
            self._released[name] = source, since_ms
            self._rows[name] = row

    # --- what is decided ---

    def decided(self, decision: Decision) -> None:
        """A decision's own record: of a bundle on its way, or in the middle of being split. Its `version` has been asked for before."""
        name, state = decision.bundle, STATES[decision.kind]
        row = self._rows[name]
        source = decision.source
        if decision.kind == "assign":
            source = _other(self._let_go_by(name, row), decision.destination)
        elif self._untold_yet(name) and source is not None:
            self._write(name, row, "Owned", source, None, source, int(self.view.bundles.owner_since_ms[row]), version=FIRST_VERSION)
        owner = None if state == "Assigning" else decision.source
        at = decision.issued_ms, decision.decision_id
        self._write(name, row, state, owner, source, decision.destination, *at, children=decision.children)
        self._released.pop(name, None)

    def finish(self) -> None:
        """No decision of this round has taken on what is left."""
        for name, (source, since_ms) in self._released.items():
            self._write(name, self._rows[name], "Free", None, source, None, since_ms)
        self._released.clear()

    def _let_go_by(self, name: str, row: int) -> str | None:
        """Who had a bundle that is assigned now: none, when it is Free."""
        if name in self._released:
            return self._released[name][0]
        current = self._unit(name, row)
        return None if current is None or current.state == "Free" else current.source

    def _untold_yet(self, name: str) -> bool:
        """Whether an owned bundle waits for its turn to be told."""
        waits = self.published_to is not None and name.encode() > self.published_to.encode()
        return waits and name not in self.versions and name not in self._units and name not in self.unserved

    # --- records ---

    def _version(self, name: str, row: int) -> int:
        if name in self.versions:
            return self.versions[name]
        known = name in self._units or name in self.unserved or self._owner(self.view, row) is not None
        return FIRST_VERSION if known or (name in self._released and not self.view.bundles.appeared[row]) else 0

    def _unit(self, name: str, row: int) -> ServiceUnit | None:
        """A bundle's record as it is now."""
        if name in self._units:
            return self._units[name]
        if (last := self.unserved.get(name)) is not None:
            state: State = "Deleted" if last.state == "Deleted" else "Free"
            return ServiceUnit(state, None, last.source, self._version(name, row))
        owner, moved = self._owner(self.view, row), row >= 0 and bool(self.view.bundles.gained[row])
        if name in self._released and not self.view.bundles.appeared[row]:
            owner = self._released[name][0]
        elif self.new or (owner is None and name not in self.versions and not (moved and not self.view.bundles.appeared[row])):
            return None
        return ServiceUnit("Owned", None if moved else owner, None, self.versions.get(name, FIRST_VERSION))

    @staticmethod
    def _owner(view: ClusterView, row: int) -> str | None:
        owner = int(view.bundles.owner[row]) if row >= 0 else -1
        return view.brokers.names[owner] if owner >= 0 else None

    def _write(
        self,
        name: str,
        row: int,
        state: OwnershipState,
        owner: str | None,
        source: str | None,
        destination: str | None,
        since_ms: int,
        decision_id: str | None = None,
        version: int | None = None,
        forced: bool = False,
        children: Sequence[str] = (),
    ) -> None:
        if self.dry_run and self.new:
            return
        current = None if version is not None else self._unit(name, row)
        if version is None:
            version = FIRST_VERSION if current is None else current.version + (0 if self.dry_run else 1)
        unit = ServiceUnit(state, destination, source, version)
        force = forced or not accepts(current, unit, "metadata_store")
        self._units[name] = unit
        if state in ("Free", "Deleted"):
            self.unserved[name] = Unserved(state, since_ms, source)
        else:
            self.unserved.pop(name, None)
        if self.dry_run:
            self.untold.add(name)
            return
        self.untold.discard(name)
        if version != FIRST_VERSION or state != "Owned":
            self.versions[name] = version
        record = self._record(name, state, owner, source, destination, since_ms, version, decision_id, children, force)
        self.records.append(record)

    def _record(
        self,
        name: str,
        state: OwnershipState,
        owner: str | None,
        source: str | None,
        destination: str | None,
        since_ms: int,
        version: int,
        decision_id: str | None = None,
        children: Sequence[str] = (),
        force: bool = False,
    ) -> Ownership:
        return Ownership(
            cluster=self.view.cluster,
            bundle=name,
            state=state,
            owner=owner,
            source=source,
            destination=destination,
            children=list(children),
            version=version,
            force=force,
            since_ms=since_ms,
            epoch=self.epoch,
            decision_id=decision_id,
        )


def _under_way(pending: Pending) -> ServiceUnit:
    """The record that a decision has led to."""
    match pending.kind:
        case "assign":
            return ServiceUnit("Assigning", pending.destination, pending.former, pending.version)
        case "split":
            return ServiceUnit("Splitting", None, pending.source, pending.version)
        case _:
            return ServiceUnit("Releasing", pending.destination, pending.source, pending.version)


def _other(source: str | None, owner: str | None) -> str | None:
    """Who had a bundle before its owner, unless that is the owner itself."""
    return None if source == owner else source


def _with(rows: Bools, more: Rows) -> Bools:
    result = rows.copy()
    result[more] = True
    return result
