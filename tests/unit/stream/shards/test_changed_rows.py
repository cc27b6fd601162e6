"""Blocks of changed rows: what is read back is what was folded, and few bytes are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lb_stream.core.model.blocks import BUNDLE_SCHEMA
from lb_stream.store import Store
from lb_stream.stream.shards import changed_rows
from lb_stream.stream.shards.block_files import (
    FOLDER,
    BlockWriter,
    files_of,
    join_references,
    read_block,
    split_reference,
)
from lb_stream.stream.shards.changed_rows import (
    changed_rows_of,
    find_changed_rows,
    read_values,
    write_all_values,
    write_values,
)

ROWS = 600
VALUES = pa.schema([field for field in BUNDLE_SCHEMA if field.name != "name"])


MIN_ROWS = 256


@pytest.fixture(autouse=True, scope="module")
def small_shards() -> Iterator[None]:
    """Shards of a few hundred bundles have changed rows, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changed_rows, "MIN_ROWS", MIN_ROWS)
        yield


def values_of(rows: int = ROWS, seed: int = 1) -> pa.Table:
    """Values of so many bundles; some have shares of topics."""
    draw = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {}
    for field in VALUES:
        if field.name == "topic_shares":
            texts = [b"x" * (row % 5) if row % 3 else None for row in range(rows)]
            columns[field.name] = pa.array(texts, field.type)
        else:
            numbers = draw.integers(0, 2 if pa.types.is_boolean(field.type) else 20, rows)
            columns[field.name] = pa.array(numbers.astype(field.type.to_pandas_dtype()))
    return pa.table(columns, schema=VALUES)


def changed(table: pa.Table, rows: Any, to: Mapping[str, Any]) -> pa.Table:
    """The table with other values in some rows."""
    for name, value in to.items():
        field = table.schema.field(name)
        column = table[name].to_pylist()
        for row in rows:
            column[row] = value
        place = table.schema.get_field_index(name)
        table = table.set_column(place, field, pa.array(column, field.type))
    return table


class Chain:
    """A shard's values, batch after batch, on a disk."""

    def __init__(self, folder: Path, table: pa.Table) -> None:
        self.store, self.table, self.batch, self.folder = Store.at(folder), table, 0, folder
        writer = BlockWriter(self.store, "0.arrow")
        self.reference = writer.put(table)
        writer.close()

    def put(self, after: pa.Table, again: bool = False) -> int:
        """Write a batch; the bytes of its file. `again`: it is a batch that runs again."""
        self.batch += not again
        writer = BlockWriter(self.store, f"{self.batch}{'-again' * again}.arrow")
        reference = write_values(writer, self.store, self.table, after, self.reference)
        writer.close()
        file = self.folder / FOLDER / writer.name
        if not again:
            self.reference, self.table = reference, after
        return file.stat().st_size if file.exists() else 0

    def read(self) -> pa.Table:
        return read_values(self.store, self.reference)

    def rows_of_blocks(self) -> list[int]:
        """The number of rows of each block of changed rows."""
        blocks = split_reference(self.reference)
        return [rows for rows in map(changed_rows_of, blocks) if rows]


def test_a_batch_that_changes_few_rows_writes_little_and_all_are_read_back(tmp_path: Path) -> None:
    chain = Chain(tmp_path, values_of())
    whole = (tmp_path / FOLDER / "0.arrow").stat().st_size
    news = {"reported_ms": 5, "latest_rate_in_msgs_per_s": 0.5, "topic_shares": b"y"}
    for start in range(0, 100, 10):
        written = chain.put(changed(chain.table, range(start, start + 10), news))
        assert 0 < written < whole / 4
        assert chain.read().equals(chain.table)
    assert len(chain.rows_of_blocks()) <= 4 and len(files_of(chain.reference)) > 1


def test_a_row_that_changes_again_is_as_it_was_last(tmp_path: Path) -> None:
    chain = Chain(tmp_path, values_of())
    for value in (1, 2, 3):
        chain.put(changed(chain.table, range(20 * value), {"topics": value}))
        assert chain.read().equals(chain.table)
    chain.put(changed(chain.table, [3], {"topics": 9, "topic_shares": None}))
    assert chain.read()["topics"][3].as_py() == 9 and chain.read().equals(chain.table)


def test_blocks_are_few_as_each_has_at_least_twice_as_many_rows_as_the_next(
    tmp_path: Path,
) -> None:
    chain = Chain(tmp_path, values_of())
    bases, written = 0, 0
    for batch in range(100):
        rows = range(6 * batch, 6 * batch + 6)
        written += chain.put(changed(chain.table, rows, {"topics": -1}))
        blocks = chain.rows_of_blocks()
        assert all(older >= 2 * newer for older, newer in pairwise(blocks))
        assert sum(blocks) <= ROWS / 2
        bases += not blocks
    assert bases == 1, "after half of the rows"
    whole = (tmp_path / FOLDER / "0.arrow").stat().st_size
    assert written < 10 * whole, "a hundredth of the rows in each of a hundred batches"
    assert chain.read().equals(chain.table)


@pytest.mark.parametrize("rows", [1, MIN_ROWS - 1])
def test_a_small_shard_is_always_written_whole(tmp_path: Path, rows: int) -> None:
    chain = Chain(tmp_path, values_of(rows))
    chain.put(changed(chain.table, [0], {"topics": -1}))
    assert len(split_reference(chain.reference)) == 1 and chain.read().equals(chain.table)


def test_a_large_shards_numbers_that_are_no_rates_are_compressed(tmp_path: Path) -> None:
    rows = 4_000
    values, writer = values_of(rows), BlockWriter(Store.at(tmp_path), "0.arrow")
    reference = write_all_values(writer, values)
    writer.close()
    plain = Chain(tmp_path / "plain", values)
    assert read_values(plain.store, plain.reference).equals(values)
    assert read_values(Store.at(tmp_path), reference).equals(values)
    rates = sum(pa.types.is_float64(field.type) for field in VALUES) * 8 * rows
    written = (tmp_path / FOLDER / "0.arrow").stat().st_size
    whole = (tmp_path / "plain" / FOLDER / "0.arrow").stat().st_size
    assert rates < written < rates + (whole - rates) / 2


def test_a_batch_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    chain = Chain(tmp_path, values_of())
    before = chain.reference
    assert chain.put(values_of()) == 0 and chain.reference == before


def test_a_batch_that_runs_again_writes_the_same_bytes(tmp_path: Path) -> None:
    chain = Chain(tmp_path, values_of())
    for value in (1, 2, 3):
        after = changed(chain.table, range(10 * value, 10 * value + 7), {"topics": value})
        chain.put(after, again=True)
        chain.batch += 1
        again = tmp_path / FOLDER / f"{chain.batch - 1}-again.arrow"
        chain.batch -= 1
        chain.put(after)
        assert again.read_bytes() == (tmp_path / FOLDER / f"{chain.batch}.arrow").read_bytes()


def test_numbers_that_are_equal_and_not_the_same_count_as_changed() -> None:
    before = pa.table({"x": [0.0, float("nan"), 1.0], "y": pa.array([None, 1, 2])})
    after = pa.table({"x": [-0.0, float("nan"), 1.0], "y": pa.array([None, None, 2])})
    found = find_changed_rows(before, after, 3)
    assert found is not None and found.tolist() == [0, 1]
    assert find_changed_rows(before, after, 1) is None
    assert find_changed_rows(before, after.slice(1), 3) is None
    assert find_changed_rows(before, after.rename_columns(["x", "z"]), 3) is None


@pytest.mark.parametrize(
    ("block", "error"),
    [
        ({"row": pa.array([ROWS], pa.int32())}, "changes row 600 of 600"),
        ({"row": pa.array([-1], pa.int32())}, "changes row"),
        ({}, "other columns"),
        ({"row": pa.array([1], pa.int32()), "more": pa.array([1])}, "other columns"),
    ],
)
def test_a_block_that_does_not_fit_its_base_is_damaged(
    tmp_path: Path, block: dict[str, pa.Array], error: str
) -> None:
    chain = Chain(tmp_path, values_of())
    writer = BlockWriter(chain.store, "9.arrow")
    row = values_of().slice(0, 1)
    for column, array in block.items():
        row = row.add_column(0, column, array)
    block_reference = writer.put(row)
    writer.close()
    with pytest.raises(pa.ArrowInvalid, match=error):
        read_values(chain.store, join_references(chain.reference, f"{block_reference}*1"))
    with pytest.raises(pa.ArrowInvalid, match="the same column"):
        read_values(chain.store, join_references(chain.reference, block_reference))


def test_a_batch_reads_no_blocks_again_but_those_that_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain(tmp_path, values_of())
    chain.put(changed(chain.table, range(40), {"topics": -1}))
    chain.put(changed(chain.table, range(100, 110), {"topics": -1}))
    assert chain.rows_of_blocks() == [40, 10]
    smallest = split_reference(chain.reference)[-1]
    read: list[str] = []

    def read_and_note(checkpoint: Any, reference: str) -> pa.Table:
        read.append(reference)
        return read_block(checkpoint, reference)

    monkeypatch.setattr(changed_rows, "read_block", read_and_note)
    chain.put(changed(chain.table, range(200, 208), {"topics": -1}))
    assert read == [smallest.partition("*")[0]]
    assert chain.rows_of_blocks() == [40, 18] and chain.read().equals(chain.table)


def test_a_missing_block_of_changed_rows_is_named(tmp_path: Path) -> None:
    chain = Chain(tmp_path, values_of())
    chain.put(changed(chain.table, [5], {"topics": -1}))
    (tmp_path / FOLDER / "1.arrow").unlink()
    with pytest.raises(FileNotFoundError, match=r"1\.arrow"):
        chain.read()


@settings(max_examples=12, deadline=None)
@given(
    batches=st.lists(
        st.tuples(st.integers(0, ROWS - 1), st.integers(0, ROWS // 3), st.integers(0, 9)),
        max_size=12,
    )
)
def test_whatever_changes_in_whatever_batch_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, int, int]]
) -> None:
    chain = Chain(tmp_path_factory.mktemp("chain"), values_of())
    for first, count, value in batches:
        place = chain.table.schema.get_field_index("topics")
        topics = chain.table["topics"].to_numpy().copy()
        topics[first : first + count] = value
        chain.put(chain.table.set_column(place, VALUES.field("topics"), pa.array(topics)))
        assert chain.read().equals(chain.table)
    assert sum(chain.rows_of_blocks()) <= changed_rows.MAX_CHANGED_RATIO * ROWS
