"""Commits that are one file: what two writers, a reader and a writer that was stopped for long make
of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import BUNDLE_AVERAGES, DECISIONS
from lb_stream.io.tables import commits
from lb_stream.io.tables.delta import (
    ONLY_COMMIT,
    TableMismatch,
    add_files,
    append_rows,
    commit_once,
    dataset,
    open_table,
    read_mark,
    write_rows,
)
from lb_stream.store import Store
from tests.support.wordings import check_wording


def rows(*ids: str) -> pa.Table:
    return pa.Table.from_pylist(
        [{"decision_id": one, "cluster": "a", "bundle": one} for one in ids], DECISIONS.schema
    )


def opened(folder: Path, spec: TableSpec = DECISIONS) -> commits.Table:
    return open_table(Store.at(folder), spec)


def append(table: commits.Table, number: int) -> bool:
    return commit_once(
        table,
        ("p", number),
        lambda marks: append_rows(table, DECISIONS, rows(f"d{number}"), "x", marks),
    )


def ids(folder: Path) -> list[str]:
    """As a reader sees them who has nothing of ours."""
    return sorted(
        DeltaTable(str(folder / "decisions")).to_pyarrow_table()["decision_id"].to_pylist()
    )


def test_of_two_writers_of_one_version_one_is_refused_and_looks_again(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    append_rows(one, DECISIONS, rows("a"), "x", [("p", 1)])
    with pytest.raises(CommitFailedError) as error:
        append_rows(other, DECISIONS, rows("b"), "x", [("p", 1)])
    check_wording(error.value)
    assert not one.has_grown and not other.has_grown, "the one that was refused has looked"
    assert append(other, 1) is False and append(other, 2) is True
    assert (read_mark(one, "p"), one.newest, ids(tmp_path)) == (2, 2, ["a", "d2"])


def test_what_is_committed_here_is_known_without_a_look_and_seen_by_every_reader(
    tmp_path: Path,
) -> None:
    table = opened(tmp_path)
    for number in range(3):
        append(table, number)
    assert (table.version(), table.newest, table.mark("p"), table.mark("q")) == (0, 3, 2, None)
    assert dataset(table).count_rows() == 3 and table.version() == 3
    reader = DeltaTable(str(tmp_path / "decisions"))
    assert (reader.version(), reader.transaction_version("p"), ids(tmp_path)) == (
        3,
        2,
        ["d0", "d1", "d2"],
    )
    assert [one["operation"] for one in reader.history()] == [
        "WRITE",
        "WRITE",
        "WRITE",
        "CREATE TABLE",
    ]


def test_every_twentieth_version_is_a_checkpoint_from_which_readers_begin(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for number in range(commits.CHECKPOINT_EVERY):
        append(table, number)
    assert [path.name for path in tmp_path.glob("decisions/_delta_log/*.checkpoint.parquet")] == [
        f"{20:020d}.checkpoint.parquet"
    ]
    for path in tmp_path.glob("decisions/_delta_log/*.json"):
        path.unlink()
    assert len(ids(tmp_path)) == 20 and opened(tmp_path).mark("p") == 19


def test_a_writer_that_was_stopped_for_long_does_not_write_a_version_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, heir = opened(tmp_path), opened(tmp_path)
    for number in range(commits.CHECKPOINT_EVERY):
        append(heir, number)
    (tmp_path / "decisions" / "_delta_log" / f"{1:020d}.json").unlink()
    monkeypatch.setattr(commits, "SURE_S", -1.0)
    assert stopped.has_grown
    append_rows(stopped, DECISIONS, rows("late"), "x")
    assert stopped.newest == commits.CHECKPOINT_EVERY + 1 and "late" in ids(tmp_path)


def test_a_writer_that_wakes_up_does_not_write_down_again_what_its_heir_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, heir = opened(tmp_path), opened(tmp_path)
    append(stopped, 1)
    append(heir, 2)
    monkeypatch.setattr(commits, "SURE_S", -1.0)
    with pytest.raises(CommitFailedError) as error:
        append_rows(stopped, DECISIONS, rows("again"), "x", [("p", 2)])
    check_wording(error.value)
    assert append(stopped, 2) is False and ids(tmp_path) == ["d1", "d2"]


def test_what_was_written_too_slowly_to_be_sure_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path)
    monkeypatch.setattr(commits, "KEPT_S", -1.0)
    with pytest.raises(CommitFailedError) as error:
        append_rows(table, DECISIONS, rows("a"), "x", [("p", 1)])
    check_wording(error.value)
    assert append(table, 1) is False and ids(tmp_path) == ["a"]


def test_an_append_goes_on_behind_what_others_have_committed(tmp_path: Path) -> None:
    table = opened(tmp_path)
    append(table, 0)
    append(table, 1)
    DeltaTable(str(tmp_path / "decisions")).optimize.compact()
    append_rows(table, DECISIONS, rows("late"), "x", [("p", 2)])
    assert (ids(tmp_path), table.newest) == (["d0", "d1", "late"], 4)


def test_rows_without_a_commit_are_no_part_of_the_table_and_come_once_when_they_are_written_again(
    tmp_path: Path,
) -> None:
    write_rows(opened(tmp_path), rows("d1"), "x")  # killed here
    assert ids(tmp_path) == [] and append(opened(tmp_path), 1) is True and ids(tmp_path) == ["d1"]
    (
        tmp_path / "decisions" / "_delta_log" / f"{2:020d}.json.0123456789ab.new"
    ).touch()  # or here, before the version has its name
    assert (
        append(opened(tmp_path), 1) is False
        and append(opened(tmp_path), 2) is True
        and ids(tmp_path) == ["d1", "d2"]
    )


@pytest.mark.parametrize(
    "work", [lambda table: table.optimize.compact(), lambda table: table.delete("bundle = 'd0'")]
)
def test_upkeep_that_has_not_seen_which_files_were_replaced_is_refused(
    tmp_path: Path, work: Callable[[DeltaTable], Any]
) -> None:
    table = opened(tmp_path)
    append(table, 0)
    append(table, 1)
    late = DeltaTable(str(tmp_path / "decisions"))
    table.commit([write_rows(table, rows("d0", "d1"), "y")], [("p", 2)], replaced=table.live())
    with pytest.raises(CommitFailedError):
        work(late)
    assert ids(tmp_path) == ["d0", "d1"]


def test_a_checkpoint_is_made_although_others_have_made_the_version_that_it_is_due_at(
    tmp_path: Path,
) -> None:
    table = opened(tmp_path)
    for number in range(commits.CHECKPOINT_EVERY - 1):
        append(table, number)
    DeltaTable(str(tmp_path / "decisions")).optimize.compact(post_commithook_properties=ONLY_COMMIT)
    assert not list(tmp_path.glob("decisions/_delta_log/*.checkpoint.parquet"))
    append(table, 99)
    assert [path.name for path in tmp_path.glob("decisions/_delta_log/*.checkpoint.parquet")] == [
        f"{21:020d}.checkpoint.parquet"
    ]


def test_a_table_that_asks_more_of_its_writers_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).alter.add_feature(
        TableFeatures.DomainMetadata, allow_protocol_versions_increase=True
    )
    with pytest.raises(TableMismatch) as error:
        opened(tmp_path)
    check_wording(error.value)


def test_a_partitions_files_are_replaced_and_the_others_stay(tmp_path: Path) -> None:
    def file(part: str, name: str) -> AddAction:
        return AddAction(
            f"part={part}/{name}.parquet", 3, {"part": part}, 0, True, json.dumps({"numRecords": 1})
        )

    def live() -> list[str]:
        return sorted(DeltaTable(str(tmp_path / "bundle_averages")).file_uris())

    table = opened(tmp_path, BUNDLE_AVERAGES)
    add_files(table, BUNDLE_AVERAGES, [file("a.0", "x"), file("a.1", "x")])
    add_files(table, BUNDLE_AVERAGES, [file("a.0", "y")], replaced=["a.0"])
    assert [uri.partition("bundle_averages/")[2] for uri in live()] == [
        "part=a.0/y.parquet",
        "part=a.1/x.parquet",
    ]
    add_files(opened(tmp_path, BUNDLE_AVERAGES), BUNDLE_AVERAGES, [], replaced=["a.0", "a.1"])
    assert live() == []
    late = table.live()
    with pytest.raises(CommitFailedError) as error:
        table.commit([file("a.0", "z")], partition_by="part", replaced=late)
    check_wording(error.value)
    add_files(table, BUNDLE_AVERAGES, [file("a.0", "z")], replaced=["a.0"])
    assert [uri.partition("bundle_averages/")[2] for uri in live()] == ["part=a.0/z.parquet"]
