"""A hypothetical view: the real one, with some bundles at other brokers.

What loads follow is `core.model.view.with_moves`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lb_stream.core.filters.candidates import superseded
from lb_stream.core.model.names import namespace_of
from lb_stream.core.model.view import Bools, Brokers, ClusterView, Floats, with_moves

Elsewhere = Mapping[str, tuple[str, int]]
"""Bundle → its broker in a shadow's view ("": none), and since when (ms since the epoch)."""

MAX_ELSEWHERE = 5_000
"""So many bundles are held: every round's row of the log names them.

The oldest are let go first.
"""


def still_held(
    view: ClusterView, elsewhere: Elsewhere, hold_ms: int, deleted: tuple[str, ...]
) -> dict[str, tuple[str, int]]:
    """Those that are held still: for `hold_ms` at most, while bundle and broker are known, and the
    bundle was neither split nor deleted."""
    brokers = {"", *view.brokers.names}
    young = sorted(
        bundle
        for bundle, (broker, at_ms) in elsewhere.items()
        if at_ms > view.now_ms - hold_ms and broker in brokers
    )
    rows = dict(zip(young, view.bundles.rows_of(young).tolist(), strict=True))
    split = superseded(
        view, [row for row in rows.values() if row >= 0 and view.bundles.owner[row] < 0]
    )
    kept = [
        bundle
        for bundle, row in rows.items()
        if row >= 0 and row not in split and namespace_of(bundle) not in deleted
    ]
    newest = sorted(kept, key=lambda bundle: (-elsewhere[bundle][1], bundle))[:MAX_ELSEWHERE]
    return {bundle: elsewhere[bundle] for bundle in sorted(newest)}


def hypothetical_view(view: ClusterView, held: Elsewhere) -> ClusterView:
    """The view with the held bundles where they are held, as if they had been there before.

    `held`: all known to the view.
    """
    brokers = {"": -1} | {name: row for row, name in enumerate(view.brokers.names)}
    rows = view.bundles.rows_of(held)
    places = np.array([brokers[broker] for broker, _ in held.values()], np.intp)
    since_ms = np.array([at_ms for _, at_ms in held.values()], np.int64)
    away = places != view.bundles.owner[rows]
    moved = with_moves(view, rows[away], places[away]) if away.any() else view
    owner_since_ms = view.bundles.owner_since_ms.copy()
    owner_since_ms[rows[away]] = since_ms[away]
    # The real view's gains of this batch are no news here.
    nothing = np.zeros(len(view.bundles), np.bool_)
    bundles = replace(
        moved.bundles,
        in_flight=view.bundles.in_flight,
        gained=nothing,
        appeared=nothing,
        owner_since_ms=owner_since_ms,
    )
    return replace(moved, brokers=_with_smoothed(moved.brokers, view.brokers), bundles=bundles)


def _with_smoothed(brokers: Brokers, really: Brokers) -> Brokers:
    """What brokers smooth by themselves (extensible manager), moved by as much as the figure that
    it follows."""
    load = np.maximum(really.load_ema + brokers.usage - really.usage, 0.0)
    throughput = np.maximum(
        really.throughput_ema + brokers.latest.throughput - really.latest.throughput, 0.0
    )
    return replace(brokers, load_ema=load, throughput_ema=throughput)


def count_elsewhere(view: ClusterView, held: Elsewhere) -> int:
    """How many of the held bundles are really somewhere else."""
    names = (*view.brokers.names, "")
    rows = view.bundles.rows_of(held).tolist()
    return sum(
        names[view.bundles.owner[row]] != broker
        for row, (broker, _) in zip(rows, held.values(), strict=True)
    )


def max_and_mean(usage: Floats, alive: Bools) -> tuple[float | None, float | None]:
    """Return max and mean usage (ratios) of the live brokers; None if there is none."""
    living = usage[alive & np.isfinite(usage)]
    return (float(living.max()), float(living.mean())) if len(living) else (None, None)
