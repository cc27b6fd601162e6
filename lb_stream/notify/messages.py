"""Messages in words, for people who may be far from a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lb_stream.contracts.settings import Event
from lb_stream.io.messages.shown import shown
from lb_stream.notify.open_events import OpenEvent
from lb_stream.notify.schedule import Message
from lb_stream.query.health import describe_duration
from lb_stream.settings.secrets import hide

HEADLINES: dict[Event, str] = {
    "job_down": "the job is down",
    "kafka_down": "Kafka doesn't answer",
    "job_behind": "the job is behind",
    "job_unknown": "whether the job runs can't be told",
    "disk_low": "the disk is nearly full",
    "no_reports": "no broker reports",
    "cluster_suspended": "clusters are suspended",
    "cluster_failing": "rounds fail",
    "broker_dead": "brokers are silent",
    "isolation_matches_none": "isolation policies match no broker",
    "moves_failing": "moves fail again and again",
    "budget_exhausted": "budgets of moves are exhausted",
    "imbalance": "clusters are uneven",
    "approval_wanted": "proposals wait for approval",
}
ENDINGS: dict[Event, str] = {
    "moves_failing": "one went well, or no more were tried",
    "budget_exhausted": "it has room, or no more are wanted",
    "approval_wanted": "answered, expired, or nothing that can be done any more",
}
"""What the end of an event means, where it need not mean that all is well."""
MOST_LINES = 10
"""Of each part of a message; the others are counted."""
LONGEST_LINE = 400


def title(message: Message, pipeline: str, same: bool = False) -> str:
    """One line: which pipeline, what, and how much of it.

    `same`: the event's own, the same from its begin to its end.
    """
    if same:
        return f"{pipeline}: {HEADLINES[message.event]}"
    there = len(message.new) + len(message.lasting)
    counted = f" ({there})" if there > 1 else ""
    what = HEADLINES[message.event]
    if not there:
        return f"{pipeline}: over: {what}"
    return (
        f"{pipeline}: {what}{counted}"
        if message.new or message.over
        else f"{pipeline}: still: {what}{counted}"
    )


def body(message: Message) -> str:
    """What is new and what to do about it, what lasts, what is over."""
    parts = [
        *_part(
            "", message.new, lambda entry: f"{entry.trouble.description}: {entry.trouble.advice}"
        ),
        *_part(
            "still so:",
            message.lasting,
            lambda entry: (
                f"{entry.trouble.description}, for {describe_duration(message.at_ms - entry.since_ms)}"
            ),
        ),
        *_part(
            "over:",
            message.over,
            lambda entry: (
                f"{_named(entry)}, after {describe_duration((entry.over_ms or entry.seen_ms) - entry.since_ms)}"
            ),
        ),
    ]
    if message.last:
        parts.append("This target has had its messages of this hour: more follow in the next one.")
    return "\n".join(parts)


def _named(entry: OpenEvent) -> str:
    named = (
        ", ".join(filter(None, (entry.trouble.cluster, entry.trouble.subject)))
        or HEADLINES[entry.trouble.event]
    )
    ending = entry.ending or ENDINGS.get(entry.trouble.event, "")
    return f"{named} ({ending})" if ending else named


def _part(
    heading: str, some: tuple[OpenEvent, ...], line: Callable[[OpenEvent], str]
) -> Iterator[str]:
    if not some:
        return
    if heading:
        yield heading
    yield from (_short(f"- {line(entry)}") for entry in _first(some))
    if len(some) > MOST_LINES:
        yield f"- and {len(some) - MOST_LINES} more"


def _first(some: tuple[OpenEvent, ...]) -> Iterable[OpenEvent]:
    return sorted(some, key=lambda entry: entry.trouble.key)[:MOST_LINES]


def _short(text: str) -> str:
    """One line that names can't break out of, without secrets that an error may hold."""
    line = shown(hide(text))
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
