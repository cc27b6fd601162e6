"""What has become of commands whose decisions take time: their second answer, and what was learned
for the orders."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from lb_stream.contracts.decisions import MOVES, Decision
from lb_stream.core.commands.persistent_commands import (
    about_namespace,
    destination_of,
    served_by,
    served_of,
)
from lb_stream.core.commands.responder import CommandResponder, named
from lb_stream.core.filters.candidates import superseded
from lb_stream.core.model.memory import Pending, bound_for
from lb_stream.core.model.names import BundleRange, namespace_of, parse_bundle
from lb_stream.core.model.operator_state import Waiting
from lb_stream.core.model.rules import Decides
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.known_bundles import cut_anew, joined
from lb_stream.core.observing.outcomes import Settled

SHOWN_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """What a round knows of the decisions that commands wait for.

    `view`: with the dead marked, and with pending moves still where they were. `reserved`: released
    bundles whose unload has named a destination. `places`: the balancer gives owners to bundles
    that have none; else the next lookup does.
    """

    view: ClusterView
    settled: Settled
    decided: Sequence[Decision]
    reserved: Collection[str]
    places: bool

    @property
    def under_way(self) -> list[Pending | Decision]:
        """The decisions that no report has confirmed yet, those of this round included."""
        return [
            *self.settled.open,
            *(decision for decision in self.decided if not decision.dry_run),
        ]


def update_command_progress(desk: CommandResponder, now: Progress) -> None:
    """Answer the commands that have come to their end: nothing under way can change it any more."""
    if not desk.orders.waiting and not now.settled.ended:
        return
    waiting = []
    for one in desk.orders.waiting:
        if one.broker is not None:
            after = _drained(desk, now, one)
        elif one.command["kind"] == "delete-namespace":
            after = _deleted(desk, now, one)
        else:
            after = _settled(desk, now, one)
        waiting += [] if after is None else [after]
    if tuple(waiting) != desk.orders.waiting:
        desk.change(waiting=tuple(waiting))
    done = [pending for pending, outcome in now.settled.ended if outcome.outcome == "confirmed"]
    split, merged = (
        [pending.bundle for pending in done if pending.kind == kind] for kind in ("split", "merge")
    )
    if (split or merged) and desk.orders.namespaces:
        desk.change(namespaces=joined(cut_anew(desk.orders.namespaces, now.view, split), merged))


def _settled(desk: CommandResponder, now: Progress, one: Waiting) -> Waiting | None:
    """The same command, still waiting; None when it has been answered."""
    mine = [each for each in now.settled.ended if each[0].decision_id in one.decision_ids]
    failures = tuple(
        f"{pending.bundle}: {outcome.outcome}, {outcome.detail}"
        for pending, outcome in mine
        if outcome.outcome not in ("confirmed", "released")
        and pending.bundle not in now.settled.repeated
    )
    split = [pending for pending, outcome in mine if outcome.outcome == "confirmed"]
    one = _with_follow_ups(now, replace(one, failures=one.failures + failures), split)
    ids = {each.decision_id for each in now.under_way}
    is_open = one.queued or any(decision_id in ids for decision_id in one.decision_ids)
    if is_open or _unplaced(desk, now, one):
        return one
    if not one.failures:
        one = replace(one, failures=_elsewhere(now.view, one))
    if one.failures:
        more = len(one.failures) - SHOWN_FAILURES
        text = "; ".join(one.failures[:SHOWN_FAILURES]) + (f"; and {more} more" if more > 0 else "")
        desk.say(one.command, "failed", text, None, one.decision_ids)
    else:
        desk.say(one.command, "done", f"{one.text}; reports show it", None, one.decision_ids)
    return None


def _with_follow_ups(now: Progress, one: Waiting, ended: Sequence[Pending]) -> Waiting:
    """The command with what this round has decided for it.

    These are second halves of moves, and moves of split children.
    """
    parents = [parse_bundle(each.bundle) for each in ended if each.unload_children]
    children = [
        each
        for each in now.decided
        if parents and each.rule == Decides.SPLIT_CHILD.name and _is_inside(each.bundle, parents)
    ]
    bundles = one.bundles + tuple(each.bundle for each in children)
    one = replace(one, bundles=bundles)
    wanted = _moved(one)
    follow_ups = [each for each in now.decided if each.kind == "assign" and each.bundle in wanted]
    more = tuple(each.decision_id for each in (*children, *follow_ups))
    return replace(one, decision_ids=one.decision_ids + more)


def _moved(waiting: Waiting) -> list[str]:
    """List the bundles that are to get another owner before the command is done.

    What becomes of those whose decisions have failed is no longer the command's.
    """
    # a namespace may have a colon, but no space
    failed = {failure.partition(": ")[0] for failure in waiting.failures}
    merges = waiting.command["kind"] == "merge"
    return [] if merges else [bundle for bundle in waiting.bundles if bundle not in failed]


def _is_inside(bundle: str, parents: Sequence[BundleRange]) -> bool:
    namespace, lower, upper = parse_bundle(bundle)
    return any(
        parent.namespace == namespace and parent.lower <= lower and upper <= parent.upper
        for parent in parents
    )


def _unplaced(desk: CommandResponder, now: Progress, waiting: Waiting) -> bool:
    """Whether a bundle that the command has released has no owner, and no decision gives it one."""
    assigned = {each.bundle for each in now.under_way}
    if any(bundle in now.reserved and bundle not in assigned for bundle in waiting.bundles):
        return True
    if not now.places:
        return False
    rows = {name: row for name, row in _rows(now.view, _moved(waiting)).items() if row >= 0}
    unowned = {name: row for name, row in rows.items() if now.view.bundles.owner[row] < 0}
    gone = superseded(now.view, unowned.values())
    return any(
        row not in gone and name not in assigned and namespace_of(name) not in desk.orders.deleted
        for name, row in unowned.items()
    )


def _rows(view: ClusterView, bundles: Sequence[str]) -> dict[str, int]:
    return dict(zip(bundles, view.bundles.rows_of(bundles).tolist(), strict=True))


def _elsewhere(view: ClusterView, waiting: Waiting) -> tuple[str, ...]:
    """What is to be said of bundles that are not where an operator wanted them, though all
    decisions have come about."""
    wanted = destination_of(waiting)
    if wanted is None:
        return ()
    rows = view.bundles.rows_of(waiting.bundles).tolist()
    owners = [int(view.bundles.owner[row]) if row >= 0 else -1 for row in rows]
    names = [view.brokers.names[owner] if owner >= 0 else "nobody" for owner in owners]
    return tuple(
        f"{bundle}: {name} has it, not {wanted}"
        for bundle, name in zip(waiting.bundles, names, strict=True)
        if name != wanted
    )


def _drained(desk: CommandResponder, now: Progress, waiting: Waiting) -> Waiting | None:
    """A drain: the same command, still waiting; None when it has been answered.

    It is done when the broker has no bundle and none is on its way to it: whoever stops the broker
    then stops nothing.
    """
    broker = str(waiting.broker)
    row = now.view.brokers.names.index(broker) if broker in now.view.brokers.names else -1
    left = served_by(now.view, row) if row >= 0 else []
    arriving = bound_for(broker, now.under_way).difference(left) if row >= 0 else set()
    if row >= 0 and not now.view.brokers.alive[row]:
        desk.say(
            waiting.command, "done", f"{broker} is not alive any more: its bundles go to others"
        )
        return None
    if row < 0 and broker in desk.orders.drained:
        return waiting  # its averages were lost: what it serves is not known until it reports
    if (left or arriving) and broker in desk.orders.drained:
        moves = [*now.under_way, *(pending for pending, _ in now.settled.ended), *now.decided]
        leaving = {each.bundle for each in moves if each.kind in MOVES and each.source == broker}
        return replace(waiting, bundles=tuple(sorted(leaving)))
    if left:
        text = f"{broker} was undrained with {len(left)} bundles left: {named(left)}"
        desk.say(waiting.command, "failed", text)
    elif arriving:
        text = f"{broker} was undrained with {len(arriving)} bundles on their way to it"
        desk.say(waiting.command, "failed", f"{text}: {named(sorted(arriving))}")
    else:
        text = f"{broker} has no bundle any more, and none is on its way to it"
        desk.say(waiting.command, "done", text)
    return None


def _deleted(desk: CommandResponder, now: Progress, one: Waiting) -> Waiting | None:
    """A deleted namespace: the same command, still waiting; None when it has been answered.

    It is done when no broker serves a bundle of it and no decision about one is under way.
    """
    namespace = str(one.command["arguments"]["namespace"])
    left = served_of(now.view, namespace) | about_namespace(namespace, now.under_way)
    if not left:
        text = f"{namespace} is deleted; no broker has a bundle of it any more"
        desk.say(one.command, "done", text)
    elif namespace not in desk.orders.deleted:
        text = f"{namespace} was made again with {len(left)} bundles left: {named(sorted(left))}"
        desk.say(one.command, "failed", text)
    else:
        return one
    return None
