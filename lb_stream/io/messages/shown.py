"""Shows names and figures. Imports nothing of the package, so that `lbctl --help` is quick.

Senders of reports choose names: these may have characters that a terminal, page or log obeys.
"""

from __future__ import annotations

from html import escape
from typing import Any


def shown(text: str, keep: str = "") -> str:
    """Return a text with invisible characters escaped, as \\x1b or \\u202e.

    Escaped are controls, marks of direction and lone surrogates. `keep` names characters that stay,
    such as line feeds.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else _escaped(letter) for letter in text
    )


def shown_within(value: object) -> Any:
    """Escape every text within lists and dicts as `shown` does; line feeds stay."""
    if isinstance(value, str):
        return shown(value, "\n")
    if isinstance(value, dict):
        return {shown_within(name): shown_within(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(shown_within, value))
    return value


def in_json(text: str) -> str:
    """Return JSON with the same value whose invisible characters are escaped, for a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _in_json(letter) for letter in text)


def in_html(text: str) -> str:
    """Return a text escaped for an HTML page."""
    return escape(shown(text))


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def _in_json(letter: str) -> str:
    if letter in "\n ":
        return letter
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _duration(ms: float) -> str:
    """Return a duration of a second or more: 41.5 s, 30 min, 2.5 h."""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if abs(ms) >= 2 * unit_ms:
            return f"{ms / unit_ms:.3g} {unit}"
    return f"{ms / 1000:.3g} s"


def figure(value: float | None, unit: str | None) -> str:
    """Return a number with its unit; ratios as per cent, ms from a second on in larger units."""
    if value is None:
        return "-"
    if unit in ("ratio", "%"):
        return f"{100 * value if unit == 'ratio' else value:.1f}%"
    if unit == "bytes/s":
        return f"{value / 1e6:.2f} MB/s"
    if unit == "times":
        return f"{value:.2f} times"
    if unit == "ms" and abs(value) >= 1_000:
        return _duration(value)
    if value == int(value) and abs(value) < 1e6:
        return f"{value:.0f} {unit}".rstrip()
    digits = ".5g" if abs(value) < 1e5 else ".0f"
    return f"{value:{digits}} {unit or ''}".rstrip()
