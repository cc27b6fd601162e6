"""What the moves of waiting proposals would do together: each broker's usage before and after."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lb_stream.contracts.decisions import MOVES
from lb_stream.core.model.view import ClusterView, apply_pending_moves
from lb_stream.core.observing.loads_ahead import LoadsAhead
from lb_stream.query import QueryError
from lb_stream.query.lake import Row, build_last_loads_query, records, run
from lb_stream.query.present.view import load_present_view

if TYPE_CHECKING:
    from lb_stream.query.cluster_state import ClusterState
    from lb_stream.query.lake import Lake

NO_EFFECT: Row = {
    "max_before": None,
    "max_after": None,
    "mean_before": None,
    "mean_after": None,
    "brokers": (),
}
"""The effect of proposals whose loads aren't known, or that move nothing."""


def add_partners(waiting: Iterable[Row], ids: Collection[str]) -> list[Row]:
    """Return the waiting proposals with these ids, and those that are approved only with them."""
    rows = list(waiting)
    groups = {row["together"] for row in rows if row["proposal_id"] in ids}
    return [row for row in rows if row["together"] in groups]


def load_plan_effect(lake: Lake, state: ClusterState, proposals: Sequence[Row]) -> Row:
    """Return max and mean usage (ratios) without and with all of these moves, and `brokers`.

    `brokers`: those that the moves touch, each with its usage `before` and `after`, the hottest
    first. Pending moves count as carried out, as they do when the balancer plans. A move without a
    destination goes to its best candidate.
    """
    moves = [row for row in proposals if row["kind"] in MOVES]
    if not moves:
        return NO_EFFECT
    pending = state.memory.pending
    names = {row["bundle"] for row in moves} | {decision.bundle for decision in pending}
    weights = state.config.balancer.weights
    try:
        view = load_present_view(lake, state.cluster, weights, state.now_ms, sorted(names))
    except QueryError:  # no round has seen a broker
        return NO_EFFECT
    view = apply_pending_moves(_leave_out_silent(lake, view), pending, True)
    rows = view.bundles.rows_of(row["bundle"] for row in moves).tolist()
    steps = [
        (place, str(row["source"]), _find_destination(row))
        for place, row in zip(rows, moves, strict=True)
        if place >= 0
    ]
    before = LoadsAhead.build(view, steps)
    after = before.after(range(len(steps)))
    touched = dict.fromkeys(broker for end in before.ends for broker in end if broker >= 0)
    brokers = [
        {
            "broker": view.brokers.names[place],
            "before": float(before.usage[place]),
            "after": float(after.usage[place]),
        }
        for place in touched
    ]
    return {
        "max_before": before.max_usage,
        "max_after": after.max_usage,
        "mean_before": _find_mean(before),
        "mean_after": _find_mean(after),
        "brokers": tuple(sorted(brokers, key=lambda row: -float(row["before"]))),
    }


def _leave_out_silent(lake: Lake, view: ClusterView) -> ClusterView:
    """Return the view in which brokers that are not active take no part in max and mean."""
    query = f"SELECT broker FROM {build_last_loads_query(lake, view.cluster)} WHERE active"
    active = {row["broker"] for row in records(run(lake, query, [view.cluster]))}
    speaking = np.array([name in active for name in view.brokers.names], np.bool_)
    return replace(view, brokers=replace(view.brokers, speaking=speaking))


def _find_mean(loads: LoadsAhead) -> float:
    counted = loads.usage[loads.counted]
    return float(counted.mean()) if len(counted) else 0.0


def _find_destination(move: Row) -> str | None:
    """Return where a move goes: its destination, or its best candidate; None: not known."""
    if move["destination"] is not None:
        return str(move["destination"])
    candidates = move["explain"].get("candidates") or ()
    return next((row["broker"] for row in candidates if row.get("refused_by") is None), None)
