"""Patterns that users and other programs give: regular expressions, and names with `*` and `?`.

Nothing else in the project may match such text: Python's `re` can take for ever to match an
expression of a few characters. Here each match takes time that is linear in the text's length, by
RE2, or at most in the product of both lengths.
"""

from __future__ import annotations

from functools import lru_cache

LONGEST_EXPRESSION = 1_000
"""Characters of a regular expression."""
_CACHED = 1 << 16
"""Results that are remembered: the same names are matched in each batch."""


@lru_cache(maxsize=1 << 14)
def find_pattern_error(pattern: str) -> str | None:
    """Find what is wrong with a regular expression; None: `matches_whole` takes it."""
    if len(pattern) > LONGEST_EXPRESSION:
        return f"it has {len(pattern)} characters, {LONGEST_EXPRESSION} are allowed"
    # Few need pyarrow here, and it takes long to load.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        for expression in (pattern, _anchor(pattern)):
            pc.match_substring_regex(pa.array([""]), expression)
    except pa.ArrowInvalid as error:
        hint = (
            "look-around, back-references and possessive repetition are not allowed, because they "
            "can't be matched in linear time"
        )
        return f"{str(error).removeprefix('Invalid regular expression: ')} ({hint})"
    return None


def _anchor(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


@lru_cache(maxsize=_CACHED)
def matches_whole(pattern: str, text: str) -> bool:
    """Return whether a regular expression matches all of a text, in linear time.

    Arrow's engine is RE2, whose port to Java Pulsar uses. An expression that RE2 rejects matches
    nothing: `find_pattern_error` refuses it before anything is matched.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if find_pattern_error(pattern) is not None:
        return False
    return bool(pc.match_substring_regex(pa.array([text]), _anchor(pattern))[0].as_py())


def matches_wildcards(pattern: str, text: str) -> bool:
    """Return whether a pattern matches all of a text: `*` is any text, `?` any character."""
    at = place = 0
    star, mark = -1, 0  # the last `*`, and how much of the text is behind what it stands for
    while at < len(text):
        if place < len(pattern) and pattern[place] == "*":
            star, mark = place, at
            place += 1
        elif place < len(pattern) and pattern[place] in ("?", text[at]):
            at, place = at + 1, place + 1
        elif star >= 0:
            mark += 1
            at, place = mark, star + 1
        else:
            return False
    return not pattern[place:].strip("*")
