"""Rows of a simulation's tables: measures side by side, losses, budgets, violations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lb_stream.sim.measures import TraceMeasures
from lb_stream.sim.measures.figures import Figures
from lb_stream.sim.measures.moves import (
    gap_clients,
    gap_throughputs,
    is_above_budget,
    moves_within_hour,
)
from lb_stream.sim.measures.verdict import VIOLATIONS

TableRow = dict[str, object]
"""Head of a column → what the row has there."""
MOST_BROKEN = 50


def side_by_side(figures: Mapping[str, Figures]) -> list[list[str]]:
    """Return a row for each measure, with a column for each policy; – is no figure.

    Rules that no policy broke are left out, as are measures of splits and rollouts where there are
    none.
    """
    flat = [
        {
            name: value
            for name, value in (*measures.items(), *measures["violations"].items())
            if name not in ("scenario", "violations")
        }
        for measures in figures.values()
    ]
    rules = {rule for measures in figures.values() for rule in measures["violations"]}
    hidden = {rule for rule in rules if not any(column[rule] for column in flat)}
    if all(_bundles_stay_whole(column) for column in flat):
        hidden |= {name for name in flat[0] if "finest" in name or "floor" in name}
        hidden |= {"splits", "splits_idle", "bundles_end_over_start"}
    if all(column.get("rollout_share") is None for column in flat):
        hidden |= {name for name in flat[0] if "rollout" in name}
    return [
        [name, *(figure(column[name]) for column in flat)] for name in flat[0] if name not in hidden
    ]


def _bundles_stay_whole(figures: Figures) -> bool:
    """Return whether nothing was split, and no split could have lowered the bound."""
    return not figures.get("splits") and all(
        figures.get(f"max_over_finest_{which}") in (None, figures[f"max_over_bound_{which}"])
        for which in ("median", "p95", "worst")
    )


def figure(value: float | None) -> str:
    """Return a measure as a text; – is no figure."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3f}"


def lost(measured: TraceMeasures) -> list[TableRow]:
    """Return the losses by their cause: moves, and each broker that went down."""
    gaps, names = measured.gaps, measured.scenario.brokers.names
    cost = gap_clients(measured.history.tree, gaps) * (
        gaps.length_s + measured.scenario.move.reconnect_s
    )
    unsent = gap_throughputs(measured.history.tree, gaps) * gaps.length_s
    causes = [
        "moves" if moved else f"{names[source]} went down at {since:g} s"
        for moved, source, since in zip(
            gaps.moved.tolist(), gaps.source.tolist(), gaps.since_s.tolist(), strict=True
        )
    ]
    return [
        {
            "because of": cause,
            "bundles": len(np.unique(gaps.bundle[these])),
            "longest, s": f"{gaps.length_s[these].max():,.1f}",
            "clients' seconds": f"{cost[these].sum():,.0f}",
            "GB": f"{unsent[these].sum() / 1e9:,.1f}",
            "never served again": int(np.count_nonzero(gaps.destination[these] < 0)),
        }
        for cause in dict.fromkeys(causes)
        for these in (np.array([other == cause for other in causes]),)
    ]


def budgets(measured: TraceMeasures) -> list[TableRow]:
    """Return the namespaces with a budget that moved, and their max moves in an hour.

    Those above their budget come first.
    """
    rules, gaps = measured.rules, measured.gaps
    moves = gaps.where(gaps.moved & ~gaps.drained & ~gaps.leaving)
    namespace, above = rules.namespace[moves.bundle], is_above_budget(rules, moves)
    rows = [
        {
            "namespace": rules.namespaces[row],
            "budget an hour": int(rules.budget[row]),
            "most in an hour": int(moves_within_hour(moves.since_s[namespace == row]).max()),
            "moves": int(np.count_nonzero(namespace == row)),
            "above budget": int(np.count_nonzero(above & (namespace == row))),
        }
        for row in np.unique(namespace).tolist()
        if rules.budget[row] >= 0
    ]
    return sorted(rows, key=lambda row: (-row["above budget"], row["namespace"]))


def broken(measured: TraceMeasures) -> list[TableRow]:
    """Return the first violations."""
    brokers, bundles = measured.scenario.brokers.names, measured.history.tree.names
    return [
        {
            "at, s": f"{violation.t_s:g}",
            "rule": VIOLATIONS[violation.rule],
            "bundle": bundles[violation.bundle],
            "broker": brokers[violation.broker],
        }
        for violation in measured.history.violations[:MOST_BROKEN]
    ]
