"""Charts as SVG text: lines over time, marks on a time axis, bars.

Each chart is complete; nothing is loaded. Coordinates are pixels of the `viewBox`; the page scales
them. Colours come from the page's style by class.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from lb_stream.io.messages.shown import in_html
from lb_stream.query.past.report_figures import find_gap_ms

WIDTH = 960
LEFT, RIGHT = 64, 150
"""Room for the axis at the left, and for the lines' names at the right."""
TOP, BOTTOM = 14, 26
LABEL_HEIGHT = 14
BESIDE = 15
"""Letters of a name that fit at the right, before its value."""
COLOURS = 8
"""Lines that have a colour of their own (classes c0 … c7); more of them are drawn grey."""

_MINUTES = (60, 120, 300, 600, 900, 1_800)
_HOURS = (3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
_TIME_STEPS_S = (1, 2, 5, 10, 15, 30, *_MINUTES, *_HOURS)
"""Steps of a time axis, up to a day."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to pixels, linearly."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return a value's position, pixels."""
        span = self.high - self.low
        if span == 0:
            return self.start
        return self.start + (value - self.low) / span * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Overlay:
    """What is drawn over lines.

    `limits`: name → value. `marks`: at the foot (ms since the epoch, class, title). `longest_ms`:
    points that are further apart have a gap between them; None: it follows from the points.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    marks: Sequence[tuple[int, str, str]] = ()
    longest_ms: int | None = None


NO_OVERLAY = Overlay()


def time_scale(times_ms: Sequence[int]) -> Scale:
    """Return the scale of times, which all charts of a cluster share."""
    begin_ms = times_ms[0]
    return Scale(begin_ms, max(times_ms[-1], begin_ms + 1), LEFT, WIDTH - RIGHT)


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers from `low` to `high`, in steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / most))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= most)
    first = math.floor(low / step)
    return [
        round((first + at) * step, 12)
        for at in range(math.ceil((high - first * step) / step - 1e-9) + 1)
    ]


def line_chart(
    identity: str,
    title: str,
    times_ms: Sequence[int],
    lines: Mapping[str, Sequence[float | None]],
    unit: str,
    height: int = 260,
    low: float = 0.0,
    ranked: bool = True,
    over: Overlay = NO_OVERLAY,
) -> str:
    """Draw lines over time with their names at the right.

    The lines with the highest peaks have colours; without `ranked`, the first ones.
    """
    x = time_scale(times_ms)
    heights = [value for line in lines.values() for value in line if value is not None]
    ticks = nice_ticks(low, max([*heights, *over.limits.values()], default=low + 1.0))
    y = Scale(ticks[0], ticks[-1] if len(ticks) > 1 else ticks[0] + 1, height - BOTTOM, TOP)
    order = sorted(lines, key=lambda name: (-_peak(lines[name]), name)) if ranked else list(lines)
    colour = {name: f"c{at}" for at, name in enumerate(order[:COLOURS])}
    axes = _grid(x, y, ticks, times_ms, height, unit, over.longest_ms)
    parts = [
        open_svg(identity, title, height, f'data-low="{y.low:g}" data-high="{y.high:g}"'),
        *axes,
    ]
    for name in reversed(order):
        kind = colour.get(name, "rest")
        paths = "".join(_paths(lines[name], times_ms, x, y, over.longest_ms))
        parts.append(f'<g class="line {kind}" data-name="{in_html(name)}">{paths}</g>')
    for value in over.limits.values():
        parts.append(
            f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" '
            f'y2="{y(value):.1f}"/>'
        )
    for at_ms, style, text in over.marks:
        at, foot = x(at_ms), height - BOTTOM
        corners = f"{at:.1f},{foot - 9} {at - 4:.1f},{foot} {at + 4:.1f},{foot}"
        parts.append(
            f'<polygon class="mark {style}" '
            f'points="{corners}"><title>{in_html(text)}</title></polygon>'
        )
    ends = {name: lines[name][-1] for name in order if name in colour}
    parts += _names_beside(
        {**{name: value for name, value in ends.items() if value is not None}, **over.limits},
        colour,
        y,
        height,
    )
    parts.append(
        f'<line class="cursor" x1="0" x2="0" y1="{TOP}" y2="{height - BOTTOM}" '
        'visibility="hidden"/></svg>'
    )
    return "".join(parts)


def _names_beside(
    values: Mapping[str, float], colour: Mapping[str, str], y: Scale, height: int
) -> list[str]:
    """Draw names with their last values at the right, each near the end of its line."""
    short, parts = short_names([name for name in values if name in colour]), []
    for name, at in _spread(
        {name: y(value) for name, value in values.items()}, TOP, height - BOTTOM
    ).items():
        text = in_html(f"{short.get(name, name)} {_figure(values[name])}")
        place = f'x="{WIDTH - RIGHT + 8}" y="{at + 4:.1f}"'
        parts.append(
            f'<text class="name {colour.get(name, "axis")}" '
            f"{place}><title>{in_html(name)}</title>{text}</text>"
        )
    return parts


def _peak(line: Sequence[float | None]) -> float:
    return max((value for value in line if value is not None), default=0.0)


def _paths(
    line: Sequence[float | None],
    times_ms: Sequence[int],
    x: Scale,
    y: Scale,
    longest_ms: int | None,
) -> list[str]:
    """Draw a polyline for each stretch without a gap; a single point is a dot."""
    stretches: list[list[tuple[float, float]]] = [[]]
    behind = {end for _, end in _gaps(times_ms, longest_ms)}
    for at_ms, value in zip(times_ms, line, strict=True):
        if value is None or at_ms in behind:
            stretches.append([])
        if value is not None:
            stretches[-1].append((x(at_ms), y(value)))
    return [
        f'<polyline points="{" ".join(f"{px:.1f},{py:.1f}" for px, py in stretch)}"/>'
        if len(stretch) > 1
        else f'<circle cx="{stretch[0][0]:.1f}" cy="{stretch[0][1]:.1f}" r="2.5"/>'
        for stretch in stretches
        if stretch
    ]


def _gaps(times_ms: Sequence[int], longest_ms: int | None) -> list[tuple[int, int]]:
    """Return the begin and end of each time without points."""
    longest = find_gap_ms(times_ms) if longest_ms is None else longest_ms
    return [(begin, end) for begin, end in pairwise(times_ms) if end - begin > longest]


def mark_chart(
    identity: str,
    title: str,
    times_ms: Sequence[int],
    rows: Mapping[str, Sequence[tuple[int, str, str]]],
    longest_ms: int | None = None,
) -> str:
    """Draw marks on the time axis, a row for each kind. A mark: time (ms), class, title."""
    height = TOP + 22 * max(1, len(rows)) + BOTTOM
    x = time_scale(times_ms)
    parts = [open_svg(identity, title, height), *time_axis(x, times_ms, height, longest_ms)]
    for number, (kind, marks) in enumerate(rows.items()):
        top = TOP + 22 * number
        parts.append(
            f'<text class="axis" x="{LEFT - 8}" y="{top + 13}" '
            f'text-anchor="end">{in_html(kind)}</text>'
        )
        parts.append(
            f'<text class="axis" x="{WIDTH - RIGHT + 8}" y="{top + 13}">{len(marks)}</text>'
        )
        for at_ms, style, text in marks:
            place = f'x1="{x(at_ms):.1f}" x2="{x(at_ms):.1f}" y1="{top}" y2="{top + 17}"'
            parts.append(
                f'<line class="mark {style}" {place}><title>{in_html(text)}</title></line>'
            )
    return "".join(
        [
            *parts,
            f'<line class="cursor" x1="0" x2="0" y1="{TOP}" y2="{height - BOTTOM}" '
            'visibility="hidden"/></svg>',
        ]
    )


def scatter_chart(
    identity: str,
    title: str,
    points: Mapping[str, Sequence[tuple[float, float, str]]],
    across: str,
    up: str,
) -> str:
    """Draw points. The first of a name is large, and the name stands beside the chart.

    A point: x, y, title. `across`, `up`: names of the axes. Each name has at least one point.
    """
    height = 300
    all_points = [point for named in points.values() for point in named]
    # scales
    right = nice_ticks(0.0, max((across_at for across_at, _, _ in all_points), default=0.0) or 1.0)
    high = max((up_at for _, up_at, _ in all_points), default=1.0)
    low = min((up_at for _, up_at, _ in all_points), default=0.0)
    ticks = nice_ticks(low, high if high > low else low + 0.1)
    x = Scale(0.0, right[-1], LEFT, WIDTH - RIGHT)
    y = Scale(ticks[0], ticks[-1], height - BOTTOM - LABEL_HEIGHT, TOP)
    parts = [open_svg(identity, title, height), *_levels(y, ticks)]
    for tick in right:
        parts.append(
            f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{y.end}" '
            f'y2="{y.start}"/>'
        )
        parts.append(
            f'<text class="axis" x="{x(tick):.1f}" y="{y.start + 18}" '
            f'text-anchor="middle">{_figure(tick)}</text>'
        )
    parts.append(
        f'<text class="axis" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{height - 2}" '
        f'text-anchor="middle">{in_html(across)}</text>'
    )
    parts.append(_upright(up, y.start / 2))
    colour = {name: f"c{at}" if at < COLOURS else "rest" for at, name in enumerate(points)}
    for name, named in points.items():
        dots = [
            f'<circle cx="{x(across_at):.1f}" cy="{y(up_at):.1f}" '
            f'r="{3 if number else 6}"><title>{in_html(text)}</title></circle>'
            for number, (across_at, up_at, text) in enumerate(named)
        ]
        parts.append(
            f'<g class="line {colour[name]}" data-name="{in_html(name)}">{"".join(dots)}</g>'
        )
    ends = {name: y(named[0][1]) for name, named in points.items() if colour[name] != "rest"}
    for name, at in _spread(ends, TOP, y.start).items():
        place = f'x="{WIDTH - RIGHT + 8}" y="{at + 4:.1f}"'
        parts.append(
            f'<text class="name {colour[name]}" '
            f"{place}><title>{in_html(name)}</title>{in_html(_middle_out(name, 18))}</text>"
        )
    return "".join([*parts, "</svg>"])


def bar_chart(identity: str, title: str, bars: Sequence[tuple[str, str, float]], unit: str) -> str:
    """Draw horizontal bars over an axis with its unit. A bar: name, a text beside it, value."""
    height, left, right = 20 * len(bars) + 8 + BOTTOM, 320, 200
    ticks = nice_ticks(0.0, max((value for _, _, value in bars), default=1.0) or 1.0)
    x, foot = Scale(0.0, ticks[-1], 0, WIDTH - left - right), height - BOTTOM
    parts = [open_svg(identity, title, height)]
    for tick in ticks:
        at = f"{left + x(tick):.1f}"
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="0" y2="{foot}"/>')
        parts.append(
            f'<text class="axis" x="{at}" y="{height - 8}" '
            f'text-anchor="middle">{_figure(tick)}</text>'
        )
    parts.append(
        f'<text class="axis" x="{left - 16}" y="{height - 8}" '
        f'text-anchor="end">{in_html(unit)}</text>'
    )
    for number, (name, word, value) in enumerate(bars):
        top = 20 * number + 4
        label = f"<title>{in_html(name)}</title>{in_html(_middle_out(name, 46))}"
        parts.append(
            f'<text class="axis" x="{left - 8}" y="{top + 12}" text-anchor="end">{label}</text>'
        )
        parts.append(
            f'<rect class="bar" x="{left}" y="{top}" width="{max(1.0, x(value)):.1f}" height="15" '
            'rx="2"/>'
        )
        parts.append(
            f'<text class="axis" x="{left + x(value) + 8:.1f}" y="{top + 12}">{_figure(value)} '
            f"{in_html(unit)}, {in_html(word)}</text>"
        )
    return "".join([*parts, "</svg>"])


def open_svg(identity: str, title: str, height: int, more: str = "") -> str:
    """Return the begin of a chart; `</svg>` ends it."""
    return (
        f'<svg id="{in_html(identity)}" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{in_html(title)}" {more}>'
    )


def _grid(
    x: Scale,
    y: Scale,
    ticks: Sequence[float],
    times_ms: Sequence[int],
    height: int,
    unit: str,
    longest_ms: int | None,
) -> list[str]:
    named = [_upright(unit, (TOP + y.start) / 2)] if unit else []
    return [*time_axis(x, times_ms, height, longest_ms), *_levels(y, ticks), *named]


def _upright(text: str, middle: float) -> str:
    """Draw the name of a vertical axis beside it."""
    return (
        f'<text class="axis" x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 '
        f'{middle})">{in_html(text)}</text>'
    )


def _levels(y: Scale, ticks: Sequence[float]) -> list[str]:
    """Draw the grid lines of a vertical axis, and their figures."""
    return [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" '
        f'y2="{y(tick):.1f}"/>'
        f'<text class="axis" x="{LEFT - 8}" y="{y(tick) + 4:.1f}" '
        f'text-anchor="end">{_figure(tick)}</text>'
        for tick in ticks
    ]


def time_axis(
    x: Scale, times_ms: Sequence[int], height: int, longest_ms: int | None = None
) -> list[str]:
    """Draw at most six times in UTC, with the date on an axis of over a day. Gaps are grey."""
    begin, end = int(x.low), int(x.high)
    form = "%m-%d %H:%M"
    if end - begin < 3_600_000:
        form = "%H:%M:%S"
    elif end - begin < 86_400_000:
        form = "%H:%M"
    step = 1000 * next(
        (seconds for seconds in _TIME_STEPS_S if (end - begin) / 1000 / seconds <= 6),
        -(-(end - begin) // 6_000 // 86_400) * 86_400 or 86_400,
    )
    parts = []
    for first, last in _gaps(times_ms, longest_ms):
        sentence = " to ".join(
            datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
            for at_ms in (first, last)
        )
        place = (
            f'x="{x(first):.1f}" y="{TOP}" width="{x(last) - x(first):.1f}" '
            f'height="{height - BOTTOM - TOP}"'
        )
        parts.append(f'<rect class="gap" {place}><title>no points from {sentence}</title></rect>')
    for at_ms in range(-(-begin // step) * step, end + 1, step):
        text = datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)
        parts.append(
            f'<line class="grid" x1="{x(at_ms):.1f}" x2="{x(at_ms):.1f}" y1="{TOP}" '
            f'y2="{height - BOTTOM}"/>'
        )
        parts.append(
            f'<text class="axis" x="{x(at_ms):.1f}" y="{height - 8}" '
            f'text-anchor="middle">{text}</text>'
        )
    return parts


def _spread(ends: Mapping[str, float], top: float, bottom: float) -> dict[str, float]:
    """Return heights for the lines' names: near their ends, and far enough apart to be read."""
    placed: dict[str, float] = {}
    last = top - LABEL_HEIGHT
    for name, at in sorted(ends.items(), key=lambda item: item[1]):
        last = placed[name] = max(at, last + LABEL_HEIGHT)
    over = last - bottom
    if over > 0:  # push back up, from the lowest on
        limit = bottom
        for name in reversed(list(placed)):
            placed[name] = min(placed[name], limit)
            limit = placed[name] - LABEL_HEIGHT
    return placed


def short_names(names: Collection[str]) -> dict[str, str]:
    """Return name → the short name that fits beside a chart, without the domain that all share."""
    hosts = {name: name.rpartition(":")[0] or name for name in names}
    while any(len(host) > BESIDE for host in hosts.values()):
        shorter = {name: host.rpartition(".") for name, host in hosts.items()}
        if len({tail for _, _, tail in shorter.values()}) > 1 or not all(
            rest for rest, _, _ in shorter.values()
        ):
            break
        hosts = {name: rest for name, (rest, _, _) in shorter.items()}
    return {name: _middle_out(host, BESIDE) for name, host in hosts.items()}


def _middle_out(name: str, most: int) -> str:
    """Shorten a name to at most `most` letters: keep its begin and its end."""
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most // 2) :]}"


def _figure(value: float) -> str:
    if abs(value) >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
