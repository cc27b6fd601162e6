"""The watcher with real webhooks: nothing is told twice, a slow target holds nobody up, a failing
one is told later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.settings import NotifySettings
from lb_stream.notify import state_file
from lb_stream.notify.state_file import WatcherState
from lb_stream.notify.targets import Answer, Target, build_targets
from lb_stream.notify.watcher import Watcher
from lb_stream.query import QueryError
from lb_stream.query.screens.health_events import HealthEvent, HealthEvents
from tests.support.webhook import Webhook, webhook

S, START = 1_000, 1_767_225_600_000
DOWN = HealthEvent("job_down", "", "", "the job is not running", "start it")
SILENT = HealthEvent("broker_dead", "eu-1", "b-1", "eu-1: b-1 is silent", "see to it")


@pytest.fixture
def server() -> Iterator[Webhook]:
    with webhook() as made:
        yield made


class Run:
    """A watcher whose looks are set by the test, at a time that the test tells.

    `troubles` None: it can't look.
    """

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path, self.rules = (
            path,
            NotifySettings.model_validate(
                {"group_wait_ms": 0, "poll_interval_ms": 1_000, "timeout_ms": 60_000} | settings
            ),
        )
        self.now_ms, self.troubles, self.answers = (
            START,
            tuple[HealthEvent, ...](),
            list[tuple[str, str, Answer]](),
        )
        self.blind = False
        self.start()

    def start(self) -> None:
        state = state_file.read_state(self.path, "lb")
        self.watcher = Watcher(
            "lb", self.rules, build_targets(self.rules), self._look, self._save, self._note, state
        )

    def _look(self) -> HealthEvents:
        if self.blind:
            raise QueryError("no table can be read")
        return HealthEvents(self.now_ms, self.troubles)

    def _save(self, state: WatcherState) -> None:
        state_file.write_state(self.path, "lb", state)

    def _note(self, target: Target, title: str, answer: Answer) -> None:
        self.answers.append((target.name, title, answer))

    def go(self, seconds: int, *troubles: HealthEvent) -> list[tuple[str, str, bool]]:
        """So many turns, each with all answers to what it sent.

        Returns what was answered: target, title, whether it was taken.
        """
        self.troubles, before = troubles, len(self.answers)
        for _ in range(seconds):
            self.now_ms += S
            self.watcher.run_once(self.now_ms)
            self.watcher.finish_sending(self.now_ms)
        return [(name, title, answer.is_accepted) for name, title, answer in self.answers[before:]]


def test_each_target_is_told_once_also_by_a_watcher_that_is_started_again(
    tmp_path: Path, server: Webhook
) -> None:
    run = Run(
        tmp_path / "state.json",
        targets={"chat": server.apprise("/chat"), "ops": server.apprise("/ops")},
        routes={"ops": "job_down"},
    )
    assert run.go(3, DOWN, SILENT) == [
        ("chat", "lb: the job is down", True),
        ("ops", "lb: the job is down", True),
        ("chat", "lb: brokers are silent", True),
    ]
    run.start()
    assert run.go(3, DOWN, SILENT) == []
    run.now_ms += 600 * S
    assert sorted(run.go(70)) == [
        ("chat", "lb: resolved: brokers are silent", True),
        ("chat", "lb: resolved: the job is down", True),
        ("ops", "lb: resolved: the job is down", True),
    ]
    assert len(server.calls) == 6 and state_file.read_state(run.path, "lb").opened == {}


def test_a_target_that_refuses_is_told_later_what_is_so_by_then(
    tmp_path: Path, server: Webhook
) -> None:
    run = Run(tmp_path / "state.json", targets={"ops": server.apprise()})
    server.reply = lambda _: (503, b"")
    assert run.go(29, SILENT) == [("ops", "lb: brokers are silent", False)]
    server.reply = lambda _: (200, b"")
    assert run.go(
        5, SILENT, HealthEvent("broker_dead", "eu-1", "b-2", "eu-1: b-2 is silent", "see to it")
    ) == [("ops", "lb: brokers are silent (2)", True)]
    run.start()
    assert run.go(3, SILENT) == []


def test_a_slow_target_holds_up_neither_the_others_nor_a_look(
    tmp_path: Path, server: Webhook
) -> None:
    with webhook() as slow:
        slow.hold = True
        run = Run(
            tmp_path / "state.json", targets={"slow": slow.apprise(), "well": server.apprise()}
        )
        run.troubles = (DOWN,)
        run.watcher.run_once(run.now_ms)
        slow.wait_for(1)
        server.wait_for(1)
        assert not [name for name, *_ in run.answers if name == "slow"]
        run.watcher.run_once(run.now_ms + S)
        assert len(slow.calls) == 1, "it is given nothing more before it has answered"
        slow.hold = False
        slow.release.set()
        assert run.watcher.finish_sending(run.now_ms + 2 * S)
        assert sorted((name, answer.is_accepted) for name, _, answer in run.answers) == [
            ("slow", True),
            ("well", True),
        ]


def test_who_can_not_look_tells_that_and_knows_of_no_end(
    tmp_path: Path, server: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(tmp_path / "state.json", targets={"ops": server.apprise()}, poll_interval_ms=60_000)
    run.go(2, DOWN)
    run.blind = True
    assert (
        run.go(500, DOWN) == [("ops", "lb: whether the job runs is not known", True)]
        and run.watcher.last_reading_failed
    )
    assert (
        "the tables can't be read (QueryError: no table can be read)"
        in server.calls[-1].fields["message"]
    )
    assert caplog.text.count("no table can be read") == 1
    run.blind = False
    assert run.go(500, DOWN) == [("ops", "lb: resolved: whether the job runs is not known", True)]


def test_who_is_killed_between_an_answer_and_its_memory_tells_that_message_again(
    tmp_path: Path, server: Webhook
) -> None:
    run = Run(tmp_path / "state.json", targets={"ops": server.apprise()})
    run.troubles = (DOWN,)
    run.watcher.run_once(run.now_ms)
    server.wait_for(1)
    run.start()
    assert run.go(2, DOWN) == [("ops", "lb: the job is down", True)] and len(server.calls) == 2
    run.start()
    assert run.go(2, DOWN) == []


def test_a_target_whose_route_has_changed_waits_for_no_end_that_it_will_not_hear(
    tmp_path: Path, server: Webhook
) -> None:
    run = Run(tmp_path / "state.json", targets={"ops": server.apprise()})
    run.go(2, SILENT)
    run.rules = run.rules.model_copy(update={"routes": {"ops": ("job_down",)}})
    run.start()
    assert run.go(100) == [] and state_file.read_state(run.path, "lb").opened == {}


def test_a_full_disk_is_said_and_does_not_end_it(
    tmp_path: Path,
    server: Webhook,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(tmp_path / "state.json", targets={"ops": server.apprise()})
    monkeypatch.setattr(
        run.watcher,
        "_save",
        lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    assert len(run.go(3, DOWN)) == 1
    assert caplog.text.count("No space left on device") == 1


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"format": 2, "pipeline": "lb", "opened": [], "targets": {}}']
)
def test_a_state_that_can_not_be_read_is_set_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    assert state_file.read_state(path, "lb") == WatcherState()
    assert (
        tmp_path / "state.json.unread"
    ).read_bytes() == content and "events that go on are sent again" in caplog.text


def test_another_pipeline_s_state_is_not_this_one_s(tmp_path: Path) -> None:
    state_file.write_state(tmp_path / "state.json", "east", WatcherState())
    assert (
        state_file.read_state(tmp_path / "state.json", "west") == WatcherState()
        and not (tmp_path / "state.json").exists()
    )
