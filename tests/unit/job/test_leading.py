"""Leading and standing by in turns: what a job says at its end, and whether it stands by again.

No JVM, no Kafka needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from lb_stream.contracts.commands import HandOver
from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.io.kafka.outbox import Fenced, KafkaUnavailable
from lb_stream.job import leading
from lb_stream.job.leading import ShutOut
from lb_stream.job.running import SharedCheckpoint, Stuck
from lb_stream.stream.ports import FatalError
from tests.support.wordings import check_wording

SETTINGS = Settings(stream=StreamSettings(metrics_address=""))


@dataclass
class FakeMember:
    """Is called as often as it is said; notes how each lead ended."""

    calls: int = 1
    ends: list[bool] = field(default_factory=list)
    hand_over: HandOver | None = None
    ready = warm = False
    instance = "h:1"
    standing = SimpleNamespace(tick=None, vacant=False)
    begun: int = 0
    clock: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(epoch=3))

    def wait_to_lead(self, _within_s: float) -> bool:
        self.calls -= 1
        return self.calls >= 0

    def begin_leading(self) -> None:
        self.begun += 1

    def end_leading(self, in_order: bool) -> None:
        self.ends.append(in_order)
        self.hand_over = None


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[FakeMember, Exception | None]]:
    """Stands by and leads; each lead ends as given.

    `leads`: whether the tables say, at last, that this job leads.
    """

    def run(
        *leads_end: Exception | Callable[[FakeMember], None] | None, leads: bool = True
    ) -> tuple[FakeMember, Exception | None]:
        member, endings = FakeMember(len(leads_end)), list(leads_end)

        def stream(_spark: Any, _settings: Any, given: FakeMember, _once: bool, _stop: Any) -> None:
            match endings.pop(0):
                case Exception() as error:
                    raise error
                case None:
                    pass
                case act:
                    act(given)

        monkeypatch.setattr(leading, "run", stream)
        monkeypatch.setattr(leading, "is_leader", lambda *_: leads)
        try:
            leading.stand_by(Mock(), SETTINGS, member, lambda: member.calls < 0)
        except Exception as error:
            return member, error
        return member, None

    return run


Led = Callable[..., tuple[FakeMember, Exception | None]]


def test_who_was_shut_out_stands_by_again_and_does_not_say_that_it_stopped_in_order(
    led: Led,
) -> None:
    for error in (Fenced("another job"), SharedCheckpoint("/c")):
        member, raised = led(error, None)
        assert raised is None and member.begun == 2 and member.ends == [False, True]


def test_whatever_befalls_one_that_leads_no_more_came_of_the_others_lead(led: Led) -> None:
    member, raised = led(ValueError("a file is gone"), None, leads=False)
    assert raised is None and member.ends[0] is False and member.begun == 2


def test_one_that_could_not_even_begin_to_lead_ends_and_says_why(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeMember, "begin_leading", lambda self: setattr(self.clock, "epoch", 0))
    lost = FatalError("Kafka has deleted records")
    assert led(lost, None, leads=False)[1] is lost
    assert led(Fenced("another job"), None, leads=False)[1] is None


def test_one_that_does_not_stand_by_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def stream(*_: object) -> None:
        raise ValueError("a file is gone\nand a trace")

    monkeypatch.setattr(leading, "run", stream)
    monkeypatch.setattr(leading, "is_leader", lambda *_: False)
    with pytest.raises(ShutOut) as error:
        leading.lead(Mock(), SETTINGS, FakeMember(), False, lambda: False)
    check_wording(error.value)


def test_what_ends_a_leader_ends_its_job_and_another_may_take_over_at_once(led: Led) -> None:
    for error in (
        FatalError("a damaged file"),
        KafkaUnavailable("nobody answers"),
        ValueError("a fault"),
    ):
        member, raised = led(error, None)
        assert raised is error and member.ends == [True]


def test_one_that_hands_over_stops_in_order_and_stands_by(led: Led) -> None:
    def asked(member: FakeMember) -> None:
        member.hand_over = HandOver(id="1", pipeline="lb-stream", to="h:2", by="me")

    member, raised = led(asked, None)
    assert raised is None and member.ends == [True, True] and member.ready and member.warm


def test_a_batch_that_is_stuck_ends_the_process_and_is_no_reason_to_stand_by(led: Led) -> None:
    stuck = Stuck("batch 7")
    assert led(stuck, None, leads=False)[1] is stuck
