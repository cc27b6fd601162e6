"""The job's clock goes on whatever happens to its client. No Kafka needed."""

import json
import threading
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.io.leadership import clock as clock_module
from lb_stream.io.leadership.clock import Clock


class Producer:
    """Of several clients in a row each one fails otherwise; the last one sends."""

    troubles: list[Exception]
    sent: list[dict[str, Any]]
    ticked: threading.Event

    def __init__(self, **_: Any) -> None:
        pass

    def send(self, topic: str, key: bytes, value: bytes) -> "Producer":
        if self.troubles:
            raise self.troubles.pop(0)
        self.sent.append({"topic": topic} | json.loads(value))
        self.ticked.set()
        return self

    def get(self, timeout: float) -> None:
        """Sent."""

    def close(self) -> None:
        """Nothing to close."""


def test_no_trouble_of_a_client_ends_the_clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    Producer.troubles, Producer.sent, Producer.ticked = [KafkaTimeoutError("slow"), RuntimeError("a fault")], [], threading.Event()
    monkeypatch.setattr(clock_module, "KafkaProducer", Producer)
    monkeypatch.setattr(clock_module, "RETRY_S", 0.001)
    clock = Clock(Settings(stream=StreamSettings(tick_interval_ms=1)), epoch=4)
    clock.start()
    try:
        assert Producer.ticked.wait(10)
    finally:
        clock.stop()
    assert (Producer.sent[0]["topic"], Producer.sent[0]["id"]) == ("lb-commands", "tick:4:3")
    assert "RuntimeError: a fault" in caplog.text
