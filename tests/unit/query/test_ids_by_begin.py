"""An id is found by a begin that fits it alone."""

from __future__ import annotations

import pytest

from lb_stream.query import QueryError
from lb_stream.query.past.names import choose_by_begin

DECISIONS = ("eu-1:4:0", "eu-1:42:0", "eu-1:42:1", "eu-1:43:10", "us-1:4:0")
COMMANDS = ("8f3a1c52-0b", "8f3a77d0-1e", "b00")


@pytest.mark.parametrize(
    ("given", "known", "found"),
    (
        ("eu-1:42:1", DECISIONS, "eu-1:42:1"),
        ("eu-1:4", DECISIONS, "eu-1:4:0"),
        ("eu-1:43", DECISIONS, "eu-1:43:10"),
        ("eu-1:43:", DECISIONS, "eu-1:43:10"),
        ("us-1", DECISIONS, "us-1:4:0"),
        ("8f3a1", COMMANDS, "8f3a1c52-0b"),
        ("b00", COMMANDS, "b00"),
    ),
)
def test_a_begin_that_fits_one_id_stands_for_it(
    given: str, known: tuple[str, ...], found: str
) -> None:
    assert choose_by_begin("decision", given, known) == found


@pytest.mark.parametrize(
    ("given", "known"),
    (
        ("eu-1:43:1", DECISIONS),  # part of a number
        ("eu-2:1:0", DECISIONS),
        ("b0", COMMANDS),  # too short
        ("", COMMANDS),
    ),
)
def test_other_texts_stand_for_none(given: str, known: tuple[str, ...]) -> None:
    assert choose_by_begin("decision", given, known) is None


@pytest.mark.parametrize(("given", "fits"), (("eu-1:42", DECISIONS[1:3]), ("8f3a", COMMANDS[:2])))
def test_a_begin_that_fits_several_is_an_error_that_lists_them(
    given: str, fits: tuple[str, ...]
) -> None:
    with pytest.raises(QueryError) as error:
        choose_by_begin("decision", given, [*DECISIONS, *COMMANDS])
    assert error.value.code == 2 and str(error.value).endswith(", ".join(fits))
