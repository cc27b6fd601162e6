"""Times as people read them."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def clock(ms: int | None) -> str:
    """Local time of day of a time in ms since the epoch; with the date when it wasn't today."""
    if not ms:
        return "-"
    at = datetime.fromtimestamp(ms / 1000)
    return f"{at:%H:%M:%S}" if at.date() == datetime.now().date() else f"{at:%Y-%m-%d %H:%M:%S}"


def ago(ms: int | None) -> str:
    """How long ago a time in ms since the epoch was: 3 s, 12 min, 5 h, 2 d."""
    if not ms:
        return "never"
    seconds = max(0, int(time.time() - ms / 1000))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def utc(ms: int) -> str:
    """A time in ms since the epoch, wherever it is read: 2026-11-21T13:00:00Z."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
