"""YAML that is written is read as the same value by a reader of YAML 1.1."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.cli.shared.yaml_text import to_yaml

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
    assert yaml.safe_load(to_yaml(value)) == value


@pytest.mark.parametrize(
    "text", ("no", "On", "NULL", "~", "1e3", "0x10", "12:30:00", "2026-11-28", "a:", "- a", "", "=")
)
def test_texts_that_look_like_something_else_stay_texts(text: str) -> None:
    assert yaml.safe_load(to_yaml({text: text})) == {text: text}


@pytest.mark.parametrize("text", ("1e3", "-1E+3", ".5e1", "0o17"))
def test_texts_that_only_a_reader_of_1_2_takes_for_numbers_are_quoted(text: str) -> None:
    assert to_yaml([text]) == f"- '{text}'\n"


@pytest.mark.parametrize("letter", ("\x1b", "\u202e", "\ud800", "\x85"))
def test_what_a_terminal_obeys_is_escaped(letter: str) -> None:
    text = to_yaml([f"ü{letter}"])
    assert text.replace("\n", "").isprintable()


def test_names_of_brokers_and_bundles_need_no_quotes() -> None:
    row = {"broker": "broker-1:8080", "bundles": ["shop/hot/0x00000000_0x40000000"], "usage": 0.5}
    assert to_yaml([row]) == (
        "- broker: broker-1:8080\n  bundles:\n  - shop/hot/0x00000000_0x40000000\n  usage: 0.5\n"
    )


def test_letters_that_are_seen_stay_as_they_are() -> None:
    assert to_yaml([{"tenant": "käse"}]) == "- tenant: käse\n"
