"""A shard's values as blocks of all rows, and blocks of the rows that have changed since.

A batch that changes few rows of a shard writes only those. The reference to the shard's values then
names several blocks: the base, which has all rows, then blocks of changed rows, the oldest first.
A later row replaces an earlier one. Each block of changed rows has at least twice as many as the
next one, because a batch writes its rows together with those of smaller blocks. So a shard has few
blocks, and each row is written a few times before the next base.

The base of a large shard is two blocks: rates, which readers use where they lie in a mapped file,
and all other columns, which LZ4 makes a quarter as large.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.model.blocks import BUNDLE_SCHEMA, one_array
from lb_stream.store import Store
from lb_stream.stream.shards.block_files import (
    BlockWriter,
    OpenFiles,
    join_references,
    read_block,
    split_reference,
)

MIN_ROWS = 2048
"""A smaller shard is always written whole: to find, write and join rows would take longer."""
MAX_CHANGED_RATIO = 0.5
"""Rows in the blocks of changed rows, as a share of all rows; with more, all rows are written."""
ROW = "row"
"""The column with the places of changed rows in the base."""
_ROWS = "*"
"""Stands between the reference to a block of changed rows and their number."""
_FIRST_COLUMN = "reported_ms"
"""The column that changes with every report of a bundle."""


def is_small(bundles: int) -> bool:
    """Return whether a shard of so many bundles is always written whole, and may share blocks."""
    return bundles < MIN_ROWS


def read_values(checkpoint: Store | OpenFiles, reference: str) -> pa.Table:
    """Return the values that a reference names. Raises what `read_block` raises."""
    base: list[pa.Table] = []
    changes: list[pa.Table] = []
    for block in split_reference(reference):
        place, _, rows = block.partition(_ROWS)
        (changes if rows else base).append(read_block(checkpoint, place))
    values = _join_columns(base)
    return _apply_changes(values, changes) if changes else values


def write_all_values(writer: BlockWriter, values: pa.Table) -> str:
    """Write all rows of a shard's values; return their reference."""
    if is_small(len(values)):
        return writer.put(values)
    rates = [field.name for field in values.schema if pa.types.is_float64(field.type)]
    others = [name for name in values.column_names if name not in rates]
    if not rates or not others:
        return writer.put(values)
    return join_references(
        writer.put(values.select(others), compress=True), writer.put(values.select(rates))
    )


def write_values(
    writer: BlockWriter,
    checkpoint: Store | OpenFiles,
    before: pa.Table,
    after: pa.Table,
    reference: str,
) -> str:
    """Write the changed rows, or all rows if many have changed; return the new reference.

    `before`: the values that `reference` names; `after`: new values of the same bundles. The same
    input always gives the same blocks.
    """
    most = int(MAX_CHANGED_RATIO * len(after))
    changed = None if is_small(len(after)) else find_changed_rows(before, after, most)
    if changed is None:
        return write_all_values(writer, after)
    if not len(changed):
        return reference
    # Smaller blocks, and those not twice as large, become part of the new one.
    kept = split_reference(reference)
    while 0 < changed_rows_of(kept[-1]) < 2 * len(changed):
        older = read_block(checkpoint, kept.pop().partition(_ROWS)[0])
        changed = np.union1d(changed, older[ROW].to_numpy())
    if len(changed) + sum(map(changed_rows_of, kept)) > most:
        return write_all_values(writer, after)
    rows = pa.array(changed, pa.int32())
    block = after.take(rows).add_column(0, ROW, rows)
    written = writer.put(block, compress=True)
    return join_references(*kept, f"{written}{_ROWS}{len(rows)}")


def changed_rows_of(block: str) -> int:
    """Return the number of changed rows in a block, from its reference; 0: it has all rows."""
    return int(block.partition(_ROWS)[2] or 0)


def _join_columns(blocks: list[pa.Table]) -> pa.Table:
    """Return the columns of a base's blocks as one table, in the order of the schema.

    Raises ArrowInvalid if they are not the parts of one table.
    """
    if len(blocks) == 1:
        return blocks[0]
    columns = {name: block[name] for block in blocks for name in block.column_names}
    if len(columns) < sum(block.num_columns for block in blocks):
        raise pa.ArrowInvalid("two blocks of all rows have the same column")
    return pa.table({name: columns[name] for name in BUNDLE_SCHEMA.names if name in columns})


def find_changed_rows(before: pa.Table, after: pa.Table, most: int) -> NDArray[np.int64] | None:
    """Return the rows in which two tables differ, in order.

    None: there are more than `most`, or the tables don't have the same columns and number of rows.
    """
    if before.schema != after.schema or len(before) != len(after):
        return None
    names = after.column_names
    if _FIRST_COLUMN in names:
        names = [_FIRST_COLUMN, *(name for name in names if name != _FIRST_COLUMN)]
    changed = np.zeros(len(after), np.bool_)
    for number, name in enumerate(names):
        changed |= _differ(one_array(before[name]), one_array(after[name]))
        if number == 0 and np.count_nonzero(changed) > most:
            return None
    rows = np.flatnonzero(changed)
    return rows if len(rows) <= most else None


def _differ(before: pa.Array, after: pa.Array) -> NDArray[np.bool_]:
    """Return in which rows two columns of one type differ, to the bit."""
    if not _has_plain_values(before) or not _has_plain_values(after):
        if before.null_count == len(before) and after.null_count == len(after):
            return np.zeros(len(after), np.bool_)
        same = pc.or_(
            pc.equal(before, after).fill_null(False), pc.and_(before.is_null(), after.is_null())
        )
        return np.asarray(~same.to_numpy(zero_copy_only=False))
    old, new = (column.to_numpy(zero_copy_only=False) for column in (before, after))
    if old.dtype == np.bool_:
        return np.asarray(old != new)
    bits = f"i{old.itemsize}"  # so that -0.0 and NaN are compared, too
    return np.asarray(old.view(bits) != new.view(bits))


def _has_plain_values(column: pa.Array) -> bool:
    """Return whether a column has a number or a truth value in each row."""
    return pa.types.is_primitive(column.type) and not column.null_count


def _apply_changes(base: pa.Table, changes: list[pa.Table]) -> pa.Table:
    """Return the base with the rows of blocks of changed rows, the oldest first, in their places.

    Raises ArrowInvalid if they do not belong together.
    """
    joined = pa.concat_tables(changes)
    if joined.schema.names != [ROW, *base.schema.names]:
        raise pa.ArrowInvalid("a block of changed rows has other columns than its base")
    rows = one_array(joined[ROW]).to_numpy()
    if not 0 <= rows.min(initial=0) <= rows.max(initial=0) < max(len(base), 1):
        raise pa.ArrowInvalid(f"a block changes row {rows.max()} of {len(base)}")
    columns = [
        _replace_rows(one_array(base[name]), rows, one_array(joined[name]))
        for name in base.schema.names
    ]
    return pa.table(columns, schema=base.schema)


def _replace_rows(column: pa.Array, rows: NDArray[np.int32], changed: pa.Array) -> pa.Array:
    """Return a column with other values in some rows; of a row that is named twice the last."""
    if _has_plain_values(column) and _has_plain_values(changed):
        values = np.array(column.to_numpy(zero_copy_only=False))
        values[rows] = changed.to_numpy(zero_copy_only=False)
        return pa.array(values, column.type)
    if column.null_count == len(column) and changed.null_count == len(changed):
        return column
    place = np.arange(len(column))
    place[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, changed]).take(pa.array(place))
