"""The catalogue of rules: each has a name, a sentence and a unit, is used by the core and stands on
its page; a plug-in may add its own."""

import ast
from pathlib import Path

import pytest

from lb_stream.core.model import rules
from lb_stream.core.model.refusals import refusal
from lb_stream.core.model.rules import (
    DECIDES,
    FILTERED_BY,
    PLACES,
    REFUSES,
    Decides,
    FilteredBy,
    Refuses,
    Rule,
    decides,
    refuses,
)
from lb_stream.query.wording import RULES_BY_PLACE, explain_refusal, explain_rule, place_of_rule
from tests.support.wordings import check_wording

CORE = Path(rules.__file__).parents[1]
KINDS = {kind.__name__: kind for kind in (Decides, Refuses, FilteredBy)}


def used() -> set[tuple[str, str]]:
    """(kind, attribute) of every rule that a module of the core names, but for the catalogue
    itself."""
    trees = [
        ast.parse(file.read_text()) for file in CORE.rglob("*.py") if file != Path(rules.__file__)
    ]
    nodes = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]
    return {
        (node.value.id, node.attr)
        for node in nodes
        if isinstance(node.value, ast.Name) and node.value.id in KINDS
    }


def test_every_rule_that_is_used_is_in_the_catalogue_and_every_rule_of_the_catalogue_is_used() -> (
    None
):
    assert used() == {
        (name, one)
        for name, kind in KINDS.items()
        for one, rule in vars(kind).items()
        if isinstance(rule, Rule)
    }


def test_a_rule_is_called_as_its_place_in_the_catalogue() -> None:
    for kind, catalogue in zip(KINDS.values(), (DECIDES, REFUSES, FILTERED_BY), strict=True):
        assert {one: rule.name for one, rule in vars(kind).items() if isinstance(rule, Rule)} == {
            one.upper(): one for one in catalogue
        }


def test_sentences_begin_small_and_end_without_a_full_stop() -> None:
    every = [*DECIDES.values(), *REFUSES.values(), *FILTERED_BY.values()]
    assert [
        rule
        for rule in every
        if not rule.sentence or rule.sentence.endswith(".") or rule.sentence[0].isupper()
    ] == []


def test_every_refusing_rule_has_its_place_in_the_order_of_precedence_or_keeps_nothing() -> None:
    keeps_nothing = {rule.name for rule in REFUSES.values() if not rule.place}
    assert keeps_nothing == {
        "mass_failover",
        "not_apart",
        "nothing_proposed",
        "rollout_anti_affinity",
        "rollout_domain",
        "rollout_dry_run",
        "rollout_isolation",
        "rollout_stands_still",
        "rollout_too_full",
        "version_unknown",
    }
    assert tuple(RULES_BY_PLACE) == PLACES and all(RULES_BY_PLACE.values())
    assert (place_of_rule("paused"), place_of_rule("nobody_knows")) == ("operators", "")


def test_a_refusal_has_its_rules_unit_where_it_has_figures() -> None:
    assert refusal(Refuses.NO_CANDIDATE, "b").unit == ""
    assert refusal(Refuses.NO_CANDIDATE, "b", limit=1).unit == "brokers"
    assert refusal(Refuses.MIN_UNLOAD, "b", saw=[1.0], limit=2, unit="bytes/s").unit == "bytes/s"


def test_a_plug_ins_rules_are_told_like_ours_and_take_no_other_ones_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "DECIDES", known := dict(DECIDES))
    assert decides("too_blue", "{source} was {saw} blue, above {limit}", "%") == known["too_blue"]
    assert decides("too_blue", "{source} was {saw} blue, above {limit}", "%").unit == "%", (
        "a module may be imported anew"
    )
    with pytest.raises(ValueError) as error:
        decides("overloaded", "too much")
    check_wording(error.value)
    with pytest.raises(ValueError, match="'paused'"):
        refuses("paused", "not now")


def test_a_rule_that_nobody_has_described_is_told_with_its_figures() -> None:
    check_wording(explain_rule("too_green", "b", {"saw": 0.5, "limit": 0.25, "unit": "ratio"}))
    assert explain_refusal("not_green") == "not green"
