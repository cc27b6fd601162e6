"""Answers that take seconds are computed beside the pages, once, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from lb_stream.console.sources.computations import (
    MAX_KEPT,
    MAX_OPEN,
    RETENTION_S,
    Computations,
    TooManyComputations,
)
from lb_stream.query import QueryError


def test_an_answer_is_computed_once_while_it_is_kept() -> None:
    now_s, asked = [0.0], list[int]()

    def compute(_: Callable[[float], None]) -> Any:
        asked.append(1)
        return len(asked)

    computations = Computations(lambda: now_s[0])
    assert [computations.find_or_start("a", compute).result for _ in range(3)] == [1, 1, 1]
    now_s[0] = RETENTION_S
    assert computations.find("a") is None and computations.find_or_start("a", compute).result == 2


def test_the_number_of_kept_computations_is_limited() -> None:
    computations = Computations()
    for number in range(MAX_KEPT + 3):
        computations.find_or_start(number, lambda _: 1)
    computations.find(0)
    assert [number for number in range(MAX_KEPT + 3) if computations.find(number) is None] == [
        0,
        1,
        2,
    ]


def test_one_computation_runs_at_a_time_and_the_number_that_wait_is_limited() -> None:
    go, running, most = threading.Event(), list[int](), list[int]()

    def compute(tell: Callable[[float], None]) -> Any:
        running.append(1)
        most.append(len(running))
        tell(0.5)
        go.wait()
        running.pop()

    computations = Computations()
    found = [computations.find_or_start(number, compute) for number in range(MAX_OPEN)]
    assert [computation.ended_s for computation in found] == [None] * MAX_OPEN and found[
        0
    ].progress == 0.5
    with pytest.raises(TooManyComputations):
        computations.find_or_start("one more", compute)
    assert computations.find_or_start(0, compute) is found[0]
    go.set()
    assert all(computation.ended.wait(10) for computation in found) and max(most) == 1


def test_a_failed_computation_has_an_error_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def wrong(_: Callable[[float], None]) -> Any:
        raise QueryError("there is no such cluster")

    def broken(_: Callable[[float], None]) -> Any:
        raise ZeroDivisionError("of a bug")

    computations = Computations()
    assert computations.find_or_start("wrong", wrong).error == "there is no such cluster"
    assert (
        computations.find_or_start("broken", broken).error
        == "ZeroDivisionError: see the console's log"
    )
    assert "of a bug" in caplog.text
    assert computations.find_or_start("right", lambda _: 1).result == 1
