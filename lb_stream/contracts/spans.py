"""Durations as people write them."""

from __future__ import annotations

import re

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_span(text: str, least: int = 0) -> int:
    """Return a duration in ms, given as 90s, 30m, 1h or 1d. Raises ValueError.

    `least`: lowest number before the unit.
    """
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if not found or int(found[1]) < least:
        raise ValueError("expected a number and a unit, such as 90s, 30m, 1h or 1d")
    return int(found[1]) * _UNIT_MS[found[2]]
