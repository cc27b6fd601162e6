"""Reports as acknowledgements: which pending decisions has this view confirmed, which have failed
or expired."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lb_stream.contracts.decisions import MOVES, RESHAPES
from lb_stream.contracts.reports import Ack
from lb_stream.core.filters.candidates import ranges
from lb_stream.core.model.memory import Memory, Pending, Retry
from lb_stream.core.model.names import parse_bundle
from lb_stream.core.model.view import ClusterView

MAX_BACK_OFF = 10
"""A bundle that keeps failing is tried again after this many time-outs at the latest."""


Ending = Literal["confirmed", "superseded", "refused", "expired", "failed", "released"]
"""`failed`: a move whose bundle left its source and did not come to its destination.

`released` is told to nobody: it is half done.
"""

MAX_AVOIDED = 20
"""Destinations of a bundle that are remembered because they have failed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a decision ended.

    `released_ms`: since when no broker served the bundle of a move or an assignment: the release
    that the source acknowledged or reported, or the last sign of life of a broker that died.
    None: the bundle has not left, or no broker had it before.
    """

    decision_id: str
    bundle: str
    outcome: Ending
    detail: str
    at_ms: int
    took_ms: int
    released_ms: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able fields."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Settled:
    """The decisions that ended in this round, with their outcome, and those still open.

    A move ends here with its bundle's leaving.

    `restarted`: ids of those that ended because the broker that was asked has been restarted. Of
    assignments the first such one in a row is made again, for the same broker.
    """

    ended: tuple[tuple[Pending, Outcome], ...]
    pending: tuple[Pending, ...]
    restarted: frozenset[str] = frozenset()
    repeated: frozenset[str] = frozenset()  # bundles whose assignment is made again

    @property
    def released(self) -> list[Pending]:
        """The moves whose bundle has left its source, wherever it is now."""
        return [
            pending
            for pending, outcome in self.ended
            if pending.kind in MOVES and outcome.released_ms is not None
        ]


def select_valid_acks(acks: Iterable[tuple[str, Ack]], memory: Memory) -> tuple[Ack, ...]:
    """The acknowledgements that count, each with its sender: those of the broker that was asked,
    about a decision under way."""
    asked = {pending.decision_id: pending.asked for pending in memory.pending}
    return tuple(ack for broker, ack in acks if asked.get(ack.decision_id) == broker)


def settle_decisions(
    view: ClusterView, memory: Memory, acks: tuple[Ack, ...], now_ms: int
) -> Settled:
    """Compare each pending decision with who owns its bundle now.

    An assignment is confirmed when a report later than it shows the bundle at its destination, and
    superseded when it is at somebody else's. So is a move; one that names no destination is
    confirmed when the bundle has gone from its source, any other is `released` while the bundle is
    nobody's: what becomes of it then is followed (`arrivals`). A split is confirmed when the parent
    is nobody's and a bundle inside its range has an owner or has been named since; a merge when
    both are nobody's, and that holds of the one they become.

    What none of this ends has expired once the broker that was asked has been restarted.

    A source that isn't known (the averages were lost, and it has not reported since) may serve the
    bundle still: its decisions wait for its report.
    """
    if not memory.pending:
        return Settled((), ())
    refused = {ack.decision_id: ack for ack in acks if ack.outcome in ("refused", "failed")}
    dead = find_dead(view)
    named = [bundle for pending in memory.pending for bundle in pending.bundles]
    rows: dict[str, int] = dict(zip(named, view.bundles.rows_of(named).tolist(), strict=True))
    ended: list[tuple[Pending, Outcome]] = []
    still_open: list[Pending] = []
    restarted: set[str] = set()
    starts = view.brokers.starts()
    reported = {*view.brokers.names, None}
    for pending in memory.pending:
        # Who owns the bundle now, and since when. Of a merge either half counts.
        row = rows[pending.bundle]
        owner = _owner(view, row)
        if pending.neighbour is not None and owner in (None, pending.source):
            owner = _owner(view, rows[pending.neighbour]) or owner
        since_ms = int(view.bundles.owner_since_ms[row]) if row >= 0 else now_ms
        replaced = pending.kind in RESHAPES and _is_replaced(view, pending, row)
        # How it has ended: by a report, its sender's answer or time; by a death; by a restart.
        refusal = refused.get(pending.decision_id)
        heard = pending.source in reported
        outcome, detail = _find_ending(pending, owner, replaced, row >= 0, heard, refusal, now_ms)
        if outcome is None:
            outcome, detail = _find_ending_by_death(pending, dead)
        if outcome is None and pending.is_before_restart(starts):
            restarted.add(pending.decision_id)
            outcome, detail = "expired", f"{pending.asked} has been restarted since it was sent"
        if outcome is None:
            still_open.append(pending)
            continue
        # When it ended. An owner's death is no report: the bundle is gone from it since this round,
        # not since it came to it.
        by_report = outcome in ("confirmed", "superseded") and since_ms >= pending.issued_ms
        at_ms = since_ms if by_report else now_ms
        released_ms = pending.released_ms
        if pending.kind in MOVES:
            died_ms = dead.get(pending.source or "", now_ms)
            left_ms = since_ms if since_ms >= pending.issued_ms else died_ms
            released_ms = _find_released_ms(pending, owner, at_ms, left_ms)
        took_ms = at_ms - pending.issued_ms
        result = Outcome(
            pending.decision_id, pending.bundle, outcome, detail, at_ms, took_ms, released_ms
        )
        ended.append((pending, result))
    repeated = (pending for pending, _ in ended if pending.decision_id in restarted)
    again = frozenset(
        pending.bundle for pending in repeated if _is_repeated(pending, memory.retries)
    )
    return Settled(tuple(ended), tuple(still_open), frozenset(restarted), again)


def _find_ending_by_death(pending: Pending, dead: Collection[str]) -> tuple[Ending | None, str]:
    """How the death of the broker that was asked has ended a decision; None: it has not."""
    if pending.kind == "assign" and pending.destination in dead:
        return "refused", f"{pending.destination} is dead"
    if pending.kind in RESHAPES and pending.source in dead:
        return "superseded", f"{pending.source} is dead"
    return None, ""


def _is_repeated(pending: Pending, retries: Mapping[str, Retry]) -> bool:
    """Whether an assignment whose destination was restarted is made again for that broker.

    It is, once: the new process may have read the first one after all, and then two brokers would
    serve the bundle if it went to another one. A broker that restarts all the time is asked last.
    """
    before = retries.get(pending.bundle)
    return pending.kind == "assign" and (before is None or before.kind != "assign")


def _find_ending(
    pending: Pending,
    owner: str | None,
    replaced: bool,
    known: bool,
    heard: bool,
    refusal: Ack | None,
    now_ms: int,
) -> tuple[Ending | None, str]:
    """Return how a decision has ended, and why; None: it has not.

    `replaced`: what a split or merge makes is reported. `known`: the bundle is. `heard`: the source
    has reported. `refusal`: the acknowledgement that says no.
    """
    # What reports show comes first: a broker may refuse what it has done after all.
    if pending.kind == "assign":
        shown = _assignment_shown(pending, owner)
    elif pending.kind in RESHAPES:
        shown = _reshape_shown(pending, owner, replaced)
    else:
        shown = _move_shown(pending, owner, heard, refusal)
    if shown is not None:
        return shown
    if not known:
        return "superseded", "no report has named the bundle for the retention time"
    if refusal is not None:
        return "refused", refusal.reason or refusal.outcome
    if now_ms >= pending.expires_ms:
        return "expired", "no report confirmed it in time"
    return None, ""


def _assignment_shown(pending: Pending, owner: str | None) -> tuple[Ending, str] | None:
    """Return how reports end an assignment; None: the bundle has no owner yet."""
    if owner is None:
        return None
    if owner == pending.destination:
        return "confirmed", f"reported by {owner}"
    return "superseded", f"reported by {owner} instead"


def _reshape_shown(
    pending: Pending, owner: str | None, replaced: bool
) -> tuple[Ending, str] | None:
    """Return how reports end a split or a merge; None: its source has the bundle still, or none."""
    if owner is None and replaced:
        made = "its children are" if pending.kind == "split" else "the merged bundle is"
        return "confirmed", f"{made} reported"
    if owner not in (None, pending.source):
        return "superseded", f"reported by {owner} instead"
    return None


def _move_shown(
    pending: Pending, owner: str | None, heard: bool, refusal: Ack | None
) -> tuple[Ending, str] | None:
    """Return how reports end an unload or a transfer; None: its source may serve the bundle
    still."""
    if owner is not None:
        if owner == pending.source:
            return None
        if pending.destination in (None, owner):
            return "confirmed", f"reported by {owner}"
        return "superseded", f"reported by {owner} instead"
    if not heard:
        return None
    if pending.destination is None:
        return "confirmed", "gone from its source"
    if refusal is not None and refusal.outcome == "failed":
        return "failed", f"gone from its source: {refusal.reason}"
    return "released", "gone from its source"


def _find_released_ms(pending: Pending, owner: str | None, at_ms: int, left_ms: int) -> int | None:
    """When a move's bundle left its source; None: it has not. `left_ms`: if no broker has it."""
    if owner == pending.source:
        return None
    return left_ms if owner is None else at_ms


def find_dead(view: ClusterView) -> dict[str, int]:
    """Dead broker → when it was heard last. `view`: with the dead marked."""
    brokers = view.brokers
    rows = zip(brokers.names, brokers.alive.tolist(), brokers.seen_ms.tolist(), strict=True)
    return {name: seen_ms for name, alive, seen_ms in rows if not alive}


def find_unserved_since(known: ClusterView, row: int) -> int | None:
    """Since when no broker serves an unowned bundle; None: no report has ever named it.

    `known`: with the bundles of dead brokers still theirs. Death is a broker's last sign of life.
    """
    owner = int(known.bundles.owner[row])
    if owner >= 0:
        return int(known.brokers.seen_ms[owner])
    return int(known.bundles.owner_since_ms[row]) if known.bundles.reported_ms[row] else None


def _owner(view: ClusterView, row: int) -> str | None:
    owner = int(view.bundles.owner[row]) if row >= 0 else -1
    return view.brokers.names[owner] if owner >= 0 else None


def _is_replaced(view: ClusterView, pending: Pending, row: int) -> bool:
    """Whether a bundle inside the split one's range, or the one that a merge makes, has an owner,
    or was named by a later report."""
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


def retry_after_restart(before: Retry | None, kind: str, now_ms: int) -> Retry:
    """When a bundle may be decided again whose decision a restarted broker has not read: at once.

    It is no failure of the bundle's: the first one after it costs as little as any first one.
    """
    return Retry(0, now_ms, kind, before.avoid if before is not None else ())


def retry_after_failure(
    before: Retry | None, kind: str, now_ms: int, timeout_ms: int, destination: str | None = None
) -> Retry:
    """When a bundle whose decision failed may be decided again, and which destination is then asked
    last: the one that failed.

    Each failure of one kind in a row doubles the wait; the first failure of an assignment costs
    none.
    """
    attempts = (before.attempts if before and before.kind == kind else 0) + 1
    steps = 2 ** (attempts - 1) - (1 if kind == "assign" else 0)
    failed = () if destination is None or kind != "assign" else (destination,)
    avoid = tuple(name for name in (before.avoid if before else ()) if name not in failed) + failed
    return Retry(
        attempts, now_ms + timeout_ms * min(steps, MAX_BACK_OFF), kind, avoid[-MAX_AVOIDED:]
    )
