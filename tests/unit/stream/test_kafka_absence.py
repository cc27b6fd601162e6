"""When a broker's silence may be Kafka's. By a clock that stands still."""

from types import SimpleNamespace

import pytest

from lb_stream.contracts.settings import StreamSettings
from lb_stream.stream import kafka_absence
from lb_stream.stream.kafka_absence import GRACE_S, SLACK_S, KafkaAbsence


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(kafka_absence, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def wait(absence: KafkaAbsence, clock: SimpleNamespace, seconds: float) -> None:
    absence.begin_wait()
    clock.now += seconds
    absence.end_wait()


def test_after_a_wait_without_ticks_silence_does_not_count_for_a_while(
    clock: SimpleNamespace,
) -> None:
    absence = KafkaAbsence.from_settings(StreamSettings(tick_interval_ms=1_000))
    wait(absence, clock, 1 + SLACK_S)
    assert not absence.is_recent
    wait(absence, clock, 1.1 + SLACK_S)
    assert absence.is_recent
    clock.now += GRACE_S
    assert not absence.is_recent


def test_a_short_wait_ends_no_grace(clock: SimpleNamespace) -> None:
    absence = KafkaAbsence.from_settings(StreamSettings())
    wait(absence, clock, 60)
    wait(absence, clock, 0.1)
    assert absence.is_recent


def test_the_first_batch_follows_no_wait(clock: SimpleNamespace) -> None:
    absence = KafkaAbsence.from_settings(StreamSettings())
    absence.end_wait()
    assert not absence.is_recent


def test_batches_that_are_far_apart_on_purpose_are_no_absence(clock: SimpleNamespace) -> None:
    rare = StreamSettings(tick_interval_ms=1_000, trigger_interval_ms=30_000)
    wait(absence := KafkaAbsence.from_settings(rare), clock, 31)
    assert not absence.is_recent


def test_a_job_without_ticks_knows_nothing_of_kafka(clock: SimpleNamespace) -> None:
    wait(absence := KafkaAbsence.from_settings(StreamSettings(tick_interval_ms=0)), clock, 600)
    assert not absence.is_recent
