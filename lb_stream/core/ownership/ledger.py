"""Ownership records: what each decision, each report and each death makes of them.

One state machine for all load managers (`records`: versions, and what is forced).

Of a bundle that is where its first record says nothing is remembered; of others their version, and
of those that nobody serves since when.

See docs/decisions/0008-what-an-ownership-record-may-say.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lb_stream.contracts.decisions import Decision, DecisionKind, OwnershipState
from lb_stream.core.model.memory import Memory, Pending
from lb_stream.core.model.view import Bools, ClusterView, Rows
from lb_stream.core.ownership.records import OwnershipRecords, RecordedOwner, find_owner
from lb_stream.core.ownership.unit_states import FIRST_VERSION, ServiceUnit, accepts

STATES: dict[DecisionKind, OwnershipState] = {
    "assign": "Assigning",
    "unload": "Releasing",
    "transfer": "Releasing",
    "split": "Splitting",
    "merge": "Merging",
}
"""The state of a bundle while a decision about it is under way."""

MAX_PUBLISHED = 1_000
"""Ownership records that one round adds on top of what has happened in it: a million at once would
hold up every decision."""


SLACK_MS = 60_000
"""Partitions are not read at the same pace: a record that is read later may have been appended so
much earlier."""


@dataclass(slots=True)
class Ledger:
    """What happens in one round, as ownership records, in the order in which it comes about.

    `view` has the dead brokers' bundles unowned, `reported` has not. `published_to`: the last
    bundle whose record has been told; None: all.
    """

    view: ClusterView
    reported: ClusterView
    records: OwnershipRecords
    published_to: str | None
    _rows: dict[str, int] = field(default_factory=dict)  # of bundles that are decided on

    @staticmethod
    def of(view: ClusterView, reported: ClusterView, memory: Memory, dry_run: bool) -> Ledger:
        """Before the round's first record.

        After rounds that failed whatever may have changed meanwhile counts as changed.
        """
        if memory.missed_ms is not None:
            missed = view.bundles.owner_since_ms >= memory.missed_ms - SLACK_MS
            view = replace(view, bundles=replace(view.bundles, gained=view.bundles.gained | missed))
        return Ledger(
            view, reported, OwnershipRecords.of(view, memory, dry_run), memory.published_to
        )

    def version(self, bundle: str, row: int) -> int:
        """The version of the record that a decision about a bundle follows; 0: there is none.

        `row`: the bundle's in the view.
        """
        self._rows[bundle] = row
        return self.records.version(bundle, row)

    def former(self, bundle: str) -> str | None:
        """Who had the bundle before, as its record of this round says."""
        return self.records.units[bundle].source if bundle in self.records.units else None

    # --- what has happened ---

    def settle(
        self,
        ended: Sequence[tuple[Pending, bool, int]],
        under_way: Iterable[Pending],
        dead_before: Collection[str],
        tombstone_delay_ms: int,
    ) -> None:
        """What reports have shown, what decisions have come to, whose broker has died or is back,
        and which bundles are no more.

        `ended`: decisions with whether other bundles have taken their bundles' place, and when they
        ended. `dead_before`: brokers that were dead already.
        """
        busy = {
            name
            for pending in (*(one for one, _, _ in ended), *under_way)
            for name in pending.bundles
        }
        self._follow_reports(busy)
        each = [(name, *one) for one in ended for name in one[0].bundles]
        for (name, pending, gone, at_ms), row in zip(
            each, self.view.bundles.rows_of(name for name, *_ in each).tolist(), strict=True
        ):
            self._end(name, pending, row, at_ms, gone)
        self._follow_lives(busy, dead_before)
        if not self.records.dry_run:
            self._tell_untold(busy)
            self._forget(busy, tombstone_delay_ms)

    def _follow_reports(self, busy: Collection[str]) -> None:
        """Bundles whose owner this batch's reports have changed; at the start, and when very many
        are new, all owned ones in turn.

        That many records take several rounds, MAX_PUBLISHED in each: `published_to` names the last
        one so far; None: all are told.
        """
        bundles = self.view.bundles
        if self.published_to is None and not (bundles.gained.any() or bundles.appeared.any()):
            return
        owned = bundles.owner >= 0
        told_at_once = bundles.gained & (not self.records.new)
        in_turn = np.empty(0, np.intp)
        # Very many are new: all owned bundles are published in turn, from here on.
        if (
            self.published_to is None
            and not self.records.dry_run
            and np.count_nonzero(owned & bundles.appeared) > MAX_PUBLISHED
        ):
            self.published_to = ""
        # This round's part of them. Those that come later in turn aren't published at once, too.
        if self.published_to is not None and not self.records.dry_run:
            begin = bundles.first_after(self.published_to) if self.published_to else 0
            waiting = begin + np.flatnonzero(owned[begin:] & ~bundles.system[begin:])
            in_turn = waiting[:MAX_PUBLISHED]
            self.published_to = (
                bundles.name(int(in_turn[-1])) if len(in_turn) < len(waiting) else None
            )
            told_at_once[begin:] &= ~(owned & bundles.appeared)[begin:]
        # What each one's record says now.
        for row in np.flatnonzero(_mark_rows(told_at_once, in_turn) & ~bundles.system).tolist():
            name, owner = bundles.name(row), self.records.owner(row)
            if name in busy:
                continue
            since_ms = int(bundles.owner_since_ms[row])
            if owner is None:
                if bundles.appeared[row]:  # made by an operator
                    self.records.released[name], self._rows[name] = (None, since_ms), row
                elif name not in self.records.unserved:
                    self._lose(name, row, None, since_ms)
            elif (
                told_at_once[row] or name not in self.records.versions
            ):  # else it has been told before its turn
                self._gain(
                    name,
                    row,
                    owner,
                    since_ms,
                    moved=bool(told_at_once[row] and not bundles.appeared[row]),
                )

    def _follow_lives(self, busy: Collection[str], dead_before: Collection[str]) -> None:
        """Bundles of brokers that have just died, and of those that have come back with them."""
        brokers, reported = self.reported.brokers, self.reported.bundles
        alive = self.view.brokers.alive
        if self.records.new or (not dead_before and alive.all()):
            return
        before = np.array([name in dead_before for name in brokers.names], np.bool_)
        for row in self._rows_of(before & alive):
            name, owner = reported.name(row), self.records.owner(row)
            if (
                name not in busy
                and owner is not None
                and name not in self.records.units
                and (name in self.records.unserved or name not in self.records.versions)
            ):
                self._gain(name, row, owner, self.view.now_ms)
        for row in self._rows_of(~before & ~alive):
            if (name := reported.name(row)) not in busy:
                self.records.released[name] = find_owner(self.reported, row), self.view.now_ms
                self._rows[name] = row

    def _rows_of(self, brokers: Bools) -> list[int]:
        """The bundles that these brokers reported last."""
        if not brokers.any():
            return []
        rows: list[int] = np.flatnonzero(
            np.append(brokers, False)[self.reported.bundles.owner] & ~self.reported.bundles.system
        ).tolist()
        return rows

    def _tell_untold(self, busy: Collection[str]) -> None:
        """What has changed in a dry run, MAX_PUBLISHED bundles in a round."""
        names = sorted(self.records.unpublished)[:MAX_PUBLISHED]
        self.records.unpublished.difference_update(names)
        for name, row in zip(names, self.view.bundles.rows_of(names).tolist(), strict=True):
            if name in busy:
                continue
            if (owner := self.records.owner(row)) is not None:
                self.records.write(
                    name, row, RecordedOwner.owned(owner, self.view.now_ms), forced=True
                )
            elif name in self.records.unserved and name not in self.records.released:
                last = self.records.unserved[name]
                state: OwnershipState = "Deleted" if last.state == "Deleted" else "Free"
                self.records.write(
                    name, row, RecordedOwner.left(state, last.source, last.since_ms), forced=True
                )

    def _forget(self, busy: Collection[str], tombstone_delay_ms: int) -> None:
        """Bundles that nobody has served for long: an empty record, and nothing is remembered of
        them."""
        latest = self.view.now_ms - tombstone_delay_ms
        old = [
            name
            for name, last in self.records.unserved.items()
            if last.since_ms <= latest and name not in busy and name not in self.records.released
        ]
        for name in sorted(old)[:MAX_PUBLISHED]:
            self.records.forget(name)

    def _end(self, name: str, pending: Pending, row: int, at_ms: int, gone: bool) -> None:
        """What a decision has come to: its bundle is somebody's, or nobody's, or others have taken
        its place."""
        owner, decision_id = self.records.owner(row), pending.decision_id
        moves = pending.kind in ("unload", "transfer")
        if gone:
            self.records.write(
                name, row, RecordedOwner.left("Deleted", pending.source, at_ms, decision_id)
            )
        elif owner is None:
            self._lose(
                name,
                row,
                pending.former if pending.kind == "assign" else pending.source,
                at_ms,
                decision_id,
            )
        elif pending.kind == "assign":
            self.records.write(
                name,
                row,
                RecordedOwner.owned(
                    owner, at_ms, _former_owner(pending.former, owner), decision_id
                ),
            )
        else:
            if (
                moves and owner == pending.destination
            ):  # its broker has handed the bundle over by itself
                self.records.write(
                    name,
                    row,
                    RecordedOwner("Assigning", None, pending.source, owner, at_ms, decision_id),
                )
            self.records.write(
                name,
                row,
                RecordedOwner.owned(
                    owner, at_ms, _former_owner(pending.source, owner), decision_id
                ),
            )

    def _gain(self, name: str, row: int, owner: str, since_ms: int, moved: bool = False) -> None:
        """Somebody serves a bundle that no decision is about. `moved`: another one did before."""
        known = moved or name in self.records.versions or name in self.records.unserved
        self.records.write(
            name,
            row,
            RecordedOwner.owned(owner, since_ms),
            version=None if known else FIRST_VERSION,
            forced=known,
        )

    def _lose(
        self, name: str, row: int, source: str | None, since_ms: int, decision_id: str | None = None
    ) -> None:
        """Nobody serves a bundle any more.

        Where the states don't let it be Free yet, a decision of this round may take it on.
        """
        current = self.records.unit(name, row)
        if current is not None and accepts(
            current, ServiceUnit("Free", None, source, current.version + 1), "metadata_store"
        ):
            self.records.write(name, row, RecordedOwner.left("Free", source, since_ms, decision_id))
        else:
            self.records.released[name] = source, since_ms
            self._rows[name] = row

    # --- what is decided ---

    def decided(self, decision: Decision) -> None:
        """A decision's own records: of a bundle on its way, or in the middle of being split or
        merged with its neighbour."""
        for name in decision.bundles:
            self._decided(name, decision)

    def _decided(self, name: str, decision: Decision) -> None:
        """The bundle's `version` has been asked for before."""
        row, state = self._rows[name], STATES[decision.kind]
        source = decision.source
        if decision.kind == "assign":
            source = _former_owner(self._let_go_by(name, row), decision.destination)
        elif self._untold_yet(name) and source is not None:
            self.records.write(
                name,
                row,
                RecordedOwner.owned(source, int(self.view.bundles.owner_since_ms[row])),
                version=FIRST_VERSION,
            )
        owner = None if state == "Assigning" else decision.source
        at_ms, decision_id = decision.issued_ms, decision.decision_id
        self.records.write(
            name,
            row,
            RecordedOwner(
                state, owner, source, decision.destination, at_ms, decision_id, decision.children
            ),
        )
        self.records.released.pop(name, None)

    def finish(self) -> None:
        """No decision of this round has taken on what is left."""
        for name, (source, since_ms) in self.records.released.items():
            self.records.write(name, self._rows[name], RecordedOwner.left("Free", source, since_ms))
        self.records.released.clear()

    def _let_go_by(self, name: str, row: int) -> str | None:
        """Who had a bundle that is assigned now: none, when it is Free."""
        if name in self.records.released:
            return self.records.released[name][0]
        current = self.records.unit(name, row)
        return None if current is None or current.state == "Free" else current.source

    def _untold_yet(self, name: str) -> bool:
        """Whether an owned bundle waits for its turn to be told."""
        waits = self.published_to is not None and name.encode() > self.published_to.encode()
        return (
            waits
            and name not in self.records.versions
            and name not in self.records.units
            and name not in self.records.unserved
        )


def _former_owner(source: str | None, owner: str | None) -> str | None:
    """Who had a bundle before its owner, unless that is the owner itself."""
    return None if source == owner else source


def _mark_rows(rows: Bools, more: Rows) -> Bools:
    result = rows.copy()
    result[more] = True
    return result
