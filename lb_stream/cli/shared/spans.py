"""Lengths of time as people write them."""

from __future__ import annotations

import re

from lb_stream.cli.shared.output import CommandError

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def span_ms(option: str, text: str, least: int = 0) -> int:
    """A length of time given by an option, as 90s, 30m, 1h or 1d, of so many of its unit at least.

    Raises CommandError.
    """
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if not found or int(found[1]) < least:
        raise CommandError(
            f"{option} {text!r}: expected a number and a unit, such as 90s, 30m, 1h or 1d", 2
        )
    return int(found[1]) * _UNIT_MS[found[2]]
