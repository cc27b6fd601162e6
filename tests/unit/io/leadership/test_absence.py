"""Whether a job answers commands: a dead one is known from its process, or from ticks that stop."""

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from lb_stream.contracts.settings import Settings
from lb_stream.io.leadership import liveness
from lb_stream.io.leadership.leader import Leader
from lb_stream.io.leadership.liveness import describe_absence
from lb_stream.io.leadership.topic import this_host

NOW_MS = 1_767_225_670_000
DEAD_PID = 2**22 + 1


class Ticks:
    """Stands in for the topic: the last tick, the next one, who stands by."""

    last_tick: Any = None
    next_tick: Any = None
    standbys: ClassVar[dict[str, Any]] = {}

    def __init__(self, _settings: Settings) -> None:
        self.standby_tracker = SimpleNamespace(active=self.standbys)

    def last(self) -> Any:
        return self.last_tick

    def next(self, _within_ms: float) -> Any:
        return self.next_tick

    def close(self) -> None: ...


def tick(epoch: int, age_ms: int = 0) -> Any:
    return SimpleNamespace(record=SimpleNamespace(epoch=epoch), append_ms=NOW_MS - age_ms)


def absence(
    monkeypatch: pytest.MonkeyPatch,
    leader: Leader | None,
    ticks: dict[str, Any] | None = None,
    **stream: Any,
) -> str:
    monkeypatch.setattr(liveness.time, "time", lambda: NOW_MS / 1000)  # however late the test runs
    monkeypatch.setattr(liveness, "last_leader", lambda _: leader)
    monkeypatch.setattr(liveness, "Ticks", type("Own", (Ticks,), ticks or {}))
    return describe_absence(Settings.model_validate({"stream": stream}))


HERE = Leader("lb-stream", 3, this_host(), DEAD_PID)
THERE = Leader("lb-stream", 3, "elsewhere", 7)


@pytest.mark.parametrize(
    ("leader", "ticks", "expected"),
    [
        (HERE, {}, "has ended"),  # it has stopped in order
        (HERE, {"last_tick": tick(3)}, "has ended"),  # killed a moment ago
        (HERE, {"last_tick": tick(4), "next_tick": tick(4)}, ""),  # another machine's leads
        (HERE, {"standbys": {"b:1": None}}, ""),  # somebody takes over
        (THERE, {"last_tick": tick(3), "next_tick": tick(3)}, ""),
        (THERE, {"last_tick": tick(3, 5_000)}, "its clock on elsewhere doesn't tick"),
        (THERE, {"last_tick": tick(3, 3_600_000)}, "its clock on elsewhere doesn't tick"),
        (None, {}, ""),  # none has been started with these tables: it can't be known
        (Leader("another", 3, this_host(), DEAD_PID), {}, ""),
    ],
)
def test_a_dead_job_is_told_from_one_that_lives_or_can_not_be_seen(
    monkeypatch: pytest.MonkeyPatch, leader: Leader | None, ticks: dict[str, Any], expected: str
) -> None:
    found = absence(monkeypatch, leader, ticks)
    assert found.endswith(expected) if expected else found == ""


def test_without_ticks_the_process_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "has ended" in absence(monkeypatch, HERE, tick_interval_ms=0)
    assert absence(monkeypatch, THERE, tick_interval_ms=0) == ""
