"""The pages of settings follow from the models, and nothing is missing on them."""

import re

import pytest

from docs.tools.configuration_page import pages
from lb_stream.contracts.keys import key_metadata
from lb_stream.contracts.unread import UnreadKeys
from lb_stream.settings.explain import list_job_sections
from lb_stream.settings.names import list_known_names, list_models

TEXT = "\n".join(pages().values())
ROWS = {}
for line in TEXT.splitlines():
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    if len(cells) == 8 and cells[0].startswith("`"):
        ROWS.setdefault(cells[0].strip("`"), cells)


def test_each_page_is_short_enough_to_be_read() -> None:
    assert {
        name: len(text.split()) for name, text in pages().items() if len(text.split()) > 4_000
    } == {}


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            name
            for model in (*list_models(), *list_job_sections().values())
            for name in model.model_fields
        }
    ),
)
def test_every_key_stands_on_the_page_with_meaning_and_reader(name: str) -> None:
    if name in UnreadKeys.model_fields:
        assert f"| `{name}` |" in TEXT
        return
    _, default, _, allowed, _, dynamic, meaning, read_by = ROWS[name]
    assert default and allowed and meaning and read_by and dynamic in ("yes", "")


def test_every_name_of_pulsars_stands_on_the_page() -> None:
    text = TEXT
    ours = {name for model in list_models() for name in model.model_fields}
    assert [
        name for name in list_known_names() if name not in ours and f"`{name}`" not in text
    ] == []


def test_units_and_factors_are_those_of_the_models() -> None:
    for model in list_models():
        for name in model.model_fields:
            extra = key_metadata(model, name)
            if name in ROWS and extra.factor != 1:
                assert ROWS[name][2] == "ms"
                assert f"`{extra.pulsar}` × {extra.factor:,}".replace(",", " ") in ROWS[name][4]


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        (
            "threshold_percent",
            [
                "10",
                "%",
                "number, 0 to 100",
                "`loadBalancerBrokerThresholdShedderPercentage`",
                "yes",
            ],
        ),
        (
            "shedding_interval_ms",
            [
                "60 000",
                "ms",
                "whole number, 0 or more",
                "`loadBalancerSheddingIntervalMinutes` × 60 000",
                "yes",
            ],
        ),
        ("lower_boundary", ["`false`", "", "true, false", "`lowerBoundarySheddingEnabled`", ""]),
        (
            "memory_weight",
            ["not set", "", "number, 0 or more", "`loadBalancerMemoryResourceWeight`", "yes"],
        ),
        (
            "bundle_max_topics",
            [
                "1 000",
                "topics",
                "whole number, 0 or more",
                "`loadBalancerNamespaceBundleMaxTopics`",
                "yes",
            ],
        ),
        (
            "bundle_max_sessions",
            [
                "1 000",
                "sessions",
                "whole number",
                "`loadBalancerNamespaceBundleMaxSessions`",
                "yes",
            ],
        ),
        ("lost_records", ['`"stop"`', "", "`stop`, `skip`", "", ""]),
    ],
)
def test_rows_read_as_they_should(name: str, cells: list[str]) -> None:
    assert ROWS[name][1:6] == cells
