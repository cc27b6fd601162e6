"""All measures of a trace as one dictionary, with the series and gaps they follow from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lb_stream.sim.measures.moves import (
    HOUR_S,
    Gaps,
    count_redundant,
    count_undone,
    drain_seconds,
    find_gaps,
    gap_clients,
    gap_throughputs,
    is_above_budget,
)
from lb_stream.sim.measures.rollout import measure_rollout
from lb_stream.sim.measures.rules import Rules
from lb_stream.sim.measures.series import Series, build_series, quantile
from lb_stream.sim.measures.splits import measure_splits
from lb_stream.sim.measures.state import TOLERANCE
from lb_stream.sim.measures.trace import OwnershipHistory, TraceLine, follow_trace
from lb_stream.sim.scenario.scenario import Bools, Floats, Scenario

HOLD_S = 300.0
"""Seconds for which balance must hold to count as reached."""
HIGH, FULL = 0.85, 1.0
"""Usage ratios above which time counts as overload."""


Figures = dict[str, Any]
"""Measure → its number; None: it has no meaning. `violations` is a dictionary of numbers."""


@dataclass(frozen=True, slots=True)
class TraceMeasures:
    """The figures of a trace, and what they follow from."""

    scenario: Scenario
    rules: Rules
    history: OwnershipHistory
    series: Series
    gaps: Gaps
    figures: Figures

    @property
    def over(self) -> Floats:
        """Return max usage ÷ the bound to judge by: `finest` where bundles can be split."""
        finest = None if self.scenario.topics is None else self.series.max_over_finest
        return self.series.max_over_bound if finest is None else finest

    @property
    def shown_over(self) -> Floats:
        """Return `over` for charts, raised to 1 at least.

        The bound places all bundles on available brokers. While drained brokers still carry some,
        or some are unassigned, the available ones may be below it.
        """
        return np.maximum(self.over, 1.0)

    @property
    def balanced(self) -> Bools:
        """Return which ticks are balanced by the bound to judge by."""
        return self.series.is_balanced(self.over)

    @property
    def time_to_balance_s(self) -> float | None:
        """Return the seconds until balance held by the bound to judge by; None: it never did."""
        return _rounded(_time_to_balance(self.scenario, self.balanced))

    @property
    def over_median(self) -> float | None:
        """Return the median of `over` once the disturbance should be over."""
        settled = self.series.t_s >= self.scenario.settled_from_s - TOLERANCE
        return quantile(self.over[settled], 0.5)


def measure_figures(scenario: Scenario, lines: Iterable[TraceLine]) -> Figures:
    """Compute all measures of a trace. Raises TraceError for a trace that can't have happened."""
    return measure_trace(scenario, lines).figures


def measure_trace(scenario: Scenario, lines: Iterable[TraceLine]) -> TraceMeasures:
    """Compute all measures of a trace, with what they follow from. Raises TraceError."""
    history = follow_trace(scenario, Rules.from_scenario(scenario), lines)
    rules = Rules.from_scenario(scenario).of_bundles(history.tree.root)
    series = build_series(scenario, rules, history)
    gaps = find_gaps(history.changes, scenario.end_s)
    moves = gaps.where(gaps.moved)
    figures = (
        {"scenario": scenario.name}
        | _balance(scenario, series)
        | _moves(scenario, history, moves)
        | {"thrash": _rounded(_thrash(series))}
        | _cost(scenario, history, series, gaps)
        | _rules_broken(scenario, history, series)
        | {
            "budget_breaches": int(np.count_nonzero(is_above_budget(rules, moves))),
            "failovers": int(np.count_nonzero(~gaps.moved & (gaps.until_s < scenario.end_s))),
            "decisions": history.decisions,
            "decisions_lost": history.decisions_lost,
        }
    )
    if scenario.format >= 2:
        figures |= _undivided(scenario, series)
        figures |= measure_splits(history)
        figures |= {"moves_rollout": int(np.count_nonzero(moves.leaving))}
        figures |= {
            name: _rounded(value) for name, value in measure_rollout(history, series, gaps).items()
        }
    return TraceMeasures(scenario, rules, history, series, gaps, figures)


def _balance(scenario: Scenario, series: Series) -> Figures:
    judged, settled = (
        series.t_s >= since - TOLERANCE
        for since in (scenario.judge_from_s, scenario.settled_from_s)
    )
    over_mean, over_bound = series.max_over_mean[settled], series.max_over_bound
    return {
        "time_to_balance_s": _rounded(_time_to_balance(scenario, series.balanced)),
        "balanced_share": _rounded(series.balanced[judged].mean()),
        "max_over_mean_median": _rounded(quantile(over_mean, 0.5)),
        "max_over_mean_p95": _rounded(quantile(over_mean, 0.95)),
        "max_over_bound_median": _rounded(quantile(over_bound[settled], 0.5)),
        "max_over_bound_p95": _rounded(quantile(over_bound[settled], 0.95)),
        "max_over_bound_worst": _rounded(over_bound[judged].max()),
        "usage_max_final": _rounded(series.max_usage[-1]),
    }


def _undivided(scenario: Scenario, series: Series) -> Figures:
    """Compute the measures by bounds that no split changes."""
    judged, settled = (
        series.t_s >= since - TOLERANCE
        for since in (scenario.judge_from_s, scenario.settled_from_s)
    )
    floor, finest, balanced = (
        series.max_over_floor,
        series.max_over_finest,
        series.balanced_by_finest,
    )
    assert floor is not None and finest is not None and balanced is not None
    return {
        "max_over_floor_median": _rounded(quantile(floor[settled], 0.5)),
        "max_over_floor_p95": _rounded(quantile(floor[settled], 0.95)),
        "max_over_finest_median": _rounded(quantile(finest[settled], 0.5)),
        "max_over_finest_p95": _rounded(quantile(finest[settled], 0.95)),
        "max_over_finest_worst": _rounded(finest[judged].max()),
        "time_to_balance_finest_s": _rounded(_time_to_balance(scenario, balanced)),
        "balanced_share_finest": _rounded(balanced[judged].mean()),
    }


def _time_to_balance(scenario: Scenario, balanced: Bools) -> float | None:
    """Return the seconds from the disturbance until balance holds. None: it never does."""
    first = math.ceil(scenario.judge_from_s / scenario.tick_s - TOLERANCE)
    ticks = math.ceil(HOLD_S / scenario.tick_s - TOLERANCE) + 1  # both ends
    sums = np.append(0, np.cumsum(balanced[first:]))
    held = np.flatnonzero(sums[ticks:] - sums[:-ticks] == ticks)
    return float(first + held[0]) * scenario.tick_s - scenario.judge_from_s if len(held) else None


def _moves(scenario: Scenario, history: OwnershipHistory, moves: Gaps) -> Figures:
    settled = np.count_nonzero(moves.since_s >= scenario.settled_from_s - TOLERANCE)
    return {
        "moves": len(moves),
        "moves_drain": int(np.count_nonzero(moves.drained)),
        "moves_settled_per_hour": _rounded(
            settled * HOUR_S / max(scenario.end_s - scenario.settled_from_s, scenario.tick_s)
        ),
        "moved_bytes_per_s": _rounded(gap_throughputs(history.tree, moves).sum()),
        "undone": count_undone(moves),
        "redundant": count_redundant(history.changes),
    }


def _thrash(series: Series) -> float:
    average = series.mean.mean()
    return float(series.thrash.sum() / (len(series.thrash) * average)) if average > 0 else 0.0


def _cost(scenario: Scenario, history: OwnershipHistory, series: Series, gaps: Gaps) -> Figures:
    length, usage = gaps.length_s, np.nan_to_num(series.usage)
    return {
        "bytes_lost": _rounded((gap_throughputs(history.tree, gaps) * length).sum()),
        "client_seconds_lost": _rounded(
            (gap_clients(history.tree, gaps) * (length + scenario.move.reconnect_s)).sum()
        ),
        "unserved_move_s": _rounded(length[gaps.moved].sum()),
        "orphan_s": _rounded(length[~gaps.moved].sum()),
        "orphans_at_end": int(np.count_nonzero(history.exists & (history.last_owner < 0))),
        "overload_s_85": _rounded(scenario.tick_s * np.count_nonzero(usage > HIGH + TOLERANCE)),
        "overload_s_100": _rounded(scenario.tick_s * np.count_nonzero(usage > FULL + TOLERANCE)),
        "drain_s": _rounded(drain_seconds(scenario, history.changes)),
    }


def _rules_broken(scenario: Scenario, history: OwnershipHistory, series: Series) -> Figures:
    count = Counter(violation.rule for violation in history.violations)
    violations = {
        "isolation_placements": count["isolation_placements"],
        "isolation_bundle_s": _rounded(scenario.tick_s * series.isolation.sum()),
        "anti_affinity_placements": count["anti_affinity_placements"],
        "anti_affinity_broker_s": _rounded(scenario.tick_s * series.anti_affinity.sum()),
        "pinned_moves": count["pinned_moves"],
        "drained_placements": count["drained_placements"],
    }
    return {"violations": violations, "violation_count": len(history.violations)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 6)
