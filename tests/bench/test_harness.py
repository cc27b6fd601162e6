"""The harness itself, on a pretended clock."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import BENCHMARKS, Benchmark, Sides, measure, side_by_side


def test_sides_run_in_turns_after_one_warm_up_and_the_ratio_is_ours_to_the_other() -> None:
    now, calls = [0.0], []

    def take(name: str, seconds: float) -> None:
        calls.append(name)
        now[0] += seconds

    def sides() -> Iterator[Sides]:
        calls.append("set up")
        yield Sides(lambda: take("ours", 1.0), lambda: take("other", 4.0))
        calls.append("clean up")

    timing = measure(Benchmark("x", "a", "b", sides), clock=lambda: now[0])
    assert calls == ["set up", *["ours", "other"] * 8, "clean up"]
    assert (timing.ours_s, timing.other_s, timing.ratio, timing.runs) == (1.0, 4.0, 0.25, 7)


def test_fewer_than_seven_runs_and_taken_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BENCHMARKS, "taken", Benchmark("taken", "", "", lambda: iter(())))
    with pytest.raises(ValueError, match="too few"):
        side_by_side("new", ours="", other="", runs=3)
    with pytest.raises(ValueError, match="registered already"):
        side_by_side("taken", ours="", other="")


def test_an_unknown_name_lists_the_known_ones_and_exits_2() -> None:
    command = [sys.executable, "-m", "tests.bench", "nothing"]
    result = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2 and "checksum_of_a_report" in result.stderr
