"""How figures and names look: the filters and functions of the templates.

Whatever a name holds, it is shown as text.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lb_stream.console.address import link
from lb_stream.io.messages.shown import figure, shown
from lb_stream.io.messages.times import ago, clock
from lb_stream.query import wording
from lb_stream.sim.simulation.prediction import format_figure

HEATS = (0.3, 0.5, 0.65, 0.8, 0.9)
"""Usages at which the next colour begins."""


@cache
def template_environment() -> Environment:
    """The templates.

    All text is escaped, after everything in it that isn't seen has been made visible.
    """
    made = Environment(
        loader=PackageLoader("lb_stream.console"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        percent,
        traffic,
        rate,
        count,
        when,
        until,
        heat,
        width,
        times,
        milli,
        seconds,
        in_unit,
        score,
        short_bundle,
        ago,
        format_figure,
    )
    made.filters |= {function.__name__: function for function in filters}
    made.globals |= {
        "link": link,
        "words": wording,
        "describe_state": wording.describe_state,
        "explain_exclusion": wording.explain_exclusion,
        "explain_refusal": wording.explain_refusal,
    }
    return made


def _shown(value: Any) -> Any:
    return shown(value, "\n") if isinstance(value, str) and not isinstance(value, Markup) else value


def percent(value: float | None) -> str:
    """A ratio: 84.5 %."""
    return "–" if value is None else f"{100 * value:.1f} %"


def times(value: float | None) -> str:
    """A quotient: 1.16."""
    return "–" if value is None else f"{value:.2f}"


def traffic(value: float | None) -> str:
    """Bytes/s, in three digits or so."""
    return _scaled(value, "B/s")


def rate(value: float | None) -> str:
    """Messages/s."""
    return _scaled(value, "/s")


def _scaled(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return (
                f"{value / size:.3g} {letter}{unit}"
                if abs(value) < 100 * size
                else f"{value / size:,.0f} {letter}{unit}"
            )
    return f"{value:.3g} {unit}"


def count(value: int | None) -> str:
    """A whole number: 100,000."""
    return "–" if value is None else f"{value:,}"


def milli(value: float | None) -> str:
    """Milliseconds as seconds."""
    return "–" if value is None else f"{value / 1000:.1f} s"


def seconds(value: float | None) -> str:
    """Seconds, or client-seconds: 1,234.5 s."""
    return "–" if value is None else f"{value:,.1f} s"


def in_unit(value: float | None, unit: str | None) -> str:
    """A figure of a strategy's in its own unit."""
    return "–" if value is None else figure(value, unit)


def score(value: float | None) -> str:
    """A strategy's own measure of a candidate."""
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def when(ms: int | None) -> Markup:
    """A time: this machine's time of day; in full, in UTC, where a pointer rests."""
    if not ms:
        return Markup("–")
    full = (
        datetime.fromtimestamp(ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
    return Markup('<time datetime="{}" title="{}">{}</time>').format(full, full, clock(ms))


def until(ms: int | None) -> Markup:
    """A countdown; the page's script keeps it going."""
    if not ms:
        return Markup("")
    left_s = max(0, round(ms / 1000 - datetime.now(UTC).timestamp()))
    return Markup('<span class="until" data-until="{}">{}</span>').format(
        ms, f"{left_s} s" if left_s else "now"
    )


def heat(value: float | None) -> str:
    """The class of a usage: h0 (cool) to h5."""
    return "h0" if value is None else f"h{sum(value >= limit for limit in HEATS)}"


def width(value: float | None) -> str:
    """A bar's width in per cent of its place."""
    return f"{100 * min(1.0, max(0.0, value or 0.0)):.1f}"


def short_bundle(name: str) -> Markup:
    """A bundle's name, of which the range may be broken off on a narrow screen."""
    namespace, _, bounds = name.rpartition("/")
    if not namespace:
        return Markup(escape(shown(name)))
    return Markup(
        '<span class="bundle"><span class="of">{}/</span><wbr><span class="range">{}</span></span>'
    ).format(shown(namespace), shown(bounds))
