"""The frame of HTML pages: style, headings of charts and tables, and the script of the pointer.

The script shows figures under the pointer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from lb_stream.cli.report.heat import HEAT_STYLE
from lb_stream.cli.report.svg import COLOURS, LEFT, RIGHT, WIDTH
from lb_stream.io.messages.shown import in_html, shown_within

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""The browser enforces that nothing is loaded."""

SHORT = 24
"""Cells of at most this many letters are not broken into lines."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #ffffff;
  --card: #f5f7fa; --rule: #dfe4ea; --bar: #3f7fbf;
  --good: #2f8f57; --bad: #c23b3b; --wait: #b7791f;
  --c0: #0b6fb8; --c1: #d1540a; --c2: #128a63; --c3: #b04a8f; --c4: #a97700; --c5: #4b5bd6;
  --c6: #7a5230; --c7: #577083; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa5b4; --paper: #14181e;
  --card: #1c222b; --rule: #2d3641;
  --bar: #5b9bd5; --good: #54b87f; --bad: #ea6a6a; --wait: #d9a441;
  --c0: #56b4f0; --c1: #f58a4b; --c2: #43c59a; --c3: #e08cc4; --c4: #e0b640; --c5: #97a4ff;
  --c6: #c99a6e; --c7: #9fb3c4; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1040px; padding: 24px 28px 64px; background: var(--paper);
  color: var(--ink);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 24px; margin: 0 0 2px; } h2 { font-size: 20px; margin: 44px 0 2px; }
h3 { font-size: 15px; margin: 28px 0 6px; }
p { margin: 4px 0; } .soft, caption { color: var(--soft); }
.tiles { display: grid;
  grid-template-columns: repeat(auto-fill, minmax(min(210px, 50% - 5px), 1fr)); gap: 10px;
  margin: 14px 0; }
.tile { background: var(--card); border-radius: 8px; padding: 10px 14px; }
.tile b { display: block; font-size: 22px; font-weight: 600; white-space: nowrap; }
.tile span { color: var(--soft); font-size: 13px; }
svg { display: block; width: 100%; min-width: 720px; height: auto; font-size: 12px;
  overflow: visible; }
svg text { fill: var(--ink); } svg text.axis { fill: var(--soft); }
.grid { stroke: var(--rule); stroke-width: 1; }
.line polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.line circle { stroke: none; }
.line.rest polyline { stroke: var(--rule); stroke-width: 1; }
.line.rest circle { fill: var(--rule); }
.mark { stroke-width: 2.5; stroke: var(--soft); } .mark.confirmed { stroke: var(--good); }
.mark.failed { stroke: var(--bad); }
polygon.mark { stroke: none; fill: var(--soft); } polygon.mark.confirmed { fill: var(--good); }
polygon.mark.failed { fill: var(--bad); }
polygon.mark.pending { fill: var(--wait); } .limit { stroke: var(--ink); stroke-dasharray: 6 4; }
.gap { fill: var(--card); }
.mark.pending { stroke: var(--wait); } .mark.dry { stroke: var(--soft); stroke-dasharray: 3 2; }
.bar { fill: var(--bar); } .cursor { stroke: var(--soft); stroke-dasharray: 3 3; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums;
  }
th, td { text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th { color: var(--soft); font-weight: 500; } td.number, th.number { text-align: right; }
td { overflow-wrap: anywhere; min-width: 17em; }
td.short, td.number { min-width: 0; } td.short, th { white-space: nowrap; overflow-wrap: normal; }
.scroll + .scroll { margin-top: 14px; }
.scroll, .timed { overflow-x: auto; } .confirmed { color: var(--good); }
.failed { color: var(--bad); } .pending { color: var(--wait); }
.key i { display: inline-block; width: 3px; height: 12px; margin: 0 5px -1px 14px;
  background: currentColor; }
#tip { position: fixed; pointer-events: none; background: var(--card);
  border: 1px solid var(--rule); border-radius: 6px; padding: 6px 10px;
  font-size: 12px; white-space: pre; box-shadow: 0 2px 10px rgb(0 0 0 / 20%);
  font-variant-numeric: tabular-nums; }
pre { margin: 10px 0 2px; padding: 8px 12px; background: var(--card); border-radius: 6px;
  font-size: 13px; white-space: pre-wrap; overflow-wrap: anywhere; }
summary { margin: 10px 0; cursor: pointer; }
@media print { body { max-width: none; padding: 0; } svg, td { min-width: 0; }
  th { white-space: normal; }
  .scroll, .timed { overflow: visible; } h1, h2, h3 { break-after: avoid; }
  tr, svg, .tile, li { break-inside: avoid; } }
"""
_COLOURS = "".join(
    f".c{at} polyline {{ stroke: var(--c{at}); }} .c{at} circle {{ fill: var(--c{at}); }} svg "
    f"text.c{at} {{ fill: var(--c{at}); }}\n"
    for at in range(COLOURS)
)

_SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
for (const section of document.querySelectorAll("section[data-cluster]")) {
  const series = data.clusters.find((entry) => entry.cluster === section.dataset.cluster);
  const charts = [...section.querySelectorAll("svg.timed, .timed svg")];
  const [left, right] = [data.left, data.right];
  const hide = () => {
    tip.hidden = true;
    charts.forEach((drawn) => drawn.querySelector(".cursor").setAttribute("visibility", "hidden"));
  };
  const show = (event, chart) => {
    const box = chart.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * data.width;
    if (x < left - 5 || x > right + 5) return hide();
    const times = series.times_ms;
    const [begin, end] = [times[0], times[times.length - 1]];
    const at_ms = begin + (x - left) / (right - left) * (end - begin);
    let at = 0;
    times.forEach((time, number) => {
      if (Math.abs(time - at_ms) < Math.abs(times[at] - at_ms)) at = number;
    });
    const place = left + (end > begin ? (times[at] - begin) / (end - begin) : 0) * (right - left);
    charts.forEach((drawn) => {
      const cursor = drawn.querySelector(".cursor");
      for (const name of ["x1", "x2"]) cursor.setAttribute(name, place);
      cursor.setAttribute("visibility", "visible");
    });
    const figures = Object.entries(series.loads)
      .map(([name, values]) => [name, values[at]])
      .filter(([, value]) => value !== null);
    figures.sort(([, first], [, second]) => second - first);
    const lines = figures.slice(0, 12).map(([name, value]) =>
      (value / series.divisor).toFixed(2).padStart(9) + series.unit + "  " + name);
    if (figures.length > 12) lines.push("and " + (figures.length - 12) + " more");
    tip.textContent = [series.heads[at], ...lines].join("\\n");
    tip.hidden = false;
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - wide - 8) + "px";
    tip.style.top = Math.min(event.clientY + 14, innerHeight - high - 8) + "px";
  };
  for (const chart of charts) {
    chart.addEventListener("pointermove", (event) => show(event, chart));
    chart.addEventListener("pointerleave", hide);
  }
}
document.documentElement.dataset.ready = String(data.clusters.length);
"""


def document(title: str, generator: str, body: Iterable[str]) -> str:
    """Return a page. The parts of `body` are HTML already."""
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1"><meta '
            f'name="generator" content="{generator}">',
            f"<title>{in_html(title)}</title>",
            f"<style>{_STYLE}{_COLOURS}{HEAT_STYLE}</style></head>\n<body>",
            *body,
            "</body></html>\n",
        ]
    )


def pointer_script(charts: Sequence[Mapping[str, object]]) -> str:
    """Return the end of a page's body: a script that shows figures under the pointer.

    For each section with data-cluster: `cluster` (that name), `times_ms`, for each time a text in
    `heads`, `loads` (name → a figure or None for each time), and what the figures are divided by
    and followed by: `divisor`, `unit`.
    """
    data = {"clusters": charts, "left": LEFT, "right": WIDTH - RIGHT, "width": WIDTH}
    return (
        '<div id="tip" hidden></div>\n<script type="application/json" '
        f'id="data">{_json(data)}</script>\n<script>{_SCRIPT}</script>'
    )


def _json(value: object) -> str:
    """Return JSON that can't end a script element."""
    return (
        json.dumps(shown_within(value), allow_nan=False, separators=(",", ":"))
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
    )


def chart(title: str, text: str, drawn: str) -> str:
    """Return a chart on the time axis; `text` is HTML."""
    return f'<h3>{title}</h3><p class="key soft">{text}</p><div class="timed">{drawn}</div>'


def tiles(shown: Sequence[tuple[str, str]]) -> str:
    """Return figures with their descriptions; the figures are HTML."""
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><b>{value}</b><span>{in_html(text)}</span></div>'
            for value, text in shown
        )
        + "</div>"
    )


def table(
    name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str
) -> str:
    """Return a table with its heading; `empty` is the text without rows."""
    heading = f"<h3>{in_html(title)}</h3>" if title else ""
    if not rows:
        return f'{heading}<p class="soft">{in_html(empty)}</p>'
    numbers = [all(isinstance(row[at], int) for row in rows) for at in range(len(columns))]

    def cell(tag: str, value: object, number: bool) -> str:
        kind = "number" if number else "short" if len(str(value)) <= SHORT else ""
        return f"<{tag}{f' class={kind}' if kind else ''}>{in_html(str(value))}</{tag}>"

    head = "".join(
        cell("th", column, number) for column, number in zip(columns, numbers, strict=True)
    )
    lines = [
        "".join(cell("td", value, number) for value, number in zip(row, numbers, strict=True))
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    opened = f'{heading}<div class="scroll"><table data-table="{in_html(name)}">'
    return f"{opened}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
