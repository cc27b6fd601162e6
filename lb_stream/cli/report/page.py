"""The report's page: one HTML file that needs nothing else. Charts are drawn here; a few lines of script show figures under the pointer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from lb_stream.cli.report.svg import COLOURS, bar_chart, line_chart, mark_chart
from lb_stream.io.messages.shown import in_html, shown_within
from lb_stream.query.report_figures import ENDS, MOST_DECISIONS, ClusterFigures, Row

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""The browser itself sees to it that nothing is loaded."""

SHORT = 24
"""Cells of so many letters are not broken into lines."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #ffffff; --card: #f5f7fa; --rule: #dfe4ea; --bar: #3f7fbf;
  --good: #2f8f57; --bad: #c23b3b; --wait: #b7791f;
  --c0: #0b6fb8; --c1: #d1540a; --c2: #128a63; --c3: #b04a8f; --c4: #a97700; --c5: #4b5bd6; --c6: #7a5230; --c7: #577083; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa5b4; --paper: #14181e; --card: #1c222b; --rule: #2d3641;
  --bar: #5b9bd5; --good: #54b87f; --bad: #ea6a6a; --wait: #d9a441;
  --c0: #56b4f0; --c1: #f58a4b; --c2: #43c59a; --c3: #e08cc4; --c4: #e0b640; --c5: #97a4ff; --c6: #c99a6e; --c7: #9fb3c4; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1040px; padding: 24px 28px 64px; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 24px; margin: 0 0 2px; } h2 { font-size: 20px; margin: 44px 0 2px; } h3 { font-size: 15px; margin: 28px 0 6px; }
p { margin: 4px 0; } .soft, caption { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(210px, 50% - 5px), 1fr)); gap: 10px; margin: 14px 0; }
.tile { background: var(--card); border-radius: 8px; padding: 10px 14px; }
.tile b { display: block; font-size: 22px; font-weight: 600; white-space: nowrap; }
.tile span { color: var(--soft); font-size: 13px; }
svg { display: block; width: 100%; min-width: 720px; height: auto; font-size: 12px; overflow: visible; }
svg text { fill: var(--ink); } svg text.axis { fill: var(--soft); } .grid { stroke: var(--rule); stroke-width: 1; }
.line polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .line circle { stroke: none; }
.line.rest polyline { stroke: var(--rule); stroke-width: 1; } .line.rest circle { fill: var(--rule); }
.mark { stroke-width: 2.5; stroke: var(--soft); } .mark.confirmed { stroke: var(--good); } .mark.failed { stroke: var(--bad); }
.mark.open { stroke: var(--wait); } .mark.dry { stroke: var(--soft); stroke-dasharray: 3 2; }
.bar { fill: var(--bar); } .cursor { stroke: var(--soft); stroke-dasharray: 3 3; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--soft); font-weight: 500; } td.number, th.number { text-align: right; } td { overflow-wrap: anywhere; min-width: 17em; }
td.short, td.number { min-width: 0; } td.short, th { white-space: nowrap; overflow-wrap: normal; } .scroll + .scroll { margin-top: 14px; }
.scroll, .timed { overflow-x: auto; } .confirmed { color: var(--good); } .failed { color: var(--bad); } .open { color: var(--wait); }
.key i { display: inline-block; width: 3px; height: 12px; margin: 0 5px -1px 14px; background: currentColor; }
#tip { position: fixed; pointer-events: none; background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: 6px 10px;
  font-size: 12px; white-space: pre; box-shadow: 0 2px 10px rgb(0 0 0 / 20%); font-variant-numeric: tabular-nums; }
"""
_COLOURS = "".join(
    f".c{at} polyline {{ stroke: var(--c{at}); }} .c{at} circle {{ fill: var(--c{at}); }} svg text.c{at} {{ fill: var(--c{at}); }}\n"
    for at in range(COLOURS)
)

_SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
for (const section of document.querySelectorAll("section[data-cluster]")) {
  const of = data.clusters.find((one) => one.cluster === section.dataset.cluster);
  const charts = [...section.querySelectorAll("svg.timed, .timed svg")];
  const [left, right] = [data.left, data.right];
  const hide = () => { tip.hidden = true; charts.forEach((one) => one.querySelector(".cursor").setAttribute("visibility", "hidden")); };
  const show = (event, chart) => {
    const box = chart.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * data.width;
    if (x < left - 5 || x > right + 5) return hide();
    const [begin, end] = [of.times_ms[0], of.times_ms[of.times_ms.length - 1]];
    const at_ms = begin + (x - left) / (right - left) * (end - begin);
    let at = 0;
    of.times_ms.forEach((time, number) => { if (Math.abs(time - at_ms) < Math.abs(of.times_ms[at] - at_ms)) at = number; });
    const place = left + (end > begin ? (of.times_ms[at] - begin) / (end - begin) : 0) * (right - left);
    charts.forEach((one) => {
      const cursor = one.querySelector(".cursor");
      for (const name of ["x1", "x2"]) cursor.setAttribute(name, place);
      cursor.setAttribute("visibility", "visible");
    });
    const lines = Object.entries(of.loads).map(([name, values]) => [name, values[at]]).filter(([, value]) => value !== null);
    lines.sort((one, other) => other[1] - one[1]);
    const told = lines.slice(0, 12).map(([name, value]) => (value / 1e6).toFixed(2).padStart(9) + " MB/s  " + name);
    if (lines.length > 12) told.push("and " + (lines.length - 12) + " more");
    const since = at ? of.seqs[at - 1] : of.seqs[0] - 1;
    const made = of.decisions.filter((one) => one.seq > since && one.seq <= of.seqs[at]);
    const ratio = of.max_over_mean[at];
    const head = "round " + of.seqs[at] + ", " + new Date(of.times_ms[at]).toISOString().slice(11, 19)
      + (ratio === null ? "" : ", max/mean " + ratio.toFixed(2)) + (made.length ? ", " + made.length + " decisions" : "");
    tip.textContent = [head, ...told].join("\\n");
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


def page(figures: Sequence[ClusterFigures], left_out: int, made_ms: int) -> str:
    """The whole page. `left_out`: clusters for which there is no room."""
    from lb_stream.cli.report.svg import LEFT, RIGHT, WIDTH

    begin = min((one.rounds["begin_ms"] for one in figures if one.rounds["begin_ms"]), default=made_ms)
    end = max((one.rounds["end_ms"] for one in figures if one.rounds["end_ms"]), default=made_ms)
    title = f"Balance of {figures[0].cluster}" if len(figures) == 1 else f"Balance of {len(figures)} clusters"
    more = f'<p class="soft">{left_out} more clusters are not shown: --cluster NAME shows one.</p>' if left_out else ""
    data = {"clusters": [_under_pointer(one) for one in figures], "left": LEFT, "right": WIDTH - RIGHT, "width": WIDTH}
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="generator" content="lbctl report">',
            f"<title>{in_html(title)}</title><style>{_STYLE}{_COLOURS}</style></head>\n<body>",
            f'<h1>{in_html(title)}</h1><p class="soft">{_time(begin)} to {_time(end)}, times in UTC; written {_time(made_ms)}.</p>{more}\n',
            *(_section(one, len(figures) > 1) for one in figures),
            '<div id="tip" hidden></div>\n',
            f'<script type="application/json" id="data">{_json(data)}</script>\n<script>{_SCRIPT}</script></body></html>\n',
        ]
    )


def _under_pointer(one: ClusterFigures) -> Row:
    """What the script needs."""
    decisions = [{"seq": row["seq"], "decision_id": row["decision_id"]} for row in one.decisions]
    return {name: getattr(one, name) for name in ("cluster", "times_ms", "seqs", "loads", "max_over_mean", "std_over_mean")} | {
        "decisions": decisions
    }


def _json(value: Any) -> str:
    """JSON that ends no script element, whatever names hold."""
    return json.dumps(shown_within(value), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _section(one: ClusterFigures, several: bool) -> str:
    heading = f"<h2>{in_html(one.cluster)}</h2>" if several else ""
    if not one.times_ms:
        return f'<section data-cluster="{in_html(one.cluster)}">{heading}<p>No broker has reported in this time.</p></section>\n'
    grey = f" The {COLOURS} with the highest peaks have a colour." if len(one.loads) > COLOURS else ""
    if one.brokers > len(one.loads):
        grey += f" The {len(one.loads)} busiest of {one.brokers} brokers are drawn."
    per_point = f" Each point is the mean of {one.rounds_per_point} rounds." if one.rounds_per_point > 1 else ""
    megabytes = {name: [None if value is None else value / 1e6 for value in line] for name, line in one.loads.items()}
    spread = {"max ÷ mean": one.max_over_mean, "std ÷ mean": one.std_over_mean}
    number = in_html(one.cluster)
    loads = line_chart(f"loads-{number}", "load of each broker", one.times_ms, megabytes, "MB/s")
    uneven = line_chart(f"spread-{number}", "imbalance", one.times_ms, spread, "", height=170)
    marks = mark_chart(f"decisions-{number}", "decisions over time", one.times_ms, _marks(one))
    parts = [
        f'<section data-cluster="{number}">{heading}{_tiles(one)}',
        _chart("Load of each broker, MB/s", f"Throughput in and out, as reported.{grey}{per_point}", loads),
        _chart(
            "Imbalance of throughput",
            "The busiest living broker over the mean (1 is perfect); standard deviation over the mean (0 is).",
            uneven,
        ),
        _chart("Decisions", _key(one), marks),
        _reasons(one),
        _thrash(one),
        _bundles(one, number),
        _refusals(one),
        _decisions(one),
        "</section>\n",
    ]
    return "".join(parts)


def _chart(title: str, words: str, chart: str) -> str:
    """A chart on the time axis; `words` may be marked up."""
    return f'<h3>{title}</h3><p class="key soft">{words}</p><div class="timed">{chart}</div>'


def _tiles(one: ClusterFigures) -> str:
    real = [row for row in one.decisions if not row["dry_run"]]
    confirmed = sum(row["outcome"] == "confirmed" for row in real)
    first, last = one.first_last or ({}, {})
    tiles = [
        (f"{one.rounds['rounds'] or 0}", "rounds" + (f", {one.rounds['failed']} failed" if one.rounds["failed"] else "")),
        (f"{one.brokers}", "brokers"),
        (
            f"{len(one.decisions)}",
            "decisions" + ("" if len(real) == len(one.decisions) else f", {len(one.decisions) - len(real)} in dry runs"),
        ),
        (f"{confirmed}", f"confirmed of {len(real)}"),
        (f"{_two(first.get('max_over_mean'))} → {_two(last.get('max_over_mean'))}", "max ÷ mean, first → last"),
        (f"{_two(first.get('std_over_mean'))} → {_two(last.get('std_over_mean'))}", "std ÷ mean, first → last"),
        (f"{len(one.thrash.returned)}", f"moves came back within {one.thrash.within} rounds"),
        (f"{one.thrash.redundant} of {one.thrash.moves}", "moves redundant"),
    ]
    return (
        '<div class="tiles">'
        + "".join(f'<div class="tile"><b>{value}</b><span>{in_html(text)}</span></div>' for value, text in tiles)
        + "</div>"
    )


def _style_of(row: Row) -> str:
    if row["dry_run"]:
        return "dry"
    return {None: "open", "confirmed": "confirmed"}.get(row["outcome"], "failed")


def _key(one: ClusterFigures) -> str:
    words = {"confirmed": "confirmed", "failed": "refused, expired, superseded or failed", "open": "open", "dry": "dry run"}
    used = {_style_of(row) for row in one.decisions}
    return "".join(f'<span class="{name}"><i></i></span>{text}' for name, text in words.items() if name in used)


def _marks(one: ClusterFigures) -> dict[str, list[tuple[int, str, str]]]:
    rows: dict[str, list[tuple[int, str, str]]] = {}
    for row in one.decisions:
        rows.setdefault(row["kind"], []).append(
            (row["issued_ms"], _style_of(row), f"{row['decision_id']} {_what(row)}: {row['rule']}, {_end(row)}")
        )
    return dict(sorted(rows.items()))


def _what(row: Row) -> str:
    return f"{row['kind']} {row['bundle']} " + " → ".join(name for name in (row["source"], row["destination"]) if name)


def _end(row: Row) -> str:
    if row["dry_run"]:
        return "dry run"
    return "open" if row["outcome"] is None else f"{row['outcome']} in {row['took_ms'] / 1000:.1f} s"


def _reasons(one: ClusterFigures) -> str:
    ends = [name for name in ENDS if any(row[name] for row in one.reasons)]
    columns = ["kind", "reason", "rule", "decisions", *ends]
    return _table("reasons", "Reasons", columns, [[row[name] for name in columns] for row in one.reasons], "nothing was decided")


def _thrash(one: ClusterFigures) -> str:
    thrash = one.thrash
    note = (
        f"{thrash.moves} confirmed moves; {len(thrash.returned)} of them were undone within {thrash.within} rounds; "
        f"{thrash.redundant} lie on cycles: without them every bundle would be where it is."
    )
    rows = [[row["bundle"], " → ".join(row["brokers"]), row["moves"]] for row in thrash.cycles]
    cycles = _table("cycles", "", ["bundle", "cycle", "moves"], rows, "") if rows else ""
    back = [[row["bundle"], row["broker"], row["left_in"], row["back_in"]] for row in thrash.returned]
    returned = _table("returned", "", ["bundle", "came back to", "left in round", "back in round"], back, "") if back else ""
    return f'<h3>Thrashing</h3><p class="soft">{note}</p>{returned}{cycles}'


def _bundles(one: ClusterFigures, number: str) -> str:
    bars = [(row["bundle"], row["owner"] or "nobody", (row["short_bytes_per_s"] or 0.0) / 1e6) for row in one.bundles]
    if not bars:
        return ""
    chart = bar_chart(f"bundles-{number}", "heaviest bundles", bars, "MB/s")
    return f'<h3>Heaviest bundles now, short-term MB/s, and their owners</h3><div class="scroll">{chart}</div>'


def _refusals(one: ClusterFigures) -> str:
    rows = [[row["rule"], row["times"], row["brokers"], _time(row["last_ms"]), row["why"]] for row in one.refusals]
    return _table("refusals", "Considered and not done", ["rule", "times", "brokers", "last", "why"], rows, "nothing was refused")


def _decisions(one: ClusterFigures) -> str:
    rows = [
        [
            row["decision_id"],
            _time(row["issued_ms"])[11:],
            row["kind"],
            row["bundle"],
            row["source"] or "",
            row["destination"] or "",
            row["rule"],
            _end(row),
        ]
        for row in reversed(one.decisions[-MOST_DECISIONS:])
    ]
    title = f"The last {len(rows)} decisions" if len(one.decisions) > len(rows) else "All decisions, the last first"
    return (
        _table("all", title, ["id", "time", "kind", "bundle", "from", "to", "rule", "outcome"], rows, "nothing was decided") if rows else ""
    )


def _table(name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> str:
    heading = f"<h3>{in_html(title)}</h3>" if title else ""
    if not rows:
        return f'{heading}<p class="soft">{in_html(empty)}</p>'
    numbers = [all(isinstance(row[at], int) for row in rows) for at in range(len(columns))]

    def cell(tag: str, value: Any, number: bool) -> str:
        kind = "number" if number else "short" if len(str(value)) <= SHORT else ""
        return f"<{tag}{f' class={kind}' if kind else ''}>{in_html(str(value))}</{tag}>"

    head = "".join(cell("th", column, number) for column, number in zip(columns, numbers, strict=True))
    body = "".join(f"<tr>{''.join(cell('td', value, number) for value, number in zip(row, numbers, strict=True))}</tr>" for row in rows)
    return f'{heading}<div class="scroll"><table data-table="{name}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
