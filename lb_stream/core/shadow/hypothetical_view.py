"""A hypothetical view: the real one with some bundles at other brokers.

Loads follow by `core.model.view.with_moves`.
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
"""The most bundles that are held, since every round's row of the log names them.

The oldest are dropped first.
"""


def still_held(
    view: ClusterView, elsewhere: Elsewhere, hold_ms: int, deleted: tuple[str, ...]
) -> dict[str, tuple[str, int]]:
    """Return the bundles that are still held: for at most `hold_ms`.

    Bundle and broker must be known, and the bundle neither split nor deleted.
    """
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
    """Return the view with these bundles at other brokers, as if they had been there before.

    The view knows all of them.
    """
    # Where each is, and which of them are really elsewhere.
    brokers = {"": -1} | {name: row for row, name in enumerate(view.brokers.names)}
    rows = view.bundles.rows_of(held)
    places = np.array([brokers[broker] for broker, _ in held.values()], np.intp)
    since_ms = np.array([at_ms for _, at_ms in held.values()], np.int64)
    away = places != view.bundles.owner[rows]
    moved = with_moves(view, rows[away], places[away]) if away.any() else view
    owner_since_ms = view.bundles.owner_since_ms.copy()
    owner_since_ms[rows[away]] = since_ms[away]
    # The real changes of owners in this batch count for no shadow.
    nothing = np.zeros(len(view.bundles), np.bool_)
    bundles = replace(
        moved.bundles,
        in_flight=view.bundles.in_flight,
        gained=nothing,
        appeared=nothing,
        owner_since_ms=owner_since_ms,
    )
    return replace(moved, brokers=_with_smoothed(moved.brokers, view.brokers), bundles=bundles)


def _with_smoothed(brokers: Brokers, real: Brokers) -> Brokers:
    """Return the brokers with smoothed figures that have changed as much as what they follow.

    The extensible manager's brokers smooth them and report them.
    """
    load = np.maximum(real.load_ema + brokers.usage - real.usage, 0.0)
    change = brokers.latest.throughput - real.latest.throughput
    throughput = np.maximum(real.throughput_ema + change, 0.0)
    return replace(brokers, load_ema=load, throughput_ema=throughput)


def count_elsewhere(view: ClusterView, held: Elsewhere) -> int:
    """Return how many of the held bundles are really at other brokers."""
    names = (*view.brokers.names, "")
    rows = view.bundles.rows_of(held).tolist()
    return sum(
        names[view.bundles.owner[row]] != broker
        for row, (broker, _) in zip(rows, held.values(), strict=True)
    )


def max_and_mean(usage: Floats, active: Bools) -> tuple[float | None, float | None]:
    """Return max and mean usage (ratios) of these brokers; None if there is none."""
    counted = usage[active & np.isfinite(usage)]
    return (float(counted.max()), float(counted.mean())) if len(counted) else (None, None)
