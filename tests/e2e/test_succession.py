"""Jobs that stand by agree on the leader's heir on a real Kafka: clocks and members alone, without
Spark."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from kafka.errors import RetriableError

from lb_stream.contracts.commands import Claim
from lb_stream.contracts.settings import Settings, TopicSettings
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.io.leadership.clock import Clock
from lb_stream.io.leadership.membership import Member
from lb_stream.io.leadership.topic import LeadershipReader
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import wait_until

pytestmark = pytest.mark.e2e

LONGEST_S = 120.0


@pytest.fixture
def settings(kafka: EmbeddedKafka, topic_names: TopicSettings) -> Settings:
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    topics = {name: getattr(topic_names, name) for name in TopicSettings.model_fields}
    stream = {
        "pipeline_id": topic_names.reports[:80],
        "tick_interval_ms": 200,
        "failover_after_ms": 3_000,
    }
    return Settings.model_validate(
        {"kafka": {"bootstrap_servers": kafka.bootstrap}, "topics": topics, "stream": stream}
    )


@pytest.fixture
def clock(settings: Settings) -> Iterator[Clock]:
    """The leader's, which ticks."""
    ticking = Clock(settings)
    ticking.lead(4)
    yield ticking
    ticking.stop()


@pytest.fixture
def members(settings: Settings, clock: Clock) -> Iterator[list[Member]]:
    """Two that stand by and hear the leader."""
    with ExitStack() as started:
        found = [Member(settings, leads=False) for _ in range(2)]
        for one in found:
            one.ready = True
            one.start()
            started.callback(one.stop)
        wait_until(
            lambda: all(
                one.standing.tick is not None and one.connection_error is None for one in found
            ),
            "both to hear the leader",
            LONGEST_S,
        )
        yield found


def called(members: list[Member]) -> list[bool]:
    """Whose turn it is."""
    return [member.wait_to_lead(0) for member in members]


def claims(settings: Settings) -> list[int]:
    """When each claim was made, by Kafka's time.

    A Kafka that was away may know of no broker for a moment: its controller missed it too.
    """
    end = time.monotonic() + LONGEST_S
    while True:
        try:
            with closing(LeadershipReader(settings)) as reader:
                return [one.append_ms for one in reader.to_end() if isinstance(one.record, Claim)]
        except RetriableError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def stops_in_order(clock: Clock) -> None:
    clock.stop(ends=True)


@pytest.mark.parametrize("ends", [Clock.stop, stops_in_order], ids=["silent", "in order"])
def test_when_the_leader_ends_one_of_two_is_called(
    settings: Settings, clock: Clock, members: list[Member], ends: Callable[[Clock], None]
) -> None:
    last = members[0].standing.tick
    assert last is not None and called(members) == [False, False]
    ends(clock)
    wait_until(lambda: any(called(members)), "one of them to be called", LONGEST_S)
    time.sleep(2)  # the other one has looked some times since
    assert sorted(called(members)) == [False, True]
    assert (
        ends is stops_in_order
        or claims(settings)[0] - last.append_ms >= settings.stream.failover_after_ms
    )


def test_while_kafka_is_away_nobody_concludes_anything(
    kafka: EmbeddedKafka, settings: Settings, clock: Clock, members: list[Member]
) -> None:
    assert kafka.pid is not None
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        wait_until(
            lambda: all(member.connection_error is not None for member in members),
            "both to miss Kafka",
            LONGEST_S,
        )
        time.sleep(settings.stream.failover_after_ms / 1000)
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    before = members[0].standing.tick
    wait_until(
        lambda: all(
            member.connection_error is None and member.standing.tick != before for member in members
        ),
        "the leader to be heard again",
        LONGEST_S,
    )
    assert called(members) == [False, False] and claims(settings) == []
