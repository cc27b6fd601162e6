"""Brokers that join while `lbctl run` runs are named once."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from lb_stream.agent.adapter import BrokerError
from lb_stream.kit.run import command, joined
from lb_stream.kit.run.joined import JoinedBrokers
from lb_stream.query.health import ClusterFacts
from tests.support.wordings import check_wording

NOW = 1_800_000_000_000


def test_a_broker_that_joins_is_named_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(joined, "LOOK_INTERVAL_S", 0.0)
    now = ["b-1:8080"]
    found = JoinedBrokers(now, lambda: now)
    found.warn_if_due()
    assert capsys.readouterr().err == ""
    now += ["b-3:8080", "b-2:8080"]
    found.warn_if_due()
    check_wording(capsys.readouterr().err)
    found.warn_if_due()
    assert capsys.readouterr().err == ""


def test_brokers_are_asked_only_from_time_to_time() -> None:
    asked: list[bool] = []

    def list_brokers() -> Iterable[str]:
        asked.append(True)
        return ()

    JoinedBrokers((), list_brokers).warn_if_due()
    assert asked == []


def test_a_cluster_that_does_not_answer_has_no_news() -> None:
    def fail() -> Iterable[str]:
        raise BrokerError("away")

    assert JoinedBrokers((), fail).find() == []


@pytest.mark.parametrize(
    "began_ms", (NOW - 1, NOW + 60_000), ids=("a round since then", "no round since then")
)
def test_the_age_of_a_round_of_an_earlier_run_is_said(
    monkeypatch: pytest.MonkeyPatch, began_ms: int
) -> None:
    monkeypatch.setattr(command, "ago", lambda _ms: "2 h ago")
    facts = ClusterFacts("eu-1", NOW, mode="observe", brokers=3, bundles=7)
    check_wording(command._describe_state(facts, began_ms))
