"""The simple manager's quotas from round to round: learned from reports, remembered as JSON.

The memory holds five numbers for each bundle, and grows with their number. A cluster with another
load manager has no such memory, except on the first day after a switch from this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lb_stream.core.model.quotas import (
    FALL_MS,
    INITIAL,
    VALUES,
    BundleFigures,
    Factors,
    Learned,
    Quotas,
    default_quota,
    learn_factors,
)
from lb_stream.core.model.view import ClusterView


def with_quotas(
    view: ClusterView, remembered: Mapping[str, Any]
) -> tuple[ClusterView, dict[str, object]]:
    """Return the view with its quotas, and the JSON object for the next round.

    Quotas are learned when a broker has sent a new report: those of all owned bundles, over the
    time since the last such report. The first report counts in full.
    """
    before = _read(view, remembered)
    if not view.brokers.sampled.any():
        return replace(view, quotas=before), dict(remembered)
    last_ms = remembered.get("at_ms")
    elapsed_ms = FALL_MS if last_ms is None else max(0, view.now_ms - int(last_ms))
    after = _learned(view, before, elapsed_ms)
    return replace(view, quotas=after), _written(view, after)


def while_others_run(remembered: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return what is kept while another manager runs: all for a day, then nothing.

    After a day the first new report would count in full.
    """
    return dict(remembered) if remembered and now_ms - int(remembered["at_ms"]) < FALL_MS else {}


def _read(view: ClusterView, remembered: Mapping[str, Any]) -> Learned:
    """Read the quotas of the view's bundles; a bundle that is not known has the default."""
    default = {name: float(remembered.get("default", INITIAL)[name]) for name in VALUES}
    columns = {name: np.full(len(view.bundles), default[name]) for name in VALUES}
    known: Mapping[str, list[float]] = remembered.get("bundles", {})
    rows = view.bundles.rows_of(known)
    values = np.array(list(known.values()), np.float64).reshape(-1, len(VALUES))
    for place, name in enumerate(VALUES):
        columns[name][rows[rows >= 0]] = values[rows >= 0, place]
    factors = Factors(*remembered["factors"]) if "factors" in remembered else Factors()
    return Learned(Quotas(columns), default, factors)


def _learned(view: ClusterView, before: Learned, elapsed_ms: int) -> Learned:
    """Return the quotas after one more report of every bundle at a live broker."""
    # The figures of these bundles, and what the live brokers use.
    bundles, alive = view.bundles, view.brokers.alive
    served = np.flatnonzero(np.append(alive, False)[bundles.owner])
    figures = BundleFigures(
        rate_in=bundles.latest.rate_in[served],
        rate_out=bundles.latest.rate_out[served],
        throughput_in=bundles.latest.throughput_in[served],
        throughput_out=bundles.latest.throughput_out[served],
        connections=(bundles.topics + bundles.sessions)[served],
    )
    cpu, memory = (
        float(np.maximum(view.brokers.resources[name][0][alive], 0.0).sum())
        for name in ("cpu", "memory")
    )

    # The factors, the default quota, and the quota of each bundle.
    factors = learn_factors(before.factors, figures, cpu, memory, elapsed_ms)
    default = default_quota(before.default, figures, factors, elapsed_ms)
    some = Quotas({name: column[served] for name, column in before.quotas.columns.items()})
    smoothed = some.smoothed(figures.samples(factors), elapsed_ms)
    columns = {name: column.copy() for name, column in before.quotas.columns.items()}
    for name in VALUES:
        columns[name][served] = smoothed.columns[name]
    return Learned(Quotas(columns), default, factors)


def _written(view: ClusterView, known: Learned) -> dict[str, Any]:
    """Return the JSON object that `_read` takes."""
    rows = zip(*(known.quotas.columns[name].tolist() for name in VALUES), strict=True)
    return {
        "at_ms": view.now_ms,
        "default": dict(known.default),
        "factors": [known.factors.cpu, known.factors.memory],
        "bundles": {
            name: list(row) for name, row in zip(view.bundles.names.to_pylist(), rows, strict=True)
        },
    }
