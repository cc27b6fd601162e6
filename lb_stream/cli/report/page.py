"""The report page: one HTML file that needs nothing else."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
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
)

MAX_COSTS = 200
"""Rows of the table of moves' costs."""

_MARKED = " Triangles at the foot: moves."
_DASHED = (
    " Dashed: the limit that the last move was decided by, in its strategy's own measure, "
    "and overload."
)


def page(figures: Sequence[ClusterFigures], left_out: int, made_ms: int) -> str:
    """Return the page. `left_out`: the number of clusters that are not shown."""
    begin = min(
        (cluster.rounds["begin_ms"] for cluster in figures if cluster.rounds["begin_ms"]),
        default=made_ms,
    )
    end = max(
        (cluster.rounds["end_ms"] for cluster in figures if cluster.rounds["end_ms"]),
        default=made_ms,
    )
    title = (
        f"Balance of {figures[0].cluster}"
        if len(figures) == 1
        else f"Balance of {len(figures)} clusters"
    )
    more = (
        f'<p class="soft">{left_out} more clusters are not shown: --cluster NAME shows one.</p>'
        if left_out
        else ""
    )
    when = (
        f'<p class="soft">{_time(begin)} to {_time(end)}, times in UTC; written '
        f"{_time(made_ms)}.</p>{more}"
    )
    sections = [_section(cluster, len(figures) > 1) for cluster in figures]
    script = pointer_script([_under_pointer(cluster) for cluster in figures])
    return document(
        title, "lbctl report", [f"<h1>{in_html(title)}</h1>{when}\n", *sections, script]
    )


def _under_pointer(cluster: ClusterFigures) -> Row:
    """Return the data of the script that shows figures under the pointer."""
    figures = {
        name: getattr(cluster, name)
        for name in ("cluster", "times_ms", "seqs", "loads", "max_over_mean", "std_over_mean")
    }
    return figures | {"heads": _heads(cluster), "divisor": 1e6, "unit": " MB/s"}


def _heads(cluster: ClusterFigures) -> list[str]:
    """Return the first line under the pointer, for each point."""
    made = sorted(row["seq"] for row in cluster.decisions)
    heads = []
    before = cluster.seqs[0] - 1 if cluster.seqs else 0
    for seq, at_ms, ratio in zip(
        cluster.seqs, cluster.times_ms, cluster.max_over_mean, strict=True
    ):
        decisions = bisect_right(made, seq) - bisect_right(made, before)
        parts = [f"round {seq}", _time(at_ms)[11:]]
        parts += [] if ratio is None else [f"max/mean {ratio:.2f}"]
        heads.append(", ".join([*parts, f"{decisions} decisions"] if decisions else parts))
        before = seq
    return heads


def _section(cluster: ClusterFigures, several: bool) -> str:
    heading = f"<h2>{in_html(cluster.cluster)}</h2>" if several else ""
    if not cluster.times_ms:
        return (
            f'<section data-cluster="{in_html(cluster.cluster)}">{heading}<p>No broker has '
            "reported in this time.</p></section>\n"
        )
    grey = (
        f" The {COLOURS} with the highest peaks have a colour."
        if len(cluster.loads) > COLOURS
        else ""
    )
    if cluster.brokers > len(cluster.loads):
        grey += f" The {len(cluster.loads)} busiest of {cluster.brokers} brokers are drawn."
    per_point = (
        f" Each point is the mean of {cluster.rounds_per_point} rounds."
        if cluster.rounds_per_point > 1
        else ""
    )
    megabytes = {
        name: [None if value is None else value / 1e6 for value in line]
        for name, line in cluster.loads.items()
    }
    spread = {"max ÷ mean": cluster.max_over_mean, "std ÷ mean": cluster.std_over_mean}
    percents = {
        name: [None if value is None else 100 * value for value in line]
        for name, line in cluster.usages.items()
    }
    number, times = in_html(cluster.cluster), cluster.times_ms
    moves = [mark for kind, marks in _marks(cluster).items() if kind in MOVES for mark in marks]
    plain = Overlay(longest_ms=cluster.longest_ms)
    loads = line_chart(
        f"loads-{number}",
        "load of each broker",
        times,
        megabytes,
        "MB/s",
        over=replace(plain, marks=moves),
    )
    marked = _MARKED if moves else ""
    limits = {name: 100 * value for name, value in cluster.limits.items()}
    dashed = _DASHED if limits else ""
    usage = line_chart(
        f"usage-{number}",
        "usage of each broker",
        times,
        percents,
        "%",
        over=replace(plain, marks=moves, limits=limits),
    )
    uneven = line_chart(f"spread-{number}", "imbalance", times, spread, "", height=170, over=plain)
    marks = mark_chart(
        f"decisions-{number}", "decisions over time", times, _marks(cluster), cluster.longest_ms
    )
    parts = [
        f'<section data-cluster="{number}">{heading}{_tiles(cluster)}',
        chart(
            "Load of each broker, MB/s",
            f"Throughput in and out, as reported.{marked}{grey}{per_point}",
            loads,
        ),
        chart(
            "Usage of each broker, %",
            f"Of its scarcest resource.{dashed}{marked}{grey}{per_point}",
            usage,
        ),
        chart(
            "Imbalance of throughput",
            "Max ÷ mean (1 is even) and standard deviation ÷ mean (0 is even). Drained, silent and "
            "dead brokers don't count.",
            uneven,
        ),
        chart("Decisions", _key(cluster), marks),
        _reasons(cluster),
        _thrash(cluster),
        _costs(cluster),
        _bundles(cluster, number),
        _why_no_moves(cluster),
        _refusals(cluster),
        _decisions(cluster),
        "</section>\n",
    ]
    return "".join(parts)


def _tiles(cluster: ClusterFigures) -> str:
    real = [row for row in cluster.decisions if not row["dry_run"]]
    confirmed = sum(row["outcome"] == "confirmed" for row in real)
    first, last = cluster.first_last or ({}, {})
    shown = [
        (
            f"{cluster.rounds['rounds'] or 0}",
            "rounds" + (f", {cluster.rounds['failed']} failed" if cluster.rounds["failed"] else ""),
        ),
        (f"{cluster.brokers}", "brokers"),
        (
            f"{len(cluster.decisions)}",
            "decisions"
            + (
                ""
                if len(real) == len(cluster.decisions)
                else f", {len(cluster.decisions) - len(real)} in dry runs"
            ),
        ),
        (f"{confirmed}", f"confirmed of {len(real)}"),
        (
            f"{_two(first.get('max_over_mean'))} → {_two(last.get('max_over_mean'))}",
            "max ÷ mean, first → last",
        ),
        (
            f"{_two(first.get('std_over_mean'))} → {_two(last.get('std_over_mean'))}",
            "std ÷ mean, first → last",
        ),
        (
            f"{len(cluster.thrash.returned)}",
            f"moves came back within {cluster.thrash.within} rounds",
        ),
        (f"{cluster.thrash.redundant} of {cluster.thrash.moves}", "moves redundant"),
    ]
    return tiles(shown)


def _style_of(row: Row) -> str:
    if row["dry_run"]:
        return "dry"
    return {None: "pending", "confirmed": "confirmed"}.get(row["outcome"], "failed")


def _key(cluster: ClusterFigures) -> str:
    descriptions = {
        "confirmed": "confirmed",
        "failed": "refused, expired, superseded or failed",
        "pending": PENDING,
        "dry": DRY_RUN,
    }
    used = {_style_of(row) for row in cluster.decisions}
    return "".join(
        f'<span class="{name}"><i></i></span>{text}'
        for name, text in descriptions.items()
        if name in used
    )


def _marks(cluster: ClusterFigures) -> dict[str, list[tuple[int, str, str]]]:
    rows: dict[str, list[tuple[int, str, str]]] = {}
    for row in cluster.decisions:
        text = (
            f"{row['decision_id']} {_describe_decision(row)}: {row['rule']}, "
            f"{describe_outcome(row)}"
        )
        rows.setdefault(row["kind"], []).append((row["issued_ms"], _style_of(row), text))
    return dict(sorted(rows.items()))


def _describe_decision(row: Row) -> str:
    return f"{row['kind']} {row['bundle']} " + " → ".join(
        name for name in (row["source"], row["destination"]) if name
    )


def _reasons(cluster: ClusterFigures) -> str:
    ends = [name for name in DECISION_STATES if any(row[name] for row in cluster.reasons)]
    columns = ["kind", "reason", "rule", "decisions", *ends]
    return table(
        "reasons",
        "Reasons",
        columns,
        [[row[name] for name in columns] for row in cluster.reasons],
        "nothing was decided",
    )


def _thrash(cluster: ClusterFigures) -> str:
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
    returned = (
        table(
            "returned", "", ["bundle", "came back to", "left in round", "back in round"], back, ""
        )
        if back
        else ""
    )
    return f'<h3>Thrashing</h3><p class="soft">{note}</p>{returned}{cycles}'


def _costs(cluster: ClusterFigures) -> str:
    # The latest week first. Within a week they are ordered by cost already, the highest first.
    rows = sorted(cluster.costs, key=lambda row: str(row["span"]), reverse=True)
    parts = [
        [row["span"], row["whose"], row["moves"], *cost_cells(row)[1:]] for row in rows[:MAX_COSTS]
    ]
    columns = ["week", "tenant", "moves", "unserved", "clients", "client-seconds", "MB/s moved"]
    shown = table(
        "costs",
        "What moves have cost, by week and tenant",
        columns,
        parts,
        "no move has been confirmed",
    )
    notes = [describe_unknown(rows)] if rows else []
    notes += (
        [f"{len(rows) - MAX_COSTS} earlier or cheaper rows are not shown: lbctl cost has them."]
        if len(rows) > MAX_COSTS
        else []
    )
    return shown + "".join(f'<p class="soft">{in_html(note)}</p>' for note in notes if note)


def _bundles(cluster: ClusterFigures, number: str) -> str:
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


def _why_no_moves(cluster: ClusterFigures) -> str:
    if cluster.why_no_moves is None:
        return ""
    rows = [[check.name, check.description] for check in cluster.why_no_moves.blockers]
    columns, title = ["what", "found"], WHY_NO_MOVES
    text = f'<p class="soft">{in_html(cluster.why_no_moves.sentence)}</p>'
    return table("held-up", title, columns, rows, NO_BLOCKERS) + text


def _refusals(cluster: ClusterFigures) -> str:
    rows = [
        [row["rule"], row["times"], row["brokers"], _time(row["last_ms"]), row["why"]]
        for row in cluster.refusals
    ]
    return table(
        "refusals",
        "Refusals",
        ["rule", "times", "brokers", "last", "why"],
        rows,
        "nothing was refused",
    )


def _decisions(cluster: ClusterFigures) -> str:
    rows = [
        [
            row["decision_id"],
            _time(row["issued_ms"])[11:],
            row["kind"],
            row["bundle"],
            row["source"] or "",
            row["destination"] or "",
            row["rule"],
            describe_outcome(row),
        ]
        for row in reversed(cluster.decisions[-MAX_DECISIONS:])
    ]
    title = (
        f"The last {len(rows)} decisions"
        if len(cluster.decisions) > len(rows)
        else "All decisions, the last first"
    )
    return (
        table(
            "all",
            title,
            ["id", "time", "kind", "bundle", "from", "to", "rule", "outcome"],
            rows,
            "nothing was decided",
        )
        if rows
        else ""
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
