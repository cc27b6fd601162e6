"""A task's shards in files of blocks: what has changed of them is written, the rest stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.core.model.blocks import BROKER_SCHEMA, BUNDLE_SCHEMA, Shard
from lb_stream.store import Store
from lb_stream.stream.shards.block_files import BlockRefs, BlockWriter, OpenFiles, read_block
from lb_stream.stream.shards.changed_rows import read_values, write_all_values, write_values
from lb_stream.stream.shards.slicing import name_hashes

_NO_BLOCKS: BlockRefs = ("", "", "")
"""Of a new shard: all are written."""


class ShardChange(NamedTuple):
    """A shard before and after a batch. `blocks`: it was read from these; None: it is new."""

    before: Shard
    after: Shard
    blocks: BlockRefs | None

    def has_new_brokers(self) -> bool:
        """Whether the block of brokers is to be written."""
        return self.blocks is None or self.after.brokers is not self.before.brokers

    def has_new_names(self) -> bool:
        """Whether the block of names is to be written, and with it all values."""
        after, before = self.after.bundles, self.before.bundles
        return self.blocks is None or (
            after is not before and not after["name"].equals(before["name"])
        )


class ShardWriter:
    """Writes the blocks of one task's shards.

    `files`: those that the shards are read from. `name`: of the written files, without the ending.
    """

    def __init__(self, files: OpenFiles, name: str) -> None:
        self._files = files
        self._values = BlockWriter(files.checkpoint, f"{name}.arrow")
        self._names = BlockWriter(files.checkpoint, f"{name}-names.arrow")
        self._last_brokers: tuple[pa.Table, str] | None = None  # written last, and its reference

    def write(self, change: ShardChange) -> BlockRefs:
        """Return references to a shard's blocks; only blocks that have changed are written."""
        after = change.after
        brokers, names, values = change.blocks or _NO_BLOCKS
        if change.has_new_brokers():
            brokers = self._write_brokers(after.brokers)
        if change.has_new_names():
            values = write_all_values(self._values, _values_of(after))
            names = self._names.put(names_block(after.bundles["name"]))
        elif after.bundles is not change.before.bundles:
            values = write_values(
                self._values, self._files, _values_of(change.before), _values_of(after), values
            )
        return brokers, names, values

    def write_together(self, changes: Sequence[ShardChange]) -> list[BlockRefs]:
        """Return references to the blocks of small shards, which share those that are written.

        Raises ArrowInvalid if their tables don't have the same columns, and OSError.
        """
        # The new blocks, by the shard's place.
        places = dict(enumerate(changes))
        brokers = {
            place: change.after.brokers
            for place, change in places.items()
            if change.has_new_brokers()
        }
        names = {
            place: names_block(change.after.bundles["name"])
            for place, change in places.items()
            if change.has_new_names()
        }
        values = {
            place: _values_of(change.after)
            for place, change in places.items()
            if place in names or change.after.bundles is not change.before.bundles
        }
        new_brokers = _put_together(self._values, brokers)
        new_names = _put_together(self._names, names)
        new_values = _put_together(self._values, values)
        # Beside them the old ones, of shards that have them.
        old = [change.blocks or _NO_BLOCKS for change in changes]
        return [
            (
                new_brokers.get(place, old_brokers),
                new_names.get(place, old_names),
                new_values.get(place, old_values),
            )
            for place, (old_brokers, old_names, old_values) in enumerate(old)
        ]

    def close(self) -> None:
        """Finish the files, so that references are valid."""
        self._names.close()
        self._values.close()

    def _write_brokers(self, brokers: pa.Table) -> str:
        """Return a reference to a block of brokers. All shards of a cluster in a task share it."""
        if self._last_brokers is None or not self._last_brokers[0].equals(brokers):
            self._last_brokers = (brokers, self._values.put(brokers))
        return self._last_brokers[1]


def read_shard(checkpoint: Store | OpenFiles, blocks: Iterable[str]) -> Shard:
    """Return a shard from the references to its blocks. Raises FileNotFoundError."""
    brokers, names, values = blocks
    columns = read_values(checkpoint, values)
    return Shard(
        _complete(read_block(checkpoint, brokers)),
        columns.add_column(0, BUNDLE_SCHEMA.field(0), read_block(checkpoint, names)["name"]),
    )


def names_block(names: pa.ChunkedArray) -> pa.Table:
    """Return a block of bundle names with their hashes, which `reshard` reads."""
    return pa.table({"name": names, "hash": pa.array(name_hashes(names), pa.uint32())})


def reshard(checkpoint: Store, before: list[BlockRefs], number: int, shards: int) -> Shard:
    """Return one of `shards` new shards, with the bundles of old ones whose names' hash fits.

    `before`: references to the old shards' blocks. `number`: of the new shard.
    """
    # Both numbers of shards are powers of two. Modulo the smaller one, the numbers of a bundle's
    # old and new shard are equal.
    modulus = min(len(before), shards)
    old = [blocks for place, blocks in enumerate(before) if place % modulus == number % modulus]
    bundles = []
    for blocks in old:
        hashes = read_block(checkpoint, blocks[1])["hash"].to_numpy()
        own = (hashes & np.uint32(shards - 1)) == number
        bundles.append(read_shard(checkpoint, blocks).bundles.filter(pa.array(own)))
    joined = pa.concat_tables(bundles)
    if len(bundles) > 1:
        joined = joined.take(pc.sort_indices(joined["name"]))
    return Shard(read_shard(checkpoint, old[0]).brokers, joined.combine_chunks())


def _put_together(writer: BlockWriter, tables: Mapping[int, pa.Table]) -> dict[int, str]:
    """Write tables as shared blocks; return the reference of each under its key."""
    return dict(zip(tables, writer.put_together(list(tables.values())), strict=True))


def _complete(brokers: pa.Table) -> pa.Table:
    """Return a block of brokers with every column: null where an earlier release had none."""
    if brokers.schema.equals(BROKER_SCHEMA):
        return brokers
    for column in BROKER_SCHEMA:
        if column.name not in brokers.column_names:
            brokers = brokers.append_column(column, pa.nulls(len(brokers), column.type))
    return brokers.select(BROKER_SCHEMA.names)


def _values_of(shard: Shard) -> pa.Table:
    """Return all columns of a shard's bundles but their names."""
    return shard.bundles.remove_column(0)
