"""Shadows beside a cluster's rounds as the deciding stage runs them, the log keeps them, tables
follow them and replay repeats them."""

import json
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.tables import DECISIONS, ROUNDS, SHADOW_DECISIONS, SHADOW_ROUNDS
from lb_stream.core.shadow import evaluate_all
from lb_stream.io.tables.replay import RoundFilter, replay
from lb_stream.stream import figures
from lb_stream.stream.task import time_limits
from tests.support.hot_broker import SETTINGS
from tests.support.round_stage import SHADOWS, Stage
from tests.support.written_tables import rows_of


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: a test that wants shadows to be slow gives them no time."""
    monkeypatch.setattr(time_limits, "MIN_S", 600.0)


def without_shadows(stage: Stage) -> list[dict[str, Any]]:
    """The rows of the log, without what is about shadows and without the names of files."""
    rows = (
        rows_of(stage.job, ROUNDS)
        .drop_columns(["shadows", "shadow_memory", "blocks", "files"])
        .to_pylist()
    )
    return [
        row
        | {
            "inputs": {
                name: value
                for name, value in json.loads(row["inputs"]).items()
                if "shadow" not in name
            }
        }
        for row in rows
    ]


def test_rounds_are_the_same_bytes_with_shadows_and_without(tmp_path: Path) -> None:
    watched, alone = Stage(tmp_path / "watched"), Stage(tmp_path / "alone", shadows={})
    for stage in (watched, alone):
        stage.run(3)
        assert stage.run(heard=False)["idle"] is False, "a decision has expired"
        stage.run(2)
    assert without_shadows(watched) == without_shadows(alone)
    assert rows_of(watched.job, DECISIONS).equals(rows_of(alone.job, DECISIONS)) and len(
        rows_of(alone.job, DECISIONS)
    )
    assert watched.outcomes() == {name: ["done"] * 6 for name in ("real", *SHADOWS)}
    assert (
        alone.outcomes(),
        {row["shadows"] for row in rows_of(alone.job, ROUNDS).to_pylist()},
    ) == ({}, {"[]"})


def test_a_shadow_goes_on_after_a_restart_and_every_round_is_repeated_from_the_log(
    tmp_path: Path,
) -> None:
    whole, cut = Stage(tmp_path / "whole"), Stage(tmp_path / "cut")
    whole.run(4)
    cut.run(2)
    cut.restart()
    cut.run(2)
    for name in ("shadows", "shadow_memory"):
        assert rows_of(whole.job, ROUNDS)[name].equals(rows_of(cut.job, ROUNDS)[name])
    count, replayed = replay(cut.settings.stream, RoundFilter())
    assert ([round_.result for round_ in replayed], count) == (["equal"] * 4, 4)
    _, replayed = replay(cut.settings.stream, RoundFilter(batch_id=3))
    assert [(round_.result, round_.differences) for round_ in replayed] == [("equal", {})]
    proposed = rows_of(cut.job, SHADOW_DECISIONS).to_pylist()
    assert {row["log_seq"] for row in proposed if row["policy"] == "keen"} == {1}, (
        "what is carried out is not proposed again"
    )
    assert [row["number"] for row in proposed if row["policy"] == "keen"] == list(
        range(sum(row["policy"] == "keen" for row in proposed))
    )


def endless(*_: object) -> Any:
    """A look that never ends."""
    while True:
        pass


def test_a_shadow_that_is_slow_is_skipped_within_its_share_and_the_round_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, alone = Stage(tmp_path / "slow"), Stage(tmp_path / "alone", shadows={})
    with monkeypatch.context() as patched:
        patched.setattr(evaluate_all, "evaluate_shadow", endless)
        patched.setattr(time_limits, "MIN_S", 0.1)
        stage.run(2)
    stage.run()
    alone.run(3)
    assert stage.outcomes() == {"real": ["done"] * 3} | {
        name: ["skipped", "skipped", "done"] for name in SHADOWS
    }
    assert without_shadows(stage) == without_shadows(alone)
    assert [round_.result for round_ in replay(stage.settings.stream, RoundFilter())[1]] == [
        "equal"
    ] * 3
    none = Stage(tmp_path / "none", shadow_time_percent=0)
    none.run()
    assert none.outcomes() == {"real": ["done"]} | {name: ["skipped"] for name in SHADOWS}


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("by nothing\nat all"), SystemExit(3)], ids=["error", "exit"]
)
def test_a_shadow_that_fails_says_so_and_goes_on_from_what_it_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> Any:
        raise error

    stage = Stage(tmp_path / "failing")
    stage.run()
    remembered = json.loads(stage.job.log.shadow_memories["eu"])
    with monkeypatch.context() as patched:
        patched.setattr(evaluate_all, "evaluate_shadow", fail)
        row = stage.run()
    kept = {name: shadow["memory"] for name, shadow in json.loads(row["shadow_memory"]).items()}
    assert (
        kept == {name: shadow["memory"] for name, shadow in remembered.items()}
        and row["error"] is None
    )
    stage.run()
    assert stage.outcomes()["keen"] == ["done", "failed", "done"]
    details = {
        row["detail"]
        for row in rows_of(stage.job, SHADOW_ROUNDS).to_pylist()
        if row["outcome"] == "failed"
    }
    assert details == {f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    assert [round_.result for round_ in replay(stage.settings.stream, RoundFilter())[1]] == [
        "equal"
    ] * 3


def test_what_is_wrong_around_shadows_is_theirs_alone_and_they_begin_anew(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "damaged")
    stage.run()
    stage.job.log.shadow_memories["eu"] = '{"keen":{"own":{"threshold_percent":9}}}'
    row = stage.run()
    assert (
        row["error"],
        row["shadow_memory"],
        [entry["outcome"] for entry in json.loads(row["shadows"])],
    ) == (None, "{}", ["failed"] * 2)
    stage.run()
    assert stage.outcomes()["keen"] == ["done", "failed", "done"]


def test_an_idle_round_is_none_for_shadows_either_and_a_failed_one_keeps_their_memory(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path / "stage", shadows=SHADOWS)
    stage.settings = stage.settings.model_copy(
        update={"balancer": SETTINGS | {"dry_run": True, "shedding_enabled": False}}
    )
    stage.run(2)
    idle = stage.run(heard=False)
    assert (idle["idle"], idle["shadows"], idle["shadow_memory"]) == (
        True,
        "[]",
        stage.job.log.shadow_memories["eu"],
    )
    before = stage.job.log.shadow_memories["eu"]
    stage.settings = stage.settings.model_copy(update={"balancer": {"threshold_percent": "absurd"}})
    failed = stage.run()
    assert failed["error"] is not None and (failed["shadows"], failed["shadow_memory"]) == (
        "[]",
        before,
    )


def test_a_shadow_with_other_settings_begins_anew_and_one_that_is_gone_is_forgotten(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path / "stage")
    stage.run(2)
    stage.settings = stage.settings.model_copy(
        update={"cluster": {"eu": {"shadow": {"keen": {"threshold_percent": 2}}}}}
    )
    stage.run()
    memories = json.loads(stage.job.log.shadow_memories["eu"])
    assert list(memories) == ["keen"] and memories["keen"]["own"] == {"threshold_percent": 2}
    assert memories["keen"]["memory"]["first_ms"] is not None
    stage.settings = stage.settings.model_copy(update={"cluster": {}})
    assert stage.run()["shadow_memory"] == "{}"


def test_shadows_share_what_is_left_of_their_time_equally_and_earn_a_part_of_each_rounds() -> None:
    left = time_limits.ShadowBudget.from_percent(50)
    assert left.left_s == time_limits.MIN_S
    left.earn(2.0)
    assert left.left_s == pytest.approx(time_limits.MIN_S + 1.0)
    assert time_limits.ShadowBudget.from_percent(0).left_s == 0.0


def test_figures_of_a_round_are_written_with_shadows_as_without(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    row = stage.run()
    assert figures.BROKER_LOADS.name in json.loads(row["files"])
