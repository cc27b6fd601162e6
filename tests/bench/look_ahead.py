"""What forecasts are worth to LeastMoves: what it would do if it knew the load some minutes ahead,
or took it from a trend or a profile.

Each scenario is played with the loads as they are (now); with the true loads of so many minutes
later, an oracle that no forecast can beat; with the trend: what a bundle's load has gained on its
short average goes on, unless that is more than half of it, a leap; and with the profile: a bundle's
load changes as its namespace's did a day before, in slots of five minutes. Then forecasts alone are
judged: how far off brokers' cpu demands are, with bundles where they begin. The last line is one
JSON object. docs/decisions/0015-look-ahead.md.

examples:
  two policies on a scenario, five minutes ahead:
    python -m tests.bench.look_ahead SCENARIO --policies LeastMoves calm.toml
  a scenario of two days, with the profile of the first:
    python -m tests.bench.look_ahead DAYS --day-s 86400 --minutes 15
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

from lb_stream.core.least_moves import fleet
from lb_stream.core.model.view import ClusterView, Floats
from lb_stream.sim.families.loads import CPU_BYTES_PER_S, CPU_MSGS_PER_S
from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.reading import read_scenario
from lb_stream.sim.scenario.scenario import Scenario
from lb_stream.sim.simulation import read_policy, run_simulation
from lb_stream.sim.simulation.reports import START_MS

SAMPLES = 10
"""Of the short average: it is as old as SAMPLES - 1 reports."""
LEAP = 0.5
SLOT_S = 300.0
FORECASTS = ("now", "true", "trend", "profile")
SHOWN = (
    "max_over_bound_median",
    "max_over_bound_p95",
    "balanced_share",
    "moves",
    "moves_settled_per_hour",
    "undone",
    "client_seconds_lost",
)

Level = Callable[[ClusterView, float], tuple[Floats, ...]]


@contextmanager
def looking_ahead(
    scenario: Scenario, forecast: str, ahead_s: float, day_s: float | None
) -> Iterator[None]:
    """While it lasts, LeastMoves takes bundles' loads to be what the forecast says."""
    level: Level = fleet._current_rates
    row_of = {name: row for row, name in enumerate(scenario.bundles.names)}
    steps = ahead_s / scenario.report_interval_s / (SAMPLES - 1)
    change = (
        profile(scenario, ahead_s, day_s)
        if forecast == "profile" and day_s
        else oracle(scenario, ahead_s)
    )

    def changed(reported: ClusterView, noise: float) -> tuple[Floats, ...]:
        factor = change((reported.now_ms - START_MS) / 1000)[
            [row_of[name] for name in reported.bundles.names.to_pylist()]
        ]
        return tuple(one * factor for one in level(reported, noise))

    def trend(reported: ClusterView, noise: float) -> tuple[Floats, ...]:
        both = zip(level(reported, noise), reported.bundles.short.columns, strict=True)
        return tuple(_on(now, mean, steps) for now, mean in both)

    with patch.object(
        fleet, "_current_rates", {"now": level, "trend": trend}.get(forecast, changed)
    ):
        yield


def oracle(scenario: Scenario, ahead_s: float) -> Callable[[float], Floats]:
    """By what factor each bundle's load really changes from a moment on."""

    def change(at_s: float) -> Floats:
        now, then = (
            scenario.loads_at(scenario.tick_of(when)).sum(axis=0) for when in (at_s, at_s + ahead_s)
        )
        return _ratio(then, now)

    return change


def profile(scenario: Scenario, ahead_s: float, day_s: float) -> Callable[[float], Floats]:
    """By what factor each bundle's load changes from a moment on if its namespace does what it did,
    as measured, a day before."""
    per_slot = max(1, round(SLOT_S / scenario.report_interval_s))
    namespace = np.unique(scenario.namespaces, return_inverse=True)[1]
    seen = _sums(
        namespace,
        np.stack(
            [
                scenario.loads_at(at).sum(axis=0) * scenario.noise_at(at)[0]
                for at in _ticks(scenario)
            ],
            axis=1,
        ),
    )
    slots = (
        seen[:, : seen.shape[1] // per_slot * per_slot]
        .reshape(len(seen), -1, per_slot)
        .mean(axis=2)
    )
    last = slots.shape[1] - 1

    def load(at_s: float) -> Floats:
        part, low = np.modf(np.clip(at_s / (per_slot * scenario.report_interval_s) - 0.5, 0, last))
        found: Floats = (1.0 - part) * slots[:, int(low)] + part * slots[:, min(int(low) + 1, last)]
        return found

    def change(at_s: float) -> Floats:
        before = at_s - day_s
        return (
            _ratio(load(before + ahead_s), load(before))[namespace]
            if before >= 0
            else np.ones(len(namespace))
        )

    return change


def _ratio(then: Floats, now: Floats) -> Floats:
    return np.divide(then, now, out=np.ones(len(now)), where=now > 0)


def _ticks(scenario: Scenario) -> list[int]:
    """The ticks of a broker's reports."""
    return [
        scenario.tick_of(at * scenario.report_interval_s)
        for at in range(int(scenario.end_s // scenario.report_interval_s))
    ]


def _on(now: Floats, mean: Floats, steps: float) -> Floats:
    """What has been gained on the average goes on, but leaps."""
    gained = now - mean
    found: Floats = np.maximum(
        now + steps * np.where(np.abs(gained) <= LEAP * mean, gained, 0.0), 0.0
    )
    return found


def errors(scenario: Scenario, ahead_s: float, day_s: float | None) -> dict[str, float]:
    """Root mean square error of brokers' demands that far ahead, ÷ the mean demand, by forecast.

    Reports are as noisy as the scenario's.
    """
    ticks, every_s = _ticks(scenario), scenario.report_interval_s
    loads = [scenario.loads_at(tick) for tick in ticks]
    true = np.stack(
        [
            (load[0] + load[1]) / CPU_MSGS_PER_S + (load[2] + load[3]) / CPU_BYTES_PER_S
            for load in loads
        ],
        axis=1,
    )
    seen = true * np.stack([scenario.noise_at(tick)[0] for tick in ticks], axis=1)
    ahead, begin = round(ahead_s / every_s), 4 * SAMPLES
    found = {"now": seen, "trend": _on(seen, _short(seen), ahead / (SAMPLES - 1))}
    if day_s:
        change, begin = profile(scenario, ahead_s, day_s), max(begin, round(day_s / every_s))
        found["profile"] = seen * np.stack(
            [change(at * every_s) for at in range(len(ticks))], axis=1
        )
    owner = scenario.bundles.start_owner
    then = _sums(owner, true)[:, begin + ahead :]
    return {
        name: float(
            np.sqrt(np.mean((_sums(owner, one)[:, begin:-ahead] - then) ** 2)) / then.mean()
        )
        for name, one in found.items()
    }


def _short(seen: Floats) -> Floats:
    """The short average of each bundle after each report."""
    short = seen.copy()
    for at in range(1, seen.shape[1]):
        count = min(at + 1, SAMPLES)
        short[:, at] = ((count - 1) * short[:, at - 1] + seen[:, at]) / count
    return short


def _sums(group: np.ndarray[Any, Any], values: Floats) -> Floats:
    """Sums over rows of each group; rows of group -1 count nowhere."""
    found = np.zeros((int(group.max()) + 1, values.shape[1]))
    np.add.at(found, group[group >= 0], values[group >= 0])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all, print two tables, then the JSON line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.look_ahead",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.description = __doc__
    parser.add_argument("scenarios", type=Path, nargs="+", help="folders of scenarios")
    parser.add_argument(
        "--policies",
        nargs="+",
        default=["LeastMoves"],
        metavar="POLICY",
        help="LeastMoves, or files with its settings",
    )
    parser.add_argument(
        "--forecasts",
        nargs="+",
        default=None,
        choices=FORECASTS,
        help="default: all; the profile only with --day-s",
    )
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="how far ahead, minutes (default: %(default)s)"
    )
    parser.add_argument(
        "--day-s", type=float, default=None, help="length of a day, for the profile"
    )
    options = parser.parse_args(arguments)
    forecasts = options.forecasts or FORECASTS[: 4 if options.day_s else 3]
    if "profile" in forecasts and not options.day_s:
        parser.error("--forecasts profile: expected --day-s, too")
    ahead_s, played = options.minutes * 60, Table("scenario", "policy", "forecast", *SHOWN)
    judged, found = Table("scenario", "forecast", "error"), dict[str, Any]()
    for folder in options.scenarios:
        scenario = read_scenario(folder)
        if not 0 < ahead_s < scenario.end_s / 2:
            parser.error(
                f"--minutes: {options.minutes:g}; {scenario.name} lasts {scenario.end_s / 60:g}, "
                "expected less than half of it"
            )
        if options.day_s and scenario.end_s < 2 * options.day_s:
            parser.error(
                f"--day-s: {options.day_s:g} s; {scenario.name} lasts {scenario.end_s:g} s, "
                "expected two days at least"
            )
        off = errors(scenario, ahead_s, options.day_s)
        for name, one in off.items():
            judged.add_row(scenario.name, name, f"{one:.1%}")
        found[scenario.name] = {"errors": off}
        for policy in options.policies:
            for forecast in forecasts:
                with looking_ahead(scenario, forecast, ahead_s, options.day_s):
                    measures = measure_figures(
                        scenario, run_simulation(scenario, read_policy(policy)).lines
                    )
                played.add_row(
                    scenario.name, policy, forecast, *(f"{measures[name]:.6g}" for name in SHOWN)
                )
                found[scenario.name].setdefault(policy, {})[forecast] = {
                    name: measures[name] for name in SHOWN
                }
    for table in (played, judged):
        Console(width=200).print(table)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
