"""A scenario as one HTML page that needs nothing else."""

from __future__ import annotations

from lb_stream.cli.report.frame import chart, document, tiles
from lb_stream.cli.report.svg import bar_chart, line_chart, mark_chart
from lb_stream.cli.scenario.facts import Facts, ScenarioFacts
from lb_stream.io.messages.shown import in_html

MOST_BARS = 60
_STYLE_OF = {"crash": "failed", "leave": "failed", "drain": "open", "slow": "open"}


def _describe_broker(row: Facts) -> str:
    """Describe a broker at the start beside its bar."""
    busy = f", {row['background']:.0%} of its cpu taken" if row["background"] else ""
    return f"{row['bundles']} bundles" + ("" if row["up"] else ", down") + busy


def page(facts: ScenarioFacts) -> str:
    """The whole page. Its clock begins with the scenario, at 00:00."""
    given, series = facts.scenario, facts.series
    times_ms = [round(t_s * 1000) for t_s in series.t_s.tolist()]
    lines = {
        "busiest broker": series.max_usage.tolist(),
        "mean, drained brokers left out": series.available_mean.tolist(),
        "bound": series.bound.tolist(),
    }
    if facts.finest is not None:
        lines["bound if split"] = facts.finest.tolist()
    marks: dict[str, list[tuple[int, str, str]]] = {}
    for event in given.events:
        text = f"{event.t_s:g} s: {facts.event(event)}"
        marks.setdefault(event.kind, []).append(
            (round(event.t_s * 1000), _STYLE_OF.get(event.kind, "confirmed"), text)
        )
    if given.rollout is not None:
        at_ms = round(given.rollout.t_s * 1000)
        text = f"{given.rollout.t_s:g} s: {facts.rollout(given.rollout)}"
        marks["rollout"] = [(at_ms, "open", text)]
    for fault in given.faults:
        for t_s, word in ((fault.from_s, "begins"), (min(fault.to_s, given.end_s), "ends")):
            marks.setdefault(fault.kind, []).append(
                (round(t_s * 1000), "open", f"{t_s:g} s: {facts.fault(fault)} {word}")
            )
    rows = facts.brokers()
    bars = [(row["broker"], _describe_broker(row), row["usage"]) for row in rows[:MOST_BARS]]
    summary = facts.summary()
    figures = [
        (f"{summary['brokers_up']} of {summary['brokers']}", "brokers are up"),
        (f"{summary['bundles']:,}", "bundles"),
        (f"{given.end_s / 60:g}", "minutes"),
        (f"{series.max_usage[0]:.2f}", "usage of the busiest broker at the start"),
        (f"{series.bound[0]:.2f}", "its bound: no allowed assignment does with less"),
    ]
    if facts.finest is not None:
        figures.append((f"{facts.finest[0]:.2f}", "its bound with any splits"))
    more = (
        f'<p class="soft">The {MOST_BARS} busiest of {len(rows)} brokers.</p>'
        if len(rows) > MOST_BARS
        else ""
    )
    return document(
        given.name,
        "lbctl scenario show",
        [
            f"<h1>{in_html(given.name)}</h1><p "
            f'class="soft">{in_html(given.why)}</p>\n{tiles(figures)}',
            chart(
                "Usage if nothing is moved",
                "1 is full.",
                line_chart("usage", "Usage over time", times_ms, lines, "usage"),
            ),
            chart("What happens", "", mark_chart("marks", "Events and faults", times_ms, marks))
            if marks
            else "",
            "<h3>What each broker is asked for at the start</h3>",
            f'<div class="scroll">{bar_chart("start", "At the start", bars, "usage")}</div>{more}',
            *(f'<p class="open">{in_html(note)}</p>' for note in facts.notes()),
        ],
    )
