"""Shadows beside a cluster's rounds as the deciding stage runs them, the log keeps them, tables follow them and replay repeats them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lb_stream.contracts.settings import Settings
from lb_stream.contracts.tables import DECISIONS, ROUNDS, SHADOW_DECISIONS, SHADOW_ROUNDS
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import Shard, to_bytes
from lb_stream.core.shadow import every
from lb_stream.io.tables.log import RoundLog
from lb_stream.io.tables.projections import Projections
from lb_stream.io.tables.replay import Wanted, replay
from lb_stream.store import Store
from lb_stream.stream import figures
from lb_stream.stream.averages import names_block
from lb_stream.stream.context import BatchContext
from lb_stream.stream.decide import ROUND_SCHEMA, decide_clusters
from lb_stream.stream.shards.block_files import BlockWriter
from lb_stream.stream.task import allowance
from tests.support.build import Event, Report, batch_of
from tests.support.written_tables import Job, rows_of
from tests.unit.core.shadow.test_look_on import HOT, SETTINGS, STATS

SHADOWS = {"keen": {"threshold_percent": 9}, "other": {"shedding_strategy": "OverloadShedder"}}


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: a test that wants shadows to be slow gives them no time."""
    monkeypatch.setattr(allowance, "LEAST_S", 600.0)


class Stage:
    """The deciding stage, a log, and tables; one batch a minute."""

    def __init__(self, folder: Path, shadows: Mapping[str, Any] = SHADOWS, **stream: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.job = Job(folder)
        places = {
            "tables": str(self.job.tables),
            "checkpoint": str(self.job.checkpoint),
            "pipeline_id": "p",
        }
        own = {"eu": {"shadow": dict(shadows)}} if shadows else {}
        self.settings = Settings.model_validate(
            {"stream": places | stream, "balancer": SETTINGS | {"dry_run": False}, "cluster": own}
        )
        self.shard, self.batch = Shard.empty(), -1
        self.owned: Mapping[str, Sequence[str]] = HOT
        self.events: list[Event] = []  # of the next batch

    def restart(self) -> None:
        """A new job: it knows what the log says."""
        self.job.log = RoundLog(Store.at(self.job.tables), "p", Store.at(self.job.checkpoint))
        self.job.tables_of = Projections(Store.at(self.job.tables), "p")

    def run(self, batches: int = 1, heard: bool = True) -> dict[str, Any]:
        """So many batches; `heard`: with a report of every broker. Returns the last row, logged or not."""
        for _ in range(batches):
            self.batch += 1
            (row,) = pa.Table.from_batches(
                decide_clusters(self._shards(heard), self._context(), "0")
            ).to_pylist()
            if not row["idle"]:
                logged = self.job.log.append_once(
                    self.batch, pa.Table.from_pylist([row], ROUND_SCHEMA)
                )
                self.job.tables_of.project(logged)
        return row

    def _context(self) -> BatchContext:
        log = self.job.log
        return BatchContext(
            self.settings,
            f"b-{self.batch}",
            log.last_seq + 1,
            1,
            True,
            dict(log.memories),
            shadow_memories=dict(log.shadow_memories),
        )

    def _shards(self, heard: bool) -> list[pa.RecordBatch]:
        now_ms = 1_000_000 + 60_000 * self.batch + (0 if heard else 1)
        reports = [
            Report(
                name,
                now_ms,
                dict.fromkeys(names, STATS),
                {"cpu": (15.0 * len(names), 100.0)},
                offset=now_ms + place,
            )
            for place, (name, names) in enumerate(self.owned.items())
        ]
        batch = batch_of(reports if heard else [], self.events)
        self.events = []
        self.shard, _ = fold(self.shard, batch, now_ms, FoldConfig())
        writer = BlockWriter(Store.at(self.job.checkpoint), f"eu-{self.batch}.arrow")
        blocks = (
            self.shard.brokers,
            names_block(self.shard.bundles["name"]),
            self.shard.bundles.drop_columns("name"),
        )
        given: dict[str, Any] = dict(
            zip(("brokers", "names", "values"), map(writer.put, blocks), strict=True)
        )
        writer.close()
        clock = json.dumps(
            [
                {
                    "topic": "lb-load-reports",
                    "partition": 0,
                    "first": self.batch,
                    "last": self.batch,
                    "append_ms": now_ms,
                }
            ]
        )
        rows = pa.Table.from_pylist(
            [
                given
                | {"cluster": "eu", "shard": 0, "clock": clock, "events": to_bytes(batch.events)}
            ]
        )
        return list(rows.to_batches())

    def outcomes(self) -> dict[str, list[str]]:
        """Policy → the outcomes of its rounds."""
        found: dict[str, list[str]] = {}
        for row in rows_of(self.job, SHADOW_ROUNDS).to_pylist():
            found.setdefault(row["policy"], []).append(row["outcome"])
        return found


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
    count, replayed = replay(cut.settings.stream, Wanted())
    assert ([one.result for one in replayed], count) == (["equal"] * 4, 4)
    _, replayed = replay(cut.settings.stream, Wanted(batch_id=3))
    assert [(one.result, one.differences) for one in replayed] == [("equal", {})]
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
        patched.setattr(every, "look_on", endless)
        patched.setattr(allowance, "LEAST_S", 0.1)
        stage.run(2)
    stage.run()
    alone.run(3)
    assert stage.outcomes() == {"real": ["done"] * 3} | {
        name: ["skipped", "skipped", "done"] for name in SHADOWS
    }
    assert without_shadows(stage) == without_shadows(alone)
    assert [one.result for one in replay(stage.settings.stream, Wanted())[1]] == ["equal"] * 3
    none = Stage(tmp_path / "none", shadow_share_percent=0)
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
        patched.setattr(every, "look_on", fail)
        row = stage.run()
    kept = {name: one["memory"] for name, one in json.loads(row["shadow_memory"]).items()}
    assert (
        kept == {name: one["memory"] for name, one in remembered.items()} and row["error"] is None
    )
    stage.run()
    assert stage.outcomes()["keen"] == ["done", "failed", "done"]
    details = {
        row["detail"]
        for row in rows_of(stage.job, SHADOW_ROUNDS).to_pylist()
        if row["outcome"] == "failed"
    }
    assert details == {f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    assert [one.result for one in replay(stage.settings.stream, Wanted())[1]] == ["equal"] * 3


def test_what_is_wrong_around_shadows_is_theirs_alone_and_they_begin_anew(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "damaged")
    stage.run()
    stage.job.log.shadow_memories["eu"] = '{"keen":{"own":{"threshold_percent":9}}}'
    row = stage.run()
    assert (
        row["error"],
        row["shadow_memory"],
        [one["outcome"] for one in json.loads(row["shadows"])],
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
    left = allowance.Allowance.of(50)
    assert left.left_s == allowance.LEAST_S
    left.earn(2.0)
    assert left.left_s == pytest.approx(allowance.LEAST_S + 1.0)
    assert allowance.Allowance.of(0).left_s == 0.0


def test_figures_of_a_round_are_written_with_shadows_as_without(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    row = stage.run()
    assert figures.BROKER_LOADS.name in json.loads(row["files"])
