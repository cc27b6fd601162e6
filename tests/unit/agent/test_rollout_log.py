"""What an agent's log says of a rollout: a broker is to be restarted, is empty, is back."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from lb_stream.agent import AgentVerdict
from lb_stream.agent.rollout_log import RolloutLog
from lb_stream.contracts.decisions import Decision, example_decision

A, B = "broker-1:8080", "broker-2:8080"
BUNDLE, OTHER = "shop/app/0x00000000_0x80000000", "shop/app/0x80000000_0xffffffff"
SYSTEM = "pulsar/broker-1:8080/0x00000000_0xffffffff"
RELEASE, ACQUIRE = AgentVerdict("release"), AgentVerdict("acquire")
START_MS = 1_767_225_600_000


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> "pytest.LogCaptureFixture":
    caplog.set_level(logging.INFO)
    return caplog


def words(told: pytest.LogCaptureFixture) -> list[str]:
    """The log since the last call: of each line what comes before the first colon."""
    lines = [record.getMessage().partition(": ")[0] for record in told.records]
    told.clear()
    return lines


def move(rule: str = "rollout", **changes: Any) -> Decision:
    return example_decision(**{"source": A, "bundle": BUNDLE, "rule": rule} | changes)


def report(*bundles: str, start_ms: int = START_MS) -> Mapping[str, Any]:
    return {"bundles": list(bundles), "lastStats": {}, "startTimestamp": start_ms}


def test_a_broker_that_a_rollout_restarts_is_told_once_at_each_step(
    told: pytest.LogCaptureFixture,
) -> None:
    rollouts = RolloutLog()
    rollouts.note_report(A, report(BUNDLE, OTHER))
    assert words(told) == [f"{A} reports"]
    for bundle in (BUNDLE, OTHER):
        rollouts.note_decision(A, move(bundle=bundle), RELEASE)
    assert words(told) == [f"{A} is to be restarted by a rollout"]
    rollouts.note_report(A, report(OTHER, SYSTEM))
    assert words(told) == []
    for _ in range(2):
        rollouts.note_report(A, report(SYSTEM))
    assert words(told) == [f"{A} is empty"]
    for _ in range(2):
        rollouts.note_report(A, report(start_ms=START_MS + 90_000))
    assert words(told) == [f"{A} is back"]


def test_other_moves_and_other_brokers_are_no_rollout(told: pytest.LogCaptureFixture) -> None:
    rollouts = RolloutLog()
    for decision in (move("drained"), move("rollout_levels"), move(kind="split")):
        rollouts.note_decision(A, decision, RELEASE)
    rollouts.note_decision(A, move(), AgentVerdict("refuse", "expired"))
    rollouts.note_report(A, report(start_ms=0))
    rollouts.note_decision(A, move(), RELEASE)
    rollouts.note_report(B, report(start_ms=0))
    assert words(told) == [f"{A} is to be restarted by a rollout"]


def test_a_report_that_names_no_bundles_shows_no_empty_broker(
    told: pytest.LogCaptureFixture,
) -> None:
    rollouts = RolloutLog()
    rollouts.note_decision(A, move(), RELEASE)
    words(told)
    rollouts.note_report(A, {"topBundlesLoadData": []})
    rollouts.note_report(A, {"weightedMaxEMA": 0.1, "bundles": None})
    assert words(told) == []
    rollouts.note_report(A, {"bundleStats": {}})
    assert words(told) == [f"{A} is empty"]


def test_a_broker_that_gets_bundles_again_is_to_be_restarted_no_longer(
    told: pytest.LogCaptureFixture,
) -> None:
    rollouts = RolloutLog()
    rollouts.note_decision(A, move(), RELEASE)
    rollouts.note_decision(A, move("first_owner", kind="assign", destination=A), ACQUIRE)
    words(told)
    rollouts.note_report(A, report(start_ms=0))
    assert words(told) == []
    rollouts.note_decision(A, move(), RELEASE)
    assert words(told) == [f"{A} is to be restarted by a rollout"]


def test_an_empty_broker_that_has_a_bundle_again_is_told_to_be_empty_anew(
    told: pytest.LogCaptureFixture,
) -> None:
    rollouts = RolloutLog()
    rollouts.note_decision(A, move(), RELEASE)
    words(told)
    for bundles in ([], [BUNDLE], []):
        rollouts.note_report(A, report(*bundles, start_ms=0))
    assert words(told) == [f"{A} is empty"] * 2
