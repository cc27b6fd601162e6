"""When balancing may move bundles: disruption windows and freezes.

A window is a cron expression with a length and a time zone. Time is the round's. Time zones are
those of the pinned package tzdata, so that a replay on another machine finds the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from lb_stream.contracts.keys import SettingError
from lb_stream.core.model.rules import Refuses, Rule

MINUTE_MS = 60_000
_LENGTH = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})min)?")
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
_WINDOW = "five fields of cron, a length and a time zone, as in '0 22 * * Mon-Fri 7h Europe/Berlin'"
_FREEZE = (
    "begin, end, a time zone and why, as in '2026-12-20 2027-01-02T06:00 Europe/Berlin end "
    "of the year'"
)


class Limited(Protocol):
    """The settings of a cluster or a namespace that say when moves are allowed."""

    @property
    def disruption_windows(self) -> tuple[str, ...]:
        """Return the windows in which moves are allowed; empty: always."""
        ...

    @property
    def freezes(self) -> tuple[str, ...]:
        """Return the times without moves."""
        ...

    @property
    def freeze(self) -> str:
        """Return why moves are frozen until further notice; empty: they are not."""
        ...


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """No move is allowed now."""

    rule: Rule
    until_ms: int | None  # None: until further notice
    why: str


@dataclass(frozen=True, slots=True)
class Window:
    """A disruption window, which opens at the times of a cron expression.

    Minutes count since the epoch.
    """

    cron: str
    minutes: int  # length
    zone: ZoneInfo

    def open_at(self, minute: int) -> bool:
        """Return whether the window is open in that minute."""
        return minute < self._next(minute + 1, reverse=True) + self.minutes

    def opens_after(self, minute: int) -> int:
        """Return the minute in which the window opens next."""
        return self._next(minute)

    def _next(self, minute: int, reverse: bool = False) -> int:
        at = datetime.fromtimestamp(minute * 60, self.zone)
        return int(next(CronSim(self.cron, at, reverse=reverse)).timestamp()) // 60


@dataclass(frozen=True, slots=True)
class Freeze:
    """A freeze: no move from one time until another, ms since the epoch."""

    from_ms: int
    to_ms: int
    why: str


def closed(limits: Limited, now_ms: int) -> ClosedWindow | None:
    """Return why no move is allowed now; None: moves are allowed."""
    # A freeze until further notice, or until a time.
    if limits.freeze:
        return ClosedWindow(Refuses.FROZEN, None, limits.freeze)
    frozen = [
        freeze
        for freeze in map(freeze_of, limits.freezes)
        if freeze.from_ms <= now_ms < freeze.to_ms
    ]
    if frozen:
        last = max(frozen, key=lambda freeze: freeze.to_ms)
        return ClosedWindow(Refuses.FROZEN, last.to_ms, last.why)

    # No window is open.
    if not limits.disruption_windows:
        return None
    opens = [_opens(text, now_ms // MINUTE_MS) for text in limits.disruption_windows]
    if None in opens:
        return None
    return ClosedWindow(Refuses.OUTSIDE_WINDOW, min(filter(None, opens)) * MINUTE_MS, "")


def check_windows(limits: Limited, prefix: str = "") -> None:
    """Raise SettingError for an invalid window or freeze. `prefix`: of the settings' keys."""
    check_window_texts(f"{prefix}disruption_windows", limits.disruption_windows)
    _check(f"{prefix}freezes", limits.freezes, freeze_of, _FREEZE)


def check_window_texts(key: str, texts: Iterable[str]) -> None:
    """Raise SettingError for an invalid window."""
    _check(key, texts, window_of, _WINDOW)


def _check(key: str, texts: Iterable[str], read: Callable[[str], object], expected: str) -> None:
    for text in texts:
        try:
            read(text)
        except (ValueError, CronSimError, StopIteration) as error:
            raise SettingError(key, text, f"{expected} ({error})") from None


@lru_cache(maxsize=4_096)
def _opens(text: str, minute: int) -> int | None:
    """Return the minute in which a window opens next; None: it is open."""
    window = window_of(text)
    return None if window.open_at(minute) else window.opens_after(minute)


@lru_cache(maxsize=1_024)
def window_of(text: str) -> Window:
    """Parse the text of a window. Raises ValueError or CronSimError."""
    words = text.split()
    if len(words) not in (6, 7):
        raise ValueError(f"it has {len(words)} words")
    length = _LENGTH.fullmatch(words[5])
    minutes = (
        sum(int(number or 0) * unit for number, unit in zip(length.groups(), (60, 1), strict=True))
        if length
        else 0
    )
    if not minutes:
        raise ValueError(f"{words[5]} is no length such as 7h, 90min or 1h30min")
    window = Window(" ".join(words[:5]), minutes, zone_of(words[6] if len(words) == 7 else "UTC"))
    window.opens_after(0)
    return window


@lru_cache(maxsize=1_024)
def freeze_of(text: str) -> Freeze:
    """Parse the text of a freeze. Raises ValueError."""
    words = text.split()
    if len(words) < 3:
        raise ValueError(f"it has {len(words)} words")
    zone = zone_of(words[2])
    begin, end = (_moment_ms(word, zone) for word in words[:2])
    if begin >= end:
        raise ValueError("it ends before it begins")
    return Freeze(begin, end, " ".join(words[3:]))


def _moment_ms(text: str, zone: ZoneInfo) -> int:
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo is not None else at.replace(tzinfo=zone)
    return (at.astimezone(UTC) - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


@lru_cache(maxsize=1_024)
def zone_of(name: str) -> ZoneInfo:
    """Return a time zone of the tz database. Raises ValueError for an unknown name."""
    file = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    if not _ZONE.fullmatch(name) or not file.is_file():
        raise ValueError(f"{name} is no time zone such as Europe/Berlin or UTC")
    with file.open("rb") as content:
        return ZoneInfo.from_file(content, name)
