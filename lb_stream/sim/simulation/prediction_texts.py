"""Texts about predictions: their figures with units, and a verdict in one sentence.

`lbctl what-if`, previews and the console show these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lb_stream.sim.simulation.prediction import AS_IT_IS, CHANGED, Prediction

SAME_USAGE = 0.0005
"""Max usages that differ by no more than this count as equal: they are shown with three digits."""


class Figure(NamedTuple):
    """A figure that is shown: its title, and its unit (empty: a number)."""

    title: str
    unit: str = ""


FIGURES = {
    "usage_max_now": Figure("max usage now", "ratio"),
    "usage_max_after": Figure("max usage at the end", "ratio"),
    "max_over_mean_now": Figure("max ÷ mean now", "quotient"),
    "max_over_mean_after": Figure("max ÷ mean at the end", "quotient"),
    "moves": Figure("moves"),
    "moved_bytes_per_s": Figure("traffic moved", "bytes/s"),
    "clients_disturbed": Figure("clients disturbed"),
    "client_seconds_lost": Figure("time lost by clients, summed", "s"),
    "failovers": Figure("bundles of dead brokers that others took"),
    "drain_s": Figure("time until drained brokers are empty", "s"),
    "left_bundles": Figure("bundles left at drained brokers"),
    "violation_count": Figure("rules broken"),
}
"""Figure of a prediction that is shown → its title and unit."""


def format_figure(value: float | None, unit: str = "") -> str:
    """Return a figure as a text for people: 61.0 %, 220 MB/s, 1.16, 12 s, 1,234."""
    if value is None:
        return "–"
    if unit == "ratio":
        return f"{100 * value:.1f} %"
    if unit == "bytes/s":
        return f"{value / 1e6:,.1f} MB/s"
    if unit == "quotient":
        return f"{value:.2f}"
    text = f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.1f}"
    return f"{text} {unit}".rstrip()


def describe_verdict(predictions: Mapping[str, Prediction]) -> str:
    """Return whether the changed cluster carries its load, at which usage, and by which moves."""
    before, after = (predictions[name].figures for name in (AS_IT_IS, CHANGED))
    usage = f"the busiest broker would be at {format_figure(after['usage_max_after'], 'ratio')}"
    if abs(after["usage_max_after"] - before["usage_max_after"]) <= SAME_USAGE:
        usage += ", as without the change"
    else:
        usage += f" instead of {format_figure(before['usage_max_after'], 'ratio')}"
    moves = "no moves"
    if count := after["moves"]:
        traffic = format_figure(after["moved_bytes_per_s"], "bytes/s")
        moves = f"{count:,} move{'s' if count > 1 else ''} of {traffic}"
    if after["fits"]:
        return f"Fits: {usage}; {moves}."
    left = after["left_bundles"] or 0
    stay = f"{left:,} bundle{'s' if left > 1 else ''} would stay at drained brokers; "
    return f"Doesn't fit: {stay if left else ''}{usage}; {moves}."
