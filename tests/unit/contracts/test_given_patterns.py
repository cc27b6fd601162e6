"""Patterns of users: what they match, and that no text makes a match take long.

Work is counted, not timed: an expression that backtracks would not end.
"""

import ast
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lb_stream
from lb_stream.contracts.patterns import find_pattern_error, matches_whole, matches_wildcards
from lb_stream.contracts.settings import StreamSettings
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.records import RecordRejected
from tests.support.call_counts import calls

CATASTROPHIC = (r"(a+)+", r"(a|a)*", r"(a|aa)+", r"(.*a){12}", r"([a-z]+)*", r"(a?){30}a{30}")


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_an_expression_that_backtracks_elsewhere_ends_at_once(pattern: str) -> None:
    assert find_pattern_error(pattern) is None
    assert not matches_whole(pattern, "a" * 5_000 + "!")


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_clusters_are_allowed_by_the_same_engine(pattern: str) -> None:
    allowed = StreamSettings(allowed_clusters=pattern).allowed_clusters
    config = DecodeConfig("home", "commands", known={}, allowed=allowed)
    with pytest.raises(RecordRejected):
        config.require_allowed("a" * 120 + "-")


def test_an_expression_that_the_engine_refuses_is_a_wrong_setting_and_matches_nothing() -> None:
    with pytest.raises(ValueError, match="look-around"):
        StreamSettings(allowed_clusters="(?!b).*")
    assert not matches_whole("(?!b).*", "a")


def test_wildcards_cost_at_most_the_product_of_both_lengths() -> None:
    pattern = "*a" * 20 + "b"
    assert not matches_wildcards(pattern, "a" * 2_000)
    small, large = (
        calls(partial(matches_wildcards, pattern, "a" * length)) for length in (2_000, 4_000)
    )
    assert large <= 2.2 * small


@given(st.text("ab?*", max_size=8), st.text("ab\n", max_size=8))
def test_wildcards_match_what_a_shell_s_do(pattern: str, text: str) -> None:
    assert matches_wildcards(pattern, text) == fnmatchcase(text, pattern)


def test_no_other_module_compiles_an_expression_that_it_is_given() -> None:
    """An expression in the code is written there: no variable is an expression."""
    root = Path(lb_stream.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr not in ("escape", "sub", "split")
                and isinstance(node.args[0], ast.Name)
                and not node.args[0].id.isupper()
            ):
                found.add(f"{path.relative_to(root)}: {node.args[0].id}")
    # Both are keys of tables in the code.
    assert found == {"contracts/columns/comments.py: pattern", "sim/scenario/document.py: pattern"}
