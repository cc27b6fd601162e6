"""The page of `lbctl assess`: a verdict, its figures, and what they follow from."""

from __future__ import annotations

from collections.abc import Sequence

from lb_stream.assess.assessment import Assessment
from lb_stream.assess.evenness import Evenness
from lb_stream.assess.hot_brokers import describe_traffic
from lb_stream.assess.plays import Play
from lb_stream.cli.report.frame import chart, document, pointer_script, table, tiles
from lb_stream.cli.report.heat import HEAT_KEY, heat_map
from lb_stream.cli.report.svg import line_chart
from lb_stream.core.model.followed_profile import describe_versions
from lb_stream.io.messages.shown import in_html
from lb_stream.io.messages.times import utc
from lb_stream.sim.measures.series import BALANCED

MOST_MOVES = 100
MOST_NOTES = 30
SMALL_ERROR = 0.02
"""Errors below this are shown with a decimal."""
FEWEST_SLOTS = 3
"""With fewer slots nothing is drawn over time."""
KINDS = {
    "never": "can't trigger",
    "contradiction": "contradiction",
    "off": "off",
    "excluded": "excluded",
    "idle": "idle",
    "differs": "brokers differ",
    "waits": "not reached",
    "unread": "no effect",
}
"""Kind of a finding about settings → its name on the page, the gravest first."""


def page(found: Assessment) -> str:
    """Return the page."""
    seen = found.observed
    kind = "failed" if found.is_uneven else "confirmed" if found.can_tell else "pending"
    span = f"{utc(seen.from_ms)} to {utc(seen.to_ms)}"
    versions = describe_versions(seen.versions)
    of_versions = f" ({versions})" if versions else ""
    what = (
        f"{seen.cluster}: {seen.brokers} brokers{of_versions}, {seen.bundles:,} bundles, "
        f"{seen.reports:,} load reports of {span}, times in UTC; from {found.source}. Nothing was "
        "written to the cluster."
    )
    name = in_html(seen.cluster)
    first, _, more = found.verdict.partition(". ")
    heading = f'<h1 class="{kind}">{in_html(f"{first}." if more else first)}</h1>'
    body = [
        heading + (f"<p>{in_html(more)}</p>" if more else ""),
        f'<p class="soft">{in_html(what)}</p>\n',
        tiles(_build_tiles(found)),
        f'<section data-cluster="{name}">',
        *_build_evenness(found, name),
        _build_hot(found, name),
        "</section>\n",
        _build_doubts(found),
        _build_settings(found),
        _build_moves(found),
        _build_plays(found),
        _build_next(found),
        _build_notes(found),
    ]
    return document(
        f"Assessment of {seen.cluster}",
        "lbctl assess",
        [*body, pointer_script(_build_pointer(found))],
    )


def _build_tiles(found: Assessment) -> list[tuple[str, str]]:
    bound, ahead = found.bound, found.present
    mean = bound.mean_usage or 1.0
    least = bound.bound / mean
    wrong = [finding for finding in found.observed.setting_findings if finding.kind in _GRAVE]
    usages = [
        (f"{bound.max_usage / mean:.2f}", "max ÷ mean usage now"),
        (f"{max(least, 1.0):.2f}", "max ÷ mean of the best assignment there can be"),
        (f"{ahead.max_usage_end:.0%}", f"max usage after moves, {bound.max_usage:.0%} now"),
    ]
    if not found.can_tell and found.observed.hot:
        over = found.observed.hot[0].over_mean
        usages = [(f"{over:.2f}", "max ÷ mean of reported usage now")]
    return [
        *usages,
        *(
            [(_error(found.model_error), "of a broker: error of simulated usages")]
            if found.model_error is not None
            else []
        ),
        (f"{ahead.moves:,}", "moves that LeastMoves would make"),
        (f"{ahead.client_seconds_lost:,.0f} s", f"lost by {ahead.clients_disturbed:,} clients"),
        (f"{len(found.observed.doubts)}", "doubts about the reports"),
        (f"{len(wrong)}", "settings that are off, wrong or without effect"),
    ]


_GRAVE = ("never", "contradiction", "off", "idle", "differs")


# --- how even, and who is hot ---


def _build_evenness(found: Assessment, name: str) -> list[str]:
    rows = [
        [
            evenness.resource.replace("_", " "),
            _figure(evenness.mean, evenness.unit),
            f"{_figure(evenness.max, evenness.unit)}, {evenness.broker}" if evenness.max else "–",
            _ratio(evenness.max_over_mean),
            _ratio(evenness.median_over_span),
            _describe_worst(evenness),
            evenness.brokers,
        ]
        for evenness in found.observed.evenness
    ]
    heads = ["resource", "mean now", "max now", "max ÷ mean", "median", "worst", "brokers"]
    text = (
        '<p class="soft">1 is even. Usage is a part of the limit that brokers report, where it '
        "can be believed. Median and worst of max ÷ mean are over the whole span.</p>"
    )
    parts = [f"<h2>How even it is</h2>{text}", table("evenness", "", heads, rows, "no figures")]
    if len(found.observed.slots_ms) >= FEWEST_SLOTS:
        lines = {row.resource.replace("_", " "): row.over_time for row in found.observed.evenness}
        shown = {label: line for label, line in lines.items() if any(line)}
        drawn = line_chart(
            f"evenness-{name}",
            "max ÷ mean",
            found.observed.slots_ms,
            shown,
            "",
            low=1.0,
            ranked=False,
        )
        parts.append(chart("Max ÷ mean over the span", "1 is even.", drawn))
    return parts


def _describe_worst(evenness: Evenness) -> str:
    if evenness.worst_over_span is None or evenness.worst_ms is None:
        return "–"
    return f"{evenness.worst_over_span:.2f} at {utc(evenness.worst_ms)[11:16]}"


def _build_hot(found: Assessment, name: str) -> str:
    rows = [
        [
            hot.broker,
            "–" if hot.usage is None else f"{hot.usage:.0%} {hot.resource}",
            f"{hot.over_mean:.2f}",
            describe_traffic(hot.bytes_per_s),
            hot.bundles,
            hot.why,
            ", ".join(f"{bundle} ({share:.0%})" for bundle, share in hot.heaviest) or "–",
        ]
        for hot in found.observed.hot
    ]
    heads = ["broker", "usage", "÷ mean", "traffic", "bundles", "why", "heaviest bundles"]
    shown = "<h2>The hottest brokers, and why</h2>" + table(
        "hot", "", heads, rows, "no broker is above the mean"
    )
    usages = {
        broker: values
        for broker, values in found.observed.usage_over_time.items()
        if any(value is not None for value in values)
    }
    if len(found.observed.slots_ms) >= FEWEST_SLOTS and usages:
        heat = heat_map(f"heat-{name}", "usage", found.observed.slots_ms, usages, {})
        shown += chart("Their usage over the span, of the scarcest resource", HEAT_KEY, heat)
    return shown


# --- doubts and settings ---


def _build_doubts(found: Assessment) -> str:
    rows = [[doubt.description, doubt.consequence] for doubt in found.observed.doubts]
    return "<h2>What the reports leave out or contradict</h2>" + table(
        "doubts", "", ["found", "what follows"], rows, "Nothing: all limits can be believed."
    )


def _build_settings(found: Assessment) -> str:
    kinds = list(KINDS)
    ordered = sorted(found.observed.setting_findings, key=lambda finding: kinds.index(finding.kind))
    rows = [
        [
            KINDS[finding.kind],
            finding.key or "–",
            finding.description + (f"; {finding.advice}" if finding.advice else ""),
        ]
        for finding in ordered
    ]
    in_force = [
        [setting.key, f"{setting.value} {setting.unit}".strip(), setting.given_by]
        for setting in found.observed.settings
    ]
    heads = ["", "key", "found"]
    shown = table("settings", "", heads, rows, "Nothing is wrong with them.")
    text = f"{found.observed.strategy} runs. Settings are {found.observed.settings_from}."
    return (
        f'<h2>Balancer settings, and what is wrong in them</h2><p class="soft">{in_html(text)}</p>'
        f"{shown}<details><summary>All {len(in_force)} settings in force that balancing reads"
        "</summary>"
        + table("in-force", "", ["key", "value", "given by"], in_force, "none")
        + "</details>"
    )


# --- what could be ---


def _build_moves(found: Assessment) -> str:
    bound, ahead = found.bound, found.present
    mean = bound.mean_usage or 1.0
    lines = [
        f"No assignment of whole bundles has a max usage below {bound.bound:.1%}, "
        f"{max(bound.bound / mean, 1.0):.2f} times the mean ({bound.mean_usage:.1%}). Usage is what "
        "bundles ask of a broker's scarcest resource, by capacities inferred from the reports; it "
        "may exceed what a broker reports."
        if found.can_tell
        else "Which usages an assignment would have is not known, as reports hardly show how usage "
        "follows load. The moves even out what bundles carry."
    ]
    if (
        found.can_tell
        and bound.bound > BALANCED * mean
        and bound.largest_usage >= bound.bound / BALANCED
    ):
        lines.append(
            f"The largest bundle, {bound.largest_bundle}, alone takes {bound.largest_usage:.1%} of "
            "the broker that suits it best: only a split can lower that."
        )
    if found.can_tell and bound.bound_without_exclusions * BALANCED < bound.bound:
        lines.append(
            "Without the namespaces that are excluded from shedding it would be "
            f"{bound.bound_without_exclusions:.1%}."
        )
    lines.append(
        f"If the present load went on for {found.ahead_min:.0f} minutes, LeastMoves would make "
        f"{ahead.moves:,} moves of {describe_traffic(ahead.moved_bytes_per_s)} in all. They would "
        f"disturb {ahead.clients_disturbed:,} clients, which would lose "
        f"{ahead.client_seconds_lost:,.0f} seconds, summed"
        + (f"; max usage would be {ahead.max_usage_end:.1%}." if found.can_tell else ".")
    )
    if ahead.reasons and not ahead.moves:
        lines.append(f"Why none is made: {'; '.join(ahead.reasons)}.")
    rows = [
        [
            move.bundle,
            move.source,
            move.destination or "–",
            f"{move.t_s:.0f} s",
            describe_traffic(move.bytes_per_s),
            move.clients,
            f"{move.client_seconds:,.0f} s",
        ]
        for move in found.moves[:MOST_MOVES]
    ]
    heads = ["bundle", "from", "to", "after", "traffic", "clients", "time they lose"]
    more = len(found.moves) - len(rows)
    rest = f'<p class="soft">{more:,} more: --json has them.</p>' if more > 0 else ""
    return (
        "<h2>How even it could be, and the moves to get there</h2>"
        + "".join(f"<p>{in_html(line)}</p>" for line in lines)
        + table("moves", "", heads, rows, "no moves")
        + rest
    )


def _build_plays(found: Assessment) -> str:
    rows = [
        [
            played.policy,
            *(_list_usages(played) if found.can_tell else []),
            played.moves,
            played.clients_disturbed,
            f"{played.client_seconds_lost:,.0f} s",
            played.rules_broken,
        ]
        for played in found.plays
    ]
    usages = ["max ÷ bound", "time even", "max usage", "above 85 %"] if found.can_tell else []
    heads = ["policy", *usages, "moves", "clients", "time they lose", "rules broken"]
    begin, end = (utc(at_ms) for at_ms in found.span_ms)
    beyond = ""
    if found.span_ms[1] > found.observed.to_ms:
        beyond = f" From {utc(found.observed.to_ms)[11:]} on the last loads go on."
    text = (
        f"{begin} to {end}, played in the simulator from the owners of that begin.{beyond} "
        + _describe_usages(found)
    )
    times = [found.span_ms[0] + round(t_s * 1000) for t_s in found.plays[0].t_s]
    lines = {played.policy: played.over_bound for played in found.plays}
    drawn = line_chart(
        f"plays-{in_html(found.observed.cluster)}",
        "max ÷ bound",
        times,
        {**lines, "even": [BALANCED] * len(times)},
        "",
        low=1.0,
        ranked=False,
    )
    reasons = [
        [played.policy, reason]
        for played in found.plays
        for reason in _list_reasons(played, found.observed.strategy)
    ]
    key = in_html(f"{found.observed.cluster}/plays")
    return (
        f'<section data-cluster="{key}"><h2>The same span with three policies</h2><p '
        f'class="soft">{in_html(text)}</p>'
        + table("plays", "", heads, rows, "")
        + (
            chart("Max usage ÷ the least possible", "1 is the best that is possible.", drawn)
            if found.can_tell
            else ""
        )
        + (
            table("reasons", "Why rounds moved nothing", ["policy", "why"], reasons, "")
            if reasons
            else ""
        )
        + "</section>\n"
    )


def _list_usages(played: Play) -> list[str]:
    return [
        _ratio(played.over_bound_median),
        "–" if played.balanced_share is None else f"{played.balanced_share:.0%}",
        f"{played.max_usage_end:.0%}",
        f"{played.overload_s:,.0f} s",
    ]


def _describe_usages(found: Assessment) -> str:
    """Say what the usages of plays are, and how far they can be relied on."""
    error = found.model_error
    if not found.can_tell and error is not None:
        return (
            f"Simulated usages miss the reported ones by {_error(error)} of a broker (root mean "
            "square), which is more than the policies differ by: they are left out."
        )
    text = (
        "Max ÷ bound is the median of the last quarter; even is a max usage of at most "
        f"{BALANCED:g} times the bound; max usage is that of the end."
    )
    if error is None:
        return text
    return (
        f"{text} Simulated usages miss the reported ones by {_error(error)} of a broker (root mean "
        "square): smaller differences say nothing."
    )


def _error(error: float) -> str:
    return f"± {error:.1%}" if error < SMALL_ERROR else f"± {error:.0%}"


def _list_reasons(played: Play, strategy: str) -> Sequence[str]:
    """Return why rounds of the cluster's own strategy moved nothing."""
    return played.reasons if played.policy.startswith(strategy) else ()


def _build_next(found: Assessment) -> str:
    steps = "".join(
        f"<li><pre>{in_html(step.command)}</pre><p>{in_html(step.description)}</p></li>"
        for step in found.next_steps
    )
    return f'<h2>What to do next</h2><ol class="steps">{steps}</ol>'


def _build_notes(found: Assessment) -> str:
    lines = "".join(f"<li>{in_html(note)}</li>" for note in found.notes[:MOST_NOTES])
    return f'<h2>What the simulations assume</h2><ul class="soft">{lines}</ul>'


def _build_pointer(found: Assessment) -> list[dict[str, object]]:
    """Return the data of the script that shows figures under the pointer."""
    first = {
        "cluster": found.observed.cluster,
        "times_ms": found.observed.slots_ms,
        "heads": [f"{utc(slot_ms)}, max ÷ mean" for slot_ms in found.observed.slots_ms],
        "loads": {row.resource.replace("_", " "): row.over_time for row in found.observed.evenness},
    }
    times = [found.span_ms[0] + round(t_s * 1000) for t_s in found.plays[0].t_s]
    second = {
        "cluster": f"{found.observed.cluster}/plays",
        "times_ms": times,
        "heads": [f"{utc(at_ms)}, max ÷ bound" for at_ms in times],
        "loads": {played.policy: played.over_bound for played in found.plays},
    }
    return [{**data, "divisor": 1, "unit": ""} for data in (first, second)]


def _figure(value: float, unit: str) -> str:
    if unit == "ratio":
        return f"{value:.1%}"
    if unit == "bytes/s":
        return describe_traffic(value)
    return f"{value:,.0f} {unit}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
