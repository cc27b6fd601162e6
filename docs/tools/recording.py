"""A recording of a terminal: lines with the seconds at which they came, as one moving SVG.

It shows the last lines, as a terminal does, and needs no script, font or program of others. Where
readers ask for less motion it stands still at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

ROWS = 26
"""Lines of the terminal."""
COLUMNS = 112
"""Characters of a line; what is longer is cut off."""
WIDTH, HEIGHT = 7.8, 18.0
"""Pixels of a character, and of a line."""
EDGE, HEAD = 14.0, 34.0
"""Pixels around the lines, and of the bar above them."""
LONGEST_PAUSE_S = 0.8
"""A longer pause between two lines is shown as this one."""
SHORTEST_PAUSE_S = 0.06
"""Lines that came at once follow each other as quickly as this."""
FIRST_S, LAST_S = 0.8, 9.0
"""Pauses before the first line, and after the last one until it begins anew."""


@dataclass(frozen=True, slots=True)
class RecordedLine:
    """One line of output, and when it came, in seconds since the start."""

    at_s: float
    text: str


def render_recording(command: str, recorded: Sequence[RecordedLine]) -> str:
    """Return the SVG of a command and of what it printed."""
    shown_s = find_shown_times(recorded)
    end_s = (shown_s[-1] if shown_s else 0.0) + LAST_S
    texts = [f"$ {command}", *(line.text for line in recorded)]
    appearing, rules = [], []
    for number, text in enumerate(texts):
        if number:
            share = 100 * shown_s[number - 1] / end_s
            rules.append(f"@keyframes l{number}{{0%{{opacity:0}}{share:.2f}%{{opacity:1}}}}")
        appearing.append(_render_line(number, text))
    rules.append(f"@keyframes scroll{{{_scroll_steps(shown_s, end_s)}}}")
    width, height = COLUMNS * WIDTH + 2 * EDGE, ROWS * HEIGHT + HEAD + EDGE
    last = max(0, len(texts) - ROWS) * HEIGHT
    rules.append(f"#lines{{transform:translateY(-{last:g}px)}}")
    moving = "".join(
        f"#l{number}{{animation:l{number} {end_s:.2f}s step-end infinite}}"
        for number in range(1, len(texts))
    )
    moving += f"#lines{{animation:scroll {end_s:.2f}s step-end infinite}}"
    circles = "".join(
        f'<circle cx="{20 + 20 * place}" cy="17" r="6" fill="{colour}"/>'
        for place, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
            f' width="{width:g}" height="{height:g}" role="img">',
            f"<title>{escape(command)}</title>",
            "<style>",
            "text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
            "fill:#d7dde5;white-space:pre}",
            "#l0{fill:#7ee2a8}",
            *rules,
            f"@media (prefers-reduced-motion:no-preference){{{moving}}}",
            "</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#161b22"/>{circles}',
            f'<svg x="0" y="{HEAD:g}" width="{width:g}" height="{ROWS * HEIGHT:g}"><g id="lines">',
            *appearing,
            "</g></svg>",
            "</svg>",
            "",
        ]
    )


def find_shown_times(recorded: Sequence[RecordedLine]) -> list[float]:
    """Return when each line is shown, in seconds: as it came, but without long pauses."""
    now_s, before_s = FIRST_S, recorded[0].at_s if recorded else 0.0
    shown_s = []
    for line in recorded:
        now_s += min(max(line.at_s - before_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
        before_s = line.at_s
        shown_s.append(now_s)
    return shown_s


def _render_line(number: int, text: str) -> str:
    """Return one line as an element; its width is given, so that columns stand below each other."""
    kept = text[:COLUMNS].rstrip()
    fitted = f' textLength="{len(kept) * WIDTH:g}" lengthAdjust="spacingAndGlyphs"' if kept else ""
    y = HEIGHT * number + 13
    return (
        f'<text id="l{number}" x="{EDGE:g}" y="{y:g}" xml:space="preserve"{fitted}>'
        f"{escape(kept)}</text>"
    )


def _scroll_steps(shown_s: Sequence[float], end_s: float) -> str:
    """Return the steps by which the lines go up once the terminal is full."""
    steps = ["0%{transform:translateY(0)}"]
    for number, at_s in enumerate(shown_s, 2):  # lines that are there then, the command included
        if number > ROWS:
            up = (number - ROWS) * HEIGHT
            steps.append(f"{100 * at_s / end_s:.2f}%{{transform:translateY(-{up:g}px)}}")
    return "".join(steps)
