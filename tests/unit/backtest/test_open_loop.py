"""The open loop: recorded rounds decided again with other policies, beside what was decided
then."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lb_stream.backtest.open_loop import COUNTED, RoundDecisions, count_matches, run_open_loop
from lb_stream.contracts.settings import StreamSettings
from lb_stream.io.tables.replay import RoundFilter, load_round_starts
from lb_stream.sim.simulation import Policy
from tests.support.lbctl_runner import lbctl
from tests.support.round_stage import Stage
from tests.support.wordings import check_wording

ROUNDS = 6


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A job that has looked at a hot broker for some minutes, one batch each."""
    made = Stage(tmp_path_factory.mktemp("open") / "job", shadows={})
    made.run(ROUNDS)
    return made


def decided_again(stage: Stage, *policies: Policy, **wanted: Any) -> list[dict[str, Any]]:
    stream = StreamSettings(tables=str(stage.job.tables), checkpoint=str(stage.job.checkpoint))
    return run_open_loop(load_round_starts(stream, RoundFilter(**wanted))[1], policies)


def counts(row: dict[str, Any]) -> Counter[str]:
    return Counter(json.loads(row["measures"]))


def test_the_policy_of_then_decides_the_same_in_every_round(stage: Stage) -> None:
    (row,) = decided_again(stage, Policy("same", {}))
    found = counts(row)
    assert set(found) == {*COUNTED} and (found["rounds"], row["loop"], row["cluster"]) == (
        ROUNDS,
        "open",
        "eu",
    )
    assert found["moves_then"] == found["moves"] == found["alike"] == row["moves"] > 0
    assert (found["same_source"], found["fewer"], found["more"]) == (0, 0, 0)
    assert found["assignments_then"] == found["assignments"] == found["assignments_alike"]


def test_another_policy_is_told_apart_and_one_that_fails_stops_nobody(stage: Stage) -> None:
    policies = (
        Policy("none", {"enabled": False}),
        Policy("broken", {"shedding_strategy": "NoSuch"}),
        Policy("same", {}),
    )
    none, broken, same = decided_again(stage, *policies)
    assert (none["moves"], counts(none)["fewer"]) == (0, counts(same)["moves_then"])
    assert (broken["measures"], broken["moves"]) == (None, None) and "NoSuch" in broken["error"]
    assert counts(same)["alike"] == counts(same)["moves_then"]


def test_the_same_log_gives_the_same_rows_and_a_part_of_it_others(stage: Stage) -> None:
    policy = Policy("keen", {"threshold_percent": 2})
    assert decided_again(stage, policy) == decided_again(stage, policy)
    (part,) = decided_again(
        stage, policy, since_ms=1_000_000 + 60_000, until_ms=1_000_000 + 3 * 60_000
    )
    assert (counts(part)["rounds"], part["from_ms"], part["to_ms"]) == (2, 1_060_000, 1_120_001)
    assert part["run"] != decided_again(stage, policy)[0]["run"]


def test_moves_are_alike_or_from_the_same_source_or_only_of_one_side() -> None:
    nothing: frozenset[tuple[str, str | None]] = frozenset()
    then = RoundDecisions(
        (("x", "b", "a"), ("y", "b", "a"), ("z", "b", "c")), frozenset({("u", "a")})
    )
    now = RoundDecisions(
        (("x", "b", "a"), ("w", "b", "a"), ("v", "b", "d"), ("z", "d", "e")), nothing
    )
    found = count_matches(then, now)
    assert [found[name] for name in ("alike", "same_source", "fewer", "more")] == [1, 1, 1, 2]
    assert (found["assignments_then"], found["assignments"], found["assignments_alike"]) == (
        1,
        0,
        0,
    )


# --- the command ---


def test_the_command_keeps_and_shows_what_each_policy_would_have_decided(
    stage: Stage, tmp_path: Path
) -> None:
    asked = (
        "backtest",
        "--open-loop",
        "--tables",
        str(stage.job.tables),
        "--policy",
        "none",
        "--policy",
        "ThresholdShedder",
    )
    done = lbctl(*asked, cwd=tmp_path, env={"COLUMNS": "140"})
    assert done.code == 0 and f"{ROUNDS} rounds" in done.out and "ThresholdShedder" in done.out, (
        done.err
    )
    rows = DeltaTable(str(stage.job.tables / "backtests")).to_pyarrow_table().to_pylist()
    assert [(row["policy"], row["loop"], row["max_over_bound_median"]) for row in rows[-2:]] == [
        ("none", "open", None),
        ("ThresholdShedder", "open", None),
    ]
    again = lbctl(*asked, "--json", cwd=tmp_path)
    assert [row["measures"] for row in again.objects] == [
        json.loads(row["measures"]) for row in rows[-2:]
    ]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (
            ("--checkpoint", "elsewhere"),
            1,
        ),
        (
            ("--from", "2026-01-01"),
            1,
        ),
        (
            ("--cluster", "nowhere"),
            2,
        ),
        (
            ("--tables", "missing"),
            2,
        ),
        (
            ("--reports", "x"),
            2,
        ),
        (
            ("--window", "6"),
            2,
        ),
        (
            ("--html", "x"),
            2,
        ),
    ],
)
def test_what_cannot_be_decided_again_is_told_in_a_line(
    stage: Stage, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    done = lbctl(
        "backtest",
        "--open-loop",
        "--tables",
        str(stage.job.tables),
        "--policy",
        "none",
        *arguments,
        cwd=tmp_path,
    )
    assert (
        done.code,
        len([line for line in done.err.splitlines() if not line.startswith("deciding")]),
    ) == (code, 1), done.err
    check_wording(done.err)
