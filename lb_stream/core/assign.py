"""Give every unowned bundle an owner: released ones the destination that their unload named, orphans the best broker."""

from __future__ import annotations

import numpy as np

from lb_stream.contracts.decisions import Explain
from lb_stream.core.candidates import superseded
from lb_stream.core.draft import Draft
from lb_stream.core.names import SYSTEM_NAMESPACE, namespace_of
from lb_stream.core.refusals import Refusal, refusal
from lb_stream.core.view import Rows

FIRST_ASSIGNMENT_WAIT_MS = 10_000


def assign_unowned(draft: Draft) -> None:
    """Decide an owner for each bundle that nobody owns and no decision is about.

    Bundles that an unload with a destination has released are placed under either value of `assign_unowned`; other unowned ones only
    under `eager`. In the order of their names, those of pulsar/system last (spec/ownership.md §2, "Repair").
    """
    view, config = draft.view, draft.config.balancer
    rows = np.flatnonzero((view.bundles.owner < 0) & ~view.bundles.in_flight & ~view.bundles.system)
    if not len(rows):
        return
    rows = _system_last(draft, rows)
    gone = superseded(view, rows.tolist())
    ordered = {bundle for one in draft.memory.orders.waiting for bundle in one.bundles}
    decided = {one.bundle for one in draft.decisions}  # a lookup asked for it
    waiting: dict[str, int] = {}
    for row in rows.tolist():
        name = view.bundles.name(row)
        if row in gone or name in decided or (config.assign_unowned == "on_lookup" and name not in draft.reserved):
            continue
        if namespace_of(name) in draft.memory.orders.deleted:
            continue
        retry = draft.retries.get(name)
        if retry is not None and retry.kind == "assign" and draft.now_ms < retry.not_before_ms:
            waiting[name] = retry.not_before_ms - draft.now_ms
            continue
        assign(draft, row, name, name in ordered)
    if waiting:
        draft.refusals.append(refusal("back_off", None, waiting, saw=waiting.values(), limit=0, unit="ms"))


def _system_last(draft: Draft, rows: Rows) -> Rows:
    system = draft.view.bundles.rows_of_namespace(SYSTEM_NAMESPACE)
    is_system = (rows >= system.start) & (rows < system.stop)
    return np.concatenate([rows[~is_system], rows[is_system]])


def too_few(draft: Draft) -> Refusal | None:
    """A new cluster waits for some brokers, so that the first one doesn't get everything."""
    alive = int(np.count_nonzero(draft.view.brokers.alive))
    first_ms = draft.now_ms if draft.memory.first_ms is None else draft.memory.first_ms
    waits = alive < draft.config.balancer.min_brokers and draft.now_ms - first_ms < FIRST_ASSIGNMENT_WAIT_MS
    return refusal("min_brokers", None, saw=[alive], limit=draft.config.balancer.min_brokers, unit="brokers") if waits else None


def assign(draft: Draft, row: int, name: str, ordered: bool) -> bool:
    """Decide who gets one bundle: whom its unload named, else the best. `ordered`: an operator wanted it. False: nobody may have it."""
    brokers, reserved = draft.view.brokers, draft.reserved.get(name)
    moved = "Admin" if ordered else "Overloaded"
    drained = draft.view.policies.drained
    if reserved is not None and reserved in brokers.names and brokers.alive[brokers.names.index(reserved)] and reserved not in drained:
        draft.decide(
            "assign",
            row,
            None,
            brokers.names.index(reserved),
            reason=moved,
            rule="released",
            strategy=draft.config.shedder.name,
            explain=Explain(unit=""),
        )
        return True
    choice = draft.place(row)
    if choice is None:
        draft.refusals.append(refusal("no_candidate", None, [name], limit=1, unit="brokers"))
        return False
    explain = Explain(saw=choice.score if np.isfinite(choice.score) else None, unit=choice.unit, candidates=choice.candidates)
    draft.decide(
        "assign",
        row,
        None,
        choice.destination,
        reason=moved if reserved or ordered else "Unowned",
        rule="unowned",
        strategy=draft.config.placement.name,
        explain=explain,
    )
    return True
