"""What has become of commands whose decisions take time: their second answer, and what was learned for the orders."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from lb_stream.contracts.decisions import MOVES, Decision
from lb_stream.core.commands.persistent_commands import broker_of
from lb_stream.core.commands.responder import CommandResponder, named
from lb_stream.core.model.operator_state import Waiting
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.known_bundles import cut_anew, joined
from lb_stream.core.observing.outcomes import Settled

SHOWN_FAILURES = 3


def update_command_progress(
    desk: CommandResponder, view: ClusterView, settled: Settled, decided: Sequence[Decision], reserved: Collection[str]
) -> None:
    """Answer the commands that have come to their end. `view`: with the dead marked, and with pending moves still where they were.

    `reserved`: released bundles whose unload has named a destination. A command isn't done before they are there.
    """
    if not desk.orders.waiting and not settled.ended:
        return
    under_way = {pending.decision_id for pending in settled.open} | {decision.decision_id for decision in decided if not decision.dry_run}
    moving = {one.bundle: one.source for one in (*settled.open, *(one for one, _ in settled.ended)) if one.kind in MOVES}
    moving |= {one.bundle: one.source for one in decided if one.kind in MOVES}
    waiting = []
    for one in desk.orders.waiting:
        drains = one.broker is not None
        now = _drained(desk, view, moving, one) if drains else _settled(desk, view, settled, decided, under_way, reserved, one)
        waiting += [] if now is None else [now]
    if tuple(waiting) != desk.orders.waiting:
        desk.change(waiting=tuple(waiting))
    done = [pending for pending, outcome in settled.ended if outcome.outcome == "confirmed"]
    split, merged = ([one.bundle for one in done if one.kind == kind] for kind in ("split", "merge"))
    if (split or merged) and desk.orders.namespaces:
        desk.change(namespaces=joined(cut_anew(desk.orders.namespaces, view, split), merged))


def _settled(
    desk: CommandResponder,
    view: ClusterView,
    settled: Settled,
    decided: Sequence[Decision],
    under_way: Collection[str],
    reserved: Collection[str],
    one: Waiting,
) -> Waiting | None:
    """The same command, still waiting; None when it has been answered."""
    fine = ("confirmed", "released")
    failures = tuple(
        f"{pending.bundle}: {outcome.outcome}, {outcome.detail}"
        for pending, outcome in settled.ended
        if pending.decision_id in one.decision_ids and outcome.outcome not in fine
    )
    mine = {bundle for bundle in one.bundles if bundle in reserved}
    released = mine | {
        pending.bundle for pending, outcome in settled.ended if pending.decision_id in one.decision_ids and outcome.outcome in fine
    }
    assigned = {each.bundle: each for each in decided if each.kind == "assign" and each.bundle in released}
    follow_ups = tuple(each.decision_id for each in assigned.values())
    one = replace(one, decision_ids=one.decision_ids + follow_ups, failures=one.failures + failures)
    unassigned = {bundle for bundle in mine if bundle not in assigned or assigned[bundle].dry_run}
    if unassigned or any(decision_id in under_way for decision_id in one.decision_ids):
        return one
    if not one.failures:
        one = replace(one, failures=_elsewhere(view, one))
    if one.failures:
        more = len(one.failures) - SHOWN_FAILURES
        text = "; ".join(one.failures[:SHOWN_FAILURES]) + (f"; and {more} more" if more > 0 else "")
        desk.say(one.command, "failed", text, None, one.decision_ids)
    else:
        desk.say(one.command, "done", f"{one.text}; reports show it", None, one.decision_ids)
    return None


def _elsewhere(view: ClusterView, one: Waiting) -> tuple[str, ...]:
    """What is to be said of bundles that are not where an operator wanted them, though all decisions have come about."""
    wanted = one.command["arguments"].get("destination")
    if wanted is None:
        return ()
    rows = view.bundles.rows_of(one.bundles).tolist()
    owners = [int(view.bundles.owner[row]) if row >= 0 else -1 for row in rows]
    names = [view.brokers.names[owner] if owner >= 0 else "nobody" for owner in owners]
    return tuple(
        f"{bundle}: {name} has it, not {broker_of(wanted)}"
        for bundle, name in zip(one.bundles, names, strict=True)
        if name != broker_of(wanted)
    )


def _drained(desk: CommandResponder, view: ClusterView, moving: Mapping[str, str | None], one: Waiting) -> Waiting | None:
    """A drain: the same command, still waiting; None when it has been answered. `moving`: bundles that leave a broker or have just left."""
    broker = str(one.broker)
    row = view.brokers.names.index(broker) if broker in view.brokers.names else -1
    left = [] if row < 0 else view.bundles.names.filter(pa.array((view.bundles.owner == row) & ~view.bundles.system)).to_pylist()
    if left and broker in desk.orders.drained:
        return replace(one, bundles=tuple(sorted(bundle for bundle, source in moving.items() if source == broker)))
    if left:
        desk.say(one.command, "failed", f"{broker} was undrained with {len(left)} bundles left: {named(left)}")
    elif row >= 0 and not view.brokers.alive[row]:
        desk.say(one.command, "done", f"{broker} is not alive any more: its bundles go to others")
    else:
        desk.say(one.command, "done", f"{broker} has no bundle any more")
    return None
