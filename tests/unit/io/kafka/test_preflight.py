"""A refusal that is met half-way gets the names of the rights behind it, if Kafka tells them."""

from unittest.mock import Mock

import pytest
from kafka.errors import KafkaTimeoutError

from lb_stream.access.refusals import LoginRefused, RightsRefused, build_rights_refusal
from lb_stream.access.roles import Right
from lb_stream.io.kafka import preflight
from tests.support.wordings import check_wording

READ = Right("Read", "topic", "lb-decisions")
MET = RightsRefused("missing a right (lb-decisions)")


def test_the_rights_behind_it_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require = Mock(side_effect=build_rights_refusal("k:9093", {}, [READ]))
    monkeypatch.setattr(preflight, "require_rights", require)
    named = preflight.name_missing_rights("k:9093", {}, [READ], MET)
    check_wording(str(named))
    require.assert_called_once_with("k:9093", {}, [READ])


@pytest.mark.parametrize(
    "answer",
    [KafkaTimeoutError("no broker"), None],
    ids=["Kafka is away", "the right is there again"],
)
def test_it_stays_as_it_is_where_nothing_more_is_told(
    monkeypatch: pytest.MonkeyPatch, answer: Exception | None
) -> None:
    monkeypatch.setattr(preflight, "require_rights", Mock(side_effect=answer, return_value=[]))
    assert preflight.name_missing_rights("k:9093", {}, [READ], MET) is MET


def test_who_is_not_let_in_is_not_asked_about_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "require_rights", Mock(side_effect=AssertionError("asked")))
    refused = LoginRefused("not let in")
    assert preflight.name_missing_rights("k:9093", {}, [READ], refused) is refused
