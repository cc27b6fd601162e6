"""What is wrong with a scenario, or with the file that one is made from: one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MISSING = object()
"""The value of what is not there."""

LONGEST_VALUE = 80


class ScenarioError(ValueError):
    """Says file, field, value and what was expected. `field` may be empty: the file as a whole. One line, whatever the file holds."""

    def __init__(self, file: str | Path, field: str, value: object, expected: str) -> None:
        self.file, self.field, self.value, self.expected = str(file), field, value, expected
        said = "is missing" if value is MISSING else f"= {_short(value)}"
        super().__init__(" ".join(f"{self.file}: {f'{field} {said}: ' if field else ''}expected {expected}".splitlines()))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def field_path(parts: tuple[Any, ...]) -> str:
    """Where something stands in nested lists and objects: `brokers[3].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
