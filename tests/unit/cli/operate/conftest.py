"""Commands are sent to a stand-in for Kafka."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from lb_stream.cli.shared import sending
from tests.support.lbctl_runner import Result, lbctl
from tests.support.scripted_kafka import Answers, Broker


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr("lb_stream.io.kafka.commands.SigningProducer", lambda *_, **__: broker)
    monkeypatch.setattr("lb_stream.io.kafka.commands.KafkaConsumer", lambda **_: broker)
    monkeypatch.setattr(sending, "require_kafka", lambda *_: nullcontext())
    monkeypatch.setattr(sending, "require_topics", lambda *_: None)
    monkeypatch.setattr(sending, "OTHER_CLUSTERS_S", 0.01)
    monkeypatch.setattr("lb_stream.io.leadership.liveness.describe_absence", lambda *_: "")
    return broker


@pytest.fixture
def call(kafka: Broker, tmp_path: Path) -> Callable[..., Result]:
    """Calls lbctl; answers: those of each poll."""

    def run(
        *arguments: str,
        answers: Answers | list[Answers] = [("default", "done")],  # noqa: B006
    ) -> Result:
        kafka.answers = [[answer] if isinstance(answer, tuple) else answer for answer in answers]
        return lbctl(*arguments, cwd=tmp_path)

    return run
