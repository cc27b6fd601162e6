"""A heat map as SVG text: a row for each broker, time from left to right, usage as colour."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import groupby

from lb_stream.cli.report.svg import (
    BOTTOM,
    LABEL_HEIGHT,
    RIGHT,
    TOP,
    WIDTH,
    open_svg,
    short_names,
    time_axis,
    time_scale,
)
from lb_stream.io.messages.shown import in_html

LIMITS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
"""Usage up to which each colour but the last is used.

Above 0.85 a broker is overloaded; above 1 its load exceeds its capacity.
"""
_LIGHT = (
    "#eef3f8",
    "#dbe8f4",
    "#c1d9ee",
    "#a2c6e5",
    "#7fb0da",
    "#5b97cc",
    "#3c7cb8",
    "#245f9b",
    "#f0912b",
    "#c8261e",
)
_DARK = (
    "#202a35",
    "#22354a",
    "#274661",
    "#2d5879",
    "#356b92",
    "#4080ac",
    "#5097c8",
    "#70b5e8",
    "#f0a33a",
    "#ff5b4d",
)


def _colours(colours: Sequence[str]) -> str:
    return " ".join(f"--h{at}: {colour};" for at, colour in enumerate(colours))


HEAT_STYLE = (
    f":root {{ {_colours(_LIGHT)} }}\n@media (prefers-color-scheme: dark) {{ :root {{ "
    f"{_colours(_DARK)} }} }}\n"
    + "".join(
        f".h{at} {{ stroke: var(--h{at}); }} .scale .h{at} {{ background: var(--h{at}); }}\n"
        for at in range(len(_LIGHT))
    )
    + f".heat path {{ fill: none; stroke-width: {LABEL_HEIGHT - 1}; }} .heat path.drained {{ "
    f"stroke: var(--ink); stroke-width: 1.5; }}\n"
    + ".scale i { display: inline-block; width: 18px; height: 11px; margin: 0 1px -1px 0; } .scale "
    "i.from { margin-left: 12px; }\n"
)
HEAT_KEY = (
    '<span class="scale">'
    + "".join(f'<i class="h{at}"></i>' for at in range(8))
    + ' 0 to 85 % <i class="h8 from"></i> to 100 % <i class="h9 from"></i> above: more load '
    "than capacity.</span> A line through a row: drained; an empty row: dead."
)
"""The meaning of the colours, as HTML."""


def heat_map(
    identity: str,
    title: str,
    times_ms: Sequence[int],
    rows: Mapping[str, Sequence[float | None]],
    drained: Mapping[str, Sequence[bool]],
) -> str:
    """Draw a row for each broker: its usage over time (None: dead), its last usage at the right."""
    height = TOP + LABEL_HEIGHT * len(rows) + BOTTOM
    x = time_scale(times_ms)
    edges = [x(at_ms) for at_ms in times_ms] + [WIDTH - RIGHT]
    paths: dict[str, list[str]] = {}
    labels, short = [], short_names(rows)
    for number, (name, line) in enumerate(rows.items()):
        middle = TOP + LABEL_HEIGHT * (number + 0.5)
        colours = [
            None if value is None else f"h{bisect_left(LIMITS, round(value, 6))}" for value in line
        ]
        for kinds in (
            colours,
            ["drained" if is_drained else None for is_drained in drained.get(name, ())],
        ):
            for kind, first, last in _runs(kinds):
                paths.setdefault(kind, []).append(
                    f"M{edges[first]:.1f} {middle:g}H{edges[last]:.1f}"
                )
        value = f" {line[-1]:.0%}" if line and line[-1] is not None else ""
        place = f'x="{WIDTH - RIGHT + 8}" y="{middle + 4:g}"'
        labels.append(
            '<text class="axis" '
            f"{place}><title>{in_html(name)}</title>{in_html(short[name] + value)}</text>"
        )
    drawn = [
        f'<path class="{kind}" d="{"".join(parts)}"/>'
        for kind, parts in sorted(paths.items(), key=lambda item: (item[0] == "drained", item))
    ]
    cursor = (
        f'<line class="cursor" x1="0" x2="0" y1="{TOP}" y2="{height - BOTTOM}" '
        'visibility="hidden"/></svg>'
    )
    return "".join(
        [
            open_svg(identity, title, height),
            *time_axis(x, times_ms, height),
            '<g class="heat" data-name="usage">',
            *drawn,
            "</g>",
            *labels,
            cursor,
        ]
    )


def _runs(kinds: Sequence[str | None]) -> list[tuple[str, int, int]]:
    """Return runs of equal kinds: kind, first index, index after the last."""
    found, at = [], 0
    for kind, run in groupby(kinds):
        first, at = at, at + sum(1 for _ in run)
        if kind is not None:
            found.append((kind, first, at))
    return found
