"""Outcomes: which pending decisions this view's reports confirm, and which failed or expired."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from lb_stream.contracts.decisions import MOVES, RESHAPES
from lb_stream.contracts.reports import Ack
from lb_stream.core.filters.candidates import ranges
from lb_stream.core.model.memory import BackOff, Memory, Pending
from lb_stream.core.model.names import parse_bundle
from lb_stream.core.model.view import ClusterView

MAX_BACK_OFF = 10
"""The longest wait before a bundle that keeps failing is tried again, in time-outs."""

MAX_AVOIDED = 20
"""Destinations that are remembered of a bundle because they have failed."""

Ending = Literal["confirmed", "superseded", "refused", "expired", "failed", "released"]
"""How a decision ended.

`failed`: a move whose bundle left its source and did not come to its destination. `released`: a
move that is half done; no outcome is reported yet.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a decision ended, when, and how long it took."""

    decision_id: str
    bundle: str
    outcome: Ending
    detail: str
    at_ms: int
    took_ms: int
    # Since when no broker served the bundle of a move or an assignment: the release that the source
    # acknowledged or reported, or a dead broker's last sign of life. None: the bundle has not left
    # its source, or no broker had it before.
    released_ms: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the fields as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Settled:
    """The decisions that ended in this round, with their outcomes, and those still pending.

    A move ends here when its bundle has left its source. The first assignment in a row that a
    restart ended is repeated, for the same broker.
    """

    ended: tuple[tuple[Pending, Outcome], ...]
    pending: tuple[Pending, ...]
    restarted: frozenset[str] = frozenset()  # ids of decisions that a broker's restart ended
    repeated: frozenset[str] = frozenset()  # bundles whose assignment is repeated

    @property
    def released(self) -> list[Pending]:
        """The moves whose bundle has left its source, wherever it is now."""
        return [
            pending
            for pending, outcome in self.ended
            if pending.kind in MOVES and outcome.released_ms is not None
        ]


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The evidence of a round about one pending decision."""

    owner: str | None  # of its bundle
    since_ms: int  # since when the bundle has been there, or unassigned
    known: bool  # the view has the bundle
    replaced: bool  # reports name the bundles that a split or merge makes
    heard: bool  # the source has reported
    refusal: Ack | None  # by the asked broker


def select_valid_acks(acks: Iterable[tuple[str, Ack]], memory: Memory) -> tuple[Ack, ...]:
    """Return the acknowledgements of pending decisions by the brokers that were asked.

    `acks`: each with its sender.
    """
    asked = {pending.decision_id: pending.asked for pending in memory.pending}
    return tuple(ack for broker, ack in acks if asked.get(ack.decision_id) == broker)


def settle_decisions(view: ClusterView, memory: Memory, acks: tuple[Ack, ...]) -> Settled:
    """Compare each pending decision with its bundle's owner in the view.

    - An assignment is confirmed when a later report shows the bundle at its destination, and
      superseded when one shows it at another broker. So is a move.
    - A move without a destination is confirmed when the bundle has left its source. Any other move
      is `released` while the bundle is unassigned, and then followed (`move_progress`).
    - A split is confirmed when the bundle is unassigned, and a bundle inside its range has an owner
      or was named since. A merge: when both bundles are, and the same holds of the merged one.
    - A move whose source says that the bundle made a detour keeps that for its outcome.
    - What none of this ends has expired once the broker that was asked has been restarted.

    While the source is not known it may still serve the bundle: its decisions wait for its report.
    That happens when the averages were lost and it has not reported since.
    """
    if not memory.pending:
        return Settled((), ())
    now_ms = view.now_ms
    # The evidence of the view, acknowledgements, deaths and restarts.
    refused = {ack.decision_id: ack for ack in acks if ack.outcome in ("refused", "failed")}
    detours = {ack.decision_id: ack.reason for ack in acks if ack.outcome == "released"}
    dead, starts = find_dead(view), view.brokers.starts()
    reported = {*view.brokers.names, None}
    bundles = [bundle for pending in memory.pending for bundle in pending.bundles]
    rows: dict[str, int] = dict(zip(bundles, view.bundles.rows_of(bundles).tolist(), strict=True))
    # The decisions that have ended: by reports, refusals and time; by a death; by a restart.
    ended: list[tuple[Pending, Outcome]] = []
    still_pending: list[Pending] = []
    restarted: set[str] = set()
    for known in memory.pending:
        detour = detours.get(known.decision_id)
        pending = replace(known, detour=detour) if detour else known
        refusal, heard = refused.get(pending.decision_id), pending.source in reported
        shown = _gather_evidence(view, pending, rows, heard, refusal)
        ending = _find_ending(pending, shown, now_ms) or _find_ending_by_death(pending, dead)
        if ending is None and pending.is_before_restart(starts):
            restarted.add(pending.decision_id)
            ending = "expired", f"{pending.asked} has been restarted since it was sent"
        if ending is None:
            still_pending.append(pending)
        else:
            ended.append((pending, _build_outcome(pending, ending, shown, dead, now_ms)))
    repeated = frozenset(
        pending.bundle
        for pending, _ in ended
        if pending.decision_id in restarted and _is_repeated(pending, memory.retries)
    )
    return Settled(tuple(ended), tuple(still_pending), frozenset(restarted), repeated)


def _gather_evidence(
    view: ClusterView, pending: Pending, rows: Mapping[str, int], heard: bool, refusal: Ack | None
) -> _Evidence:
    """Return the evidence about a decision; `rows`: bundle → its row in the view, or -1."""
    row = rows[pending.bundle]
    owner = view.find_owner(row)
    if pending.neighbour is not None and owner in (None, pending.source):
        # A merge: the other bundle may show that it has ended.
        owner = view.find_owner(rows[pending.neighbour]) or owner
    since_ms = int(view.bundles.owner_since_ms[row]) if row >= 0 else view.now_ms
    replaced = pending.kind in RESHAPES and _is_replaced(view, pending, row)
    return _Evidence(owner, since_ms, row >= 0, replaced, heard, refusal)


def _build_outcome(
    pending: Pending,
    ending: tuple[Ending, str],
    shown: _Evidence,
    dead: Mapping[str, int],
    now_ms: int,
) -> Outcome:
    """Return the outcome of a decision that has ended, with its times.

    `dead`: broker → when it was heard last.
    """
    outcome, detail = ending
    # A decision that a death ends, ends now, not when the bundle came to its owner.
    since_decided = shown.since_ms >= pending.issued_ms
    by_report = outcome in ("confirmed", "superseded") and since_decided
    at_ms = shown.since_ms if by_report else now_ms
    # Since when the bundle of a move has not been at its source.
    released_ms = pending.released_ms
    if pending.kind in MOVES:
        died_ms = dead.get(pending.source or "", now_ms)
        released_ms = shown.since_ms if since_decided else died_ms
        if shown.owner is not None:
            released_ms = None if shown.owner == pending.source else at_ms
    took_ms = at_ms - pending.issued_ms
    return Outcome(
        pending.decision_id, pending.bundle, outcome, detail, at_ms, took_ms, released_ms
    )


def _find_ending(pending: Pending, shown: _Evidence, now_ms: int) -> tuple[Ending, str] | None:
    """Return how a decision ended by reports, a refusal or time, and why; None: it has not."""
    # Reports count before refusals: a broker may carry out a decision that it has refused.
    if pending.kind == "assign":
        ending = _find_assignment_ending(pending, shown)
    elif pending.kind in RESHAPES:
        ending = _find_reshape_ending(pending, shown)
    else:
        ending = _find_move_ending(pending, shown)
    if ending is not None:
        return ending
    if not shown.known:
        return "superseded", "no report has named the bundle for the retention time"
    if shown.refusal is not None:
        return "refused", shown.refusal.reason or shown.refusal.outcome
    if now_ms >= pending.expires_ms:
        return "expired", "no report confirmed it in time"
    return None


def _find_assignment_ending(pending: Pending, shown: _Evidence) -> tuple[Ending, str] | None:
    """Return how reports end an assignment; None: its bundle is still unassigned."""
    if shown.owner is None:
        return None
    if shown.owner == pending.destination:
        return "confirmed", f"reported by {shown.owner}"
    return "superseded", f"reported by {shown.owner} instead"


def _find_reshape_ending(pending: Pending, shown: _Evidence) -> tuple[Ending, str] | None:
    """Return how reports end a split or merge; None: its source may still be at it."""
    if shown.owner is None and shown.replaced:
        made = "its children are" if pending.kind == "split" else "the merged bundle is"
        return "confirmed", f"{made} reported"
    if shown.owner not in (None, pending.source):
        return "superseded", f"reported by {shown.owner} instead"
    return None


def _find_move_ending(pending: Pending, shown: _Evidence) -> tuple[Ending, str] | None:
    """Return how reports end an unload or transfer; None: its source may still serve the bundle."""
    # Another broker has the bundle.
    if shown.owner is not None:
        if shown.owner == pending.source:
            return None
        if pending.destination in (None, shown.owner):
            return "confirmed", describe_arrival(shown.owner, pending.detour)
        return "superseded", f"reported by {shown.owner} instead"
    # No broker has it.
    if not shown.heard:
        return None
    if pending.destination is None:
        return "confirmed", "gone from its source"
    if shown.refusal is not None and shown.refusal.outcome == "failed":
        return "failed", f"gone from its source: {shown.refusal.reason}"
    return "released", "gone from its source"


def describe_arrival(owner: str, detour: str) -> str:
    """Return the detail of a move that has arrived; `detour`: where it was on its way, or ""."""
    return f"reported by {owner}, {detour}" if detour else f"reported by {owner}"


def _find_ending_by_death(pending: Pending, dead: Collection[str]) -> tuple[Ending, str] | None:
    """Return how the death of the broker that was asked ends a decision; None: it does not."""
    if pending.kind == "assign" and pending.destination in dead:
        return "refused", f"{pending.destination} is dead"
    if pending.kind in RESHAPES and pending.source in dead:
        return "superseded", f"{pending.source} is dead"
    return None


def _is_repeated(pending: Pending, retries: Mapping[str, BackOff]) -> bool:
    """Whether an assignment whose destination was restarted is made again for that broker.

    It is, once. The new process may have read the first one after all: if the bundle went to
    another broker, two would serve it. A broker that keeps restarting is tried last.
    """
    before = retries.get(pending.bundle)
    return pending.kind == "assign" and (before is None or before.kind != "assign")


def find_dead(view: ClusterView) -> dict[str, int]:
    """Return the dead brokers → when each was heard last. `view`: with the dead marked."""
    brokers = view.brokers
    rows = zip(brokers.names, brokers.alive.tolist(), brokers.seen_ms.tolist(), strict=True)
    return {name: seen_ms for name, alive, seen_ms in rows if not alive}


def find_unserved_since(known: ClusterView, row: int) -> int | None:
    """Return since when no broker serves an unassigned bundle; None: no report ever named it.

    `known`: the view in which dead brokers still have their bundles. A broker counts as dead since
    its last sign of life.
    """
    owner = int(known.bundles.owner[row])
    if owner >= 0:
        return int(known.brokers.seen_ms[owner])
    return int(known.bundles.owner_since_ms[row]) if known.bundles.reported_ms[row] else None


def _is_replaced(view: ClusterView, pending: Pending, row: int) -> bool:
    """Whether reports show the bundles that a split or merge makes.

    A split: a bundle inside the parent's range has an owner or was named by a later report. For a
    merge, the same holds of the merged bundle. `row`: the bundle's row in the view, or -1.
    """
    merges = pending.kind == "merge"
    whole = parse_bundle(pending.children[0] if merges else pending.bundle)
    before_ms = int(view.bundles.reported_ms[row]) if row >= 0 else pending.issued_ms
    return any(
        whole.lower <= lower
        and upper <= whole.upper
        and since_ms > before_ms
        and ((lower, upper) == whole[1:]) == merges
        for lower, upper, since_ms in ranges(view, whole.namespace)
    )


def retry_after_restart(before: BackOff | None, kind: str, now_ms: int) -> BackOff:
    """Return the retry of a bundle whose decision a restarted broker has not read: at once.

    It counts as no failure of the bundle.
    """
    return BackOff(0, now_ms, kind, before.avoid if before is not None else ())


def retry_after_failure(
    before: BackOff | None, kind: str, now_ms: int, timeout_ms: int, destination: str | None = None
) -> BackOff:
    """Return when a bundle whose decision failed may be decided again, and what to avoid then.

    Each failure of one kind in a row doubles the wait. The first failure of an assignment costs no
    wait. The destination that failed is tried last.
    """
    attempts = (before.attempts if before and before.kind == kind else 0) + 1
    waits = 2 ** (attempts - 1) - (1 if kind == "assign" else 0)  # in time-outs
    not_before_ms = now_ms + timeout_ms * min(waits, MAX_BACK_OFF)
    # The destinations to try last, the latest failure at the end.
    avoid = before.avoid if before else ()
    if kind == "assign" and destination is not None:
        avoid = (*(name for name in avoid if name != destination), destination)
    return BackOff(attempts, not_before_ms, kind, avoid[-MAX_AVOIDED:])
