"""Lengths of time in options."""

from __future__ import annotations

from lb_stream.cli.shared.output import CommandError
from lb_stream.contracts.spans import parse_span


def parse_duration(option: str, text: str, least: int = 0) -> int:
    """Return the ms of a length of time such as 90s, 30m, 1h or 1d. Raises CommandError.

    `least` is the smallest number that is accepted before the unit.
    """
    try:
        return parse_span(text, least)
    except ValueError as error:
        raise CommandError(f"{option} {text!r}: {error}", 2) from None
