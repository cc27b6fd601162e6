"""Assign unassigned bundles: to the destination that their unload named, or to the best broker."""

from __future__ import annotations

import numpy as np

from lb_stream.contracts.decisions import Explain
from lb_stream.core.filters.candidates import superseded
from lb_stream.core.model.names import SYSTEM_NAMESPACE, namespace_of
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Decides, Refuses
from lb_stream.core.model.view import Rows
from lb_stream.core.round.state import RoundState

FIRST_ASSIGNMENT_WAIT_MS = 10_000
MINUTE_MS = 60_000
UNOWNED = "Unowned"
"""The reason of an assign of a bundle that no move has released."""


def assign_unowned(state: RoundState) -> None:
    """Decide an owner for each unassigned bundle without a pending decision.

    Bundles with a reserved destination are always assigned, others only if `assign_unowned` is
    `eager`. They are assigned in the order of their names, those of pulsar/system last.
    """
    view, config = state.view, state.config.balancer
    rows = np.flatnonzero((view.bundles.owner < 0) & ~view.bundles.in_flight & ~view.bundles.system)
    if not len(rows):
        return
    rows = _system_last(state, rows)
    gone = superseded(view, rows.tolist())
    decided = {decision.bundle for decision in state.decisions}
    waiting_commands = state.memory.operator_state.waiting
    commanded = {bundle for waiting in waiting_commands for bundle in waiting.bundles}
    recent = sum(count for _, count in count_recent_assignments(state))
    backing_off: dict[str, int] = {}  # bundle → ms until it may be tried again
    too_many: list[str] = []
    for row in rows.tolist():
        # Skip bundles that were split, that a command has just assigned, or that wait for a lookup.
        name = view.bundles.name(row)
        if row in gone or name in decided or _is_left_alone(state, name):
            continue
        # A bundle whose last assign has failed waits for the end of its back-off.
        retry = state.inputs.retries.get(name)
        if retry is not None and retry.kind == "assign" and state.now_ms < retry.not_before_ms:
            backing_off[name] = retry.not_before_ms - state.now_ms
            continue
        # Assigns of orphans, which neither a move nor a command has released, are limited.
        is_moved = name in state.reserved or name in state.inputs.released
        is_orphan = not is_moved and name not in commanded
        if is_orphan and recent >= config.max_assignments_per_minute:
            too_many.append(name)
            continue
        recent += assign(state, row, name, name in commanded) and is_orphan
    if too_many:
        rule, limit = Refuses.ASSIGNMENTS_PER_MINUTE, config.max_assignments_per_minute
        state.refusals.append(refusal(rule, None, too_many, saw=[recent], limit=limit))
    if backing_off:
        waits_ms = backing_off.values()
        state.refusals.append(refusal(Refuses.BACK_OFF, None, backing_off, saw=waits_ms, limit=0))


def count_recent_assignments(state: RoundState) -> tuple[tuple[int, int], ...]:
    """Return (time, assigned orphans) of the last minute's rounds, and of this one.

    Assigns of a dry run don't count.
    """
    kept = tuple(entry for entry in state.memory.assigned if state.now_ms - entry[0] < MINUTE_MS)
    count = sum(
        decision.kind == "assign" and decision.reason == UNOWNED and not decision.dry_run
        for decision in state.decisions
    )
    return (*kept, (state.now_ms, count)) if count else kept


def _is_left_alone(state: RoundState, name: str) -> bool:
    """Whether a bundle stays unassigned: it waits for a lookup, or its namespace is deleted."""
    if state.config.balancer.assign_unowned == "on_lookup" and not _has_reservation(state, name):
        return True
    return namespace_of(name) in state.memory.operator_state.deleted


def _find_dead_owner(state: RoundState, name: str) -> str | None:
    """Return the dead broker that had an unassigned bundle; None: it lost its owner otherwise."""
    reported = state.ledger.reported  # there dead brokers have their bundles
    return reported.find_owner(int(reported.bundles.rows_of([name])[0]))


def _has_reservation(state: RoundState, name: str) -> bool:
    """Whether a bundle has a reserved destination that may still have it.

    If that may not, the reservation ends, and the bundle is left to the next lookup.
    """
    reserved = state.reserved.get(name)
    if reserved is None:
        return False
    if _find_reserved_broker(state, name) is not None:
        return True
    state.refusals.append(refusal(Refuses.LEFT_TO_LOOKUP, reserved, [name]))
    del state.reserved[name]
    return False


def _find_reserved_broker(state: RoundState, name: str) -> int | None:
    """Return the row of a bundle's reserved destination; None: it has none that may still have it.

    The broker must be alive, neither silent nor drained, and allowed by the present policies.
    """
    brokers, reserved = state.view.brokers, state.reserved.get(name)
    if reserved is None or reserved not in brokers.names or reserved in state.view.policies.drained:
        return None
    row = brokers.names.index(reserved)
    if not brokers.alive[row] or not brokers.speaking[row]:
        return None
    bundle = int(state.view.bundles.rows_of([name])[0])
    forbidden = state.candidates.find_refusing_policy(bundle, row, state.targets)
    return row if forbidden is None else None


def _system_last(state: RoundState, rows: Rows) -> Rows:
    """Return the rows in their order, those of pulsar/system last."""
    system = state.view.bundles.rows_of_namespace(SYSTEM_NAMESPACE)
    is_system = (rows >= system.start) & (rows < system.stop)
    return np.concatenate([rows[~is_system], rows[is_system]])


def find_too_few_brokers(state: RoundState) -> Refusal | None:
    """Return the refusal while a new cluster waits for more brokers; None: it has enough.

    Without this wait its first broker would get all bundles.
    """
    alive = int(np.count_nonzero(state.view.brokers.alive))
    first_ms = state.now_ms if state.memory.first_ms is None else state.memory.first_ms
    limit = state.config.balancer.min_brokers
    if alive < limit and state.now_ms - first_ms < FIRST_ASSIGNMENT_WAIT_MS:
        return refusal(Refuses.MIN_BROKERS, None, saw=[alive], limit=limit)
    return None


def assign(state: RoundState, row: int, name: str, commanded: bool) -> bool:
    """Decide a bundle's owner: its reserved destination, else the best broker.

    `commanded`: a command moves the bundle. Returns False if no broker may have it.
    """
    # The reason is that of the release.
    released_by = "Admin" if commanded else "Overloaded"
    is_released = commanded or name in state.inputs.released
    # The reserved destination.
    destination = _find_reserved_broker(state, name)
    repeated = name in state.inputs.settled.repeated
    if destination is not None:
        state.decide(
            "assign",
            row,
            None,
            destination,
            reason=released_by if is_released else UNOWNED,
            rule=Decides.REPEATED if repeated else Decides.RELEASED,
            strategy=state.config.shedder.name,
            explain=Explain(unit=""),
        )
        return True
    # The best broker. Those that have failed to take the bundle come last.
    retry = state.inputs.retries.get(name)
    choice = state.place(row, avoid=retry.avoid if retry is not None else ())
    if choice is None:
        state.refusals += state.no_candidate(row, None)
        return False
    explain = Explain(
        saw=choice.score if np.isfinite(choice.score) else None,
        unit=choice.unit,
        candidates=choice.candidates,
        died=None if is_released else _find_dead_owner(state, name),
    )
    state.decide(
        "assign",
        row,
        None,
        choice.destination,
        reason=released_by if is_released or name in state.reserved else UNOWNED,
        rule=Decides.UNOWNED,
        strategy=state.config.placement.name,
        explain=explain,
    )
    return True
