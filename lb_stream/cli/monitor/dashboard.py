"""The dashboard of `lbctl monitor`: lines of text that fit a screen. Nothing depends on colour.

Every line is cut at the screen's width; the sections share its height. Wide screens show more
figures, and sections side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from lb_stream.io.messages.shown import shown_within
from lb_stream.io.messages.times import ago, clock, day_of, short_clock
from lb_stream.query.snapshot import PHASES, Rows, Snapshot, measure_imbalance
from lb_stream.query.wording import describe_outcome

WIDE = 120
"""Columns from which on there are message rates, and sections stand side by side."""
RESOURCES = (
    ("cpu", "cpu"),
    ("memory", "memory"),
    ("direct_memory", "direct"),
    ("bandwidth_in", "bw in"),
    ("bandwidth_out", "bw out"),
)
HOT_RATIO, WARM_RATIO = 0.85, 0.6
"""Usage ratios for colours only; a strategy's limit says which brokers are hot."""
BAR_CELLS = (10, 6, 4, 3, 2)
"""Widths of a resource's bar; the largest that leaves space for brokers' names is used."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and its lines, the most important first. `whole`: the number of all lines."""

    heading: str
    lines: Sequence[Text]
    whole: int

    def fitted(self, height: int, width: int) -> list[Text]:
        """Return at most `height` lines: the heading, lines, a note on those left out."""
        if height <= 0:
            return []
        room, heading = height - 1, self.heading
        shown = list(self.lines[:room])
        if room == 1 and self.whole > 1:
            heading = f"{heading}, 1 of {self.whole}"
        elif room and len(shown) < self.whole:
            shown = [*shown[: room - 1], Text(f"and {self.whole - room + 1} more", "dim")]
        return [_cut(Text(heading, "bold"), width), *(_cut(line, width) for line in shown)]


def render(snapshot: Snapshot, width: int, height: int | None, unicode: bool = True) -> list[Text]:
    """Return the dashboard's lines within `width` columns and `height` lines.

    Without a height, all lines are returned, and none is cut.
    """
    snapshot, wide = _with_short_names(_with_shown_names(snapshot)), width >= WIDE
    head = _head(snapshot, width if height is not None else None, unicode)
    decided = _decisions(snapshot, width // 2 - 1 if wide else width, unicode)
    left = [_pending(snapshot, unicode), decided]
    right = [_refusals(snapshot, unicode), _timings(snapshot, unicode)]
    free = None if height is None else height - len(head) - 1
    most = None if free is None else min(len(snapshot.brokers), max(3, free // 2 - 1))
    table = _brokers(snapshot, width, unicode, most)
    if height is None or free is None or most is None:
        sections = [table, *left, *right]
        return [
            *head,
            *(
                line
                for section in sections
                for line in (Text(""), Text(section.heading, "bold"), *section.lines)
            ),
        ]
    brokers = table.fitted(1 + most, width)
    below = free - len(brokers) - 1
    lines = [*(_cut(line, width) for line in head), Text(""), *brokers, Text("")]
    if wide:
        half = (width - 2) // 2
        lines += _beside(_stacked(left, below, half), _stacked(right, below, half), half)
    else:
        lines += _stacked(
            [left[0], decided, right[0]] if snapshot.pending else [decided, right[0]], below, width
        )
    return lines[:height]


def _with_shown_names(snapshot: Snapshot) -> Snapshot:
    return replace(
        snapshot,
        **{field.name: shown_within(getattr(snapshot, field.name)) for field in fields(snapshot)},
    )


def _with_short_names(snapshot: Snapshot) -> Snapshot:
    """Shorten brokers' names by the domain and the port that all of them share."""
    shared = _shared_end([row["broker"] for row in snapshot.brokers])
    if not shared:
        return snapshot

    def shorten(rows: Rows) -> Rows:
        names = ("broker", "source", "destination", "last_broker")
        return [
            row | {name: row[name].removesuffix(shared) for name in names if row.get(name)}
            for row in rows
        ]

    parts: dict[str, Any] = {
        name: shorten(getattr(snapshot, name))
        for name in ("brokers", "pending", "decisions", "refusals")
    }
    return replace(snapshot, **parts)


def _shared_end(names: Sequence[str]) -> str:
    """Return the end that all names share: a domain and a port, or the port alone.

    It is no part of a numeric address, and some of each name remains.
    """
    if not names:
        return ""
    shared = min(names, key=len)[1:]
    while shared and (
        shared[0] not in ".:"
        or not all(name.endswith(shared) for name in names)
        or _is_bare(shared)
    ):
        shared = shared[1:]
    return shared if len(names) > 1 else shared[shared.rfind(":") :] if ":" in shared else ""


def _is_bare(end: str) -> bool:
    """Return whether an end is part of a numeric address, such as `.1:80` of 10.0.0.1:80."""
    return end[0] == "." and not any(letter.isalpha() for letter in end)


# --- the parts ---


MOST_CLUSTERS = 3
"""Clusters with lines of their own at the top."""


def _head(snapshot: Snapshot, width: int | None, unicode: bool) -> list[Text]:
    """Return the lines at the top: a warning, the first clusters, the job's batches."""
    dot = " · " if unicode else " - "
    lines = [Text(snapshot.trouble, "red")] if snapshot.trouble else []
    for row in snapshot.clusters[:MOST_CLUSTERS]:
        lines.append(_cluster_line(snapshot, row, width, dot))
        if row["error"]:
            last_line = row["error"].strip().splitlines()[-1]
            lines.append(Text(f"its last round failed: {last_line}", "red"))
    if not snapshot.clusters:
        lines.append(Text("no round has been logged yet", "bold"))
    if (more := len(snapshot.clusters) - MOST_CLUSTERS) > 0:
        lines.append(Text(f"and {more} more clusters: --cluster NAME shows one", "dim"))
    if snapshot.timings:
        lines.append(_batches_line(snapshot.timings, dot))
    return lines


def _cluster_line(snapshot: Snapshot, cluster: dict[str, Any], width: int | None, dot: str) -> Text:
    """Return a cluster's line. Where it doesn't fit, the round's date and time are left out."""
    name, now_ms = cluster["cluster"], cluster["now_ms"]
    brokers = [row for row in snapshot.brokers if row["cluster"] == name]
    reporting = sum(row["alive"] and row.get("state") != "silent" for row in brokers)
    parts = [f"round {cluster['seq']}"]
    if imbalance := measure_imbalance(brokers):
        parts.append(f"max/mean {imbalance:.2f}")
    parts.append(f"{reporting} of {len(brokers)} brokers")
    parts.append(f"{sum(row['bundles'] or 0 for row in brokers)} bundles")
    facts = next((facts for facts in snapshot.states if facts.cluster == name), None)
    if facts is not None and facts.state != "live":
        why = f" ({facts.suspended_by})" if facts.suspended_by else ""
        parts.insert(0, facts.state + why)

    def line(end: str) -> Text:
        return Text.assemble((name, "bold"), " ", dot.join([*parts, end]))

    whole = line(f"{clock(now_ms)}, {ago(now_ms)}")
    fits = width is None or cell_len(whole.plain) <= width
    return whole if fits else line(ago(now_ms))


def _batches_line(timings: dict[str, Any], dot: str) -> Text:
    behind = timings["lag_records"] or 0
    parts = (
        f"batches of {_ms(timings['whole'])}, at most {_ms(timings['whole_max'])}",
        f"last {ago(timings['started_ms'])}",
        f"lag {behind} records",
    )
    return Text(dot.join(parts), "red" if behind else "")


def _brokers(snapshot: Snapshot, width: int, unicode: bool, most: int | None) -> Section:
    """Return the brokers' section, ordered by name if all fit; else the busiest come first."""
    wide, several = width >= WIDE, len(snapshot.clusters) > 1
    names = [
        f"{row['cluster']}/{row['broker']}" if several else row["broker"]
        for row in snapshot.brokers
    ]
    rates = 8 if wide else 6
    longest = max(
        (
            len(f"{name} {row.get('state') or ''}".rstrip())
            for name, row in zip(names, snapshot.brokers, strict=True)
        ),
        default=8,
    )
    room = width - rates * (6 if wide else 3) - 8
    cells = next((count for count in BAR_CELLS if longest + 5 * (count + 5) <= room), BAR_CELLS[-1])
    name_width = max(8, longest if most is None else min(longest, room - 5 * (cells + 5)))
    heading = f"{'broker':<{name_width}}" + "".join(
        f" {title[: cells + 2] + ' %':<{cells + 4}}" for _, title in RESOURCES
    )
    heading += "".join(f"{title:>{rates}}" for title in ("MB/s", "short", "long"))
    heading += "".join(f"{title:>{rates}}" for title in ("msg/s", "short", "long")) if wide else ""
    order = list(range(len(names)))
    if most is not None and most < len(names):
        order.sort(key=lambda at: (-(snapshot.brokers[at]["usage_ratio"] or 0.0), names[at]))
    lines = [
        _broker(snapshot.brokers[at], names[at], name_width, cells, rates, wide, unicode)
        for at in order
    ]
    return Section(f"{heading} {'bundles':>7}", lines, len(lines))


def _broker(
    row: dict[str, Any],
    name: str,
    name_width: int,
    cells: int,
    rates: int,
    wide: bool,
    unicode: bool,
) -> Text:
    state = row.get("state") or ("" if row["alive"] else "dead")
    if state:
        name = f"{name[: max(1, name_width - len(state) - 1)]} {state}"
    style = "yellow" if state and row["alive"] else "" if row["alive"] else "red"
    line = Text(_fitted(name, name_width, unicode), style)
    for resource, _ in RESOURCES:
        ratio = row[f"{resource}_ratio"] or 0.0
        style = "red" if ratio >= HOT_RATIO else "yellow" if ratio >= WARM_RATIO else "green"
        line.append(" ").append(bar(ratio, cells, unicode), style).append(
            f" {min(999, round(100 * ratio)):>3}"
        )
    figures = [(row[f"{span}_bytes_per_s"] or 0.0) / 1e6 for span in ("latest", "short", "long")]
    line.append("".join(f"{_number(value):>{rates}}" for value in figures))
    if wide:
        line.append(
            "".join(
                f"{_number(row[f'{span}_msgs_per_s'] or 0.0):>{rates}}"
                for span in ("latest", "short", "long")
            )
        )
    return line.append(f" {row['bundles'] or 0:>7}")


def _pending(snapshot: Snapshot, unicode: bool) -> Section:
    arrow = "→" if unicode else "->"
    lines = []
    for row in snapshot.pending:
        brokers = f"{row['source'] or ''} {arrow} {row['destination'] or '?'}"
        decision = f"{row['kind']:<8} {_cluster_prefix(snapshot, row)}{row['bundle']}"
        lines.append(Text(f"{decision}  {brokers}, {ago(row['issued_ms'])}"))
    return Section(f"pending: {len(lines) or 'none'}", lines, len(lines))


def _decisions(snapshot: Snapshot, width: int, unicode: bool) -> Section:
    if not snapshot.decisions:
        return Section("nothing has been decided yet", [], 0)
    day = day_of(snapshot.decisions[0]["issued_ms"])
    lines = []
    for row in snapshot.decisions:
        begin = short_clock(row["issued_ms"], day)
        lines.append(_decision(row, begin, _cluster_prefix(snapshot, row), width, unicode))
    return Section(f"last decisions, on {day}" if day else "last decisions", lines, len(lines))


def _cluster_prefix(snapshot: Snapshot, row: dict[str, Any]) -> str:
    """Return a row's cluster where there are several: their brokers may have the same names."""
    return f"{row['cluster']}: " if len(snapshot.clusters) > 1 else ""


def _decision(row: dict[str, Any], begin: str, prefix: str, width: int, unicode: bool) -> Text:
    """Return a decision's line: time, outcome, cluster, decision, and the rule where it fits."""
    arrow = "→" if unicode else "->"
    marks = (
        {None: ("…", "yellow"), "confirmed": ("✓", "green")}
        if unicode
        else {None: (".", "yellow"), "confirmed": ("+", "green")}
    )
    mark, style = marks.get(row["outcome"], ("✗" if unicode else "x", "red"))
    if row["dry_run"]:
        mark, style = "~", "dim"
    place = {
        "assign": f"{arrow} {row['destination']}",
        "split": f"at {row['source']}",
        "merge": f"at {row['source']}",
    }.get(row["kind"], f"{row['source']} {arrow} {row['destination'] or '?'}")
    took = "" if row["took_ms"] is None else f" {row['took_ms'] / 1000:.1f} s"
    well = row["outcome"] in (None, "confirmed") and not row["dry_run"]
    line = Text.assemble((f"{begin} ", "dim"), (mark, style))
    line.append(f" {row['kind']:<8} {prefix}{row['bundle']} {place}")
    if well:
        line.append(took, "dim")
    else:
        line.append(f" {describe_outcome(row)}", style)
    rule = f" {row['rule']}"
    return line.append(rule, "dim") if cell_len(line.plain) + len(rule) <= width else line


def _refusals(snapshot: Snapshot, unicode: bool) -> Section:
    lines = []
    for row in snapshot.refusals:
        where = _where_refused(snapshot, row)
        saw = [
            _number(value)
            for value in dict.fromkeys((row["least"], row["greatest"]))
            if value is not None
        ]
        between = "–" if unicode else ".."
        figures = f", saw {between.join(saw)}" if saw else ""
        figures += f", limit {_number(row['limit'])}" if row["limit"] is not None else ""
        lines.append(
            Text(
                (
                    f"{row['times']:>6} × {row['rule']}  {where}{figures} "
                    f"{row['unit'] if figures else ''}"
                ).rstrip()
            )
        )
    if not unicode:
        lines = [Text(line.plain.replace("×", "x")) for line in lines]
    return Section(
        "refusals in ten minutes, by rule" if lines else "no refusals in ten minutes",
        lines,
        len(lines),
    )


def _where_refused(snapshot: Snapshot, row: dict[str, Any]) -> str:
    """Describe at which broker a rule refused, or at how many; with the cluster if several."""
    several = len(snapshot.clusters) > 1
    if row["brokers"] > 1:
        clusters = row["clusters"]
        return f"{row['brokers']} brokers" + (f" of {clusters} clusters" if clusters > 1 else "")
    if row["clusters"] > 1:
        return f"{row['clusters']} clusters"
    if row["last_broker"]:
        return f"{row['last_cluster']}/{row['last_broker']}" if several else str(row["last_broker"])
    return str(row["last_cluster"]) if several else "the cluster"


def _timings(snapshot: Snapshot, unicode: bool) -> Section:
    timings = snapshot.timings
    if not timings:
        return Section("no batches yet", [], 0)
    known = [(phase, timings[phase]) for phase in PHASES if timings[phase] is not None]
    longest = max((value for _, value in known), default=0.0) or 1.0
    lines = [
        Text(f"{phase:<9}{_ms(value):>9} ").append(bar(value / longest, 20, unicode), "cyan")
        for phase, value in known
    ]
    return Section(
        f"a batch, median of {timings['batches']}: {_ms(timings['whole'])}", lines, len(lines)
    )


# --- lines ---


def bar(ratio: float, cells: int, unicode: bool = True) -> str:
    """Return a bar of `cells` cells, full from ratio 1 on; any ratio above 0.005 is visible."""
    if not unicode:
        full = min(cells, max(round(ratio * cells), 1 if ratio > 0.005 else 0))
        return "#" * full + "." * (cells - full)
    eighths = min(8 * cells, max(round(ratio * 8 * cells), 1 if ratio > 0.005 else 0))
    text = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return text + " " * (cells - len(text))


def _stacked(sections: Sequence[Section], height: int, width: int) -> list[Text]:
    """Return sections below each other; where the height is too small, they share it."""
    sections = [section for section in sections if section.whole or len(sections) <= 2]
    if not sections or height <= 0:
        return []
    needs = [1 + len(section.lines) for section in sections]
    room = height - (len(sections) - 1)
    given = [0] * len(sections)
    while room > 0 and any(given[at] < needs[at] for at in range(len(sections))):
        for at, need in enumerate(needs):
            if room > 0 and given[at] < need:
                given[at], room = given[at] + 1, room - 1
    lines: list[Text] = []
    for section, part in zip(sections, given, strict=True):
        lines += [Text("")] if lines and part else []
        lines += section.fitted(part, width)
    return lines[:height]


def _beside(left: list[Text], right: list[Text], half: int) -> list[Text]:
    lines = []
    for at in range(max(len(left), len(right))):
        line = left[at].copy() if at < len(left) else Text("")
        line.append(" " * (half + 2 - cell_len(line.plain)))
        lines.append(line.append_text(right[at]) if at < len(right) else line)
    return lines


def _cut(line: Text, width: int) -> Text:
    line = line.copy()
    line.truncate(width, overflow="crop" if line.plain.isascii() else "ellipsis")
    line.no_wrap = True
    return line


def _fitted(name: str, width: int, unicode: bool) -> str:
    """Return a name in exactly `width` columns. Its end is kept: it tells brokers apart."""
    if cell_len(name) <= width:
        return set_cell_size(name, width)
    return ("…" if unicode else "~") + name[1 - width :]


def _number(value: float) -> str:
    """Return a figure with about four characters: 0.12, 12.3, 1234, 12k, 3.4M."""
    size = abs(value)
    for least, divisor, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= least:
            return f"{value / divisor:.{1 if size / divisor < 100 else 0}f}{letter}"
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1000:.1f} s" if value >= 10_000 else f"{value:.0f} ms"
