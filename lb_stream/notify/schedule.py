"""When one target is told what: one message for all troubles of one event, at a set pace, and again
when they are over. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

from lb_stream.contracts.settings import Event, NotifySettings
from lb_stream.core.config.windows import MINUTE_MS, window_of
from lb_stream.notify.open_events import Key, OpenEvent

HOUR_MS = 3_600_000
FIRST_RETRY_MS = 30_000
LAST_RETRY_MS = 600_000
"""A target that can't be told is tried again after the first of these, then twice as long each
time, up to the last."""

EVENTS: tuple[Event, ...] = get_args(Event)


@dataclass(frozen=True, slots=True)
class SentEvent:
    """What a target has been told of one event: the troubles that it believes in, and when it heard
    of them last."""

    told: tuple[Key, ...]
    last_ms: int


@dataclass(frozen=True, slots=True)
class TargetState:
    """What a target has been told.

    `sent_ms`: of the last hour; `failures` in a row, after which it waits until `retry_ms`.
    """

    groups: Mapping[Event, SentEvent] = field(default_factory=dict)
    sent_ms: tuple[int, ...] = ()
    failures: int = 0
    retry_ms: int = 0

    @property
    def keys(self) -> frozenset[Key]:
        """The troubles that the target believes in."""
        return frozenset(key for group in self.groups.values() for key in group.told)


@dataclass(frozen=True, slots=True)
class Message:
    """One message about one event: what is new, what was told before and lasts, what is over.

    `last`: the last one of this hour.
    """

    event: Event
    at_ms: int
    new: tuple[OpenEvent, ...] = ()
    lasting: tuple[OpenEvent, ...] = ()
    over: tuple[OpenEvent, ...] = ()
    last: bool = False


def next_message(
    told: TargetState,
    opened: Mapping[Key, OpenEvent],
    rules: NotifySettings,
    events: tuple[Event, ...],
    now_ms: int,
) -> Message | None:
    """What a target that hears of `events` is told now, the gravest first; None: nothing.

    Times to come don't count: the clock has been put back since.
    """
    sent = [at for at in told.sent_ms if now_ms - HOUR_MS < at <= now_ms]
    if now_ms < told.retry_ms <= now_ms + LAST_RETRY_MS or len(sent) >= rules.max_messages_per_hour:
        return None
    quiet = is_quiet(rules, now_ms)
    for event in EVENTS:
        if event not in events or (quiet and event not in rules.urgent):
            continue
        message = _of_event(event, told.groups.get(event), opened, rules, now_ms)
        if message is not None:
            return replace(message, last=len(sent) + 1 == rules.max_messages_per_hour)
    return None


def _of_event(
    event: Event,
    sent: SentEvent | None,
    opened: Mapping[Key, OpenEvent],
    rules: NotifySettings,
    now_ms: int,
) -> Message | None:
    """Return the message about one event that is due now. `sent`: what the target knows of it."""
    known = frozenset(() if sent is None else sent.told)
    own = {key: entry for key, entry in opened.items() if entry.trouble.event == event}
    new = tuple(
        entry
        for key, entry in own.items()
        if key not in known and entry.there and entry.worth_sending_ms(rules) <= now_ms
    )
    lasting = tuple(own[key] for key in own if key in known and own[key].over_ms is None)
    over = tuple(own[key] for key in own if key in known and own[key].over_ms is not None)
    message = Message(event, now_ms, new, lasting, over)
    at_ms = _due_ms(message, 0 if sent is None else sent.last_ms, rules)
    return message if at_ms is not None and at_ms <= now_ms else None


def _due_ms(message: Message, last_ms: int, rules: NotifySettings) -> int | None:
    """When a message is due: after a change, or as a reminder; None: neither is wanted.

    `last_ms`: when the target last heard of the event. A time to come doesn't count: the clock has
    been put back since.
    """
    last_ms = last_ms if last_ms <= message.at_ms else 0
    changes_ms = [entry.worth_sending_ms(rules) for entry in message.new]
    changes_ms += [entry.over_ms for entry in message.over if entry.over_ms is not None]
    if changes_ms:
        return max(min(changes_ms) + rules.group_wait_ms, last_ms + rules.min_message_interval_ms)
    if message.lasting and rules.repeat_interval_ms:
        return last_ms + max(rules.repeat_interval_ms, rules.min_message_interval_ms)
    return None


def is_quiet(rules: NotifySettings, now_ms: int) -> bool:
    """Whether it is one of the quiet hours.

    Raises ValueError or CronSimError for a window that can't be.
    """
    return any(window_of(text).open_at(now_ms // MINUTE_MS) for text in rules.quiet_windows)


def after_accepted(told: TargetState, message: Message, rules: NotifySettings) -> TargetState:
    """The target has taken a message. What is over and long told is forgotten."""
    keys = tuple(entry.trouble.key for entry in (*message.new, *message.lasting))
    groups = {**told.groups, message.event: SentEvent(keys, message.at_ms)}
    lately_ms = message.at_ms - rules.min_message_interval_ms
    groups = {
        event: group for event, group in groups.items() if group.told or group.last_ms > lately_ms
    }
    sent = tuple(at for at in told.sent_ms if message.at_ms - HOUR_MS < at <= message.at_ms)
    return TargetState(groups, (*sent, message.at_ms))


def after_refused(told: TargetState, now_ms: int) -> TargetState:
    """The target has not taken a message: it is tried again, with what is so by then."""
    pause_ms = min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** min(told.failures, 10))
    return replace(told, failures=told.failures + 1, retry_ms=now_ms + pause_ms)
