"""Who follows decisions or waits for an answer is told which right was taken meanwhile.

No Kafka needed.
"""

from pathlib import Path
from unittest.mock import Mock

import pytest
from kafka.errors import TopicAuthorizationFailedError

from lb_stream.access.refusals import build_rights_refusal
from lb_stream.access.roles import Right
from lb_stream.cli.inspect import follow
from lb_stream.io.kafka import commands, preflight, reachable
from tests.support.lbctl_runner import lbctl

KAFKA = ("--set", "kafka.bootstrap_servers=k:9093")


@pytest.mark.parametrize(
    ("arguments", "topic"),
    [
        (("decisions", "--follow", "--json"), "lb-decisions"),
        (("clusters", "pause", "eu-1"), "lb-command-results"),
    ],
    ids=["who follows", "who waits"],
)
def test_the_right_that_was_taken_is_named(
    arguments: tuple[str, ...], topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = TopicAuthorizationFailedError(topic)
    monkeypatch.setattr(reachable, "describe_unreachable", lambda _: None)
    monkeypatch.setattr(
        preflight,
        "require_rights",
        Mock(side_effect=[[], build_rights_refusal("k:9093", {}, [Right("Read", "topic", topic)])]),
    )
    monkeypatch.setattr(follow, "follow_records", Mock(side_effect=refused))
    monkeypatch.setattr(commands, "send_command", Mock())
    monkeypatch.setattr(
        commands, "ResultReader", Mock(return_value=Mock(poll=Mock(side_effect=refused)))
    )
    result = lbctl(*arguments, *KAFKA, cwd=tmp_path)
    assert result.code == 1
    assert result.err.startswith(
        f"lbctl: Kafka at k:9093 refuses User:ANONYMOUS: missing Read on topic {topic}."
    ), result
