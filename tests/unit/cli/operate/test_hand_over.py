"""`lbctl leader hand-over`: whom it asks, what it refuses, what it waits for.

The topic is a list.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from lb_stream.cli.operate import leader
from lb_stream.contracts.commands import HandOver, LeadershipRecord, Standby, Tick
from lb_stream.io.leadership.succession import ReceivedRecord
from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording


def tick(epoch: int, pid: int) -> ReceivedRecord:
    return ReceivedRecord(
        Tick(id=f"tick:{epoch}:1", pipeline="lb-stream", epoch=epoch, host="lb", pid=pid), 1
    )


@dataclass
class Topic:
    """Ticks and sender in one. After a wish has been sent, `after` are the ticks that come."""

    standbys: dict[str, bool]
    leads: bool = True
    after: list[ReceivedRecord] = field(default_factory=list)
    sent: list[LeadershipRecord] = field(default_factory=list)

    @property
    def standby_tracker(self) -> SimpleNamespace:
        return SimpleNamespace(
            active={name: Standby(id=name, warm=warm) for name, warm in self.standbys.items()}
        )

    def last(self) -> None:
        """Reads what is there."""

    def next(self, _within_ms: float) -> ReceivedRecord | None:
        if not self.sent:
            return tick(4, 1) if self.leads else None
        return self.after.pop(0) if self.after else None

    def send(self, sign: LeadershipRecord) -> None:
        self.sent.append(sign)

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Calls `lbctl leader hand-over` with this topic."""
    monkeypatch.setattr(leader, "require_kafka", lambda *_: nullcontext())
    monkeypatch.setattr(leader, "require_topics", lambda *_: None)

    def run(topic: Topic, *arguments: str) -> Result:
        monkeypatch.setattr("lb_stream.io.leadership.liveness.Ticks", lambda _: topic)
        monkeypatch.setattr("lb_stream.io.leadership.topic.LeadershipSender", lambda _: topic)
        return lbctl("leader", "hand-over", *arguments, cwd=tmp_path)

    return run


def test_it_asks_the_leader_and_waits_for_the_new_ones_first_tick(
    call: Callable[..., Result],
) -> None:
    topic = Topic({"lb-2:7": True, "lb-3:8": True}, after=[tick(4, 1), tick(5, 7)])
    done = call(topic, "--to", "lb-2:7", "--json")
    assert (done.code, done.objects[0]["epoch"], done.objects[0]["pid"]) == (0, 5, 7)
    (wish,) = topic.sent
    assert isinstance(wish, HandOver) and (wish.epoch, wish.to) == (4, "lb-2:7") and wish.by
    assert json.loads(wish.to_json())["kind"] == "hand-over"


@pytest.mark.parametrize(("to", "asked"), [(None, ""), ("lb-3", "lb-3:8")])
def test_without_a_name_anybody_is_meant_and_a_host_is_enough_where_one_job_stands_by(
    call: Callable[..., Result], to: str | None, asked: str
) -> None:
    topic = Topic({"lb-2:7": True, "lb-3:8": True}, after=[tick(5, 7)])
    done = call(topic, *(("--to", to) if to else ()))
    assert done.code == 0 and done.out.startswith("lb (process 7) leads lb-stream, epoch 5, after ")
    assert [wish.to for wish in topic.sent if isinstance(wish, HandOver)] == [asked]


def test_nothing_is_asked_where_nobody_leads_or_nobody_stands_by(
    call: Callable[..., Result],
) -> None:
    for topic, told in (
        (Topic({"lb-2:7": True}, leads=False), "no job leads lb-stream"),
        (Topic({}), "no job stands by: start a second one, lbctl balance --standby"),
    ):
        done = call(topic)
        assert done.code == 1 and told in done.err and not topic.sent


@pytest.mark.parametrize("to", ["lb-9:1", "lb-2"])
def test_a_name_that_is_nobodys_or_that_of_two_is_wrong_usage(
    call: Callable[..., Result], to: str
) -> None:
    topic = Topic({"lb-2:7": True, "lb-2:8": True})
    done = call(topic, "--to", to)
    assert (done.code, done.err) == (
        2,
        f"lbctl: --to {to}: expected one of lb-2:7, lb-2:8\n",
    ) and not topic.sent


def test_one_that_is_not_warm_is_told_of_and_no_new_leader_in_time_is_a_failure(
    call: Callable[..., Result],
) -> None:
    done = call(Topic({"lb-2:7": False}), "--timeout", "0.1")
    assert done.code == 1
    check_wording(done.err)
