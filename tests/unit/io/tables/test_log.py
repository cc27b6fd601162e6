"""The log and the tables that follow from it, without a JVM: found again, refused, changed by
upkeep in between, cheap at any age."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import BROKER_LOADS, DECISIONS, OWNERSHIP, ROUNDS
from lb_stream.io.tables import commits, delta
from lb_stream.io.tables.commits import Table
from lb_stream.io.tables.delta import TableMismatch, append_rows, dataset, open_table
from lb_stream.io.tables.log import LogError, RoundLog
from lb_stream.io.tables.projections import Projections
from lb_stream.store import Store
from lb_stream.stream.ports import Logged
from tests.support.wordings import check_wording
from tests.support.written_tables import Job, decision, ownership, rows_of


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


# --- the log ---


def test_a_logged_batch_is_found_with_its_rows_by_the_job_that_starts_next(job: Job) -> None:
    for batch in range(3):
        assert job.log.find(batch) is None
        job.log.append_once(batch, job.rounds(batch, clusters=("a", "b")))
    again = Job(job.folder)
    assert (again.log.last_seq, again.log.last_epoch) == (2, 1)
    assert {name: json.loads(memory)["seq"] for name, memory in again.log.memories.items()} == {
        "a": 3,
        "b": 3,
    }
    found = again.log.find(2)
    assert found is not None
    assert (
        found.log_seq,
        found.rounds["cluster"].to_pylist(),
        found.rounds["batch_id"].to_pylist(),
    ) == (2, ["a", "b"], [2, 2])
    assert again.log.find(3) is None


def test_a_cluster_that_was_silent_for_long_keeps_its_memory(job: Job) -> None:
    job.log.append_once(0, job.rounds(0, clusters=("a", "quiet")))
    for batch in range(1, 5):
        job.log.append_once(batch, job.rounds(batch, clusters=("a",)))
    memories = Job(job.folder).log.memories
    assert (json.loads(memories["quiet"])["seq"], json.loads(memories["a"])["seq"]) == (1, 5)


def test_a_forgotten_cluster_has_no_memory_and_its_rounds_numbers_stay_used_for_ever(
    job: Job,
) -> None:
    job.log.append_once(0, job.rounds(0, clusters=("a", "gone")))
    rows = [
        row | ({"memory": "", "blocks": "[]"} if row["cluster"] == "gone" else {})
        for row in job.rounds(1, ("a", "gone")).to_pylist()
    ]
    logged = job.log.append_once(1, pa.Table.from_pylist(rows, job.rounds(1).schema))
    late = job.rounds(2, clusters=("gone",)).to_pylist()[0] | {"seq": 0, "error": None}
    for log in (job.log, Job(job.folder).log):
        assert (sorted(log.memories), log.first_seq) == (["a"], 2)
    job.log.append_once(2, pa.Table.from_pylist([late], job.rounds(1).schema))
    log = Job(job.folder).log
    assert (sorted(log.memories), log.first_seq) == (["a"], 2), "a row without a round says nothing"
    log.remember(logged.rounds)
    assert sorted(log.memories) == ["a"], "as when its batch is run again"


def test_the_log_of_another_pipeline_is_refused_by_name(job: Job) -> None:
    job.log.append_once(0, job.rounds(0))
    with pytest.raises(LogError) as error:
        RoundLog(Store.at(job.tables), "q", Store.at(job.checkpoint))
    check_wording(error.value)


def test_of_two_writers_the_one_that_comes_late_is_refused_and_its_file_is_no_part_of_the_log(
    job: Job,
) -> None:
    late = Job(job.folder)
    job.log.append_once(0, job.rounds(0))
    with pytest.raises(LogError) as error:
        late.log.append_once(1, late.rounds(1))
    check_wording(error.value)
    assert rows_of(job, ROUNDS)["batch_id"].to_pylist() == [0]


def test_a_job_that_was_stopped_while_it_decided_logs_nothing_beside_its_heir(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.log.append_once(0, job.rounds(0))
    assert job.log.find(1) is None
    heir = Job(job.folder, checkpoint="u-2")
    heir.log.append_once(1, heir.rounds(1, decisions=[decision("a")]))
    monkeypatch.setattr(
        commits, "SURE_S", -1.0
    )  # it wakes up and looks at the table before it commits
    with pytest.raises(LogError) as error:
        job.log.append_once(1, job.rounds(1))
    check_wording(error.value)
    assert rows_of(job, ROUNDS)["log_seq"].to_pylist() == [0, 1]
    monkeypatch.undo()
    heir.log.append_once(2, heir.rounds(2))
    assert Job(job.folder).log.last_seq == 2


def test_rows_that_upkeep_deletes_meanwhile_do_not_stop_the_log(job: Job) -> None:
    for batch in range(4):
        job.log.append_once(batch, job.rounds(batch))
    DeltaTable(str(job.tables / "rounds")).delete("log_seq < 2")
    job.log.append_once(4, job.rounds(4))
    assert sorted(rows_of(job, ROUNDS)["log_seq"].to_pylist()) == [2, 3, 4]
    DeltaTable(str(job.tables / "rounds")).optimize.compact()
    job.log.append_once(5, job.rounds(5))
    assert Job(job.folder).log.last_seq == 5


def test_a_commit_that_was_made_and_then_failed_counts_once(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing old files of `_delta_log` follows a commit, and fails when another process has just
    removed them."""
    project(job, 0, decisions=[decision("a")], loads=1)
    real, failed = delta.add_files, []

    def failing(table: DeltaTable, *arguments: Any, **more: Any) -> None:
        real(table, *arguments, **more)
        if table.metadata().name not in failed:
            failed.append(table.metadata().name)
            raise FileNotFoundError("00000000000000000000.json")

    for module in ("delta", "log", "projections"):
        monkeypatch.setattr(f"lb_stream.io.tables.{module}.add_files", failing)
    project(job, 1, 2, decisions=[decision("a")], loads=1)
    assert failed[:3] == ["rounds", "decisions", "broker_loads"]
    for spec in (ROUNDS, DECISIONS, BROKER_LOADS):
        assert rows_of(job, spec)["log_seq"].to_pylist() == [0, 1, 2], spec.name
    assert json.loads(job.log.memories["a"])["seq"] == 3


def test_the_next_offsets_outlive_the_rows_that_told_them(job: Job) -> None:
    offsets = [{"r": {"0": [0, 9], "2": [5, 5]}}, {"r": {"0": [10, 11]}}, {"c": {"0": [7, 7]}}]
    for batch, read in enumerate(offsets):
        job.log.append_once(batch, job.rounds(batch, offsets=read))
    DeltaTable(str(job.tables / "rounds")).delete("log_seq < 2")
    assert Job(job.folder).log.next_offsets(["r", "c", "none"]) == {
        ("r", 0): 12,
        ("r", 2): 6,
        ("c", 0): 8,
    }


def test_missed_batches_are_read_in_order_and_some_at_a_time(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lb_stream.io.tables.log.READ_ROWS", 4)
    for batch in range(9):
        job.log.append_once(batch, job.rounds(batch, clusters=("a", "b", "c")[: 1 + batch % 3]))
    missed = list(job.log.since(2))
    assert [one.log_seq for one in missed] == list(range(2, 9))
    assert [one.rounds["cluster"].to_pylist() for one in missed[:3]] == [
        ["a", "b", "c"],
        ["a"],
        ["a", "b"],
    ]
    assert list(job.log.since(9)) == []


def test_the_number_of_files_stays_small_and_no_row_is_lost(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("compaction", "log"):
        monkeypatch.setattr(f"lb_stream.io.tables.{module}.COMPACT_EVERY", 10)
    for batch in range(95):
        job.log.append_once(batch, job.rounds(batch))
        job.log.run_upkeep()
    table = DeltaTable(str(job.tables / "rounds"))
    assert len(table.file_uris()) <= 15
    assert sorted(rows_of(job, ROUNDS)["log_seq"].to_pylist()) == list(range(95))
    again = Job(job.folder)
    found = again.log.find(40)
    assert found is not None and found.rounds["batch_id"].to_pylist() == [40]
    # What compaction writes into Delta's log are numbers only: memories may be megabytes.
    stats = [json.loads(add["stats"]) for add in adds(job.tables / "rounds")]
    assert {name for stat in stats for name in stat["minValues"]} == {
        "batch_id",
        "log_seq",
        "seq",
        "epoch",
        "now_ms",
    }


def adds(table: Path) -> list[dict[str, Any]]:
    lines = [
        json.loads(line)
        for file in sorted((table / "_delta_log").glob("*.json"))
        for line in file.read_text().splitlines()
    ]
    return [line["add"] for line in lines if "add" in line]


# --- the tables that follow ---


def project(job: Job, *batches: int, **content: Any) -> None:
    for batch in batches:
        job.tables_of.project(job.log.append_once(batch, job.rounds(batch, **content)))


def test_each_table_catches_up_from_the_batch_that_it_has_itself(job: Job) -> None:
    project(job, 0, 1, decisions=[decision("a")], ownership=[ownership("a", "x", owner="one")])
    behind = job.log.append_once(
        2, job.rounds(2, decisions=[decision("a")], ownership=[ownership("a", "x", owner="two")])
    )
    lost = job.tables / DECISIONS.name
    lost.rename(job.folder / "lost")
    again = Job(job.folder)
    assert again.tables_of.catch_up(again.log.since) == 1
    assert rows_of(job, DECISIONS)["log_seq"].to_pylist() == [0, 1, 2]
    assert rows_of(job, OWNERSHIP).select(["owner", "log_seq"]).to_pylist() == [
        {"owner": "two", "log_seq": behind.log_seq}
    ]
    assert Job(job.folder).tables_of.catch_up(again.log.since) == 0
    assert len(rows_of(job, DECISIONS)) == 3


def test_catching_up_reads_little_of_the_log_for_tables_without_rows(job: Job) -> None:
    project(job, *range(3), decisions=[decision("a")])
    first = Job(job.folder)
    first.tables_of.catch_up(first.log.since)
    asked: list[int] = []

    def since(log_seq: int) -> list[Logged]:
        asked.append(log_seq)
        return list(first.log.since(log_seq))

    Job(job.folder).tables_of.catch_up(since)
    assert asked == [3]


def test_a_table_is_projected_although_upkeep_has_changed_it_since_it_was_looked_at(
    job: Job,
) -> None:
    project(
        job,
        0,
        1,
        decisions=[decision("a")],
        ownership=[ownership("a", "x", owner="one"), ownership("a", "y", owner="one")],
    )
    DeltaTable(str(job.tables / "decisions")).delete("log_seq < 1")
    DeltaTable(str(job.tables / "ownership")).delete("bundle = 'x'")
    project(job, 2, decisions=[decision("a")], ownership=[ownership("a", "x", owner="two")])
    assert rows_of(job, DECISIONS)["log_seq"].to_pylist() == [1, 2]
    assert {row["bundle"]: row["owner"] for row in rows_of(job, OWNERSHIP).to_pylist()} == {
        "x": "two",
        "y": "one",
    }


def test_what_an_heir_has_projected_is_not_projected_again_by_who_has_not_looked_since(
    job: Job,
) -> None:
    project(job, 0, decisions=[decision("a")], ownership=[ownership("a", "x", owner="one")])
    heir = Job(job.folder)
    project(heir, 1, decisions=[decision("a")], ownership=[ownership("a", "x", owner="two")])
    logged = heir.log.find(1)
    assert logged is not None
    job.tables_of.project(logged)
    assert rows_of(job, DECISIONS)["log_seq"].to_pylist() == [0, 1]
    assert rows_of(job, OWNERSHIP)["owner"].to_pylist() == ["two"]


def test_a_bundle_that_is_no_more_has_no_row(job: Job) -> None:
    gone = {name: ownership("a", name, owner=None, version=3) | {"state": "Init"} for name in "xyz"}
    project(
        job,
        0,
        ownership=[ownership("a", "x", owner="one"), ownership("a", "y", owner="one"), gone["y"]],
    )
    assert rows_of(job, OWNERSHIP)["bundle"].to_pylist() == ["x"], (
        "the last record of a batch counts, also in the table's first one"
    )
    project(job, 1, ownership=[gone["x"], ownership("a", "y", owner="two"), gone["z"]])
    assert rows_of(job, OWNERSHIP).select(["bundle", "owner"]).to_pylist() == [
        {"bundle": "y", "owner": "two"}
    ]
    project(job, 2, ownership=[ownership("a", "x", owner="two", version=3)])
    assert sorted(rows_of(job, OWNERSHIP)["bundle"].to_pylist()) == ["x", "y"]
    assert job.tables_of.ownership_versions(["a", "b"]) == {"a": {"x": 3, "y": 1}}
    assert job.tables_of.ownership_versions(["b"]) == {}


def test_a_file_that_is_gone_is_left_out_instead_of_making_the_table_unreadable(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    project(job, 0, loads=2)
    logged = job.log.append_once(1, job.rounds(1, loads=3))
    (file,) = json.loads(logged.rounds["files"][0].as_py()).values()
    (job.tables / BROKER_LOADS.name / file["path"]).unlink()
    again = Job(job.folder)
    again.tables_of.catch_up(again.log.since)
    assert len(rows_of(job, BROKER_LOADS)) == 2
    assert f"broker_loads lacks 3 rows: the file {file['path']} is gone" in caplog.text


@pytest.mark.parametrize("tidied", [False, True])
@pytest.mark.parametrize("spec", [ROUNDS, DECISIONS, BROKER_LOADS], ids=lambda spec: spec.name)
def test_a_filter_by_any_column_finds_rows_whatever_statistics_their_files_have(
    job: Job, spec: TableSpec, tidied: bool
) -> None:
    """A file with statistics of some columns only is taken by delta-rs's dataset for one without
    rows when another one is filtered by."""
    project(job, 0, 1, 2, decisions=[decision("a")], loads=1)
    table = Table(Store.at(job.tables / spec.name))
    if tidied:
        table.optimize.compact()
    rows = dataset(table)
    for name in spec.schema.names:
        values = [
            value
            for value in rows.to_table(columns=[name])[name].to_pylist()
            if not isinstance(value, list)
        ]
        for value in set(values) - {None}:
            assert rows.count_rows(filter=pc.field(name) == value) == values.count(value), (
                name,
                value,
            )
        if values:
            assert rows.count_rows(filter=pc.field(name).is_null()) == values.count(None), name


def test_a_table_of_an_earlier_version_gets_no_statistics_that_it_does_not_ask_for(
    tmp_path: Path,
) -> None:
    DeltaTable.create(str(tmp_path / "decisions"), schema=DECISIONS.schema)
    append_rows(
        Table(Store.at(tmp_path / "decisions")),
        DECISIONS,
        pa.Table.from_pylist([{"cluster": "a", "kind": "unload", "seq": 1}], DECISIONS.schema),
        "x",
    )
    assert (
        dataset(Table(Store.at(tmp_path / "decisions"))).count_rows(
            filter=pc.field("kind") == "unload"
        )
        == 1
    )


def test_the_tables_files_stay_few_too(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("compaction", "projections"):
        monkeypatch.setattr(f"lb_stream.io.tables.{module}.COMPACT_EVERY", 10)
    project(
        job,
        *range(60),
        decisions=[decision("a")],
        ownership=[ownership("a", "x", owner="one")],
        loads=1,
    )
    for spec in (DECISIONS, OWNERSHIP, BROKER_LOADS):
        assert len(DeltaTable(str(job.tables / spec.name)).file_uris()) <= 15, spec.name
    assert sorted(rows_of(job, DECISIONS)["log_seq"].to_pylist()) == list(range(60))
    assert sorted(rows_of(job, BROKER_LOADS)["log_seq"].to_pylist()) == list(range(60))


# --- columns ---


def test_a_table_with_other_columns_is_refused_with_what_to_do(tmp_path: Path) -> None:
    fields = [field for field in DECISIONS.schema if field.name != "rule"]
    fields = [
        pa.field("epoch", pa.string()) if field.name == "epoch" else field for field in fields
    ] + [pa.field("mood", pa.string())]
    DeltaTable.create(str(tmp_path / "decisions"), schema=pa.schema(fields))
    with pytest.raises(TableMismatch) as refusal:
        Projections(Store.at(tmp_path), "p")
    for words in (
        "the table decisions at ",
        "it has no column 'rule' (string)",
        "its column 'epoch' is string, not int64",
        "it has a column 'mood' that is not known here",
        "`lbctl tables rebuild decisions`",
    ):
        assert words in str(refusal.value)


def test_another_partitioning_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(
        str(tmp_path / "ownership"), schema=OWNERSHIP.schema, partition_by=["cluster"]
    )
    with pytest.raises(TableMismatch) as error:
        open_table(Store.at(tmp_path), OWNERSHIP)
    check_wording(error.value)


def test_an_old_log_can_not_be_rebuilt_and_says_so(tmp_path: Path) -> None:
    DeltaTable.create(
        str(tmp_path / "rounds"),
        schema=pa.schema([field for field in ROUNDS.schema if field.name != "memory"]),
    )
    with pytest.raises(TableMismatch) as error:
        RoundLog(Store.at(tmp_path), "p", Store.at(tmp_path))
    check_wording(error.value)


def test_every_table_that_this_program_makes_fits_and_has_readable_parquet(job: Job) -> None:
    project(
        job, 0, decisions=[decision("a")], ownership=[ownership("a", "x", owner="one")], loads=1
    )
    Job(job.folder)
    for spec in (DECISIONS, OWNERSHIP, BROKER_LOADS):
        uris = DeltaTable(str(job.tables / spec.name)).file_uris()
        assert pq.read_table(uris).schema.names == spec.schema.names


def test_what_was_merged_or_deleted_from_can_be_filtered_by_text(job: Job) -> None:
    """delta-rs writes texts as views there, which Arrow can't compare."""
    first = [ownership("a", "x", owner="one"), ownership("a", "y", owner="one")]
    project(job, 0, decisions=[decision("a"), decision("b")], ownership=first)
    project(job, 1, ownership=[ownership("a", "x", owner="two")])
    project(job, 2, decisions=[decision("a")])
    DeltaTable(str(job.tables / DECISIONS.name)).delete("decision_id = 'a:1:1'")
    for spec, column, text, count in (
        (OWNERSHIP, "owner", "two", 1),
        (OWNERSHIP, "owner", "one", 1),
        (DECISIONS, "cluster", "a", 2),
    ):
        table = dataset(Table(Store.at(job.tables / spec.name)))
        assert len(table.to_table(filter=pc.field(column) == text)) == count
        assert table.schema.field(column).type == pa.string()
