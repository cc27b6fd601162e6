"""The sentence about a decision fits the decision's figures."""

from __future__ import annotations

from typing import Any

import pytest

from lb_stream.core.model.rules import Decides
from lb_stream.io.messages.shown import figure
from lb_stream.query.strategy_numbers import describe_numbers
from lb_stream.query.wording import explain_rule


@pytest.mark.parametrize(("saw", "is_above"), [(0.585, True), (0.375, False), (0.232, False)])
def test_a_source_that_is_not_above_the_limit_is_not_said_to_be(saw: float, is_above: bool) -> None:
    explain = {"saw": saw, "limit": 0.375, "average": 0.347, "unit": "ratio"}
    sentence = explain_rule(Decides.ABOVE_EVEN.name, "b-2", explain)
    assert (", more than 37.5%" in sentence) == is_above
    assert ("relieves other brokers" in sentence) != is_above


@pytest.mark.parametrize(
    ("refused", "is_only"),
    [([None, "uneven"], True), ([None, None], False), ([None], False), ([], False)],
)
def test_the_only_candidate_did_not_win_by_its_score(
    refused: list[str | None], is_only: bool
) -> None:
    candidates: list[dict[str, Any]] = [
        {"broker": f"b-{n}", "score": 5.0, "refused_by": rule} for n, rule in enumerate(refused)
    ]
    explain = {"saw": 5.0, "unit": "msg/s", "candidates": candidates}
    sentence = explain_rule(Decides.UNOWNED.name, None, explain)
    assert ("the only candidate" in sentence) == is_only
    assert ("lowest score" in sentence) != is_only


def test_the_mean_of_a_drained_brokers_numbers_is_of_the_others() -> None:
    usages = {"b-1": 0.4, "b-2": 0.6, "b-3": 0.0}
    loads = [
        {"broker": name, "usage_ratio": usage, "active": name != "b-3"}
        for name, usage in usages.items()
    ]
    found = describe_numbers("LeastMoves", None, {}, loads, "b-3")
    assert found is not None and found.text.endswith("mean is 50.0%")


def test_large_scores_have_no_exponent() -> None:
    assert figure(106_520.3, "msg/s") == "106520 msg/s"
    assert figure(57_606.26, "msg/s") == "57606 msg/s"


def test_an_assignment_after_a_death_names_the_dead_broker() -> None:
    explain = {"saw": 12.0, "unit": "msg/s", "died": "b-{9}:80"}
    text = explain_rule("unowned", None, explain)
    assert text.startswith("its broker b-{9}:80 has died, and its new broker") and "12" in text
    assert explain_rule("unowned", None, explain | {"died": None}).startswith("it was unassigned")


def test_durations_of_refusals_are_in_units_that_people_read() -> None:
    durations = (0, 400, 41_000, 119_500, 180_000, 9_000_000, 200_000_000)
    shown = [figure(float(ms), "ms") for ms in durations]
    assert shown == ["0 ms", "400 ms", "41 s", "120 s", "3 min", "2.5 h", "2.31 d"]
