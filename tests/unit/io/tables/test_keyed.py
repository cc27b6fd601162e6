"""Tables with one row of each bundle: what a batch puts is there once, whatever the files were, and
few files are touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from hypothesis import given, settings
from hypothesis import strategies as st

from lb_stream.contracts.tables import OWNERSHIP
from lb_stream.io.tables import keyed
from lb_stream.io.tables.delta import append_rows, open_table
from lb_stream.io.tables.keyed import Key, KeyedTable, Span, assign_rows, build_groups, read_span
from lb_stream.store import Store
from tests.support.wordings import check_wording

Owners = Mapping[Key, str]
"""Cluster and bundle → owner; an empty one: the row ends."""


def table_of(owners: Owners) -> pa.Table:
    rows = [
        {"cluster": cluster, "bundle": bundle, "owner": owner}
        for (cluster, bundle), owner in sorted(owners.items())
    ]
    return pa.Table.from_pylist(rows, OWNERSHIP.schema)


def put(table: KeyedTable, number: int, owners: Owners) -> None:
    rows = table_of(owners)
    table.put(rows, pc.equal(rows["owner"], ""), f"{number:03d}", [("p", number)])


def opened(folder: Path) -> KeyedTable:
    return KeyedTable(open_table(Store.at(folder), OWNERSHIP), OWNERSHIP)


def content(folder: Path) -> dict[Key, str]:
    """As a reader sees it who has nothing of ours; a key that is there twice fails."""
    rows = DeltaTable(str(folder / OWNERSHIP.name)).to_pyarrow_table().to_pylist()
    found = {(row["cluster"], row["bundle"]): row["owner"] for row in rows}
    assert len(found) == len(rows)
    return found


def files(folder: Path) -> dict[str, int]:
    """The live files, each with its rows."""
    table = DeltaTable(str(folder / OWNERSHIP.name))
    return {Path(uri).name: pq.read_metadata(uri).num_rows for uri in table.file_uris()}


names = st.sampled_from(["a", "b", "b/c", "é", "\U0001f600"])
steps = st.lists(
    st.one_of(
        st.dictionaries(
            st.tuples(names, st.integers(0, 30).map("0x{:02x}".format)),
            st.sampled_from(["x", "y", ""]),
            max_size=40,
        ),
        st.sampled_from(["restart", "compact", "foreign"]),
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=30)
@given(steps=steps)
def test_each_key_has_its_last_row_whoever_has_had_the_files_in_between(
    steps: list[Owners | str],
) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed, "ROWS", 5)
        folder, model = Path(name), dict[Key, str]()
        table = opened(folder)
        for number, step in enumerate(steps):
            if step == "restart":
                table = opened(folder)
            elif step == "compact":
                DeltaTable(str(folder / OWNERSHIP.name)).optimize.compact()
                table.table.refresh()
            elif step == "foreign":  # as a rebuild writes them: no order, no span
                new = {key: "z" for key in [("b", "0xff"), ("a", "0x00")] if key not in model}
                append_rows(
                    table.table,
                    OWNERSHIP,
                    table_of(new).sort_by([("cluster", "descending")]),
                    "old",
                )
                model |= new
            else:
                put(table, number, step)
                model = {key: owner for key, owner in (model | dict(step)).items() if owner}
            assert content(folder) == model


def test_a_change_touches_the_file_that_its_key_is_in_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "ROWS", 10)
    table = opened(tmp_path)
    put(table, 0, {("a", f"{number:03d}"): "x" for number in range(40)} | {("b", "000"): "x"})
    before = files(tmp_path)
    assert list(before.values()) == [8, 8, 8, 8, 9]
    read: list[str] = []
    monkeypatch.setattr(
        Store, "open", lambda self, name, real=Store.open: read.append(name) or real(self, name)
    )
    put(table, 1, {("a", "013"): "y"})
    after = files(tmp_path)
    assert len(read) == len(before.keys() - after.keys()) == len(after.keys() - before.keys()) == 1
    put(opened(tmp_path), 2, {("a", "0125"): "y"})
    assert len(after.keys() - files(tmp_path).keys()) == 1, (
        "a new job reads the files' spans, and writes one anew"
    )
    put(opened(tmp_path), 3, {("c", "000"): ""})
    assert sorted(files(tmp_path).values()) == [8, 8, 8, 9, 9], (
        "a row that isn't there ends: nothing is written"
    )


def test_a_file_that_outgrows_its_rows_is_cut_and_an_empty_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "ROWS", 4)
    table = opened(tmp_path)
    put(table, 0, {("a", f"{number}"): "x" for number in range(4)})
    put(table, 1, {("a", "9"): "x"})
    assert sorted(files(tmp_path).values()) == [2, 3]
    put(table, 2, {("a", f"{number}"): "" for number in (*range(4), 9)})
    assert (files(tmp_path), content(tmp_path)) == ({}, {})


def test_keys_go_to_the_group_that_begins_at_or_below_them() -> None:
    many = keyed.ROWS
    spans = {
        "two": Span(("b", "3"), ("b", "9"), many),
        "one": Span(("a", "1"), ("b", "2"), many),
        "with": Span(("b", "9"), ("c", "0"), many),
    }
    groups = build_groups(spans)
    assert groups == [(("a", "1"), ("one",), True), (("b", "3"), ("two", "with"), False)]
    keys = [("a", "0"), ("b", "2"), ("b", "25"), ("b", "3"), ("z", "")]
    assert [(one.paths, start, count) for one, start, count in assign_rows(keys, groups)] == [
        (("one",), 0, 3),
        (("two", "with"), 3, 2),
    ]
    assert [row[1:] for row in assign_rows(keys, [])] == [(0, 5)]
    assert [group.paths for group in build_groups(spans | {"old": None})] == [
        ("old", "one", "two", "with")
    ], "where its keys belong is not known"


def test_small_neighbours_become_one_file_when_either_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "ROWS", 10)
    table = opened(tmp_path)
    put(table, 0, {("a", f"{number:03d}"): "x" for number in range(30)})
    put(table, 1, {("a", f"{number:03d}"): "" for number in range(30) if number % 10 > 1})
    assert sorted(files(tmp_path).values()) == [2, 2, 2]
    put(opened(tmp_path), 2, {("a", "011"): "y"})
    assert sorted(files(tmp_path).values()) == [2, 4], (
        "the third would have made half of what a file may have"
    )
    put(opened(tmp_path), 3, {("c", "0"): ""})
    assert sorted(files(tmp_path).values()) == [2, 4], "nothing changes"


def test_files_that_tell_nothing_are_written_anew_once(tmp_path: Path) -> None:
    owners = {("a", "5"): "x", ("a", "1"): "x", ("b", "1"): "x"}
    for number, (key, owner) in enumerate(owners.items()):
        append_rows(
            open_table(Store.at(tmp_path), OWNERSHIP),
            OWNERSHIP,
            table_of({key: owner}),
            f"old{number}",
        )
    assert len(files(tmp_path)) == 3
    put(opened(tmp_path), 0, {("b", "1"): "y"})
    assert content(tmp_path) == owners | {("b", "1"): "y"}
    (uri,) = DeltaTable(str(tmp_path / OWNERSHIP.name)).file_uris()
    assert read_span(pq.read_metadata(uri)) == Span(("a", "1"), ("b", "1"), 3)


def test_a_span_that_was_copied_with_other_rows_is_not_believed(tmp_path: Path) -> None:
    put(opened(tmp_path), 0, {("a", "0"): "x", ("a", "1"): "x"})
    (uri,) = DeltaTable(str(tmp_path / OWNERSHIP.name)).file_uris()
    assert read_span(pq.read_metadata(uri)) == Span(("a", "0"), ("a", "1"), 2)
    rows = pq.read_table(uri)
    more = pa.concat_tables([rows, table_of({("b", "0"): "x"})]).replace_schema_metadata(
        {keyed.SPAN: rows.schema.metadata[keyed.SPAN]}
    )
    pq.write_table(more, tmp_path / "copied.parquet")
    assert read_span(pq.read_metadata(tmp_path / "copied.parquet")) is None


def test_what_was_written_for_a_commit_that_is_never_made_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "ROWS", 4)
    owners = {("a", f"{number}"): "x" for number in range(8)}
    put(opened(tmp_path), 0, owners)
    last = max(
        files(tmp_path),
        key=lambda name: read_span(pq.read_metadata(tmp_path / OWNERSHIP.name / name)) or (),
    )
    table, there = opened(tmp_path), set(tmp_path.rglob("*.parquet"))
    read = KeyedTable._read

    def broken(self: KeyedTable, path: str) -> pa.Table:
        if path == last:
            raise OSError("a disk that fails")
        return read(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(KeyedTable, "_read", broken)
        with pytest.raises(OSError) as error:
            put(table, 1, {("a", "0"): "y", ("a", "7"): "y"})
        check_wording(error.value)
    assert set(tmp_path.rglob("*.parquet")) == there and content(tmp_path) == owners
    put(table, 1, {("a", "0"): "y"})
    assert content(tmp_path) == owners | {("a", "0"): "y"}


def test_of_two_writers_one_is_refused_and_puts_its_rows_beside_the_others(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    other.table.live()
    put(one, 0, {("a", "0"): "x"})
    with pytest.raises(CommitFailedError) as error:
        put(other, 1, {("a", "1"): "y"})
    check_wording(error.value)
    put(other, 1, {("a", "1"): "y"})
    assert content(tmp_path) == {("a", "0"): "x", ("a", "1"): "y"} and len(files(tmp_path)) == 1
