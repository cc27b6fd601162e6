"""Which troubles there are, since when, and which are over.

Pure: times are arguments, ms since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from lb_stream.contracts.settings import NotifySettings
from lb_stream.query.screens.health_events import HealthEvent, HealthEvents

Key = tuple[str, str, str]
"""Event, cluster, subject."""
OF_THE_JOB = frozenset(
    {"job_down", "job_behind", "job_unknown", "kafka_down", "disk_low", "no_reports"}
)
"""Events that a look knows of whether or not the job runs."""


@dataclass(frozen=True, slots=True)
class OpenEvent:
    """One trouble.

    `seen_ms`: when it was last there; `there`: whether the last look saw it; `over_ms`: when it was
    found to be over.

    `ending`: how it ended, if not well.
    """

    trouble: HealthEvent
    since_ms: int
    seen_ms: int
    there: bool = True
    over_ms: int | None = None
    ending: str = ""

    def worth_sending_ms(self, rules: NotifySettings) -> int:
        """From when on it is worth telling."""
        return self.since_ms + (rules.imbalance_for_ms if self.trouble.event == "imbalance" else 0)


def update_open_events(
    before: Mapping[Key, OpenEvent], look: HealthEvents, rules: NotifySettings
) -> dict[Key, OpenEvent]:
    """The troubles after another look.

    One that is missing is over once it has been missing for `resolve_after_ms`.

    What a look can't know stays as it was: of clusters while the job gives no figures, of a
    cluster's brokers while it is suspended. Times to come are taken for now: the clock has been put
    back since.
    """
    after: dict[Key, OpenEvent] = {}
    found = {trouble.key: trouble for trouble in look.troubles}
    for key, was in before.items():
        entry = _not_in_future(was, look.now_ms)
        if _is_unknown(key, look) and not (look.blind and key in found):
            ripe = entry.worth_sending_ms(rules) <= entry.seen_ms
            if entry.over_ms is not None:
                after[key] = entry
            elif (
                ripe or look.blind
            ):  # a look may fail once; what isn't ripe by then is told when it is seen again
                after[key] = replace(entry, seen_ms=look.now_ms, there=entry.there and ripe)
        elif key in found:
            after[key] = replace(
                entry, trouble=found[key], seen_ms=look.now_ms, there=True, over_ms=None, ending=""
            )
        elif entry.over_ms is None and look.now_ms - entry.seen_ms >= rules.resolve_after_ms:
            after[key] = replace(
                entry, there=False, over_ms=look.now_ms, ending=look.endings.get(key, "")
            )
        else:
            after[key] = replace(entry, there=False)
    for key, trouble in found.items():
        if key not in before and (look.blind or not _is_unknown(key, look)):
            after[key] = OpenEvent(trouble, look.now_ms, look.now_ms)
    return after


def _not_in_future(entry: OpenEvent, now_ms: int) -> OpenEvent:
    over_ms = entry.over_ms if entry.over_ms is None else min(entry.over_ms, now_ms)
    return replace(
        entry,
        since_ms=min(entry.since_ms, now_ms),
        seen_ms=min(entry.seen_ms, now_ms),
        over_ms=over_ms,
    )


def _is_unknown(key: Key, look: HealthEvents) -> bool:
    event, cluster, _ = key
    if look.blind:
        return True
    if event in OF_THE_JOB:
        return False
    return look.stale or (event != "cluster_suspended" and cluster in look.suspended)


def drop_resolved(opened: Mapping[Key, OpenEvent], told: Collection[Key]) -> dict[Key, OpenEvent]:
    """Without those that are over, and of which nobody waits to hear that."""
    return {key: entry for key, entry in opened.items() if entry.over_ms is None or key in told}
