"""The table of profiles in docs/strategies.md is what the profiles do."""

import re
from functools import cache
from pathlib import Path

import pytest

from lb_stream.contracts.balancer import PROFILES
from lb_stream.settings.resolve import resolve

PAGE = (Path(__file__).parents[2] / "docs/strategies.md").read_text(encoding="utf-8")
COLUMNS = ("default", "pulsar-4.0", "pulsar-4.2", "pulsar-5.0")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.split("### Profiles")[1].split("\n\n")[2].splitlines()[2:]
]


@cache
def values_of(profile: str) -> dict[str, object]:
    """Every key under a profile: those of its own strategies, and of two others."""
    found: dict[str, object] = {}
    for settings in ({}, {"shedding_strategy": "UniformLoadShedder"}, AVG):
        found = resolve({"profile": profile, **settings}).values | found
    return found


AVG = {"shedding_strategy": "AvgShedder", "placement_strategy": "AvgShedder"}


def keys_of(row: list[str]) -> list[str]:
    return re.findall(r"`(\w+)`", row[1])


def text_of(value: object) -> str:
    """A value as the table shows it, without quotes and spaces."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_every_key_that_a_releases_profile_sets_has_its_row() -> None:
    named = {key for row in ROWS for key in keys_of(row)}
    assert named == {key for column in COLUMNS for key in PROFILES[column]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_a_row_has_the_values_of_the_profiles(row: list[str]) -> None:
    keys, shown = keys_of(row), ""
    for profile, cell in zip(COLUMNS, row[2:], strict=True):
        shown = shown if cell == "the same" else cell
        if shown == "–":  # the release has no such thing
            continue
        name, both, _ = shown.partition(" for both")
        parts = [name] * 2 if both else shown.split(", ")
        expected = [text_of(values_of(profile)[key]) for key in keys]
        assert [part.strip('"').replace(" ", "") for part in parts] == expected
