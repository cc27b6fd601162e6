"""Trials of a back-test, without Spark: one row each, the same for the same trial."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lb_stream.backtest.main import main
from lb_stream.backtest.trial import (
    SHOWN,
    TrialWindow,
    compare_policies,
    cut_time,
    run_name,
    run_trial,
)
from lb_stream.contracts.tables import BACKTESTS
from lb_stream.query.past.reports import build_history
from lb_stream.sim.scenario.from_history import LoadHistory, build_from_history
from lb_stream.sim.simulation import Policy, read_policy

CAPTURED = Path(__file__).parents[2] / "data" / "modular-load-reports.jsonl.gz"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def window() -> TrialWindow:
    """Four minutes of three real brokers."""
    past = build_history(CAPTURED, "lab")
    past |= {"to_ms": past["from_ms"] + 240_000}
    return TrialWindow(
        "lab",
        past["from_ms"],
        past["to_ms"],
        build_from_history(LoadHistory(**past), 10.0).scenario,
    )


def test_a_trial_is_a_row_with_its_measures_and_the_same_trial_is_the_same_row(
    window: TrialWindow,
) -> None:
    policy = read_policy("AvgShedder")
    row = run_trial(window, policy)
    assert row == run_trial(window, policy)
    measures = json.loads(row["measures"])
    assert (row["error"], measures["scenario"]) == (None, "lab")
    assert {name: measures[name] for name in SHOWN} == {name: row[name] for name in SHOWN}
    whole = pa.Table.from_pylist([row | {"run": "x", "made_ms": 1}], BACKTESTS.schema)
    assert whole["policy"].to_pylist() == ["AvgShedder"]
    assert json.loads(row["settings"])["shedding_strategy"] == "AvgShedder"


def test_a_trial_that_fails_says_why_in_its_row(window: TrialWindow) -> None:
    broken = Policy("broken", {"shedding_strategy": "NoSuchShedder"})
    row = run_trial(window, broken)
    assert row["measures"] is None and "NoSuchShedder" in row["error"]
    good = run_trial(window, read_policy("none"))
    best, worst = compare_policies([row, good])
    assert (best["policy"], best["failed"], worst["policy"], worst["failed"], worst["moves"]) == (
        "none",
        0,
        "broken",
        1,
        None,
    )


def test_a_run_is_named_by_all_that_it_follows_from(window: TrialWindow) -> None:
    policies = [read_policy("none"), read_policy("AvgShedder")]
    name = run_name([window], policies)
    assert name == run_name([window], policies)
    other = dataclasses.replace(
        window, scenario=dataclasses.replace(window.scenario, loads=window.scenario.loads * 2)
    )
    assert (
        len(
            {
                name,
                run_name([other], policies),
                run_name([window], policies[:1]),
                run_name([window, window], policies),
            }
        )
        == 4
    )


@pytest.mark.parametrize(
    ("hours", "ends"),
    [(0, [(0, 10)]), (4, [(0, 4), (4, 8), (8, 10)]), (5, [(0, 5), (5, 10)]), (24, [(0, 10)])],
)
def test_time_is_cut_into_windows_and_nothing_is_lost(
    hours: float, ends: list[tuple[int, int]]
) -> None:
    assert list(cut_time(0, 10 * HOUR_MS, hours)) == [
        (begin * HOUR_MS, end * HOUR_MS) for begin, end in ends
    ]


def test_policies_are_compared_by_their_means_the_evenest_first() -> None:
    def row(policy: str, imbalance: float, moves: int) -> dict[str, Any]:
        return dict.fromkeys(SHOWN, 0.0) | {
            "policy": policy,
            "max_over_bound_median": imbalance,
            "moves": moves,
            "error": None,
        }

    found = compare_policies([row("a", 2.0, 1), row("b", 1.0, 5), row("a", 1.0, 3)])
    shown = [
        (one["policy"], one["trials"], one["max_over_bound_median"], one["moves"]) for one in found
    ]
    assert shown == [("b", 1, 1.0, 5.0), ("a", 2, 1.5, 2.0)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "NoSuchShedder"), "NoSuchShedder"),
        (("--policy", "missing.toml"), "missing.toml"),
    ],
)
def test_a_policy_that_there_is_not_is_told_before_spark_starts(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert said in err and len(err.splitlines()) == 1
