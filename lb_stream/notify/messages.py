"""Writes the titles and texts of notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lb_stream.contracts.settings import Event
from lb_stream.io.messages.shown import shown
from lb_stream.notify.open_events import OpenEvent
from lb_stream.notify.schedule import Message
from lb_stream.query.health import describe_duration
from lb_stream.query.wording import EVENT_HEADLINES
from lb_stream.settings.secrets import hide

ENDINGS: dict[Event, str] = {
    "moves_failing": "a move was confirmed, or none was tried any more",
    "budget_exhausted": "the budget has room, or no more moves are wanted",
    "approval_wanted": "answered, expired, or impossible by now",
}
"""How these events end: their end need not mean that all is well."""
MAX_LINES = 10
"""Lines of each part of a message; the others are only counted."""
MAX_LINE_LENGTH = 400


def build_title(message: Message, pipeline: str, same: bool = False) -> str:
    """Return a line with pipeline, headline, and number of events.

    `same`: the title has to be the same at the begin of events and at their end.
    """
    headline = EVENT_HEADLINES[message.name]
    if same:
        return f"{pipeline}: {headline}"
    open_events = len(message.new) + len(message.lasting)
    if not open_events:
        return f"{pipeline}: resolved: {headline}"
    number = f" ({open_events})" if open_events > 1 else ""
    prefix = "" if message.new or message.ended else "still: "
    return f"{pipeline}: {prefix}{headline}{number}"


def build_body(message: Message) -> str:
    """Return lines for new events and what to do about them, those that go on, and ended ones."""

    def describe_new(entry: OpenEvent) -> str:
        return f"{entry.event.description}: {entry.event.advice}"

    def describe_lasting(entry: OpenEvent) -> str:
        return f"{entry.event.description}, for {describe_duration(message.at_ms - entry.since_ms)}"

    def describe_ended(entry: OpenEvent) -> str:
        length_ms = (entry.ended_ms or entry.seen_ms) - entry.since_ms
        return f"{_describe_end(entry)}, after {describe_duration(length_ms)}"

    lines = [
        *_build_part("", message.new, describe_new),
        *_build_part("lasting:", message.lasting, describe_lasting),
        *_build_part("resolved:", message.ended, describe_ended),
    ]
    if message.is_last:
        lines.append("This target gets no other message this hour: notify.max_messages_per_hour.")
    return "\n".join(lines)


def _describe_end(entry: OpenEvent) -> str:
    """Return the subject of an ended event, and how the event ended if that isn't certain."""
    event = entry.event
    name = ", ".join(filter(None, (event.cluster, event.subject))) or EVENT_HEADLINES[event.name]
    ending = entry.ending or ENDINGS.get(event.name, "")
    return f"{name} ({ending})" if ending else name


def _build_part(
    heading: str, entries: tuple[OpenEvent, ...], describe: Callable[[OpenEvent], str]
) -> Iterator[str]:
    """Yield the heading and the first lines of a part; nothing where it has no events."""
    if not entries:
        return
    if heading:
        yield heading
    first = sorted(entries, key=lambda entry: entry.event.key)[:MAX_LINES]
    yield from (_clean_line(f"- {describe(entry)}") for entry in first)
    if len(entries) > MAX_LINES:
        yield f"- and {len(entries) - MAX_LINES} more"


def _clean_line(text: str) -> str:
    """Return one line: without line breaks of names, without secrets of errors, cut to length."""
    line = shown(hide(text))
    return line if len(line) <= MAX_LINE_LENGTH else line[: MAX_LINE_LENGTH - 1] + "…"
