"""What takes seconds is computed beside the pages: once for all who ask, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from lb_stream.console.sources.trials import KEPT_S, MOST_KEPT, MOST_OPEN, TooManyTrials, Trials
from lb_stream.query import QueryError


def test_a_question_is_put_once_while_its_answer_is_kept() -> None:
    now_s, asked = [0.0], list[int]()

    def compute(_: Callable[[float], None]) -> Any:
        asked.append(1)
        return len(asked)

    trials = Trials(lambda: now_s[0])
    assert [trials.put("a", compute).found for _ in range(3)] == [1, 1, 1]
    now_s[0] = KEPT_S
    assert trials.known("a") is None and trials.put("a", compute).found == 2


def test_no_more_answers_are_kept_than_may_be() -> None:
    trials = Trials()
    for number in range(MOST_KEPT + 3):
        trials.put(number, lambda _: 1)
    trials.known(0)
    assert [number for number in range(MOST_KEPT + 3) if trials.known(number) is None] == [0, 1, 2]


def test_one_is_computed_at_a_time_and_no_more_wait_than_may() -> None:
    go, running, most = threading.Event(), list[int](), list[int]()

    def compute(tell: Callable[[float], None]) -> Any:
        running.append(1)
        most.append(len(running))
        tell(0.5)
        go.wait()
        running.pop()

    trials = Trials()
    found = [trials.put(number, compute) for number in range(MOST_OPEN)]
    assert [one.ended_s for one in found] == [None] * MOST_OPEN and found[0].part == 0.5
    with pytest.raises(TooManyTrials):
        trials.put("one more", compute)
    assert trials.put(0, compute) is found[0]
    go.set()
    assert all(one.ended.wait(10) for one in found) and max(most) == 1


def test_what_fails_says_why_and_the_next_one_is_computed(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(_: Callable[[float], None]) -> Any:
        raise QueryError("there is no such cluster")

    def broken(_: Callable[[float], None]) -> Any:
        raise ZeroDivisionError("of a bug")

    trials = Trials()
    assert trials.put("wrong", wrong).trouble == "there is no such cluster"
    assert trials.put("broken", broken).trouble == "ZeroDivisionError: the console's log says more"
    assert "of a bug" in caplog.text
    assert trials.put("right", lambda _: 1).found == 1
