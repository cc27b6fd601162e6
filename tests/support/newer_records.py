"""Records as a newer version writes them: every object has a field that is not known here."""

from __future__ import annotations

from typing import Any

FUTURE = "futureField"
VALUE = {"list": [1, None, "x"], "number": 1e9}
BY_NAME = ("lastStats", "bundleStats", "topicShares")
"""Objects whose keys are names of bundles or topics, not of fields."""
HEADERS = [("future-header", b"\x00\xff"), ("kind2", b"")]


def with_unknown_fields(value: Any, name: str = "") -> Any:
    """Return a JSON value with FUTURE in each object that has fields."""
    if isinstance(value, list):
        return [with_unknown_fields(element) for element in value]
    if not isinstance(value, dict):
        return value
    grown = {
        key: part if name == "topicShares" else with_unknown_fields(part, key)
        for key, part in value.items()
    }
    return grown if name in BY_NAME else grown | {FUTURE: VALUE}
