"""In one line: was the disturbance over when it should be, with all rules kept; if not, what was in
the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from lb_stream.sim.measures.figures import TraceMeasures
from lb_stream.sim.measures.series import BALANCED

BROKEN = {
    "isolation_placements": "bundles placed outside of their isolation policy",
    "anti_affinity_placements": "bundles placed beside another namespace of their anti-affinity "
    "group",
    "pinned_moves": "moves of pinned bundles",
    "drained_placements": "bundles placed at drained brokers",
}
"""What each rule that was broken is called, counted."""


@dataclass(frozen=True, slots=True)
class ScenarioVerdict:
    """Whether a scenario is lost, and why; or how it was held."""

    lost: bool
    why: str

    def __str__(self) -> str:
        return f"{'lost' if self.lost else 'held'}: {self.why}"


def judge_trace(done: TraceMeasures) -> ScenarioVerdict:
    """Held: balanced by the time that the scenario gives, mostly balanced since then, nobody left
    without an owner, no rule broken."""
    reasons = [*_imbalance(done), *_left_alone(done), *_broken(done)]
    if reasons:
        return ScenarioVerdict(True, "; ".join(reasons))
    figures = done.figures
    took = (
        f"balanced after {figures['time_to_balance_s']:g} s"
        if figures["time_to_balance_s"]
        else "balanced all along"
    )
    return ScenarioVerdict(
        False,
        f"{took}, {figures['moves']} moves; median of max/bound "
        f"{figures['max_over_bound_median']:.2f}",
    )


def _imbalance(done: TraceMeasures) -> list[str]:
    scenario, figures = done.scenario, done.figures
    took, ratio = figures["time_to_balance_s"], figures["max_over_bound_median"]
    if took is None:
        return [f"never balanced for 5 minutes on end: {_worst(done)}{_idle(done)}"]
    allowed = scenario.settled_from_s - scenario.judge_from_s
    if took > allowed:
        return [f"balanced after {took:g} s, expected {allowed:g} s"]
    if ratio is not None and ratio > BALANCED:
        return [f"balance was lost again: {_worst(done)}{_idle(done)}"]
    return []


def _worst(done: TraceMeasures) -> str:
    """The worst moment of the time in which it should be over (of all, if that is no time at all):
    who was asked for how much."""
    series = done.series
    since = np.flatnonzero(series.t_s >= done.scenario.settled_from_s)
    since = since if len(since) else np.arange(len(series.t_s))
    tick = int(since[np.argmax(series.max_over_bound[since])])
    if series.max_over_bound[tick] <= BALANCED:  # then bundles without an owner were in the way
        tick = int(since[np.argmax(series.orphaned[since])])
        return f"{series.orphaned[tick]} bundles without an owner at {series.t_s[tick]:g} s"
    broker = done.scenario.brokers.names[int(np.nanargmax(series.usage[tick]))]
    return (
        f"greatest usage {series.max_over_bound[tick]:.2f} of the bound "
        f"at {series.t_s[tick]:g} s, {broker} at {series.greatest[tick]:.0%}"
    )


def _idle(done: TraceMeasures) -> str:
    """The longest time without a move, of what wasn't balanced, if it is an eighth of the scenario
    or more."""
    series, scenario = done.series, done.scenario
    judged = ~series.balanced & (series.moves == 0) & (series.t_s >= scenario.judge_from_s)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], judged, [0]])))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins) or (ends - begins).max() * 8 < scenario.ticks:
        return ""
    longest = int(np.argmax(ends - begins))
    minutes = (ends - begins)[longest] * scenario.tick_s / 60
    return f"; no move in {minutes:.0f} min from {series.t_s[begins[longest]]:g} s on"


def _left_alone(done: TraceMeasures) -> list[str]:
    nobodys = done.gaps.of(done.gaps.destination < 0)
    left = done.figures["orphans_at_end"]
    if not left:
        return []
    if not len(nobodys):
        return [f"{left} bundles never had an owner"]
    why = (
        "released"
        if nobodys.moved[0]
        else f"{done.scenario.brokers.names[nobodys.source[0]]} went down"
    )
    return [
        f"{left} bundles without an owner at the end, the first since {nobodys.since_s[0]:g} s "
        f"({why})"
    ]


def _broken(done: TraceMeasures) -> list[str]:
    count = Counter(broken.rule for broken in done.history.breaks)
    broken = [f"{count[rule]} {words}" for rule, words in BROKEN.items() if count[rule]]
    above = done.figures["budget_breaches"]
    return [*broken, f"{above} moves above budgets"] if above else broken
