"""The page of a simulation: heat map of usage, imbalance ÷ bound, moves, budgets, losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from lb_stream.cli.report.frame import chart, document, pointer_script, table, tiles
from lb_stream.cli.report.heat import HEAT_KEY, heat_map
from lb_stream.cli.report.svg import line_chart
from lb_stream.cli.simulate.figures import broken, budgets, lost, side_by_side
from lb_stream.io.messages.shown import in_html
from lb_stream.sim.measures import TraceMeasures, judge_trace
from lb_stream.sim.measures.figures import Figures
from lb_stream.sim.measures.series import BALANCED
from lb_stream.sim.measures.verdict import bound_name
from lb_stream.sim.scenario.scenario import Bools, Floats, Ints

MOST_BROKERS = 48
"""Rows of a heat map; more can't be read."""
MOST_POINTS = 400
"""Points of a line; of several ticks the highest value is drawn."""
Column = Bools | Ints | Floats
Runs = Mapping[str, Mapping[str, TraceMeasures]]


def page(runs: Runs) -> str:
    """Return the page. `runs`: scenario → policy → its measures."""
    title = (
        f"Simulation of {next(iter(runs))}"
        if len(runs) == 1
        else f"Simulation of {len(runs)} scenarios"
    )
    when = (
        '<p class="soft">Times since the scenario\'s start, h:min:s. Usage is what is asked of '
        "a broker's scarcest resource.</p>\n"
    )
    body, charts = [f"<h1>{in_html(title)}</h1>{when}"], []
    for name, of in runs.items():
        body.append(_compared(name, of))
        charts.append(_compared_points(name, of))
        for label, measured in of.items():
            body.append(_one(f"{name}/{label}", label, measured))
            charts.append(_points(f"{name}/{label}", measured))
    return document(title, "lbctl simulate", [*body, pointer_script(charts)])


def _compared(name: str, of: Mapping[str, TraceMeasures]) -> str:
    """Return the section that compares the policies in a scenario."""
    first = next(iter(of.values()))
    times = _times(first)
    over = {label: _thinned(measured.shown_over) for label, measured in of.items()}
    over["balanced"] = [BALANCED] * len(times)
    unserved = {label: _thinned(measured.series.unserved) for label, measured in of.items()}
    some = any(measured.series.unserved.any() for measured in of.values())
    moves = {label: _thinned(_moves_in_the_last_minute(measured)) for label, measured in of.items()}
    verdicts = [
        [label, "lost" if verdict.lost else "held", verdict.why]
        for label, measured in of.items()
        for verdict in (judge_trace(measured),)
    ]
    figures = side_by_side({label: measured.figures for label, measured in of.items()})
    judged, settled = (
        f"{value:g} s" for value in (first.scenario.judge_from_s, first.scenario.settled_from_s)
    )
    number = in_html(name)
    what = "bundles" if first.scenario.topics is None else "topics"
    parts = [
        f'<section data-cluster="{number}"><h2>{number}</h2><p>{in_html(first.scenario.why)}</p>',
        f'<p class="soft">The disturbance begins at {judged}; it should be over at {settled}.</p>',
        table(f"verdicts-{name}", "Held or lost", ["policy", "", "why"], verdicts, ""),
        chart(
            "Imbalance against its bound",
            f"Max usage ÷ the lowest that any allowed assignment of all {what} can reach. 1 is the "
            "best that is possible, also while drained brokers still carry bundles.",
            line_chart(f"over-{number}", "imbalance", times, over, "", low=1.0, ranked=False),
        ),
        chart(
            "Moves per minute",
            "Bundles released in the minute before.",
            _low_chart(f"moves-{name}", "moves", times, moves),
        ),
        chart(
            "Bundles without an owner",
            "",
            _low_chart(f"unserved-{name}", "unserved", times, unserved),
        )
        if some
        else "",
        table(f"measures-{name}", "Measures", ["measure", *of], figures, ""),
        "</section>\n",
    ]
    return "".join(parts)


def _one(identity: str, label: str, measured: TraceMeasures) -> str:
    """Return the section of one policy: its brokers, budgets and losses."""
    series, figures, chosen = measured.series, measured.figures, _chosen(measured)
    names = measured.scenario.brokers.names
    usage = {names[row]: _thinned(series.usage[:, row]) for row in chosen}
    drained = {
        names[row]: [
            bool(some) for some in _thinned((~series.available & ~np.isnan(series.usage))[:, row])
        ]
        for row in chosen
    }
    heat = heat_map(
        f"heat-{in_html(identity)}", f"usage of brokers, {label}", _times(measured), usage, drained
    )
    left_out = (
        f" The {len(chosen)} of {len(names)} brokers with the highest mean usage are drawn."
        if len(chosen) < len(names)
        else ""
    )
    worst, took_s = measured.over_median, measured.time_to_balance_s
    shown = [
        (
            "–" if worst is None else f"{worst:.2f}",
            f"max ÷ {bound_name(measured)}, median once settled",
        ),
        ("never" if took_s is None else f"{took_s:g} s", "until balance held"),
        *_tiles_of_splits(figures),
        *_tiles_of_rollout(figures),
        (
            f"{figures['moves']}",
            f"moves, {figures['undone']} undone, {figures['redundant']} redundant",
        ),
        (f"{figures['client_seconds_lost']:,.0f} s", "lost by clients"),
        (
            f"{figures['overload_s_85']:,.0f} s",
            f"of brokers above 85 %, {figures['overload_s_100']:,.0f} s above 100 %",
        ),
        (f"{figures['violation_count'] + figures['budget_breaches']}", "rules and budgets broken"),
    ]
    parts = [
        f'<section data-cluster="{in_html(identity)}"><h2>{in_html(label)}</h2>',
        f'<p class="soft">{in_html(measured.scenario.name)}, '
        f"{in_html(str(judge_trace(measured)))}</p>{tiles(shown)}",
        chart("Usage of brokers", HEAT_KEY + left_out, heat),
        _table(
            f"lost-{identity}",
            "What was lost, and why",
            lost(measured),
            "no bundle was ever without an owner",
        ),
        _budgets(identity, measured),
        _table(f"broken-{identity}", "Rules broken", rules, "")
        if (rules := broken(measured))
        else "",
        "</section>\n",
    ]
    return "".join(parts)


def _tiles_of_splits(figures: Figures) -> list[tuple[str, str]]:
    if not figures.get("splits"):
        return []
    return [(f"{figures['splits']}", f"splits, {figures['splits_idle']} that changed nothing")]


def _tiles_of_rollout(figures: Figures) -> list[tuple[str, str]]:
    """Return how many moves a rollout took, and how long; none without one."""
    per_bundle, took_s = figures.get("rollout_moves_per_bundle"), figures.get("rollout_s")
    if per_bundle is None:
        return []
    took = "not done" if took_s is None else f"{took_s:g} s"
    return [(f"{per_bundle:.2f}", f"moves a bundle in the rollout, {took}")]


def _low_chart(
    identity: str, title: str, times: Sequence[int], lines: Mapping[str, Sequence[float | None]]
) -> str:
    return line_chart(in_html(identity), title, times, lines, "", height=170, ranked=False)


def _budgets(identity: str, measured: TraceMeasures) -> str:
    if not measured.scenario.policies.budgets:
        return ""
    return _table(
        f"budgets-{identity}",
        "Budgets of moves",
        budgets(measured),
        "no bundle of a namespace with a budget moved",
    )


def _table(name: str, title: str, rows: Sequence[Mapping[str, object]], empty: str) -> str:
    return table(
        name, title, list(rows[0]) if rows else [], [list(row.values()) for row in rows], empty
    )


def _chosen(measured: TraceMeasures) -> list[int]:
    """Return the rows of the brokers that are drawn, in the scenario's order."""
    mean = np.nan_to_num(measured.series.usage).mean(axis=0)
    return sorted(np.argsort(-mean, kind="stable")[:MOST_BROKERS].tolist())


def _group(ticks: int) -> int:
    """Return the number of ticks of a point."""
    return math.ceil(ticks / MOST_POINTS)


def _times(measured: TraceMeasures) -> list[int]:
    ticks = measured.scenario.ticks
    return [round(at * measured.scenario.tick_s * 1000) for at in range(0, ticks, _group(ticks))]


def _thinned(line: Column) -> list[float | None]:
    """Return the max of each point's ticks, to three decimals; None: no value."""
    points = np.maximum.reduceat(
        np.asarray(line, np.float64), np.arange(0, len(line), _group(len(line)))
    )
    return [None if math.isnan(value) else round(value, 3) for value in points.tolist()]


def _moves_in_the_last_minute(measured: TraceMeasures) -> Ints:
    ticks = max(1, round(60 / measured.scenario.tick_s))
    return np.convolve(measured.series.moves, np.ones(ticks, np.int64))[
        : len(measured.series.moves)
    ]


def _points(identity: str, measured: TraceMeasures) -> dict[str, object]:
    """Return the data of the pointer's script for one policy: the brokers' usages."""
    series, names = measured.series, measured.scenario.brokers.names
    over, unserved = _thinned(measured.shown_over), _thinned(series.unserved)
    heads = [
        f"{at_ms / 1000:g} s, max/bound {ratio:.2f}, {int(count or 0)} bundles without an owner"
        for at_ms, ratio, count in zip(_times(measured), over, unserved, strict=True)
    ]
    loads = {
        names[row]: [
            None if value is None else round(value, 2) for value in _thinned(series.usage[:, row])
        ]
        for row in _chosen(measured)
    }
    return {
        "cluster": identity,
        "times_ms": _times(measured),
        "heads": heads,
        "loads": loads,
        "divisor": 1,
        "unit": "",
    }


def _compared_points(name: str, of: Mapping[str, TraceMeasures]) -> dict[str, object]:
    """Return the data of the pointer's script for all policies: their imbalance."""
    times = _times(next(iter(of.values())))
    loads = {label: _thinned(measured.shown_over) for label, measured in of.items()}
    heads = [f"{at_ms / 1000:g} s, max/bound" for at_ms in times]
    return {
        "cluster": name,
        "times_ms": times,
        "heads": heads,
        "loads": loads,
        "divisor": 1,
        "unit": "",
    }
