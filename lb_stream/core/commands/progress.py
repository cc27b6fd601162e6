"""The progress of commands that wait for decisions, and their second answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from lb_stream.contracts.decisions import MOVES, Decision
from lb_stream.core.commands.apply import (
    about_namespace,
    destination_of,
    served_by,
    served_of,
)
from lb_stream.core.commands.base import Ended, operation
from lb_stream.core.commands.responder import CommandResponder
from lb_stream.core.filters.candidates import superseded
from lb_stream.core.model.memory import Pending, bound_for
from lb_stream.core.model.names import BundleRange, namespace_of, parse_bundle
from lb_stream.core.model.operator_state import OperatorState, WaitingCommand
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.rollout import RolloutProgress
from lb_stream.core.model.rules import Decides
from lb_stream.core.model.view import ClusterView
from lb_stream.core.observing.known_bundles import apply_merges, apply_splits
from lb_stream.core.observing.outcomes import Settled

SHOWN_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """The decisions that commands wait for, as a round knows them."""

    view: ClusterView  # dead brokers marked, pending moves not applied
    settled: Settled
    decided: Sequence[Decision]  # in this round
    reserved: Collection[str]  # released bundles whose unload has named a destination
    places: bool  # the balancer assigns unassigned bundles; else the next lookup does
    operator_state: OperatorState
    rollout: RolloutProgress | None = None  # of the rollout that is on; None: none is
    next_refused: Sequence[Refusal] = ()  # why no other broker of it is begun

    @property
    def pending(self) -> list[Pending | Decision]:
        """Return the decisions that no report has confirmed, those of this round included."""
        own = [decision for decision in self.decided if not decision.dry_run]
        return [*self.settled.pending, *own]

    # for commands that wait for something else than their decisions

    def broker_row(self, broker: str) -> int:
        """Return a broker's row; -1: it has never reported, or its averages are lost."""
        names = self.view.brokers.names
        return names.index(broker) if broker in names else -1

    def bundles_at(self, row: int) -> list[str]:
        """Return the bundles of the broker in that row, without its system bundles."""
        return served_by(self.view, row) if row >= 0 else []

    def bundles_bound_for(self, row: int) -> set[str]:
        """Return the bundles that pending decisions send to the broker in that row."""
        if row < 0:
            return set()
        bound = bound_for(self.view.brokers.names[row], self.pending)
        return bound.difference(self.bundles_at(row))

    def bundles_left(self, namespace: str) -> set[str]:
        """Return the bundles of a namespace that a broker has, or a pending decision is about."""
        return served_of(self.view, namespace) | about_namespace(namespace, self.pending)

    def is_moving_from(self, broker: str) -> bool:
        """Return whether a bundle that a decision takes from a broker is at no other one yet."""
        released = [pending for pending, end in self.settled.ended if end.outcome == "released"]
        moves = [*self.settled.pending, *released]
        return any(broker in (move.source, move.former) for move in moves if not move.neighbour)

    def with_moves_from(self, broker: str, waiting: WaitingCommand) -> WaitingCommand:
        """Return the command with the bundles that decisions unload from a broker."""
        ended = (pending for pending, _ in self.settled.ended)
        moves = [*self.pending, *ended, *self.decided]
        leaving = {move.bundle for move in moves if move.kind in MOVES and move.source == broker}
        return replace(waiting, bundles=tuple(sorted(leaving)))

    # decisions

    def of_decisions(self, waiting: WaitingCommand) -> WaitingCommand | Ended:
        """Return a command with the outcomes of its decisions, or its second answer."""
        waiting = self._with_ended(waiting)
        ids = {decision.decision_id for decision in self.pending}
        is_open = waiting.queued or any(name in ids for name in waiting.decision_ids)
        if is_open or self._has_unplaced(waiting):
            return waiting
        failures = waiting.failures or _elsewhere(self.view, waiting)
        if not failures:
            return Ended("done", f"{waiting.text}; reports show it", waiting.decision_ids)
        more = len(failures) - SHOWN_FAILURES
        text = "; ".join(failures[:SHOWN_FAILURES])
        text += f"; and {more} more" if more > 0 else ""
        return Ended("failed", text, waiting.decision_ids)

    def _with_ended(self, waiting: WaitingCommand) -> WaitingCommand:
        """Return the command with its failures, and with this round's decisions for it."""
        ended = [
            (pending, outcome)
            for pending, outcome in self.settled.ended
            if pending.decision_id in waiting.decision_ids
        ]
        failures = tuple(
            f"{pending.bundle}: {outcome.outcome}, {outcome.detail}"
            for pending, outcome in ended
            if outcome.outcome not in ("confirmed", "released")
            and pending.bundle not in self.settled.repeated
        )
        confirmed = [pending for pending, outcome in ended if outcome.outcome == "confirmed"]
        waiting = replace(waiting, failures=waiting.failures + failures)
        return _with_follow_ups(self.decided, waiting, confirmed)

    def _has_unplaced(self, waiting: WaitingCommand) -> bool:
        """Return whether a bundle that the command released is unassigned, without a decision."""
        assigned = {decision.bundle for decision in self.pending}
        if any(name in self.reserved and name not in assigned for name in waiting.bundles):
            return True
        if not self.places:
            return False
        moved = _moved(waiting)
        rows = dict(zip(moved, self.view.bundles.rows_of(moved).tolist(), strict=True))
        owner = self.view.bundles.owner
        unowned = {name: row for name, row in rows.items() if row >= 0 and owner[row] < 0}
        gone = superseded(self.view, unowned.values())
        return any(
            row not in gone
            and name not in assigned
            and namespace_of(name) not in self.operator_state.deleted
            for name, row in unowned.items()
        )


def update_command_progress(responder: CommandResponder, now: Progress) -> None:
    """Answer the commands whose decisions have all ended."""
    if not responder.operator_state.waiting and not now.settled.ended:
        return
    waiting = []
    for command in responder.operator_state.waiting:
        after = operation(command.command["kind"]).follow(now, command)
        if isinstance(after, Ended):
            responder.answer_head(
                command.command,
                after.outcome,
                after.text,
                None,
                after.decision_ids,
                after.changes,
            )
            if after.changes:
                responder.change(**after.changes)
        else:
            waiting.append(after)
    if tuple(waiting) != responder.operator_state.waiting:
        responder.change(waiting=tuple(waiting))
    _remember_cuts(responder, now)


def _remember_cuts(responder: CommandResponder, now: Progress) -> None:
    """Apply confirmed splits and merges to the namespaces that commands have made."""
    done = [pending for pending, outcome in now.settled.ended if outcome.outcome == "confirmed"]
    split = [pending.bundle for pending in done if pending.kind == "split"]
    merged = [pending.bundle for pending in done if pending.kind == "merge"]
    if (split or merged) and responder.operator_state.namespaces:
        cut = apply_splits(responder.operator_state.namespaces, now.view, split)
        responder.change(namespaces=apply_merges(cut, merged))


def _with_follow_ups(
    decided: Sequence[Decision], waiting: WaitingCommand, confirmed: Sequence[Pending]
) -> WaitingCommand:
    """Return the command with this round's decisions for it: assigns, and moves of children."""
    parents = [parse_bundle(split.bundle) for split in confirmed if split.unload_children]
    children = [
        decision
        for decision in decided
        if parents
        and decision.rule == Decides.SPLIT_CHILD.name
        and _is_inside(decision.bundle, parents)
    ]
    bundles = waiting.bundles + tuple(child.bundle for child in children)
    waiting = replace(waiting, bundles=bundles)
    wanted = _moved(waiting)
    follow_ups = [
        decision for decision in decided if decision.kind == "assign" and decision.bundle in wanted
    ]
    more = tuple(decision.decision_id for decision in (*children, *follow_ups))
    return replace(waiting, decision_ids=waiting.decision_ids + more)


def _moved(waiting: WaitingCommand) -> list[str]:
    """Return the bundles that must get another owner before the command is done.

    Bundles whose decisions have failed are no longer waited for.
    """
    # a namespace may have a colon, but no space
    failed = {failure.partition(": ")[0] for failure in waiting.failures}
    if waiting.command["kind"] == "merge":
        return []
    return [bundle for bundle in waiting.bundles if bundle not in failed]


def _is_inside(bundle: str, parents: Sequence[BundleRange]) -> bool:
    namespace, lower, upper = parse_bundle(bundle)
    return any(
        parent.namespace == namespace and parent.lower <= lower and upper <= parent.upper
        for parent in parents
    )


def _elsewhere(view: ClusterView, waiting: WaitingCommand) -> tuple[str, ...]:
    """Describe bundles that are not at the command's destination, though all is confirmed."""
    wanted = destination_of(waiting)
    if wanted is None:
        return ()
    rows = view.bundles.rows_of(waiting.bundles).tolist()
    owners = [int(view.bundles.owner[row]) if row >= 0 else -1 for row in rows]
    names = [view.brokers.names[owner] if owner >= 0 else "no broker" for owner in owners]
    return tuple(
        f"{bundle}: {name} has it, not {wanted}"
        for bundle, name in zip(waiting.bundles, names, strict=True)
        if name != wanted
    )
