"""Give every unowned bundle an owner: released ones the destination that their unload named,
orphans the best broker."""

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
"""The reason of an assignment that no move has led to."""


def assign_unowned(state: RoundState) -> None:
    """Decide an owner for each bundle that nobody owns and no decision is about.

    Bundles that an unload with a destination has released are placed under either value of
    `assign_unowned`; other unowned ones only under `eager`. In the order of their names, those of
    pulsar/system last.
    """
    view, config = state.view, state.config.balancer
    rows = np.flatnonzero((view.bundles.owner < 0) & ~view.bundles.in_flight & ~view.bundles.system)
    if not len(rows):
        return
    rows = _system_last(state, rows)
    # Bundles that get no owner now: split ones, those of deleted namespaces, those that have been
    # decided because a lookup asked for them, and those that only a lookup may ask for.
    gone = superseded(view, rows.tolist())
    decided = {decision.bundle for decision in state.decisions}

    def is_left_alone(row: int, name: str) -> bool:
        if row in gone or name in decided:
            return True
        if config.assign_unowned == "on_lookup" and not _by_reservation(state, name):
            return True
        return namespace_of(name) in state.memory.operator_state.deleted

    ordered = {
        bundle for waiting in state.memory.operator_state.waiting for bundle in waiting.bundles
    }
    lately = sum(count for _, count in count_recent_assignments(state))
    waiting: dict[str, int] = {}  # bundle → ms until it may be tried again
    too_many: list[str] = []
    for row in rows.tolist():
        name = view.bundles.name(row)
        if is_left_alone(row, name):
            continue
        # One whose assignment has just failed waits for its back-off.
        retry = state.inputs.retries.get(name)
        if retry is not None and retry.kind == "assign" and state.now_ms < retry.not_before_ms:
            waiting[name] = retry.not_before_ms - state.now_ms
            continue
        # Orphans, of which no move or command has made an unowned bundle, come so many a minute.
        led_to_by_a_move = name in state.reserved or name in state.inputs.released
        orphan = not led_to_by_a_move and name not in ordered
        if orphan and lately >= config.max_assignments_per_minute:
            too_many.append(name)
            continue
        lately += assign(state, row, name, name in ordered) and orphan
    if too_many:
        limit = config.max_assignments_per_minute
        state.refusals.append(
            refusal(Refuses.ASSIGNMENTS_PER_MINUTE, None, too_many, saw=[lately], limit=limit)
        )
    if waiting:
        state.refusals.append(
            refusal(Refuses.BACK_OFF, None, waiting, saw=waiting.values(), limit=0)
        )


def count_recent_assignments(state: RoundState) -> tuple[tuple[int, int], ...]:
    """Of each round of the last minute, this one included: when, and how many orphans it gave an
    owner. A dry run's don't count."""
    kept = tuple(entry for entry in state.memory.assigned if state.now_ms - entry[0] < MINUTE_MS)
    count = sum(
        decision.kind == "assign" and decision.reason == UNOWNED and not decision.dry_run
        for decision in state.decisions
    )
    return (*kept, (state.now_ms, count)) if count else kept


def _by_reservation(state: RoundState, name: str) -> bool:
    """Whether the destination that a bundle's unload has named can have it.

    If not, it is left to the next lookup like any other.
    """
    reserved = state.reserved.get(name)
    if reserved is None or _reserved_row(state, name) is not None:
        return reserved is not None
    state.refusals.append(refusal(Refuses.LEFT_TO_LOOKUP, reserved, [name]))
    del state.reserved[name]
    return False


def _reserved_row(state: RoundState, name: str) -> int | None:
    """The destination that the bundle's unload has named, if that one lives, speaks, isn't drained.

    Nor may a policy of an operator forbid it that has come into force since the unload was decided.
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
    system = state.view.bundles.rows_of_namespace(SYSTEM_NAMESPACE)
    is_system = (rows >= system.start) & (rows < system.stop)
    return np.concatenate([rows[~is_system], rows[is_system]])


def _is_moved(state: RoundState, name: str, ordered: bool) -> bool:
    """Whether the bundle has no owner because this balancer or an operator had it moved."""
    return ordered or name in state.inputs.released


def find_too_few_brokers(state: RoundState) -> Refusal | None:
    """A new cluster waits for some brokers, so that the first one doesn't get everything."""
    alive = int(np.count_nonzero(state.view.brokers.alive))
    first_ms = state.now_ms if state.memory.first_ms is None else state.memory.first_ms
    waits = (
        alive < state.config.balancer.min_brokers
        and state.now_ms - first_ms < FIRST_ASSIGNMENT_WAIT_MS
    )
    return (
        refusal(Refuses.MIN_BROKERS, None, saw=[alive], limit=state.config.balancer.min_brokers)
        if waits
        else None
    )


def assign(state: RoundState, row: int, name: str, ordered: bool) -> bool:
    """Decide who gets one bundle: whom its unload named, else the best.

    `ordered`: an operator wanted it. False: nobody may have it.
    """
    destination = _reserved_row(state, name)
    moved = "Admin" if ordered else "Overloaded"
    repeated = name in state.inputs.settled.repeated
    if destination is not None:
        state.decide(
            "assign",
            row,
            None,
            destination,
            reason=moved if _is_moved(state, name, ordered) else UNOWNED,
            rule=Decides.REPEATED if repeated else Decides.RELEASED,
            strategy=state.config.shedder.name,
            explain=Explain(unit=""),
        )
        return True
    retry = state.inputs.retries.get(name)
    choice = state.place(row, avoid=retry.avoid if retry is not None else ())
    if choice is None:
        state.refusals += state.no_candidate(row, None)
        return False
    explain = Explain(
        saw=choice.score if np.isfinite(choice.score) else None,
        unit=choice.unit,
        candidates=choice.candidates,
    )
    state.decide(
        "assign",
        row,
        None,
        choice.destination,
        reason=moved if name in state.reserved or _is_moved(state, name, ordered) else UNOWNED,
        rule=Decides.UNOWNED,
        strategy=state.config.placement.name,
        explain=explain,
    )
    return True
