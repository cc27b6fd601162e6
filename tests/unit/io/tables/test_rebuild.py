"""`lbctl tables rebuild`: the tables follow from the log, also from one that upkeep has
shortened."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lb_stream.contracts.settings import UpkeepSettings
from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import (
    BROKER_LOADS,
    DECISIONS,
    MERGE_ADVICE,
    OWNERSHIP,
    REFUSALS,
    TABLES,
)
from lb_stream.io.tables import rebuild as rebuilding
from lb_stream.io.tables.delta import TableMismatch, table_properties
from lb_stream.io.tables.rebuild import RebuildRefused, Rebuilt, rebuild, rebuildable_tables
from lb_stream.io.tables.upkeep import HOUR_MS, maintain
from lb_stream.store import Store
from tests.support.lbctl_runner import lbctl
from tests.support.wordings import check_wording
from tests.support.written_tables import Job, advice, decision, ownership, rows_of

NOW = 1_000 * HOUR_MS
FOLLOWING = [spec for spec in TABLES if spec.from_log]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Ten batches of two clusters: decisions, owners that change, loads; the later half an hour
    old, the others days."""
    job = Job(tmp_path)
    for batch in range(10):
        content: dict[str, Any] = {"decisions": [decision("a")] * (batch % 3), "loads": 2}
        content["ownership"] = [
            ownership("a", f"x{number}", owner=f"b{batch}", version=batch)
            for number in {batch % 4, 5 + batch}
        ]
        if batch == 7:  # one was written before upkeep's horizon, one after it
            content["ownership"] += [
                ownership("a", name, owner=None) | {"state": "Init"} for name in ("x6", "x11")
            ]
            content["advice"] = [advice("a", "x5", owner="")]
        if batch in (3, 6):
            content["advice"] = [advice("a", f"x{batch}"), advice("a", "x5")]
        now_ms = NOW - (90 * HOUR_MS if batch < 5 else HOUR_MS)
        job.tables_of.project(
            job.log.append_once(
                batch,
                job.rounds(batch, clusters=("a", "z")[: 1 + batch % 2], now_ms=now_ms, **content),
            )
        )
    return job


def content(job: Job) -> dict[str, list[str]]:
    return {
        spec.name: sorted(json.dumps(row, sort_keys=True) for row in rows_of(job, spec).to_pylist())
        for spec in FOLLOWING
    }


def made(job: Job, *names: str) -> dict[str, Rebuilt]:
    return {one.table: one for one in rebuild(Store.at(job.tables), names or rebuildable_tables())}


def test_every_table_comes_out_as_it_was(job: Job) -> None:
    before = content(job)
    done = made(job)
    assert content(job) == before
    assert list(done) == [spec.name for spec in FOLLOWING]
    assert {name: one.rows for name, one in done.items()} == {
        name: len(rows) for name, rows in before.items()
    }
    assert {(one.batches, one.taken_over, one.lost) for one in done.values()} == {(10, 0, 0)}


def test_merge_advice_that_was_withdrawn_is_gone_and_the_rest_is_as_it_was_told_last(
    job: Job,
) -> None:
    rows = rows_of(job, MERGE_ADVICE).to_pylist()
    shown = [
        (
            row["bundle"],
            row["neighbour"],
            row["owner"],
            row["since_ms"],
            row["seq"],
            row["topics_ratio"],
        )
        for row in rows
    ]
    assert shown == [("x3", "x3+1", "b-0", 7, 4, None), ("x6", "x6+1", "b-0", 7, 7, None)]


def test_lost_tables_come_back_and_the_job_goes_on_where_it_was(job: Job) -> None:
    before = content(job)
    for spec in FOLLOWING:
        if spec is BROKER_LOADS:  # its files are figures that only the log names
            shutil.rmtree(job.tables / spec.name / "_delta_log")
        else:
            shutil.rmtree(job.tables / spec.name)
    made(job)
    assert content(job) == before
    again = Job(job.folder)
    assert again.tables_of.newest == 9
    assert again.tables_of.catch_up(again.log.since) == 0
    again.tables_of.project(again.log.append_once(10, again.rounds(10, decisions=[decision("a")])))
    assert content(job)[DECISIONS.name][:-1] != before[DECISIONS.name]
    assert len(content(job)[DECISIONS.name]) == len(before[DECISIONS.name]) + 1


def test_rows_that_the_log_has_no_more_are_taken_over_and_newer_ones_win(job: Job) -> None:
    before = content(job)
    for _ in maintain(
        Store.at(job.tables),
        UpkeepSettings(keep_rounds_hours=24, keep_decisions_hours=0, keep_broker_loads_hours=0),
        NOW,
    ):
        pass
    done = made(job)
    assert content(job) == before
    assert {one.first_log_seq for one in done.values()} == {5}
    taken = {name: one.taken_over for name, one in done.items() if one.taken_over}
    # Of ownership: x0 to x3 have been written again since (batches 5 to 9), x6 is no more, x5 and
    # x7 to x9 are as they were.
    assert taken == {"decisions": 4, "broker_loads": 10, "ownership": 4, "merge_advice": 1}


def test_figures_whose_files_were_put_together_are_taken_over(job: Job) -> None:
    before = content(job)
    DeltaTable(str(job.tables / BROKER_LOADS.name)).optimize.compact()
    files = sorted((job.tables / BROKER_LOADS.name).glob("u-1-*.parquet"))
    for file in files[:4]:
        file.unlink()
    done = made(job, BROKER_LOADS.name)[BROKER_LOADS.name]
    assert content(job) == before
    assert (done.rows, done.taken_over, done.lost) == (20, 8, 0)


def test_figures_that_are_gone_are_counted(job: Job) -> None:
    shutil.rmtree(job.tables / BROKER_LOADS.name / "_delta_log")
    for file in sorted((job.tables / BROKER_LOADS.name).glob("u-1-*.parquet"))[:3]:
        file.unlink()
    done = made(job, BROKER_LOADS.name)[BROKER_LOADS.name]
    assert (done.rows, done.taken_over, done.lost) == (14, 0, 6)
    assert len(rows_of(job, BROKER_LOADS)) == 14


@pytest.mark.parametrize("spec", [DECISIONS, OWNERSHIP], ids=lambda spec: spec.name)
def test_a_table_of_an_earlier_version_gets_the_columns_and_properties_of_today(
    job: Job, spec: TableSpec
) -> None:
    before = content(job)
    shutil.rmtree(job.tables / spec.name)
    old = pa.schema(
        [field for field in spec.schema if field.name != "cluster"]
        + [pa.field("mood", pa.string())]
    )
    write_deltalake(str(job.tables / spec.name), old.empty_table())
    with pytest.raises(TableMismatch, match=f"`lbctl tables rebuild {spec.name}`"):
        Job(job.folder)
    made(job, spec.name)
    assert content(job) == before
    assert (
        table_properties(spec).items()
        <= DeltaTable(str(job.tables / spec.name)).metadata().configuration.items()
    )
    Job(job.folder)


def test_what_is_not_projected_yet_is_left_to_the_next_start_which_publishes_it_first(
    job: Job,
) -> None:
    job.log.append_once(10, job.rounds(10, decisions=[decision("a")]))
    made(job)
    again = Job(job.folder)
    assert again.tables_of.newest == 9
    assert again.tables_of.catch_up(again.log.since) == 1
    assert rows_of(job, DECISIONS)["log_seq"].to_pylist()[-1] == 10


def test_a_table_that_a_job_writes_to_meanwhile_is_refused_and_keeps_the_jobs_rows(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = rebuilding.read_batches

    def meddled(*arguments: Any) -> Any:
        yield from real(*arguments)
        job.tables_of.project(job.log.append_once(10, job.rounds(10, decisions=[decision("a")])))

    monkeypatch.setattr(rebuilding, "read_batches", meddled)
    with pytest.raises(RebuildRefused) as error:
        made(job, DECISIONS.name)
    check_wording(error.value)
    assert len(rows_of(job, DECISIONS)) == 10


def test_a_running_job_goes_on_with_a_table_that_was_rebuilt_in_between(job: Job) -> None:
    made(job)
    job.tables_of.project(
        job.log.append_once(
            10,
            job.rounds(
                10, decisions=[decision("a")], ownership=[ownership("a", "x0", owner="new")]
            ),
        )
    )
    assert len(rows_of(job, DECISIONS)) == 10
    assert {row["bundle"]: row["owner"] for row in rows_of(job, OWNERSHIP).to_pylist()}[
        "x0"
    ] == "new"


def test_large_tables_become_several_files(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "FILE_BYTES", 2_000)
    before = content(job)
    made(job)
    assert content(job) == before
    assert len(DeltaTable(str(job.tables / BROKER_LOADS.name)).file_uris()) >= 2


def test_readers_of_the_version_before_still_read_it(job: Job) -> None:
    uri = str(job.tables / OWNERSHIP.name)
    version, before = DeltaTable(uri).version(), len(rows_of(job, OWNERSHIP))
    made(job, OWNERSHIP.name)
    assert len(DeltaTable(uri, version=version).to_pyarrow_table()) == before


# --- the command ---


def test_the_command_says_what_it_did(job: Job) -> None:
    folder = f"stream.tables={job.tables}"
    result = lbctl("tables", "rebuild", "--set", folder, "--json", cwd=job.folder)
    assert (result.code, [one["table"] for one in result.objects]) == (0, rebuildable_tables())
    shown = lbctl("tables", "rebuild", "decisions", "refusals", "--set", folder, cwd=job.folder)
    assert [
        line.split()[:3]
        for line in shown.out.splitlines()
        if line.startswith(("decisions", "refusals"))
    ] == [
        ["decisions", "9", "10"],
        ["refusals", "0", "10"],
    ]
    assert len(rows_of(job, REFUSALS)) == 0


@pytest.mark.parametrize(
    "name",
    [
        "rounds",
        "bundle_averages",
        "dicisions",
    ],
)
def test_what_does_not_follow_from_the_log_is_refused(tmp_path: Path, name: str) -> None:
    result = lbctl("tables", "rebuild", name, "--set", f"stream.tables={tmp_path}", cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    check_wording(result.err)


def test_without_a_log_there_is_nothing_to_rebuild_from(tmp_path: Path) -> None:
    result = lbctl("tables", "rebuild", "--set", f"stream.tables={tmp_path}", cwd=tmp_path)
    assert (result.code, result.out) == (1, "")
    check_wording(result.err)
