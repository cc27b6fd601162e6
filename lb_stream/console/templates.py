"""The templates' environment: filters that format figures and names, and the words of screens.

Text is escaped, whatever a name holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lb_stream.console.address import link
from lb_stream.console.keys import KEYS
from lb_stream.console.references import address_of, title_of
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.decisions import MOVES
from lb_stream.io.messages import times
from lb_stream.io.messages.shown import figure, shown
from lb_stream.io.messages.times import clock, short_clock
from lb_stream.query import wording
from lb_stream.query.health import MODE_STATES, describe_duration
from lb_stream.query.screens.feed import ENTRY_KINDS
from lb_stream.sim.simulation.prediction_texts import format_figure

HEAT_LIMITS = (0.3, 0.5, 0.65, 0.8, 0.9)
"""Usage ratios at which the next colour begins."""


@cache
def template_environment() -> Environment:
    """Return the environment. It makes invisible characters visible, then escapes all text."""
    environment = Environment(
        loader=PackageLoader("lb_stream.console"),
        autoescape=True,
        finalize=_make_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        percent,
        whole_percent,
        quotient,
        traffic,
        rate,
        count,
        plural,
        time_of_day,
        short_time,
        countdown,
        json_of,
        as_json,
        heat,
        bar_width,
        milliseconds,
        seconds,
        client_seconds,
        in_unit,
        score,
        broker_name,
        short_bundle,
        ago,
        end_after,
        format_figure,
    )
    environment.filters |= {function.__name__: function for function in filters}
    environment.globals |= {
        "link": link,
        "address_of": address_of,
        "title_of": title_of,
        "words": wording,
        "describe_state": wording.describe_state,
        "explain_exclusion": wording.explain_exclusion,
        "explain_refusal": wording.explain_refusal,
        "entry_kinds": ENTRY_KINDS,
        "keys": KEYS,
        "move_kinds": MOVES,
        "mode_states": MODE_STATES,
    }
    return environment


_RIGHT_TO_LEFT = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff"
_TEXT = re.compile(r"<(title|option|textarea)\b.*?</\1>|(?<=>)[^<]+(?=<)", re.DOTALL)
_IN_NAME = "[^\\s<>()\"',;]"
_NAME = re.compile(f"{_IN_NAME}*[{_RIGHT_TO_LEFT}]{_IN_NAME}*")


def set_apart(html: str) -> str:
    """Return a page whose names from right to left leave the order of the text around them."""
    if _NAME.search(html) is None:
        return html

    def replace(found: re.Match[str]) -> str:
        if found[1]:  # an element that can't have others inside
            return found[0]
        return _NAME.sub(r"<bdi>\g<0></bdi>", found[0])

    return _TEXT.sub(replace, html)


def _make_visible(value: object) -> object:
    if isinstance(value, str) and not isinstance(value, Markup):
        return shown(value, "\n")
    return value


def percent(ratio: float | None) -> str:
    """Format a ratio in per cent: 84.5 %."""
    return "–" if ratio is None else f"{100 * ratio:.1f} %"


def whole_percent(ratio: float | None) -> str:
    """Format a ratio in per cent without decimals: 85 %."""
    return "–" if ratio is None else f"{100 * ratio:.0f} %"


def quotient(value: float | None) -> str:
    """Format a quotient with two decimals: 1.16."""
    return "–" if value is None else f"{value:.2f}"


def traffic(value: float | None) -> str:
    """Format bytes/s with about three digits: 12.3 MB/s."""
    return _format_scaled(value, "B/s")


def rate(value: float | None) -> str:
    """Format messages/s with about three digits: 12.3 k/s."""
    return _format_scaled(value, "/s")


def _format_scaled(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 100 * size:
            return f"{value / size:,.0f} {letter}{unit}"
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}{unit}"
    return f"{value:.3g} {unit}"


def count(value: int | None) -> str:
    """Format a whole number: 100,000."""
    return "–" if value is None else f"{value:,}"


def plural(value: int, noun: str) -> str:
    """Format a number of things: 1 bundle, 2 bundles."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def milliseconds(value: float | None) -> str:
    """Format ms in seconds: 4.2 s."""
    return "–" if value is None else f"{value / 1000:.1f} s"


def seconds(value: float | None) -> str:
    """Format seconds: 1,234.5 s."""
    return "–" if value is None else f"{value:,.1f} s"


def client_seconds(value: float | None) -> str:
    """Format client-seconds, whose heading has the unit: 1,234.5."""
    return "–" if value is None else f"{value:,.1f}"


def in_unit(value: float | None, unit: str | None) -> str:
    """Format a figure of a strategy in the strategy's unit."""
    return "–" if value is None else figure(value, unit)


def score(value: float | None) -> str:
    """Format a candidate's score with about four digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def time_of_day(ms: int | None) -> Markup:
    """Format a time (ms since the epoch) in this machine's zone; with its date if not today's."""
    return _time(ms, clock(ms)) if ms else Markup("–")


def ago(ms: int | None) -> Markup:
    """Format how long ago a time (ms since the epoch) was; its title has the time."""
    return _time(ms, times.ago(ms)) if ms else Markup("never")


def short_time(ms: int) -> Markup:
    """Format a time (ms since the epoch) as `time_of_day`, for a narrow column."""
    return _time(ms, short_clock(ms))


def countdown(ms: int | None) -> Markup:
    """Format the time that is left until `ms`; the page's script counts it down.

    Its title has the time of the end.
    """
    if not ms:
        return Markup("")
    left_ms = ms - 1000 * datetime.now(UTC).timestamp()
    return _time(ms, describe_duration(left_ms) if left_ms >= 500 else "now", until=True)


def _time(ms: int, text: str, until: bool = False) -> Markup:
    """Return a text about a time, whose title has date, time and offset in this machine's zone."""
    at = datetime.fromtimestamp(ms / 1000, UTC)
    machine = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    here = at.astimezone().isoformat(" ", "milliseconds")
    counts = Markup(' data-until="{}"').format(ms) if until else ""
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(machine, here, counts, text)


def end_after(hours: int) -> str:
    """Format when a number of hours from now ends: 21:05, or 2026-11-29 21:05."""
    at = datetime.now().astimezone() + timedelta(hours=hours)
    is_today = at.date() == datetime.now().astimezone().date()
    return f"{at:%H:%M}" if is_today else f"{at:%Y-%m-%d %H:%M}"


def json_of(first: Mapping[str, object], rest: Mapping[str, object]) -> str:
    """Format a command's fields as JSON, its own after those that all commands have."""
    return json.dumps({**first, **rest}, indent=2, ensure_ascii=False)


def as_json(value: object) -> str:
    """Format a value as JSON in one line."""
    return canonical_json(value)


def heat(ratio: float | None) -> str:
    """Return the CSS class of a usage ratio: h0 (cool) to h5 (hot)."""
    return "h0" if ratio is None else f"h{sum(ratio >= limit for limit in HEAT_LIMITS)}"


def bar_width(ratio: float | None) -> str:
    """Return the width of a ratio's bar, in per cent."""
    return f"{100 * min(1.0, max(0.0, ratio or 0.0)):.1f}"


def broker_name(name: str) -> Markup:
    """Return a broker's name, with places for line breaks before dots and the port."""
    parts = re.split(r"(?=[.:])", shown(name))
    return Markup("<wbr>").join(parts)


def short_bundle(name: str) -> Markup:
    """Return a bundle's name, with a place for a line break before its hash range."""
    namespace, _, hash_range = name.rpartition("/")
    if not namespace:
        return Markup(escape(shown(name)))
    return Markup('<span class="bundle">{}/<wbr><span class="range">{}</span></span>').format(
        shown(namespace), shown(hash_range)
    )
