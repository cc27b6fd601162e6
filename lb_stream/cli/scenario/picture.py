"""A scenario as a picture: load over time, brokers at the start, events and faults."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from lb_stream.cli.scenario.facts import ScenarioFacts
from lb_stream.cli.shared.output import CommandError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE_WIDTH = 130
BOUND = "bound: no allowed assignment to brokers that are not drained does with less"
FINEST = "the same with any splits"
MOST_NAMES = 40
"""Brokers that have room for their names."""
_COLOURS = {
    "max_usage": "#d1540a",
    "mean": "#0b6fb8",
    "bound": "#1c2430",
    "finest": "#2e7d4f",
    "event": "#c23b3b",
    "fault": "#b7791f",
}


def draw(facts: ScenarioFacts, path: Path) -> None:
    """Write a PNG file. Raises CommandError where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise CommandError(
            "--png needs matplotlib: pip install 'lb_stream[pictures]'; --html needs nothing", 2
        ) from None
    figure = Figure(figsize=(12, 8), layout="constrained")
    over_time, brokers = figure.subplots(2, 1, height_ratios=[3, 2])
    title = fill(f"{facts.scenario.name}: {facts.scenario.why}", TITLE_WIDTH)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left", parse_math=False)
    _over_time(over_time, facts)
    _at_start(brokers, facts)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _over_time(axes: Axes, facts: ScenarioFacts) -> None:
    """Usages if nothing is moved; what happens as lines and shades."""
    series, minutes = facts.series, facts.series.t_s / 60
    mean, label = series.available_mean, "mean of the brokers that are not drained"
    axes.plot(minutes, mean, color=_COLOURS["mean"], label=label, linewidth=4, alpha=0.35)
    axes.plot(
        minutes,
        series.max_usage,
        color=_COLOURS["max_usage"],
        label="busiest broker",
        linewidth=1.6,
    )
    axes.plot(minutes, series.bound, color=_COLOURS["bound"], label=BOUND, linestyle="--")
    if facts.finest is not None:
        colour = _COLOURS["finest"]
        axes.plot(minutes, facts.finest, color=colour, label=FINEST, linestyle=":", linewidth=1.8)
    top = 1.3 * max(
        float(series.max_usage.max()), float(series.bound.max()), 1e-9
    )  # events have their names above the lines
    axes.set(
        xlim=(0, facts.scenario.end_s / 60),
        ylim=(0, top),
        xlabel="minutes",
        ylabel="usage, 1 is full",
    )
    axes.set_title("If nothing is moved", loc="left", fontsize=10)
    axes.axhline(1, color="#999999", linewidth=0.8)
    for fault in facts.scenario.faults:
        axes.axvspan(
            fault.from_s / 60,
            min(fault.to_s, facts.scenario.end_s) / 60,
            color=_COLOURS["fault"],
            alpha=0.12,
            linewidth=0,
        )
        word = f"{fault.kind}, {len(fault.brokers)} brokers"
        axes.annotate(
            word,
            (fault.from_s / 60, 0),
            (3, 4),
            textcoords="offset points",
            fontsize=7,
            color=_COLOURS["fault"],
        )
    for at, (t_s, word) in enumerate(_together(facts)):
        axes.axvline(t_s / 60, color=_COLOURS["event"], linewidth=0.9, alpha=0.7)
        place = (3, -10 - 10 * (at % 4))
        axes.annotate(
            word,
            (t_s / 60, top),
            place,
            textcoords="offset points",
            fontsize=7,
            color=_COLOURS["event"],
            parse_math=False,
        )
    for t_s, word in (
        (facts.scenario.judge_from_s, "judged"),
        (facts.scenario.settled_from_s, "settled"),
    ):
        axes.axvline(t_s / 60, color="#999999", linewidth=0.8, linestyle=":")
        axes.annotate(
            word, (t_s / 60, 0), (3, 16), textcoords="offset points", fontsize=7, color="#777777"
        )
    axes.legend(fontsize=8, loc="lower right")


def _together(facts: ScenarioFacts) -> list[tuple[float, str]]:
    """Moments with events → what happens then."""
    found: dict[float, list[str]] = {}
    for event in facts.scenario.events:
        host = facts.scenario.brokers.names[event.broker].rpartition(":")[0]
        found.setdefault(event.t_s, []).append(f"{event.kind} {host}")
    rollout = facts.scenario.rollout
    if rollout is not None:
        found.setdefault(rollout.t_s, []).append(f"rollout of {len(rollout.brokers)}")
    return [
        (t_s, words[0] + (f" and {len(words) - 1} more" if len(words) > 1 else ""))
        for t_s, words in found.items()
    ]


def _at_start(axes: Axes, facts: ScenarioFacts) -> None:
    """Each broker's demand, the busiest first."""
    rows = facts.brokers()
    places = np.arange(len(rows))
    axes.bar(
        places,
        [row["usage"] for row in rows],
        color=_COLOURS["mean"],
        width=0.8 if len(rows) <= MOST_NAMES else 1.0,
    )
    if any(row["background"] for row in rows):
        axes.bar(
            places,
            [row["background"] for row in rows],
            color=_COLOURS["fault"],
            width=0.8 if len(rows) <= MOST_NAMES else 1.0,
            label="cpu that no bundle causes",
        )
        axes.legend(fontsize=8, loc="upper right")
    axes.axhline(1, color="#999999", linewidth=0.8)
    axes.axhline(
        float(facts.series.bound[0]), color=_COLOURS["bound"], linestyle="--", linewidth=1.2
    )
    axes.set_title(
        "At the start: what each broker is asked for, of what it can carry; -- the bound",
        loc="left",
        fontsize=10,
    )
    axes.set(ylabel="usage", xlim=(-0.6, len(rows) - 0.4))
    if len(rows) <= MOST_NAMES:
        labels = [
            row["broker"].rpartition(":")[0] + ("" if row["up"] else " (down)") for row in rows
        ]
        axes.set_xticks(places, labels, rotation=45, ha="right", fontsize=7, parse_math=False)
    else:
        axes.set_xlabel(f"{len(rows)} brokers")
