"""One job among those of its pipeline: what it hears, what it says. The topic is a list."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field

import pytest
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

from lb_stream.contracts.commands import Claim, HandOver, LeadershipRecord, Standby, Tick
from lb_stream.contracts.settings import Settings
from lb_stream.io.leadership import membership as module
from lb_stream.io.leadership.membership import FRESH_MS, Member, StandbyTracker
from lb_stream.io.leadership.succession import ReceivedRecord
from lb_stream.io.leadership.topic import parse_leadership_record

PIPELINE = Settings().stream.pipeline_id


def sign(kind: type[LeadershipRecord], pid: int, at_ms: int, **fields: object) -> ReceivedRecord:
    return ReceivedRecord(
        kind(id=f"{pid}:{at_ms}", pipeline=PIPELINE, host="h", pid=pid, **fields), at_ms
    )


@dataclass
class Topic:
    """Reader and sender in one. `now_ms` is everybody's clock."""

    now_ms: int = 100_000
    records: list[ReceivedRecord] = field(default_factory=list)
    read: int = 0
    away: bool = False

    def to_end(self) -> list[ReceivedRecord]:
        if self.away:
            raise KafkaTimeoutError("no broker")
        found, self.read = self.records[self.read :], len(self.records)
        return found

    def send(self, record: LeadershipRecord) -> None:
        if self.away:
            raise KafkaTimeoutError("no broker")
        self.records.append(ReceivedRecord(record, self.now_ms))

    def hears(self, heard: ReceivedRecord) -> None:
        self.records.append(heard)

    def own_kinds(self) -> list[str]:
        """The kinds of the records that this process has sent."""
        return [record.record.kind for record in self.records if record.record.host != "h"]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    found = Topic()
    monkeypatch.setattr(module, "_now_ms", lambda: float(found.now_ms))
    return found


def look(member: Member, topic: Topic, for_ms: int = 0) -> None:
    """Look for so long, five times a second."""
    for _ in range(max(1, for_ms // 200)):
        member._look(topic, topic, [])
        topic.now_ms += 200


def test_it_says_now_and_then_that_it_stands_by_and_claims_only_once_spark_is_there(
    topic: Topic,
) -> None:
    member = Member(Settings(), leads=False)
    topic.hears(sign(Tick, 1, topic.now_ms, epoch=4))
    look(member, topic, 6_000)
    assert topic.own_kinds() == ["standby", "standby"] and not member.wait_to_lead(0)
    member.ready = True
    look(member, topic, 400)
    assert topic.own_kinds() == ["standby", "standby", "claim"] and member.wait_to_lead(0)
    assert isinstance(topic.records[-1].record, Claim) and topic.records[-1].record.epoch == 4


def test_a_leader_hands_over_when_it_is_asked_to_and_the_other_one_is_there(topic: Topic) -> None:
    for to, there, done in (("h:2", 2, True), ("", 3, True), ("h:2", 3, False), ("", None, False)):
        member = Member(Settings(), leads=True)
        member.begin_leading()
        member.clock.epoch = member.clock.first_epoch = 4
        if there is not None:
            topic.hears(sign(Standby, there, topic.now_ms))
        topic.hears(sign(HandOver, 9, topic.now_ms, epoch=4, to=to))
        look(member, topic)
        assert (member.hand_over is not None) is done, (to, there)
        topic.records.clear()
        topic.read = 0


def test_a_wish_to_another_leader_is_none_to_this_one(topic: Topic) -> None:
    member = Member(Settings(), leads=True)
    member.begin_leading()
    member.clock.epoch = member.clock.first_epoch = 4
    topic.hears(sign(Standby, 2, topic.now_ms))
    for epoch in (3, 5):
        topic.hears(sign(HandOver, 9, topic.now_ms, epoch=epoch))
    look(member, topic)
    assert member.hand_over is None


def test_after_its_lead_it_stands_by_again_and_waits_as_long_as_everybody(topic: Topic) -> None:
    member = Member(Settings(), leads=False)
    member.ready = True
    look(member, topic, 4_000)
    assert member.wait_to_lead(0)
    assert member.took_over == "leads as a standby: no leader was known"
    member.begin_leading()
    member.end_leading(in_order=True)
    assert not member.wait_to_lead(0)
    topic.hears(sign(Tick, 2, topic.now_ms, epoch=7))
    look(member, topic, 2_800)
    assert not member.wait_to_lead(0) and topic.own_kinds().count("claim") == 1
    look(member, topic, 800)
    assert member.wait_to_lead(0) and topic.own_kinds().count("claim") == 2
    assert member.took_over == "leads as a standby after h:2 (epoch 7): its ticks had stopped"


@pytest.mark.parametrize("operation", ["Read", "Write"])
def test_who_is_refused_says_so_once_and_tries_again_after_a_while(
    operation: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[str] = []

    class Refusing(Topic):
        topic_exists = True

        def refuse(self, *_: object) -> list[ReceivedRecord]:
            tries.append(operation)
            raise TopicAuthorizationFailedError("lb-commands")

        def close(self) -> None:
            """Nothing to close."""

    later = itertools.count(100_000, 10_000)
    monkeypatch.setattr(module, "_now_ms", lambda: float(next(later)))
    monkeypatch.setattr(Refusing, "to_end" if operation == "Read" else "send", Refusing.refuse)
    for name, value in {
        "LeadershipReader": lambda _: Refusing(),
        "LeadershipSender": lambda _: Refusing(),
        "AGAIN_S": 0.001,
        "RETRY_S": 60,
    }.items():
        monkeypatch.setattr(module, name, value)
    member = Member(Settings(), leads=False)
    member.start()
    end = time.monotonic() + 60
    while len(tries) < 3:
        assert time.monotonic() < end, "it has given up"
        time.sleep(0.001)
    member.stop()
    assert [f"missing {operation} on topic lb-commands." in line for line in caplog.messages] == [
        True
    ]
    assert member.connection_error is not None and not member.wait_to_lead(0)


def test_who_stands_by_is_known_by_what_was_said_lately() -> None:
    tracker = StandbyTracker()
    tracker.take(
        [sign(Standby, 2, 1_000, warm=True), sign(Standby, 3, 1_000), sign(Standby, 4, 1_000)]
    )
    tracker.take([sign(Claim, 3, 2_000), sign(Tick, 4, 2_000)])
    assert list(tracker.active) == ["h:2"] and tracker.active["h:2"].warm
    tracker.take([sign(Tick, 4, 1_000 + int(FRESH_MS) + 1)])
    assert tracker.active == {}


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"{", b'{"kind": "dry-run", "id": "1", "on": true}', b'{"kind": "tick"}', b"\xff"],
)
def test_what_is_no_sign_is_none(value: bytes) -> None:
    assert parse_leadership_record(value) is None


def test_a_sign_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    found = parse_leadership_record(
        b'{"kind": "standby", "id": "1", "host": "h", "pid": 3, "warm": true, "since": 7}'
    )
    assert isinstance(found, Standby) and (found.instance, found.warm) == ("h:3", True)
