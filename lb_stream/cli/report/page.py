"""The report page: one HTML file that needs nothing else."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from lb_stream.cli.report.cost import cost_cells, describe_unknown
from lb_stream.cli.report.frame import chart, document, pointer_script, table, tiles
from lb_stream.cli.report.svg import (
    COLOURS,
    Overlay,
    bar_chart,
    line_chart,
    mark_chart,
    short_names,
)
from lb_stream.contracts.decisions import MOVES
from lb_stream.io.messages.shown import in_html
from lb_stream.query.lake import Row
from lb_stream.query.past.report_figures import DECISION_STATES, MAX_DECISIONS, ClusterFigures
from lb_stream.query.wording import (
    DRY_RUN,
    NO_BLOCKERS,
    PENDING,
    UNASSIGNED,
    WHY_NO_MOVES,
    describe_outcome,
    is_confirmed,
)

MAX_COSTS = 200
"""Rows in the table of what moves have cost."""

_MARKS_KEY = " Triangles at the foot: moves."
_LIMITS_KEY = (
    " Dashed: the limit that the last move was decided by, in its strategy's own measure, "
    "and overload."
)


def page(figures: Sequence[ClusterFigures], left_out: int, made_ms: int) -> str:
    """Return the page. `left_out`: the number of clusters that are not shown."""
    begins = [cluster.rounds["begin_ms"] for cluster in figures if cluster.rounds["begin_ms"]]
    ends = [cluster.rounds["end_ms"] for cluster in figures if cluster.rounds["end_ms"]]
    begin = _format_time(min(begins, default=made_ms))
    end = _format_time(max(ends, default=made_ms))
    title = f"Balance of {len(figures)} clusters"
    if len(figures) == 1:
        title = f"Balance of {figures[0].cluster}"
    head = (
        f'<h1>{in_html(title)}</h1><p class="soft">{begin} to {end}, times in UTC; written '
        f"{_format_time(made_ms)}.</p>"
    )
    if left_out:
        text = f"{left_out} more clusters are not shown: --cluster NAME shows one."
        head += f'<p class="soft">{text}</p>'
    sections = [_build_section(cluster, len(figures) > 1) for cluster in figures]
    script = pointer_script([_build_pointer_data(cluster) for cluster in figures])
    return document(title, "lbctl report", [f"{head}\n", *sections, script])


def _build_pointer_data(cluster: ClusterFigures) -> Row:
    """Return the data of the script that shows figures under the pointer."""
    figures = {
        name: getattr(cluster, name)
        for name in ("cluster", "times_ms", "seqs", "loads", "max_over_mean", "std_over_mean")
    }
    return figures | {"heads": _build_heads(cluster), "divisor": 1e6, "unit": " MB/s"}


def _build_heads(cluster: ClusterFigures) -> list[str]:
    """Return the first line under the pointer, for each point."""
    seqs = sorted(row["seq"] for row in cluster.decisions)
    heads = []
    before = cluster.seqs[0] - 1 if cluster.seqs else 0
    for seq, at_ms, ratio in zip(
        cluster.seqs, cluster.times_ms, cluster.max_over_mean, strict=True
    ):
        decisions = bisect_right(seqs, seq) - bisect_right(seqs, before)
        parts = [f"round {seq}", _format_time(at_ms)[11:]]
        if ratio is not None:
            parts.append(f"max/mean {ratio:.2f}")
        if decisions:
            parts.append(f"{decisions} decisions")
        heads.append(", ".join(parts))
        before = seq
    return heads


def _build_section(cluster: ClusterFigures, several: bool) -> str:
    """Return the section of a cluster; `several`: the page has others, so it needs a heading."""
    name = in_html(cluster.cluster)
    heading = f"<h2>{name}</h2>" if several else ""
    if not cluster.times_ms:
        text = "<p>No broker has reported in this time.</p>"
        return f'<section data-cluster="{name}">{heading}{text}</section>\n'
    parts = [
        f'<section data-cluster="{name}">{heading}{_build_tiles(cluster)}',
        *_build_charts(cluster, name),
        _build_reasons(cluster),
        _build_thrashing(cluster),
        _build_costs(cluster),
        _build_bundles(cluster, name),
        _build_why_no_moves(cluster),
        _build_refusals(cluster),
        _build_decisions(cluster),
        "</section>\n",
    ]
    return "".join(parts)


def _build_charts(cluster: ClusterFigures, name: str) -> list[str]:
    """Return the charts over time: loads, usages, imbalance, decisions. `name`: for HTML."""
    times = cluster.times_ms
    megabytes = _scale(cluster.loads, 1e-6)
    percents = _scale(cluster.usages, 100)
    limits = {limit: 100 * value for limit, value in cluster.limits.items()}
    spread = {"max ÷ mean": cluster.max_over_mean, "std ÷ mean": cluster.std_over_mean}
    rows = _build_marks(cluster)
    moves = [mark for kind, marks in rows.items() if kind in MOVES for mark in marks]
    plain = Overlay(longest_ms=cluster.longest_ms)
    with_moves = replace(plain, marks=moves)
    with_limits = replace(with_moves, limits=limits)
    # what the charts' texts say besides
    drawn = _describe_drawn(cluster)
    marked = _MARKS_KEY if moves else ""
    dashed = _LIMITS_KEY if limits else ""
    return [
        chart(
            "Load of each broker, MB/s",
            f"Throughput in and out, as reported.{marked}{drawn}",
            line_chart(
                f"loads-{name}", "load of each broker", times, megabytes, "MB/s", over=with_moves
            ),
        ),
        chart(
            "Usage of each broker, %",
            f"Of its scarcest resource.{dashed}{marked}{drawn}",
            line_chart(
                f"usage-{name}", "usage of each broker", times, percents, "%", over=with_limits
            ),
        ),
        chart(
            "Imbalance of throughput",
            "Max ÷ mean (1 is even) and standard deviation ÷ mean (0 is even). Drained, silent and "
            "dead brokers don't count.",
            line_chart(f"spread-{name}", "imbalance", times, spread, "", height=170, over=plain),
        ),
        chart(
            "Decisions",
            _build_key(cluster),
            mark_chart(f"decisions-{name}", "decisions over time", times, rows, cluster.longest_ms),
        ),
    ]


def _describe_drawn(cluster: ClusterFigures) -> str:
    """Say which lines have a colour, how many brokers are drawn, and what a point is."""
    lines, parts = len(cluster.loads), []
    if lines > COLOURS:
        parts.append(f" The {COLOURS} with the highest peaks have a colour.")
    if cluster.brokers > lines:
        parts.append(f" The {lines} busiest of {cluster.brokers} brokers are drawn.")
    if cluster.rounds_per_point > 1:
        parts.append(f" Each point is the mean of {cluster.rounds_per_point} rounds.")
    return "".join(parts)


def _scale(
    lines: Mapping[str, Sequence[float | None]], factor: float
) -> dict[str, list[float | None]]:
    """Return the lines with each value times `factor`."""
    return {
        name: [None if value is None else value * factor for value in line]
        for name, line in lines.items()
    }


def _build_tiles(cluster: ClusterFigures) -> str:
    """Return the figures at the head of a section."""
    # decisions that were published, and of these the confirmed ones
    published = [row for row in cluster.decisions if not row["dry_run"]]
    confirmed = sum(is_confirmed(row) for row in published)
    in_dry_runs = len(cluster.decisions) - len(published)
    failed = cluster.rounds["failed"]
    # imbalance in the first and in the last round
    first, last = cluster.first_last or ({}, {})
    max_first, max_last = (_format_ratio(row.get("max_over_mean")) for row in (first, last))
    std_first, std_last = (_format_ratio(row.get("std_over_mean")) for row in (first, last))
    thrash = cluster.thrash
    return tiles(
        [
            (
                f"{cluster.rounds['rounds'] or 0}",
                f"rounds, {failed} failed" if failed else "rounds",
            ),
            (f"{cluster.brokers}", "brokers"),
            (
                f"{len(cluster.decisions)}",
                f"decisions, {in_dry_runs} in dry runs" if in_dry_runs else "decisions",
            ),
            (f"{confirmed}", f"confirmed of {len(published)}"),
            (f"{max_first} → {max_last}", "max ÷ mean, first → last"),
            (f"{std_first} → {std_last}", "std ÷ mean, first → last"),
            (f"{len(thrash.returned)}", f"moves came back within {thrash.within} rounds"),
            (f"{thrash.redundant} of {thrash.moves}", "moves redundant"),
        ]
    )


def _find_style(row: Row) -> str:
    """Return the style's class of a decision's mark."""
    if row["dry_run"]:
        return "dry"
    return {None: "pending", "confirmed": "confirmed"}.get(row["outcome"], "failed")


def _build_key(cluster: ClusterFigures) -> str:
    """Return the meaning of the marks' colours, as HTML."""
    descriptions = {
        "confirmed": "confirmed",
        "failed": "refused, expired, superseded or failed",
        "pending": PENDING,
        "dry": DRY_RUN,
    }
    used = {_find_style(row) for row in cluster.decisions}
    return "".join(
        f'<span class="{name}"><i></i></span>{text}'
        for name, text in descriptions.items()
        if name in used
    )


def _build_marks(cluster: ClusterFigures) -> dict[str, list[tuple[int, str, str]]]:
    """Return kind → marks of its decisions: time (ms), class, title."""
    rows: dict[str, list[tuple[int, str, str]]] = {}
    for row in cluster.decisions:
        text = (
            f"{row['decision_id']} {_describe_decision(row)}: {row['rule']}, "
            f"{describe_outcome(row)}"
        )
        rows.setdefault(row["kind"], []).append((row["issued_ms"], _find_style(row), text))
    return dict(sorted(rows.items()))


def _describe_decision(row: Row) -> str:
    brokers = (name for name in (row["source"], row["destination"]) if name)
    return f"{row['kind']} {row['bundle']} {' → '.join(brokers)}"


def _build_reasons(cluster: ClusterFigures) -> str:
    ends = [name for name in DECISION_STATES if any(row[name] for row in cluster.reasons)]
    columns = ["kind", "reason", "rule", "decisions", *ends]
    return table(
        "reasons",
        "Reasons",
        columns,
        [[row[name] for name in columns] for row in cluster.reasons],
        "nothing was decided",
    )


def _build_thrashing(cluster: ClusterFigures) -> str:
    thrash = cluster.thrash
    note = (
        f"{thrash.moves} confirmed moves of balancing; {len(thrash.returned)} of them were undone "
        f"within {thrash.within} rounds; {thrash.redundant} are redundant: without them every "
        "bundle would have the same owner."
    )
    if thrash.operators_moves:
        note += f" {thrash.operators_moves} moves of operators (drains, unloads) count for neither."
    rows = [[row["bundle"], " → ".join(row["brokers"]), row["moves"]] for row in thrash.cycles]
    cycles = table("cycles", "", ["bundle", "cycle", "moves"], rows, "") if rows else ""
    back = [
        [row["bundle"], row["broker"], row["left_in"], row["back_in"]] for row in thrash.returned
    ]
    columns = ["bundle", "came back to", "left in round", "back in round"]
    returned = table("returned", "", columns, back, "") if back else ""
    return f'<h3>Thrashing</h3><p class="soft">{note}</p>{returned}{cycles}'


def _build_costs(cluster: ClusterFigures) -> str:
    # The latest week first. Within a week they are ordered by cost already, the highest first.
    rows = sorted(cluster.costs, key=lambda row: str(row["span"]), reverse=True)
    cells = [
        [row["span"], row["whose"], row["moves"], *cost_cells(row)[1:]] for row in rows[:MAX_COSTS]
    ]
    columns = ["week", "tenant", "moves", "unserved", "clients", "client-seconds", "MB/s moved"]
    shown = table(
        "costs",
        "What moves have cost, by week and tenant",
        columns,
        cells,
        "no move has been confirmed",
    )
    notes = [describe_unknown(rows)] if rows else []
    if len(rows) > MAX_COSTS:
        left = len(rows) - MAX_COSTS
        notes.append(f"{left} earlier or cheaper rows are not shown: lbctl cost has them.")
    return shown + "".join(f'<p class="soft">{in_html(note)}</p>' for note in notes if note)


def _build_bundles(cluster: ClusterFigures, number: str) -> str:
    owners = short_names({row["owner"] for row in cluster.bundles if row["owner"]})
    bars = [
        (
            row["bundle"],
            owners.get(row["owner"], UNASSIGNED),
            (row["short_bytes_per_s"] or 0.0) / 1e6,
        )
        for row in cluster.bundles
    ]
    if not bars:
        return ""
    drawn = bar_chart(f"bundles-{number}", "heaviest bundles", bars, "MB/s")
    return (
        "<h3>Heaviest bundles now, short-term MB/s, and their owners</h3><div "
        f'class="scroll">{drawn}</div>'
    )


def _build_why_no_moves(cluster: ClusterFigures) -> str:
    if cluster.why_no_moves is None:
        return ""
    rows = [[check.name, check.description] for check in cluster.why_no_moves.blockers]
    text = f'<p class="soft">{in_html(cluster.why_no_moves.sentence)}</p>'
    return table("why-no-moves", WHY_NO_MOVES, ["check", "result"], rows, NO_BLOCKERS) + text


def _build_refusals(cluster: ClusterFigures) -> str:
    rows = [
        [row["rule"], row["times"], row["brokers"], _format_time(row["last_ms"]), row["why"]]
        for row in cluster.refusals
    ]
    return table(
        "refusals",
        "Refusals",
        ["rule", "times", "brokers", "last", "why"],
        rows,
        "nothing was refused",
    )


def _build_decisions(cluster: ClusterFigures) -> str:
    """Return the table of the last decisions; empty where there are none."""
    if not cluster.decisions:
        return ""
    rows = [
        [
            row["decision_id"],
            _format_time(row["issued_ms"])[11:],
            row["kind"],
            row["bundle"],
            row["source"] or "",
            row["destination"] or "",
            row["rule"],
            describe_outcome(row),
        ]
        for row in reversed(cluster.decisions[-MAX_DECISIONS:])
    ]
    title = "All decisions, the last first"
    if len(cluster.decisions) > len(rows):
        title = f"The last {len(rows)} decisions"
    columns = ["id", "time", "kind", "bundle", "source", "destination", "rule", "outcome"]
    return table("all", title, columns, rows, "")


def _format_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _format_ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
