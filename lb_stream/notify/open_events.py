"""Follows events from begin to end.

Pure: times are arguments, ms since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from lb_stream.contracts.settings import NotifySettings
from lb_stream.query.screens.health_events import HealthEvent, HealthEvents

Key = tuple[str, str, str]
"""Name, cluster and subject of an event."""
JOB_EVENTS = frozenset(
    {"job_down", "job_behind", "job_unknown", "kafka_down", "disk_low", "no_reports"}
)
"""Names of events that can be found whether or not the job runs."""


@dataclass(frozen=True, slots=True)
class OpenEvent:
    """An event with its times.

    `seen_ms`: when it was last found; `is_present`: whether the last reading found it. `ended_ms`:
    when it was taken to have ended; None: it is open. `ending`: how it ended, if not well.
    """

    event: HealthEvent
    since_ms: int
    seen_ms: int
    is_present: bool = True
    ended_ms: int | None = None
    ending: str = ""

    def notify_from_ms(self, settings: NotifySettings) -> int:
        """Return the time from which on people are notified of it: an imbalance must last."""
        delay_ms = settings.imbalance_for_ms if self.event.name == "imbalance" else 0
        return self.since_ms + delay_ms


def update_open_events(
    before: Mapping[Key, OpenEvent], found: HealthEvents, settings: NotifySettings
) -> dict[Key, OpenEvent]:
    """Return the events after another reading.

    An event ends when it has been missing for `resolve_after_ms`. What a reading can't know stays
    as it was: clusters while the job gives no figures, a cluster's brokers while it is suspended.
    """
    after: dict[Key, OpenEvent] = {}
    found_events = {event.key: event for event in found.events}
    for key, earlier in before.items():
        entry = _without_future_times(earlier, found.now_ms)
        # events that this reading can't know
        if _is_unknown(key, found) and not (found.is_unreadable and key in found_events):
            is_due = entry.notify_from_ms(settings) <= entry.seen_ms
            if entry.ended_ms is not None:
                after[key] = entry
            elif is_due or found.is_unreadable:
                # One that isn't due yet begins anew once it is found again, unless it was only this
                # one reading that failed.
                is_present = entry.is_present and is_due
                after[key] = replace(entry, seen_ms=found.now_ms, is_present=is_present)
        # events that go on
        elif key in found_events:
            after[key] = replace(
                entry,
                event=found_events[key],
                seen_ms=found.now_ms,
                is_present=True,
                ended_ms=None,
                ending="",
            )
        # events that are missing: long enough to have ended, or not
        elif entry.ended_ms is None and found.now_ms - entry.seen_ms >= settings.resolve_after_ms:
            ending = found.endings.get(key, "")
            after[key] = replace(entry, is_present=False, ended_ms=found.now_ms, ending=ending)
        else:
            after[key] = replace(entry, is_present=False)
    # events that begin
    for key, event in found_events.items():
        if key not in before and (found.is_unreadable or not _is_unknown(key, found)):
            after[key] = OpenEvent(event, found.now_ms, found.now_ms)
    return after


def _without_future_times(entry: OpenEvent, now_ms: int) -> OpenEvent:
    """Return the event with no time after now, as the clock may have been put back."""
    return replace(
        entry,
        since_ms=min(entry.since_ms, now_ms),
        seen_ms=min(entry.seen_ms, now_ms),
        ended_ms=None if entry.ended_ms is None else min(entry.ended_ms, now_ms),
    )


def _is_unknown(key: Key, found: HealthEvents) -> bool:
    """Return whether a reading can't know if the event goes on."""
    name, cluster, _ = key
    if found.is_unreadable:
        return True
    if name in JOB_EVENTS:
        return False
    return found.is_stale or (name != "cluster_suspended" and cluster in found.suspended)


def drop_resolved(opened: Mapping[Key, OpenEvent], keys: Collection[Key]) -> dict[Key, OpenEvent]:
    """Return the events without those that have ended, unless `keys` has them.

    `keys`: of events about whose end a target must still be notified.
    """
    return {key: entry for key, entry in opened.items() if entry.ended_ms is None or key in keys}
