"""The dashboard of `lbctl monitor`: lines of text that fit a screen. Nothing depends on colour.

Every line is cut at the screen's width; the sections share its height. Wide screens show more
figures, and sections side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from lb_stream.io.messages.shown import shown_within
from lb_stream.io.messages.times import ago, clock, day_of, short_clock
from lb_stream.query.lake import Row
from lb_stream.query.snapshot import PHASES, Rows, Snapshot, measure_imbalance
from lb_stream.query.wording import NOTHING_DECIDED, PENDING, describe_outcome

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
    """A heading and its lines, the most important line first."""

    heading: str
    lines: Sequence[Text] = ()

    def fit(self, height: int, width: int) -> list[Text]:
        """Return at most `height` lines: the heading, lines, a note on those left out."""
        if height <= 0:
            return []
        room, total, heading = height - 1, len(self.lines), self.heading
        shown = list(self.lines[:room])
        if room == 1 and total > 1:
            heading = f"{heading}, 1 of {total}"
        elif room and len(shown) < total:
            shown = [*shown[: room - 1], Text(f"and {total - room + 1} more", "dim")]
        return [_cut(Text(heading, "bold"), width), *(_cut(line, width) for line in shown)]


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs of a terminal: those of Unicode, or of ASCII where it knows no others."""

    arrow: str
    dot: str
    dash: str
    times: str
    confirmed: str
    pending: str
    failed: str
    cut: str


UNICODE_SIGNS = Signs("→", "·", "–", "×", "✓", "…", "✗", "…")
ASCII_SIGNS = Signs("->", "-", "..", "x", "+", ".", "x", "~")


def render(snapshot: Snapshot, width: int, height: int | None, unicode: bool = True) -> list[Text]:
    """Return the dashboard's lines within `width` columns and `height` lines.

    Without a height, all lines are returned, and none is cut.
    """
    snapshot = _with_short_names(_with_visible_names(snapshot))
    signs = UNICODE_SIGNS if unicode else ASCII_SIGNS
    is_wide = width >= WIDE
    half_width = (width - 2) // 2
    head = _build_head(snapshot, width if height is not None else None, signs)
    pending = _build_pending(snapshot, signs)
    decisions = _build_decisions(snapshot, half_width if is_wide else width, signs)
    refusals = _build_refusals(snapshot, signs)
    timings = _build_timings(snapshot, unicode)
    # without a height: all lines of all sections
    if height is None:
        lines = [*head]
        table = _build_brokers(snapshot, width, None, unicode)
        for section in (table, pending, decisions, refusals, timings):
            lines += [Text(""), Text(section.heading, "bold"), *section.lines]
        return lines
    # the brokers get half of the height, the other sections get the rest
    free = height - len(head) - 1
    max_brokers = min(len(snapshot.brokers), max(3, free // 2 - 1))
    table = _build_brokers(snapshot, width, max_brokers, unicode)
    brokers = table.fit(1 + max_brokers, width)
    below = free - len(brokers) - 1
    lines = [*(_cut(line, width) for line in head), Text(""), *brokers, Text("")]
    if is_wide:
        left = _stack([pending, decisions], below, half_width)
        right = _stack([refusals, timings], below, half_width)
        lines += _join_halves(left, right, half_width)
    else:
        shown = [pending, decisions, refusals] if snapshot.pending else [decisions, refusals]
        lines += _stack(shown, below, width)
    return lines[:height]


def _with_visible_names(snapshot: Snapshot) -> Snapshot:
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

    return replace(
        snapshot,
        brokers=shorten(snapshot.brokers),
        pending=shorten(snapshot.pending),
        decisions=shorten(snapshot.decisions),
        refusals=shorten(snapshot.refusals),
    )


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
    if len(names) > 1:
        return shared
    return shared[shared.rfind(":") :] if ":" in shared else ""


def _is_bare(end: str) -> bool:
    """Return whether an end is part of a numeric address, such as `.1:80` of 10.0.0.1:80."""
    return end[0] == "." and not any(letter.isalpha() for letter in end)


# --- the head ---


MAX_CLUSTERS = 3
"""Clusters with lines of their own at the top."""


def _build_head(snapshot: Snapshot, width: int | None, signs: Signs) -> list[Text]:
    """Return the lines at the top: a warning, the first clusters, the job's batches."""
    lines = [Text(snapshot.trouble, "red")] if snapshot.trouble else []
    for row in snapshot.clusters[:MAX_CLUSTERS]:
        lines.append(_build_cluster_line(snapshot, row, width, signs))
        if row["error"]:
            last_line = row["error"].strip().splitlines()[-1]
            lines.append(Text(f"its last round failed: {last_line}", "red"))
    if not snapshot.clusters:
        lines.append(Text("no round has been logged yet", "bold"))
    if (more := len(snapshot.clusters) - MAX_CLUSTERS) > 0:
        lines.append(Text(f"and {more} more clusters: --cluster NAME shows one", "dim"))
    if snapshot.timings:
        lines.append(_build_batches_line(snapshot.timings, signs))
    return lines


def _build_cluster_line(snapshot: Snapshot, cluster: Row, width: int | None, signs: Signs) -> Text:
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

    def build_line(round_time: str) -> Text:
        text = f" {signs.dot} ".join([*parts, round_time])
        return Text.assemble((name, "bold"), " ", text)

    line = build_line(f"{clock(now_ms)}, {ago(now_ms)}")
    fits = width is None or cell_len(line.plain) <= width
    return line if fits else build_line(ago(now_ms))


def _build_batches_line(timings: Row, signs: Signs) -> Text:
    lag = timings["lag_records"] or 0
    parts = (
        f"batches of {_format_ms(timings['whole'])}, at most {_format_ms(timings['whole_max'])}",
        f"last {ago(timings['started_ms'])}",
        f"lag {lag} records",
    )
    return Text(f" {signs.dot} ".join(parts), "red" if lag else "")


# --- brokers ---


@dataclass(frozen=True, slots=True)
class BrokerColumns:
    """Widths of the columns of the brokers' table, in terminal cells."""

    name: int
    bar: int
    figure: int
    spans: tuple[str, ...]  # figures that are shown: columns of the snapshot

    def build_heading(self) -> str:
        """Return the headings of all columns."""
        heading = f"{'broker':<{self.name}}"
        for _, title in RESOURCES:
            heading += f" {title[: self.bar + 2] + ' %':<{self.bar + 4}}"
        for span in self.spans:
            period, _, unit = span.partition("_")
            latest = "MB/s" if unit == BYTES else "msg/s"
            heading += f"{latest if period == 'latest' else period:>{self.figure}}"
        return f"{heading} {'bundles':>7}"


BYTES, MESSAGES = "bytes_per_s", "msgs_per_s"
PERIODS = ("latest", "short", "long")


def _build_brokers(
    snapshot: Snapshot, width: int, max_brokers: int | None, unicode: bool
) -> Section:
    """Return the brokers' section, ordered by name if all fit; else the busiest come first."""
    several = len(snapshot.clusters) > 1
    rows = [
        (f"{row['cluster']}/{row['broker']}" if several else str(row["broker"]), row)
        for row in snapshot.brokers
    ]
    labels = [f"{name} {row.get('state') or ''}".rstrip() for name, row in rows]
    longest = max(map(len, labels), default=8)
    columns = _choose_columns(width, longest, cut_names=max_brokers is not None)
    if max_brokers is not None and max_brokers < len(rows):
        rows.sort(key=lambda named: (-(named[1]["usage_ratio"] or 0.0), named[0]))
    lines = [_build_broker_line(name, row, columns, unicode) for name, row in rows]
    return Section(columns.build_heading(), lines)


def _choose_columns(width: int, longest_name: int, cut_names: bool) -> BrokerColumns:
    """Choose the largest bars that leave space for the names; names are cut if they must be."""
    is_wide = width >= WIDE
    figure_width = 8 if is_wide else 6
    units = (BYTES, MESSAGES) if is_wide else (BYTES,)
    spans = tuple(f"{period}_{unit}" for unit in units for period in PERIODS)
    room = width - figure_width * len(spans) - len(" bundles")

    def bars_width(cells: int) -> int:
        return len(RESOURCES) * (cells + len("  100"))

    fitting = (cells for cells in BAR_CELLS if longest_name + bars_width(cells) <= room)
    cells = next(fitting, BAR_CELLS[-1])
    name_width = min(longest_name, room - bars_width(cells)) if cut_names else longest_name
    return BrokerColumns(max(8, name_width), cells, figure_width, spans)


def _build_broker_line(name: str, row: Row, columns: BrokerColumns, unicode: bool) -> Text:
    state = row.get("state") or ("" if row["alive"] else "dead")
    if state:
        name = f"{name[: max(1, columns.name - len(state) - 1)]} {state}"
    state_colour = "yellow" if state else ""
    colour = state_colour if row["alive"] else "red"
    line = Text(_fit_name(name, columns.name, unicode), colour)
    for resource, _ in RESOURCES:
        ratio = row[f"{resource}_ratio"] or 0.0
        line.append(" ").append(draw_bar(ratio, columns.bar, unicode), _choose_colour(ratio))
        line.append(f" {min(999, round(100 * ratio)):>3}")
    for span in columns.spans:
        value = (row[span] or 0.0) / (1e6 if span.endswith(BYTES) else 1.0)
        line.append(f"{_format_number(value):>{columns.figure}}")
    return line.append(f" {row['bundles'] or 0:>7}")


def _choose_colour(ratio: float) -> str:
    """Return the colour of a usage ratio."""
    if ratio >= HOT_RATIO:
        return "red"
    return "yellow" if ratio >= WARM_RATIO else "green"


# --- the sections below ---


def _build_pending(snapshot: Snapshot, signs: Signs) -> Section:
    lines = []
    for row in snapshot.pending:
        route = f"{row['source'] or ''} {signs.arrow} {row['destination'] or '?'}"
        decision = f"{row['kind']:<8} {_cluster_prefix(snapshot, row)}{row['bundle']}"
        lines.append(Text(f"{decision}  {route}, {ago(row['issued_ms'])}"))
    return Section(f"{PENDING}: {len(lines) or 'none'}", lines)


def _build_decisions(snapshot: Snapshot, width: int, signs: Signs) -> Section:
    if not snapshot.decisions:
        return Section(NOTHING_DECIDED)
    day = day_of(snapshot.decisions[0]["issued_ms"])
    lines = []
    for row in snapshot.decisions:
        begin = short_clock(row["issued_ms"], day)
        prefix = _cluster_prefix(snapshot, row)
        lines.append(_build_decision_line(row, begin, prefix, width, signs))
    return Section(f"last decisions, on {day}" if day else "last decisions", lines)


def _cluster_prefix(snapshot: Snapshot, row: Row) -> str:
    """Return a row's cluster where there are several: their brokers may have the same names."""
    return f"{row['cluster']}: " if len(snapshot.clusters) > 1 else ""


def _build_decision_line(row: Row, begin: str, prefix: str, width: int, signs: Signs) -> Text:
    """Return a decision's line: time, outcome, cluster, decision, and the rule where it fits."""
    sign, style = _choose_sign(row, signs)
    route = f"{row['source']} {signs.arrow} {row['destination'] or '?'}"
    if row["kind"] in ("split", "merge"):
        route = f"at {row['source']}"
    elif row["kind"] == "assign":
        route = f"{signs.arrow} {row['destination']}"
    line = Text.assemble((f"{begin} ", "dim"), (sign, style))
    line.append(f" {row['kind']:<8} {prefix}{row['bundle']} {route}")
    if row["dry_run"] or row["outcome"] not in (None, "confirmed"):
        line.append(f" {describe_outcome(row)}", style)
    elif row["took_ms"] is not None:
        line.append(f" {row['took_ms'] / 1000:.1f} s", "dim")
    rule = f" {row['rule']}"
    return line.append(rule, "dim") if cell_len(line.plain) + len(rule) <= width else line


def _choose_sign(row: Row, signs: Signs) -> tuple[str, str]:
    """Return the sign of a decision's state, and its style."""
    if row["dry_run"]:
        return "~", "dim"
    if row["outcome"] is None:
        return signs.pending, "yellow"
    return (signs.confirmed, "green") if row["outcome"] == "confirmed" else (signs.failed, "red")


def _build_refusals(snapshot: Snapshot, signs: Signs) -> Section:
    lines = []
    for row in snapshot.refusals:
        parts = [_where_refused(snapshot, row)]
        saw = [
            _format_number(value)
            for value in dict.fromkeys((row["least"], row["greatest"]))
            if value is not None
        ]
        if saw:
            parts.append(f"saw {signs.dash.join(saw)}")
        if row["limit"] is not None:
            parts.append(f"limit {_format_number(row['limit'])}")
        unit = row["unit"] if len(parts) > 1 else None
        text = f"{row['times']:>6} {signs.times} {row['rule']}  {', '.join(parts)}"
        lines.append(Text(f"{text} {unit}" if unit else text))
    heading = "refusals in ten minutes, by rule" if lines else "no refusals in ten minutes"
    return Section(heading, lines)


def _where_refused(snapshot: Snapshot, row: Row) -> str:
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


def _build_timings(snapshot: Snapshot, unicode: bool) -> Section:
    timings = snapshot.timings
    if not timings:
        return Section("no batches yet")
    known = [(phase, timings[phase]) for phase in PHASES if timings[phase] is not None]
    longest = max((value for _, value in known), default=0.0) or 1.0
    lines = [
        Text(f"{phase:<9}{_format_ms(value):>9} ").append(
            draw_bar(value / longest, 20, unicode), "cyan"
        )
        for phase, value in known
    ]
    heading = f"a batch, median of {timings['batches']}: {_format_ms(timings['whole'])}"
    return Section(heading, lines)


# --- lines ---


def draw_bar(ratio: float, cells: int, unicode: bool = True) -> str:
    """Return a bar of `cells` cells, full from ratio 1 on; any ratio above 0.005 is visible."""
    steps = 8 if unicode else 1  # per cell
    filled = min(steps * cells, max(round(ratio * steps * cells), 1 if ratio > 0.005 else 0))
    if not unicode:
        return "#" * filled + "." * (cells - filled)
    text = "█" * (filled // 8) + (_EIGHTHS[filled % 8] if filled % 8 else "")
    return text + " " * (cells - len(text))


def _stack(sections: Sequence[Section], height: int, width: int) -> list[Text]:
    """Return sections below each other; where the height is too small, they share it."""
    sections = [section for section in sections if section.lines or len(sections) <= 2]
    if not sections or height <= 0:
        return []
    # give each section one line after another, until all lines are given or the height is used up
    needs = [1 + len(section.lines) for section in sections]
    heights = [0] * len(sections)
    room = height - (len(sections) - 1)
    while room > 0 and heights != needs:
        for number, need in enumerate(needs):
            if room > 0 and heights[number] < need:
                heights[number] += 1
                room -= 1
    # an empty line between two sections
    lines: list[Text] = []
    for section, section_height in zip(sections, heights, strict=True):
        lines += [Text("")] if lines and section_height else []
        lines += section.fit(section_height, width)
    return lines[:height]


def _join_halves(left: list[Text], right: list[Text], half_width: int) -> list[Text]:
    """Return lines of the left and of the right half, side by side."""
    lines = []
    for left_line, right_line in zip_longest(left, right, fillvalue=Text("")):
        line = left_line.copy()
        line.append(" " * (half_width + 2 - cell_len(line.plain)))
        lines.append(line.append_text(right_line))
    return lines


def _cut(line: Text, width: int) -> Text:
    line = line.copy()
    line.truncate(width, overflow="crop" if line.plain.isascii() else "ellipsis")
    line.no_wrap = True
    return line


def _fit_name(name: str, width: int, unicode: bool) -> str:
    """Return a name in exactly `width` columns. Its end is kept: it tells brokers apart."""
    if cell_len(name) <= width:
        return set_cell_size(name, width)
    signs = UNICODE_SIGNS if unicode else ASCII_SIGNS
    return signs.cut + name[1 - width :]


def _format_number(value: float) -> str:
    """Return a figure with about four characters: 0.12, 12.3, 1234, 12k, 3.4M."""
    size = abs(value)
    for least, divisor, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= least:
            return f"{value / divisor:.{1 if size / divisor < 100 else 0}f}{letter}"
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def _format_ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1000:.1f} s" if value >= 10_000 else f"{value:.0f} ms"
