"""The view as it will be when decisions that are under way have been carried out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lb_stream.contracts.decisions import RESHAPES, Decision
from lb_stream.core.model.memory import Pending
from lb_stream.core.model.view import ClusterView, with_moves


def carry_out(
    view: ClusterView, decisions: Sequence[Pending | Decision], moves_count: bool
) -> ClusterView:
    """The view with the given decisions carried out: load must not be decided on twice. Splits and merges move nothing.

    If moves don't count, their bundles are only marked as on their way.
    """
    if not decisions:
        return view
    rows = view.bundles.rows_of(decision.bundle for decision in decisions)
    names = {name: row for row, name in enumerate(view.brokers.names)}
    destinations = np.array(
        [names.get(decision.destination or "", -1) for decision in decisions], np.intp
    )
    stays = np.array([decision.kind in RESHAPES for decision in decisions], np.bool_)
    moves = (rows >= 0) & ~stays & moves_count
    view = with_moves(view, rows[moves], destinations[moves])
    held = np.append(
        rows[~moves],
        view.bundles.rows_of(
            decision.neighbour for decision in decisions if decision.neighbour is not None
        ),
    )
    if not len(held):
        return view
    in_flight = view.bundles.in_flight.copy()
    in_flight[held[held >= 0]] = True
    return replace(view, bundles=replace(view.bundles, in_flight=in_flight))
