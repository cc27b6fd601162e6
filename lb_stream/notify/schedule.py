"""Decides when a target gets which message: one for all events of a name, at a limited rate.

Pure: times are arguments, ms since the epoch.
"""

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
"""A target that refuses is tried again after the first of these, then after twice as long each
time, up to the last."""

EVENTS: tuple[Event, ...] = get_args(Event)
"""Names of events, the gravest first."""


@dataclass(frozen=True, slots=True)
class SentEvents:
    """What a target was last sent about one name: keys of events, and when (ms)."""

    keys: tuple[Key, ...]
    last_ms: int


@dataclass(frozen=True, slots=True)
class TargetState:
    """What a target has been sent.

    `sent_ms`: times of messages of the last hour. `failures`: in a row, after which the target is
    not tried before `retry_ms`.
    """

    sent: Mapping[Event, SentEvents] = field(default_factory=dict)
    sent_ms: tuple[int, ...] = ()
    failures: int = 0
    retry_ms: int = 0

    @property
    def keys(self) -> frozenset[Key]:
        """Return the events of which the target knows the begin, and not the end."""
        return frozenset(key for sent in self.sent.values() for key in sent.keys)


@dataclass(frozen=True, slots=True)
class Message:
    """A message about all events of one name: new ones, those that go on, those that have ended.

    `is_last`: whether it is the target's last message of this hour.
    """

    name: Event
    at_ms: int
    new: tuple[OpenEvent, ...] = ()
    lasting: tuple[OpenEvent, ...] = ()
    ended: tuple[OpenEvent, ...] = ()
    is_last: bool = False


def find_next_message(
    state: TargetState,
    opened: Mapping[Key, OpenEvent],
    settings: NotifySettings,
    names: tuple[Event, ...],
    now_ms: int,
) -> Message | None:
    """Return the message that is due to a target now, of the gravest events; None: none is due.

    `names`: those that the target is notified of. Times after now don't count: the clock may have
    been put back.
    """
    limit = settings.max_messages_per_hour
    sent = [at_ms for at_ms in state.sent_ms if now_ms - HOUR_MS < at_ms <= now_ms]
    if now_ms < state.retry_ms <= now_ms + LAST_RETRY_MS or len(sent) >= limit:
        return None
    quiet = is_quiet(settings, now_ms)
    for name in EVENTS:
        if name not in names or (quiet and name not in settings.urgent):
            continue
        message = _find_message(name, state.sent.get(name), opened, settings, now_ms)
        if message is not None:
            return replace(message, is_last=len(sent) + 1 == limit)
    return None


def _find_message(
    name: Event,
    sent: SentEvents | None,
    opened: Mapping[Key, OpenEvent],
    settings: NotifySettings,
    now_ms: int,
) -> Message | None:
    """Return the message about events of one name that is due now. `sent`: the target's last."""
    known = frozenset(() if sent is None else sent.keys)
    own = {key: entry for key, entry in opened.items() if entry.event.name == name}
    new = tuple(
        entry
        for key, entry in own.items()
        if key not in known and entry.is_present and entry.notify_from_ms(settings) <= now_ms
    )
    lasting = tuple(own[key] for key in own if key in known and own[key].ended_ms is None)
    ended = tuple(own[key] for key in own if key in known and own[key].ended_ms is not None)
    message = Message(name, now_ms, new, lasting, ended)
    at_ms = _find_due_ms(message, 0 if sent is None else sent.last_ms, settings)
    return message if at_ms is not None and at_ms <= now_ms else None


def _find_due_ms(message: Message, last_ms: int, settings: NotifySettings) -> int | None:
    """Return when a message is due: after a change, or as a reminder; None: neither.

    `last_ms`: of the target's last message about these events. A time after now doesn't count: the
    clock may have been put back.
    """
    last_ms = last_ms if last_ms <= message.at_ms else 0
    interval_ms = settings.min_message_interval_ms
    changes_ms = [entry.notify_from_ms(settings) for entry in message.new]
    changes_ms += [entry.ended_ms for entry in message.ended if entry.ended_ms is not None]
    if changes_ms:
        return max(min(changes_ms) + settings.group_wait_ms, last_ms + interval_ms)
    if message.lasting and settings.repeat_interval_ms:
        return last_ms + max(settings.repeat_interval_ms, interval_ms)
    return None


def is_quiet(settings: NotifySettings, now_ms: int) -> bool:
    """Return whether a time is in the quiet hours.

    Raises ValueError or CronSimError for a window that can't be read.
    """
    return any(window_of(text).open_at(now_ms // MINUTE_MS) for text in settings.quiet_windows)


def record_accepted(state: TargetState, message: Message, settings: NotifySettings) -> TargetState:
    """Return the state of a target after it has accepted a message."""
    keys = tuple(entry.event.key for entry in (*message.new, *message.lasting))
    all_sent = {**state.sent, message.name: SentEvents(keys, message.at_ms)}
    # Names without open events are kept only as long as they limit the pace.
    recent_ms = message.at_ms - settings.min_message_interval_ms
    kept = {name: sent for name, sent in all_sent.items() if sent.keys or sent.last_ms > recent_ms}
    begin_ms = message.at_ms - HOUR_MS
    sent_ms = tuple(at_ms for at_ms in state.sent_ms if begin_ms < at_ms <= message.at_ms)
    return TargetState(kept, (*sent_ms, message.at_ms))


def record_refused(state: TargetState, now_ms: int) -> TargetState:
    """Return the state of a target after it has refused a message.

    Later it gets a message about what is so by then.
    """
    pause_ms = min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** min(state.failures, 10))
    return replace(state, failures=state.failures + 1, retry_ms=now_ms + pause_ms)
