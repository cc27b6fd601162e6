"""Upkeep of the tables: what is deleted, what stays, and that a job beside it never notices."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lb_stream.contracts.settings import UpkeepSettings
from lb_stream.contracts.tables import BROKER_LOADS, DECISIONS, OWNERSHIP, ROUNDS, TABLES
from lb_stream.io.tables import upkeep
from lb_stream.io.tables.commits import Table
from lb_stream.io.tables.delta import read_replacement_times
from lb_stream.io.tables.upkeep import HOUR_MS, MaintenanceResult, maintain
from lb_stream.store import Store
from tests.support.lbctl_runner import lbctl
from tests.support.written_tables import Job, decision, ownership, rows_of

PROJECT = Path(__file__).parents[4]
NOW = 1_000 * HOUR_MS


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def project(job: Job, *batches: int, age_hours: float = 0, **content: Any) -> None:
    for batch in batches:
        now_ms = NOW - int(age_hours * HOUR_MS)
        job.tables_of.project(
            job.log.append_once(batch, job.rounds(batch, now_ms=now_ms, **content))
        )


def keep(job: Job, *, dry_run: bool = False, **settings: int) -> dict[str, MaintenanceResult]:
    return {
        one.table: one
        for one in maintain(Store.at(job.tables), UpkeepSettings(**settings), NOW, dry_run)
    }


def age(folder: Path, hours: float) -> None:
    """Make every file look as if it had been written so long ago."""
    then = time.time() - hours * 3600
    for file in folder.rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            os.utime(file, (then, then))


def test_every_table_with_a_time_has_a_setting_and_the_others_have_none() -> None:
    settings = {
        name.removeprefix("keep_").removesuffix("_hours")
        for name in UpkeepSettings.model_fields
        if name.startswith("keep_")
    }
    assert settings - {"replaced_files"} == {spec.name for spec in TABLES if spec.kept_by}


# --- retention ---


def test_rows_go_when_they_are_older_than_their_tables_setting(job: Job) -> None:
    project(job, 0, age_hours=30, decisions=[decision("a")], loads=2)
    project(job, 1, age_hours=20, decisions=[decision("a")], loads=2)
    project(job, 2, age_hours=1, decisions=[decision("a")], loads=2)
    done = keep(job, keep_rounds_hours=24, keep_decisions_hours=10, keep_broker_loads_hours=0)
    assert {name: one.rows_deleted for name, one in done.items() if one.rows_deleted} == {
        "rounds": 1,
        "decisions": 2,
    }
    assert rows_of(job, ROUNDS)["log_seq"].to_pylist() == [1, 2]
    assert rows_of(job, DECISIONS)["log_seq"].to_pylist() == [2]
    assert len(rows_of(job, BROKER_LOADS)) == 6
    assert keep(job, keep_rounds_hours=24, keep_decisions_hours=10)["decisions"].rows_deleted == 0


def test_the_log_keeps_each_clusters_last_round_and_a_job_starts_from_it(job: Job) -> None:
    project(job, 0, age_hours=500, clusters=("a", "quiet"))
    project(job, 1, 2, age_hours=400, decisions=[decision("a")])
    project(job, 3, age_hours=300, decisions=[decision("a")])
    assert keep(job, keep_rounds_hours=24)["rounds"].rows_deleted == 2
    assert rows_of(job, ROUNDS)["log_seq"].to_pylist() == [0, 0, 3]
    again = Job(job.folder)
    assert {name: json.loads(text)["seq"] for name, text in again.log.memories.items()} == {
        "a": 4,
        "quiet": 1,
    }
    assert again.log.last_seq == 3
    assert again.log.next_offsets(["r"]) == {("r", 0): 4}
    assert again.log.find(3) is not None
    assert again.log.append_once(4, again.rounds(4)).log_seq == 4


def forget(job: Job, batch: int, *clusters: str) -> None:
    rounds = job.rounds(batch, now_ms=0, clusters=clusters)
    memory = rounds.schema.get_field_index("memory")
    job.tables_of.project(
        job.log.append_once(
            batch, rounds.set_column(memory, "memory", pa.array([""] * len(rounds)))
        )
    )


def test_the_log_keeps_nothing_of_a_forgotten_cluster_for_good(job: Job) -> None:
    project(job, 0, age_hours=500, clusters=("made-up",))
    forget(job, 1, "made-up")
    project(
        job,
        2,
        age_hours=500,
        decisions=[decision("a")],
        ownership=[ownership("a", "x", owner="one")],
        loads=1,
    )
    assert keep(job, keep_rounds_hours=24)["rounds"].rows_deleted == 2
    assert Job(job.folder).log.first_seq == 2


def test_no_earlier_round_of_a_forgotten_cluster_outlives_the_word_that_it_is(job: Job) -> None:
    project(job, 0, age_hours=500, clusters=("first", "second", "quiet"))
    forget(job, 1, "first")
    forget(job, 2, "second")
    project(
        job,
        3,
        age_hours=500,
        decisions=[decision("a")],
        ownership=[ownership("a", "x", owner="one")],
        loads=1,
    )
    assert keep(job, keep_rounds_hours=24)["rounds"].rows_deleted == 0
    assert Job(job.folder).log.memories.keys() == {"quiet", "a"}


def test_the_log_keeps_what_is_not_projected_yet(job: Job) -> None:
    project(job, 0, 1, age_hours=500, decisions=[decision("a")])
    for batch in (2, 3, 4):
        job.log.append_once(batch, job.rounds(batch, now_ms=0, decisions=[decision("a")]))
    keep(job, keep_rounds_hours=24)
    assert rows_of(job, ROUNDS)["log_seq"].to_pylist() == [1, 2, 3, 4]
    again = Job(job.folder)
    assert again.tables_of.catch_up(again.log.since) == 3
    assert rows_of(job, DECISIONS)["log_seq"].to_pylist() == [0, 1, 2, 3, 4]


def test_nothing_of_a_log_goes_before_anything_was_projected(job: Job) -> None:
    for batch in range(3):
        job.log.append_once(batch, job.rounds(batch, now_ms=0))
    assert keep(job, keep_rounds_hours=1)["rounds"].rows_deleted == 0


def test_years_of_rows_go_a_day_at_a_time(job: Job) -> None:
    for batch in range(6):
        project(job, batch, age_hours=1000 - 30 * batch, decisions=[decision("a")])
    assert keep(job, keep_decisions_hours=24, keep_rounds_hours=0)["decisions"].rows_deleted == 6
    assert len(rows_of(job, DECISIONS)) == 0
    project(job, 6, decisions=[decision("a")])
    assert rows_of(job, DECISIONS)["log_seq"].to_pylist() == [6]


# --- files ---


def test_small_files_become_one_and_the_replaced_go_when_they_are_old_enough(job: Job) -> None:
    project(job, *range(20), decisions=[decision("a")], loads=1)
    done = keep(job)
    for name in ("rounds", "decisions", "broker_loads"):
        assert (done[name].files_before, done[name].files_after, done[name].files_removed) == (
            20,
            1,
            0,
        ), name
    assert len(list((job.tables / "rounds").glob("*.parquet"))) == 21
    age(job.tables, hours=30)
    assert keep(job)["rounds"].files_removed == 0  # replaced a moment ago, however old they are
    with DeltaClock(job.tables, hours=5):
        done = keep(job)
    assert done["rounds"].files_removed == 20
    assert done["rounds"].bytes_removed > 0
    assert len(list((job.tables / "rounds").glob("*.parquet"))) == 1
    assert sorted(rows_of(job, ROUNDS)["log_seq"].to_pylist()) == list(range(20))


def test_what_a_busy_job_replaces_does_not_pile_up_on_the_disk(job: Job) -> None:
    """Minutes, not hours: a batch leaves a file in each table, and a replaced one in
    `ownership`."""
    counts = []
    for number in range(4):
        content: dict[str, Any] = {
            "decisions": [decision("a")],
            "ownership": [ownership("a", "x", owner="b", version=number)],
        }
        project(job, *range(40 * number, 40 * (number + 1)), loads=1, **content)
        with DeltaClock(job.tables, hours=0.3):
            keep(job)
        counts.append(
            {
                name: len(list((job.tables / name).glob("*.parquet")))
                for name in ("rounds", "decisions", "broker_loads", "ownership")
            }
        )
    assert max(max(count.values()) for count in counts) <= 42, counts
    assert len(rows_of(job, DECISIONS)) == 160
    assert len(rows_of(job, OWNERSHIP)) == 1


def test_what_was_replaced_is_known_from_a_checkpoint_too(job: Job) -> None:
    project(job, *range(8))
    table = Table(Store.at(job.tables / "rounds"))
    files = {Path(uri).name for uri in table.file_uris()}
    table.optimize.compact()
    table.create_checkpoint()
    for commit in (job.tables / "rounds" / "_delta_log").glob("*.json"):
        commit.unlink()
    found = read_replacement_times(table)
    assert set(found) == files
    assert all(abs(at_ms - time.time() * 1_000) < 600_000 for at_ms in found.values())


def test_a_table_of_a_version_with_longer_histories_gets_todays(job: Job) -> None:
    table = DeltaTable(str(job.tables / "ownership"))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 180 minutes"})
    Job(job.folder)
    assert (
        DeltaTable(str(job.tables / "ownership"))
        .metadata()
        .configuration["delta.logRetentionDuration"]
        == "interval 1 minutes"
    )


class DeltaClock:
    """Lets the removals that `_delta_log` tells of seem older than they are."""

    def __init__(self, tables: Path, hours: float) -> None:
        self._tables, self._hours = tables, hours

    def __enter__(self) -> None:
        for table in sorted(path.parent for path in self._tables.glob("*/_delta_log")):
            for file in (table / "_delta_log").glob("*.checkpoint.parquet"):
                file.unlink()
            (table / "_delta_log" / "_last_checkpoint").unlink(missing_ok=True)
            for file in (table / "_delta_log").glob("*.json"):
                lines = [json.loads(line) for line in file.read_text().splitlines()]
                for line in lines:
                    if "remove" in line:
                        line["remove"]["deletionTimestamp"] -= int(self._hours * HOUR_MS)
                file.write_text("\n".join(map(json.dumps, lines)))

    def __exit__(self, *_: object) -> None:
        return


def test_files_that_nobody_has_committed_stay_until_they_are_old(job: Job) -> None:
    project(job, 0, 1, loads=1)
    orphan, fresh = (
        job.tables / "broker_loads" / "u-1-000000007-1-0.parquet",
        job.tables / "broker_loads" / "u-1-000000008-1-0.parquet",
    )
    for file in (orphan, fresh):
        file.write_bytes(b"left by a job that was killed")
    os.utime(orphan, (time.time() - 5 * 3600,) * 2)
    assert keep(job, keep_replaced_files_hours=4)["broker_loads"].files_removed == 1
    assert (orphan.exists(), fresh.exists()) == (False, True)


def test_files_that_only_the_log_names_stay_however_old_they_are(job: Job) -> None:
    project(job, 0, loads=1)
    job.log.append_once(1, job.rounds(1, loads=3, now_ms=NOW))  # and then the job was killed
    age(job.tables, hours=1000)
    done = keep(job)["broker_loads"]
    assert (done.files_removed, done.left) == (
        0,
        "the log names files that the table lacks: start the job once",
    )
    again = Job(job.folder)
    again.tables_of.catch_up(again.log.since)
    assert len(rows_of(job, BROKER_LOADS)) == 4
    assert keep(job)["broker_loads"].left == ""


def test_a_dry_run_tells_the_same_and_changes_nothing(job: Job) -> None:
    project(job, *range(5), age_hours=50, decisions=[decision("a")])
    versions = {
        spec.name: DeltaTable(str(job.tables / spec.name)).version() for spec in (ROUNDS, DECISIONS)
    }
    planned = keep(job, dry_run=True, keep_rounds_hours=24)
    assert versions == {
        spec.name: DeltaTable(str(job.tables / spec.name)).version() for spec in (ROUNDS, DECISIONS)
    }
    done = keep(job, keep_rounds_hours=24)
    for report in (planned, done):
        assert (report["rounds"].rows_deleted, report["decisions"].files_after) == (4, 1)


# --- the command ---


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "jobs/maintain.py", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_damaged_table_is_one_line_and_no_trace(tmp_path: Path) -> None:
    log = tmp_path / "tables" / "rounds" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("{bad")
    done = run("--set", f"stream.tables={tmp_path / 'tables'}")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"lbctl: a table can't be read \(.*\): `lbctl tables rebuild` .*\n", done.stderr
    )


def test_the_job_prints_a_table_for_people_and_json_for_programs(job: Job) -> None:
    project(job, 0, 1, decisions=[decision("a")])
    folder = f"stream.tables={job.tables}"
    made = run("--set", folder, "--set", "upkeep.keep_decisions_hours=1")
    assert made.returncode == 0, made.stderr
    deleted = {
        line.split()[0]: line.split()[1]
        for line in made.stdout.splitlines()
        if len(line.split()) > 1
    }
    assert (deleted["decisions"], deleted["rounds"], deleted["all"]) == ("2", "1", "3")
    lines = [
        json.loads(line) for line in run("--json", "--dry-run", "--set", folder).stdout.splitlines()
    ]
    assert {line["table"]: (line["rows_deleted"], line["dry_run"]) for line in lines}[
        "decisions"
    ] == (0, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--set", "stream.tables=/nowhere/at/all"), 1, "no tables in /nowhere/at/all yet"),
        (("--set", "upkeep.keep_rounds_days=3"), 2, "nearest: keep_rounds_hours"),
        (("--set", "upkeep.keep_replaced_files_hours=0"), 2, "upkeep.keep_replaced_files_hours"),
        (
            ("--every", "soon"),
            2,
            "'soon': expected a number and a unit, such as 90s, 30m, 1h or 1d",
        ),
    ],
)
def test_what_can_not_be_is_told_with_what_to_do(
    arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert words in result.stderr


def test_who_may_not_write_is_told_so_once_what_was_done_is_shown(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(job, 0, 1, decisions=[decision("a")])

    def refuse(table: Table, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", f"{table.store}/_delta_log")

    monkeypatch.setattr(upkeep, "_compact", refuse)
    done = lbctl(
        "tables", "maintain", "--set", f"stream.tables={job.tables}", "--json", cwd=job.tables
    )
    assert done.code == 1 and {one["table"] for one in done.objects if one["failed"]} >= {
        "rounds",
        "decisions",
    }
    assert re.fullmatch(
        r"lbctl: rounds, .*: Permission denied at .*/_delta_log: give this user the right to write "
        r"there, .*\n",
        done.err,
    )


# --- beside a running job ---


PASSES = 3


def write_batches(folder: Path, count: int, passed: Any) -> None:
    """A job: logs and projects batches as quickly as it can, with appends, merges and figures'
    files. Upkeep comes by PASSES times."""
    job = Job(folder)
    for batch in range(count):
        if batch % (count // PASSES) == 1:
            assert passed.acquire(timeout=60)
        content: dict[str, Any] = {"decisions": [decision("a")], "loads": 1 + batch % 2}
        content["ownership"] = [ownership("a", f"x{batch % 7}", owner=f"b{batch}", version=batch)]
        project(
            job,
            batch,
            age_hours=(count - batch) * 10,
            clusters=("a", "b") if batch % 5 == 0 else ("a",),
            **content,
        )
        job.log.run_upkeep()


def keep_on(folder: Path, stop: Any, passed: Any) -> None:
    """Upkeep in a loop, as hard as it can be: all of it at once, and files removed as soon as that
    is allowed."""
    settings = UpkeepSettings(
        keep_rounds_hours=100, keep_decisions_hours=0, keep_broker_loads_hours=0, target_file_mb=1
    )
    while not stop.is_set():
        for _ in maintain(Store.at(folder / "tables"), settings, NOW):
            pass
        passed.release()


@pytest.mark.parametrize("count", [60, pytest.param(1_000, marks=pytest.mark.long)])
def test_a_job_and_upkeep_at_the_same_tables_both_go_on_and_nothing_is_lost(
    tmp_path: Path, count: int
) -> None:
    context = multiprocessing.get_context("spawn")
    stop, passed = context.Event(), context.Semaphore(0)
    Job(tmp_path)
    writer = context.Process(target=write_batches, args=(tmp_path, count, passed))
    keeper = context.Process(target=keep_on, args=(tmp_path, stop, passed))
    writer.start()
    keeper.start()
    writer.join(timeout=60 + count)
    stop.set()
    keeper.join(timeout=120)
    assert (writer.exitcode, keeper.exitcode) == (0, 0)
    job = Job(tmp_path)
    assert rows_of(job, DECISIONS)["log_seq"].to_pylist() == list(range(count))
    assert rows_of(job, BROKER_LOADS)["log_seq"].to_pylist() == [
        batch for batch in range(count) for _ in range(1 + batch % 2)
    ]
    newest = {f"x{batch % 7}": f"b{batch}" for batch in range(count)}
    assert {row["bundle"]: row["owner"] for row in rows_of(job, OWNERSHIP).to_pylist()} == newest
    kept = set(rows_of(job, ROUNDS)["log_seq"].to_pylist())
    assert {*range(count - 10, count), (count - 1) // 5 * 5} <= kept
    assert len(kept) < count
    assert job.log.last_seq == count - 1
