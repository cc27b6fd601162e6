"""A verdict on a trace in one line: whether the scenario was held or lost, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from lb_stream.sim.measures.figures import TraceMeasures
from lb_stream.sim.measures.series import BALANCED

VIOLATIONS = {
    "isolation_placements": "bundles placed outside of their isolation policy",
    "anti_affinity_placements": "bundles placed beside another namespace of their anti-affinity "
    "group",
    "pinned_moves": "moves of pinned bundles",
    "drained_placements": "bundles placed at drained brokers",
}
"""Rule → description of its violations, after their number."""


@dataclass(frozen=True, slots=True)
class ScenarioVerdict:
    """Whether a policy lost a scenario, and why; or how it held the scenario."""

    lost: bool
    why: str

    def __str__(self) -> str:
        return f"{'lost' if self.lost else 'held'}: {self.why}"


def judge_trace(measured: TraceMeasures) -> ScenarioVerdict:
    """Judge a trace. It holds the scenario if none of these goes wrong.

    Balance is reached by the scenario's time and mostly kept; no bundle is unassigned at the end;
    the rollout is done; no rule is broken.
    """
    reasons = [
        *_explain_imbalance(measured),
        *_explain_unassigned(measured),
        *_explain_rollout(measured),
        *_explain_violations(measured),
    ]
    if reasons:
        return ScenarioVerdict(True, "; ".join(reasons))
    figures, took_s = measured.figures, measured.time_to_balance_s
    took = f"balanced after {took_s:g} s" if took_s else "balanced all along"
    splits = f", {figures['splits']} splits" if figures.get("splits") else ""
    return ScenarioVerdict(
        False,
        f"{took}, {figures['moves']} moves{splits}; median of max/{bound_name(measured)} "
        f"{measured.over_median:.2f}",
    )


def bound_name(measured: TraceMeasures) -> str:
    """Return what messages call the bound to judge by."""
    return "bound" if measured.scenario.topics is None else "bound with any splits"


def _explain_imbalance(measured: TraceMeasures) -> list[str]:
    scenario, took, ratio = measured.scenario, measured.time_to_balance_s, measured.over_median
    if took is None:
        return [
            "never balanced for 5 minutes on end: "
            f"{_describe_worst(measured)}{_describe_idle(measured)}"
        ]
    allowed = scenario.settled_from_s - scenario.judge_from_s
    if took > allowed:
        return [f"balanced after {took:g} s, expected {allowed:g} s"]
    if ratio is not None and ratio > BALANCED:
        return [f"balance was lost again: {_describe_worst(measured)}{_describe_idle(measured)}"]
    return []


def _describe_worst(measured: TraceMeasures) -> str:
    """Describe the worst tick after the disturbance should be over; of all ticks if none is."""
    series = measured.series
    since = np.flatnonzero(series.t_s >= measured.scenario.settled_from_s)
    since = since if len(since) else np.arange(len(series.t_s))
    over = measured.over
    tick = int(since[np.argmax(over[since])])
    if over[tick] <= BALANCED:  # then bundles without an owner were in the way
        tick = int(since[np.argmax(series.orphaned[since])])
        return f"{series.orphaned[tick]} bundles without an owner at {series.t_s[tick]:g} s"
    broker = measured.scenario.brokers.names[int(np.nanargmax(series.usage[tick]))]
    return (
        f"max usage {over[tick]:.2f} of the {bound_name(measured)} "
        f"at {series.t_s[tick]:g} s, {broker} at {series.max_usage[tick]:.0%}"
    )


def _describe_idle(measured: TraceMeasures) -> str:
    """Describe the longest imbalance without a move; empty below an eighth of the scenario."""
    series, scenario = measured.series, measured.scenario
    judged = ~measured.balanced & (series.moves == 0) & (series.t_s >= scenario.judge_from_s)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], judged, [0]])))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins) or (ends - begins).max() * 8 < scenario.ticks:
        return ""
    longest = int(np.argmax(ends - begins))
    minutes = (ends - begins)[longest] * scenario.tick_s / 60
    return f"; no move in {minutes:.0f} min from {series.t_s[begins[longest]]:g} s on"


def _explain_unassigned(measured: TraceMeasures) -> list[str]:
    gaps = measured.gaps.where(measured.gaps.destination < 0)
    left = measured.figures["orphans_at_end"]
    if not left:
        return []
    if not len(gaps):
        return [f"{left} bundles never had an owner"]
    why = (
        "released"
        if gaps.moved[0]
        else f"{measured.scenario.brokers.names[gaps.source[0]]} went down"
    )
    return [
        f"{left} bundles without an owner at the end, the first since {gaps.since_s[0]:g} s ({why})"
    ]


def _explain_rollout(measured: TraceMeasures) -> list[str]:
    share, rollout = measured.figures.get("rollout_share"), measured.scenario.rollout
    if share is None or rollout is None or share == 1:
        return []
    count = len(rollout.brokers)
    return [f"{round(share * count)} of the rollout's {count} brokers were restarted and are back"]


def _explain_violations(measured: TraceMeasures) -> list[str]:
    count = Counter(violation.rule for violation in measured.history.violations)
    found = [f"{count[rule]} {text}" for rule, text in VIOLATIONS.items() if count[rule]]
    above = measured.figures["budget_breaches"]
    return [*found, f"{above} moves above budgets"] if above else found
