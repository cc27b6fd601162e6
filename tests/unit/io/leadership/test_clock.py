"""The job's clock goes on whatever happens to its client. No Kafka needed."""

import json
import threading
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.io.leadership import clock as clock_module
from lb_stream.io.leadership import topic as topic_module
from lb_stream.io.leadership.clock import Clock


class Producer:
    """Of several clients in a row each one fails otherwise; the last one sends."""

    troubles: list[Exception]
    sent: list[dict[str, Any]]
    ticked: threading.Event

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def send(self, topic: str, key: bytes, value: bytes) -> "Producer":
        if self.troubles:
            raise self.troubles.pop(0)
        self.sent.append({"topic": topic} | json.loads(value))
        self.ticked.set()
        return self

    def get(self, timeout: float) -> None:
        """Sent."""

    def close(self, timeout: float) -> None:
        """Nothing to close."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """One that ticks every millisecond; what its clients do is in Producer."""
    Producer.troubles, Producer.sent, Producer.ticked = [], [], threading.Event()
    monkeypatch.setattr(topic_module, "SigningProducer", Producer)
    monkeypatch.setattr(clock_module, "RETRY_S", 0.001)
    return Clock(Settings(stream=StreamSettings(tick_interval_ms=1)))


def test_no_trouble_of_a_client_ends_the_clock(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    Producer.troubles = [KafkaTimeoutError("slow"), RuntimeError("a fault")]
    clock.lead(4)
    try:
        assert Producer.ticked.wait(10)
    finally:
        clock.stop()
    assert (Producer.sent[0]["topic"], Producer.sent[0]["id"]) == ("lb-commands", "tick:4:3")
    assert "RuntimeError: a fault" in caplog.text


def test_a_missing_right_is_said_once_and_it_ticks_when_it_has_the_right_again(
    clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_module, "AGAIN_S", 0.001)
    Producer.troubles = [TopicAuthorizationFailedError("lb-commands") for _ in range(3)]
    clock.lead(4)
    try:
        assert Producer.ticked.wait(10)
    finally:
        clock.stop()
    assert ["missing Write on topic lb-commands." in line for line in caplog.messages] == [True]


def test_it_ticks_on_while_the_stream_begins_anew_and_says_when_it_ends(clock: Clock) -> None:
    clock.lead(4)
    assert Producer.ticked.wait(10)
    clock.lead(5)
    Producer.ticked.clear()
    assert Producer.ticked.wait(10)
    clock.stop(ends=True, to="h:7")
    assert {one["epoch"] for one in Producer.sent} == {4, 5} and (
        clock.first_epoch,
        clock.epoch,
    ) == (4, 5)
    *before, last = Producer.sent
    assert (last["ends"], last["to"]) == (True, "h:7") and not any(one["ends"] for one in before)


def test_one_that_never_led_says_nothing_at_its_end(clock: Clock) -> None:
    clock.stop(ends=True)
    assert Producer.sent == []
