"""Describes times for people."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


def clock(ms: int | None) -> str:
    """Return the local time of day of `ms` (since the epoch); with the date if it isn't today's."""
    if not ms:
        return "-"
    at = datetime.fromtimestamp(ms / 1000)
    return f"{at:%H:%M:%S}" if at.date() == datetime.now().date() else f"{at:%Y-%m-%d %H:%M:%S}"


def day_of(ms: int | None) -> str:
    """Return the local date of `ms` (since the epoch); empty for today's."""
    at = datetime.fromtimestamp((ms or 0) / 1000)
    return "" if at.date() == datetime.now().date() else f"{at:%Y-%m-%d}"


def short_clock(ms: int | None, day: str = "") -> str:
    """Return the local time of day for a narrow column; month, day and minute if not on `day`."""
    at = datetime.fromtimestamp((ms or 0) / 1000)
    return f"{at:%H:%M:%S}" if day_of(ms) == day else f"{at:%m-%d %H:%M}"


def local_zone() -> str:
    """Return this machine's time zone, which `clock` uses.

    The result is the zone's name (Europe/Berlin) where that is known, else the current offset
    (+02:00); UTC is UTC.
    """
    now = datetime.now().astimezone()
    offset = now.utcoffset()
    places = (os.environ.get("TZ", "").lstrip(":"), os.path.realpath("/etc/localtime"))
    for place in places:
        name = place.rpartition("zoneinfo/")[2].removeprefix("posix/")
        try:
            if name and not Path(name).is_absolute() and ZoneInfo(name).utcoffset(now) == offset:
                return "UTC" if name in _UTC_NAMES else name
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    hours = f"{now:%z}"
    return f"{hours[:3]}:{hours[3:5]}" if offset else "UTC"


_UTC_NAMES = ("Etc/UTC", "Etc/UCT", "UCT", "Universal", "Etc/Universal", "Zulu", "Etc/Zulu")


def ago(ms: int | None) -> str:
    """Return how long ago a time (ms since the epoch) was: 3 s, 12 min, 5 h, 2 d."""
    if not ms:
        return "never"
    seconds = max(0, int(time.time() - ms / 1000))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def utc(ms: int) -> str:
    """Return a time (ms since the epoch) in UTC: 2026-11-21T13:00:00Z."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
