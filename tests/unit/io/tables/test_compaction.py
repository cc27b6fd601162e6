"""Small files are put together: the rows stay the same, whatever others do to the table
meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import BROKER_LOADS, BUNDLE_AVERAGES, DECISIONS, ROUNDS
from lb_stream.io.tables import compaction
from lb_stream.io.tables.commits import LiveFile, LiveFiles, Table
from lb_stream.io.tables.compaction import (
    COMPACTION,
    compact,
    compact_small_files,
    compaction_mark,
    group_files,
)
from lb_stream.io.tables.delta import (
    ONLY_COMMIT,
    append_rows,
    build_commit_properties,
    dataset,
    open_table,
    read_mark,
    write_parts,
    write_rows,
)
from lb_stream.store import Store

MIB = 2**20
Change = Callable[[Table, TableSpec], Any]


def row_of(spec: TableSpec, number: int) -> pa.Table:
    """One row that says its number, and that as its time."""
    known = {"log_seq": number, spec.kept_by: number, "cluster": f"cluster {number}"}
    return pa.table([pa.array([known.get(one.name)], one.type) for one in spec.schema], spec.schema)


def opened(folder: Path, spec: TableSpec, *numbers: int) -> Table:
    table = open_table(Store.at(folder), spec)
    for number in numbers:
        append_rows(table, spec, row_of(spec, number), f"{number:012d}")
    return table


def numbers_of(folder: Path, spec: TableSpec) -> list[int]:
    """As a reader sees them who has nothing of ours."""
    return sorted(DeltaTable(str(folder / spec.name)).to_pyarrow_table()["log_seq"].to_pylist())


def append(table: Table, spec: TableSpec) -> None:
    append_rows(table, spec, row_of(spec, 9), "9")


def delete_some(table: Table, spec: TableSpec) -> None:
    table.catch_up()
    table.delete(
        f"{spec.kept_by} >= 1 AND {spec.kept_by} < 2", post_commithook_properties=ONLY_COMMIT
    )


def replace_all(table: Table, spec: TableSpec) -> None:
    table.catch_up()
    files = [write_rows(table, row_of(spec, 7), "new")]
    marks = build_commit_properties([("p", 7), compaction_mark(table)])
    table.create_write_transaction(
        files, mode="overwrite", schema=spec.schema, commit_properties=marks
    )


def put_together(table: Table, spec: TableSpec) -> None:
    compact(table, MIB)


AFTER: dict[Change, list[int]] = {
    append: [0, 1, 2, 9],
    delete_some: [0, 2],
    replace_all: [7],
    put_together: [0, 1, 2],
}


@pytest.mark.parametrize("spec", [DECISIONS, BROKER_LOADS, ROUNDS], ids=lambda spec: spec.name)
@pytest.mark.parametrize("other", AFTER)
def test_a_compaction_that_has_not_seen_another_commit_keeps_its_rows_or_is_refused(
    spec: TableSpec, other: Change, tmp_path: Path
) -> None:
    opened(tmp_path, spec, 0, 1, 2)
    late, quick = opened(tmp_path, spec), opened(tmp_path, spec)
    late.live()
    other(quick, spec)
    if other is append:
        compact(late, MIB)
    else:
        with pytest.raises(CommitFailedError):
            compact(late, MIB)
    assert numbers_of(tmp_path, spec) == AFTER[other]


@pytest.mark.parametrize("spec", [DECISIONS, BROKER_LOADS, ROUNDS], ids=lambda spec: spec.name)
@pytest.mark.parametrize("other", AFTER)
def test_whoever_has_not_seen_a_compaction_keeps_its_rows_or_is_refused(
    spec: TableSpec, other: Change, tmp_path: Path
) -> None:
    opened(tmp_path, spec, 0, 1, 2)
    late, quick = opened(tmp_path, spec), opened(tmp_path, spec)
    late.live()
    compact(quick, MIB)
    if other is append:
        append(late, spec)
    else:
        with pytest.raises(CommitFailedError):
            other(late, spec)
    assert numbers_of(tmp_path, spec) == sorted({0, 1, 2, *((9,) if other is append else ())})


def test_rows_that_delta_rs_has_written_stay_what_they_are(
    tmp_path: Path,
) -> None:
    table = opened(tmp_path, DECISIONS)
    together = pa.concat_tables([row_of(DECISIONS, number) for number in range(3)])
    append_rows(table, DECISIONS, together, "3")
    delete_some(table, DECISIONS)  # its files hold texts as views
    table.refresh()
    append_rows(table, DECISIONS, row_of(DECISIONS, 5), "5")
    before = dataset(table).to_table(DECISIONS.schema.names).sort_by("log_seq")
    compact(table, MIB)
    after = dataset(table).to_table(DECISIONS.schema.names).sort_by("log_seq")
    assert len(table.file_uris()) == 1
    assert after.cast(DECISIONS.schema) == before.cast(DECISIONS.schema)
    assert numbers_of(tmp_path, DECISIONS) == [0, 2, 5]


def test_the_new_file_tells_what_the_old_ones_told_and_is_no_change_of_data(tmp_path: Path) -> None:
    table = opened(tmp_path, DECISIONS, 0, 1, 2)
    compact(table, MIB)
    table.catch_up()
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert len(actions) == 1 and actions[0]["path"].startswith(f"{0:012d}-")
    assert (
        actions[0]["num_records"],
        actions[0]["min.log_seq"],
        actions[0]["max.log_seq"],
        actions[0]["null_count.log_seq"],
    ) == (3, 0, 2, 0)
    last = (tmp_path / f"decisions/_delta_log/{table.newest:020d}.json").read_text()
    assert (
        '"dataChange": false' in last and '"dataChange": true' not in last and '"OPTIMIZE"' in last
    )
    again = table.newest
    compact(table, MIB)
    assert table.newest == again, "one file is not written anew"


def test_files_are_grouped_in_the_order_of_their_numbers_and_large_ones_left_alone() -> None:
    sizes = {"5-a": 40, "1-a": 30, "3-a": 200, "2-a": 50, "4-a": 90, "6-a": 70}
    live = LiveFiles(3, {path: LiveFile(size, None) for path, size in sizes.items()})
    assert [list(group.files) for group in group_files(live, 100)] == [["1-a", "2-a"]]
    assert [list(group.files) for group in group_files(live, 150)] == [
        ["1-a", "2-a"],
        ["4-a", "5-a"],
    ]
    assert list(group_files(LiveFiles(3, {}), 100)) == []


def test_a_damaged_file_is_named_and_keeps_nobody_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = opened(tmp_path, DECISIONS, 0, 1, 2, 3)
    damaged = next((tmp_path / "decisions").glob("000000000001-*.parquet"))
    two_files = 2 * max(file.size for file in table.live().files.values())
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(DeltaError, match=f"{damaged.name} can't be read"):
        compact(table, two_files)
    assert sorted(path[:12] for path in table.live().files) == [
        f"{number:012d}" for number in (0, 1, 2)
    ]
    monkeypatch.setattr(compaction, "COMPACT_EVERY", 4)
    compact_small_files(table)
    assert len(table.live().files) == 3 and f"{damaged.name} can't be read" in caplog.text


def test_tables_with_partitions_and_of_other_writers_are_left_alone(tmp_path: Path) -> None:
    parts = open_table(Store.at(tmp_path), BUNDLE_AVERAGES)
    for bundle in "ab":
        row = pa.Table.from_pylist(
            [{"cluster": "a", "bundle": bundle, "part": None}], BUNDLE_AVERAGES.schema
        )
        write_deltalake(str(tmp_path / BUNDLE_AVERAGES.name), row, mode="append")
    table = opened(tmp_path, DECISIONS, 0, 1, 2)
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    for one in (parts, table):
        one.refresh()
        before = one.newest
        assert list(group_files(one.live(), MIB))
        compact(one, MIB)
        assert one.newest == before


def test_a_new_file_that_upkeep_has_removed_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path, DECISIONS, 0, 1, 2)
    monkeypatch.setattr(
        compaction,
        "write_parts",
        lambda *given, **more: _without(table, write_parts(*given, **more)),
    )
    with pytest.raises(CommitFailedError, match="is gone"):
        compact(table, MIB)
    assert numbers_of(tmp_path, DECISIONS) == [0, 1, 2]


def _without(table: Table, file: AddAction) -> AddAction:
    table.store.delete(file.path)
    return file


def test_two_compactions_of_other_files_both_count(tmp_path: Path) -> None:
    table = opened(tmp_path, DECISIONS, 0, 1)
    late = opened(tmp_path, DECISIONS)
    (group,) = group_files(late.live(), MIB)
    opened(tmp_path, DECISIONS, 2, 3)
    table.refresh()
    newer = table.live().select(lambda path, _: path not in group.files)
    for one, files in ((table, newer), (late, group)):
        compaction._merge_files(one, files)
    assert (numbers_of(tmp_path, DECISIONS), len(late.live().files)) == ([0, 1, 2, 3], 2)


def test_a_pipeline_of_that_name_loses_nothing(tmp_path: Path) -> None:
    table = opened(tmp_path, DECISIONS, 0, 1)
    compact(table, MIB)
    assert read_mark(table, COMPACTION.strip(":")) is None


def test_rows_are_decoded_few_at_a_time_where_they_are_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"text": [f"{number:0100000d}" for number in range(40)]}),
        out,
        use_dictionary=False,
    )
    monkeypatch.setattr(compaction, "PART_BYTES", 1_000_000)
    schema = pa.schema([("text", pa.string())])
    sizes = [rows.nbytes for rows in compaction._read_rows("x", out.getvalue(), schema)]
    assert sum(sizes) >= 4_000_000 and max(sizes) <= 1_100_000
