"""YAML of rows. It is only written, never read; docs/dependencies.md says why no package does it."""

from __future__ import annotations

import json
import re

_PLAIN = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_./:-]*[A-Za-z0-9_./-])?")
"""Texts that need no quotes, unless they are among `_RESERVED`."""
_RESERVED = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
"""Words that YAML 1.1 or 1.2 reads as something else than text, in any case of letters."""


def to_yaml_lines(value: object) -> list[str]:
    """Return the lines of a value of dicts, lists, texts, numbers, booleans and None.

    Readers of YAML 1.1 and of 1.2 read the same value from them.
    """
    lines: list[str] = []
    if isinstance(value, dict) and value:
        for name, item in value.items():
            lines += _entry(_scalar(str(name)), item)
    elif isinstance(value, list) and value:
        for item in value:
            first, *rest = to_yaml_lines(item)
            lines += [f"- {first}", *(f"  {line}" for line in rest)]
    else:
        lines.append(_scalar(value))
    return lines


def _entry(name: str, value: object) -> list[str]:
    """Return the lines of one entry of a mapping."""
    lines = to_yaml_lines(value)
    if isinstance(value, dict | list) and value:
        return [f"{name}:", *(f"  {line}" for line in lines)]
    return [f"{name}: {lines[0]}"]


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    text = json.dumps(value)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")  # YAML 1.1 takes 1e+16 for a text
    return text


def _text(value: str) -> str:
    """Return a text, in quotes where it has to be, with invisible characters escaped."""
    if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in quoted)


def _escape(letter: str) -> str:
    number = ord(letter)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
