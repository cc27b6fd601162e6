"""The page of a back-test: policies side by side, imbalance and moves, windows, failures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lb_stream.backtest.trial import compare_policies
from lb_stream.cli.report.frame import chart, document, pointer_script, table
from lb_stream.cli.report.svg import line_chart, scatter_chart
from lb_stream.cli.simulate.figures import figure, side_by_side
from lb_stream.io.messages.shown import in_html
from lb_stream.io.messages.times import utc
from lb_stream.sim.measures.series import BALANCED

Row = Mapping[str, Any]
"""A row of `backtests`."""
Chart = dict[str, object]
"""The data of one chart, for the pointer's script."""
SHOWN = {
    "max_over_bound_median": "max/bound",
    "max_over_bound_p95": "(p95)",
    "balanced_share": "balanced",
    "moves": "moves",
    "client_seconds_lost": "client-s lost",
    "overload_s_85": "broker-s > 85%",
    "violation_count": "rules broken",
}
"""Measure → head of its column."""


def page(run: str, rows: Sequence[Row]) -> str:
    """Return the page of one run's rows of `backtests`."""
    means = compare_policies(rows)
    clusters = sorted({row["cluster"] for row in rows})
    title = (
        f"Back-test of {clusters[0]}"
        if len(clusters) == 1
        else f"Back-test of {len(clusters)} clusters"
    )
    text = (
        f"{describe_windows(rows)}; run {run} in the table backtests. Times in UTC; figures are "
        "means over windows."
    )
    failed = [
        [row["policy"], _where(row), row["error"].splitlines()[-1]]
        for row in rows
        if row["error"] is not None
    ]
    body = [
        f'<h1>{in_html(title)}</h1><p class="soft">{in_html(text)}</p>\n',
        table(
            "policies",
            "Policies, the evenest first",
            ["policy", *SHOWN.values()],
            [[mean["policy"], *cells(mean)] for mean in means],
            "",
        ),
        _scatter(means, rows),
        table("failed", "Trials that failed", ["policy", "window", "why"], failed, "")
        if failed
        else "",
    ]
    charts: list[Chart] = []
    order = [mean["policy"] for mean in means]
    for cluster in clusters:
        section, points = _cluster(
            cluster,
            order,
            [row for row in rows if row["cluster"] == cluster and row["error"] is None],
        )
        body.append(section)
        charts += points
    return document(title, "lbctl backtest", [*body, pointer_script(charts)])


def cells(row: Row) -> list[str]:
    """Return the measures of SHOWN as texts; values from 10 on are rounded to whole numbers."""
    values = (row[name] for name in SHOWN)
    return [figure(value if value is None or abs(value) < 10 else round(value)) for value in values]


def describe_windows(rows: Iterable[Row]) -> str:
    """Describe the windows: their number, clusters and time."""
    spans = {(row["cluster"], row["from_ms"], row["to_ms"]) for row in rows}
    clusters = ", ".join(sorted({cluster for cluster, _, _ in spans}))
    begin, end = min(begin for _, begin, _ in spans), max(end for _, _, end in spans)
    return (
        f"{len(spans)} window{'s' if len(spans) > 1 else ''} of {clusters}, {utc(begin)} to "
        f"{utc(end)}"
    )


def _where(row: Row) -> str:
    return f"{row['cluster']} from {utc(row['from_ms'])}"


def _scatter(means: Sequence[Row], rows: Sequence[Row]) -> str:
    """Return the chart of each policy's mean, and of its windows where there are several."""
    points: dict[str, list[tuple[float, float, str]]] = {}
    for mean in means:
        own = [
            row
            for row in rows
            if row["policy"] == mean["policy"] and row["max_over_bound_median"] is not None
        ]
        if mean["max_over_bound_median"] is not None:
            points[mean["policy"]] = [
                _point(mean, mean["policy"]),
                *(_point(row, _where(row)) for row in own if len(own) > 1),
            ]
    if not points:
        return ""
    text = (
        "Down and to the left is better. Large: the mean of a policy; small: its windows. 1 is the "
        "best that is possible."
    )
    return chart(
        "Imbalance against moves",
        text,
        scatter_chart("scatter", "imbalance against moves", points, "moves", "max ÷ bound"),
    )


def _point(row: Row, name: str) -> tuple[float, float, str]:
    moves, ratio = float(row["moves"]), float(row["max_over_bound_median"])
    return (
        moves,
        ratio,
        f"{name}: max/bound {ratio:.3f}, {moves:,.0f} moves, {row['client_seconds_lost']:,.0f} "
        "client-seconds lost",
    )


def _cluster(cluster: str, order: Sequence[str], rows: Sequence[Row]) -> tuple[str, list[Chart]]:
    """Return a cluster's section, and the data of the pointer's script.

    With several windows the section shows each of them, with one window all measures.
    """
    times = sorted({row["from_ms"] for row in rows})
    at = {(row["policy"], row["from_ms"]): row for row in rows}
    shown = [at[policy, time] for time in times for policy in order if (policy, time) in at]
    name = in_html(cluster)
    if len(times) <= 1:
        return f"<section><h2>{name}</h2>{_measures_table(cluster, shown)}</section>\n", []
    lines = {
        policy: [
            at[policy, time]["max_over_bound_median"] if (policy, time) in at else None
            for time in times
        ]
        for policy in order
    }
    section = (
        f'<section data-cluster="{name}"><h2>{name}</h2>{_windows_chart(name, times, lines)}'
        f"{_windows_table(cluster, shown)}</section>\n"
    )
    data: Chart = {
        "cluster": cluster,
        "times_ms": times,
        "heads": [f"window from {utc(time)}, max/bound" for time in times],
        "loads": lines,
        "divisor": 1,
        "unit": "",
    }
    return section, [data]


def _windows_chart(
    name: str, times: Sequence[int], lines: Mapping[str, Sequence[float | None]]
) -> str:
    """Return the chart of imbalance in each window; `lines`: policy → its figures."""
    drawn = line_chart(
        f"windows-{name}",
        "imbalance",
        times,
        {**lines, "balanced": [BALANCED] * len(times)},
        "",
        low=1.0,
        ranked=False,
    )
    text = "The median of max ÷ bound of each window, at its begin."
    return chart("Imbalance, window by window", text, drawn)


def _windows_table(cluster: str, rows: Sequence[Row]) -> str:
    return table(
        f"windows-{cluster}",
        "Windows",
        ["from", "policy", *SHOWN.values()],
        [[utc(row["from_ms"]), row["policy"], *cells(row)] for row in rows],
        "no trial was done",
    )


def _measures_table(cluster: str, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    measures = side_by_side({row["policy"]: json.loads(row["measures"]) for row in rows})
    return table(
        f"measures-{cluster}",
        "All measures",
        ["measure", *(row["policy"] for row in rows)],
        measures,
        "",
    )
