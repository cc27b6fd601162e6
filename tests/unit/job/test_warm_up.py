"""When a job that stands by warms up, and that no trouble of it ends the job. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from lb_stream.contracts.settings import Settings
from lb_stream.job import warm_up as module
from lb_stream.job.warm_up import WarmUp


@pytest.fixture
def warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[WarmUp], None]], tuple[WarmUp, list[int]]]:
    """One whose stream does this; beside it, a list with an entry for each run."""

    def make(stream: Callable[[WarmUp], None]) -> tuple[WarmUp, list[int]]:
        runs: list[int] = []

        def noted(self: WarmUp) -> None:
            runs.append(len(runs))
            stream(self)

        monkeypatch.setattr(WarmUp, "_stream", noted)
        return WarmUp(None, Settings()), runs

    return make


Make = Callable[[Callable[[WarmUp], None]], tuple[WarmUp, list[int]]]


def ended(warmer: WarmUp) -> None:
    assert warmer._thread is not None
    warmer._thread.join(timeout=30)


def test_where_nobody_leads_there_is_no_time_for_it(warm_up: Make) -> None:
    warmer, runs = warm_up(lambda _: None)
    warmer.run_if_due(has_leader=False)
    assert (runs, warmer.done) == ([], False)


def test_it_is_done_several_times_at_first_and_then_now_and_then(warm_up: Make) -> None:
    warmer, runs = warm_up(lambda _: None)
    for number in range(module.FIRST_RUNS):
        warmer.run_if_due(has_leader=True)
        ended(warmer)
        assert warmer.done and len(runs) == number + 1
    warmer.run_if_due(has_leader=True)
    ended(warmer)
    assert len(runs) == module.FIRST_RUNS
    warmer.cancel(0.0)  # it has led since
    warmer.run_if_due(has_leader=True)
    ended(warmer)
    assert len(runs) == module.FIRST_RUNS + 1


def test_one_that_fails_is_told_of_and_tried_again(
    warm_up: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: WarmUp) -> None:
        raise OSError("no such folder\nand a trace")

    monkeypatch.setattr(module, "INTERVAL_S", 0.0)
    warmer, runs = warm_up(fail)
    for _ in range(2):
        warmer.run_if_due(has_leader=True)
        ended(warmer)
    assert not warmer.done and len(runs) == 2
    assert "the warm-up has failed (OSError: no such folder)" in caplog.text


def test_one_that_is_broken_off_does_not_count_and_says_nothing(
    warm_up: Make, caplog: pytest.LogCaptureFixture
) -> None:
    begun = Event()

    def wait(self: WarmUp) -> None:
        begun.set()
        assert self._stop.wait(30)
        raise RuntimeError("interrupted")

    warmer, _ = warm_up(wait)
    warmer.run_if_due(has_leader=True)
    assert begun.wait(30)
    warmer.cancel(30.0)
    assert not warmer.done and caplog.text == ""
