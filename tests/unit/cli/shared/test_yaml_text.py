"""YAML that is written is read as the same value by a reader of YAML 1.1."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.cli.shared.yaml_text import to_yaml_lines

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=()))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=50), inner),
    max_leaves=20,
)


@given(VALUES)
def test_a_reader_finds_the_value_that_was_written(value: object) -> None:
    assert yaml.safe_load("\n".join(to_yaml_lines(value))) == value


@pytest.mark.parametrize(
    "text", ("no", "On", "NULL", "~", "1e3", "0x10", "12:30:00", "2026-11-28", "a:", "- a", "", "=")
)
def test_texts_that_look_like_something_else_stay_texts(text: str) -> None:
    assert yaml.safe_load("\n".join(to_yaml_lines({text: text}))) == {text: text}


def test_names_of_brokers_and_bundles_need_no_quotes() -> None:
    row = {"broker": "broker-1:8080", "bundles": ["shop/hot/0x00000000_0x40000000"], "usage": 0.5}
    assert to_yaml_lines([row]) == [
        "- broker: broker-1:8080",
        "  bundles:",
        "    - shop/hot/0x00000000_0x40000000",
        "  usage: 0.5",
    ]
