"""What keeping history costs: `python -m tests.bench.history`.

A cluster of 1,000 brokers and 100,000 bundles, all of which report every minute with other loads:
bytes of a row, before and after upkeep, and how much longer the tasks take that write the tables of
bundles when a slot begins.
"""

from __future__ import annotations

import statistics
import tempfile
import time

import numpy as np
import pyarrow as pa

from lb_stream.contracts.settings import UpkeepSettings
from lb_stream.contracts.tables import HISTORY_TABLES
from lb_stream.core.model.blocks import BROKER_SCHEMA, BUNDLE_SCHEMA, Shard
from lb_stream.core.model.rates import RATE_COLUMNS
from lb_stream.io.tables.projections import Projections
from lb_stream.io.tables.upkeep import maintain
from lb_stream.store import Store
from lb_stream.stream.figures import part_files
from lb_stream.stream.shards.block_files import BlockWriter
from lb_stream.stream.shards.history import Slot
from lb_stream.stream.shards.shard_files import names_block
from lb_stream.stream.shards.slicing import DueShard

BROKERS, BUNDLES, SHARDS, SLOTS, MINUTE_MS = 1_000, 100_000, 2, 10, 60_000


def shard_of(number: int, slot_ms: int, draw: np.random.Generator) -> Shard:
    """One of the cluster's shards: every bundle has just been reported, with loads around its
    own."""
    rows = np.arange(number, BUNDLES, SHARDS)
    rate = np.exp(np.random.default_rng(1).normal(3, 1.5, BUNDLES))[rows] * draw.normal(
        1, 0.03, len(rows)
    )
    fan_out, size = 1 + rows % 4, 1_000 + rows % 500
    latest = dict(
        zip(
            (f"latest_{name}" for name in RATE_COLUMNS),
            (rate * size, rate * fan_out * size, rate, rate * fan_out),
            strict=True,
        )
    )
    names = [
        f"tenant-{row % 20}/app-{row // 4:05d}/0x{row % 4}0000000_0x{row % 4}fffffff"
        for row in rows
    ]
    given = latest | {
        "name": names,
        "owner": rows % BROKERS,
        "reported_ms": np.full(len(rows), slot_ms),
    }
    given |= {
        "topics": rows % 9,
        "producers": rows % 7,
        "consumers": rows % 11,
        "cache_size_bytes": (rate * size).astype(np.int64),
    }
    brokers = {
        "name": [f"broker-{row:04d}:8080" for row in range(BROKERS)],
        "reported_ms": np.full(BROKERS, slot_ms),
    }
    brokers |= {
        name: draw.random(BROKERS)
        for name in BROKER_SCHEMA.names
        if name.endswith(("_usage", "_per_s"))
    }
    return Shard(_table(BROKER_SCHEMA, brokers, BROKERS), _table(BUNDLE_SCHEMA, given, len(rows)))


def _table(schema: pa.Schema, given: dict[str, object], rows: int) -> pa.Table:
    """All that isn't given is 0, a text null."""
    columns = []
    for field in schema:
        other = (
            np.zeros(rows, field.type.to_pandas_dtype())
            if pa.types.is_primitive(field.type)
            else [None] * rows
        )
        columns.append(pa.array(given.get(field.name, other), field.type))
    return pa.table(columns, schema=schema)


def main() -> None:
    """Measure and print."""
    draw, spent = np.random.default_rng(2), {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        root, checkpoint = Store.at(f"{folder}/tables"), Store.at(folder)
        tables = Projections(root, "bench")
        for batch in range(SLOTS):
            files = {}
            for number in range(SHARDS):
                shard, writer = (
                    shard_of(number, batch * MINUTE_MS, draw),
                    BlockWriter(checkpoint, f"{batch}-{number}.arrow", durable=False),
                )
                names, values = (
                    names_block(shard.bundles["name"]),
                    shard.bundles.drop_columns("name"),
                )
                blocks = (writer.put(shard.brokers), writer.put(names), writer.put(values))
                writer.close()
                for slot in (None, Slot(batch * MINUTE_MS, 0)):
                    due, part = (
                        DueShard("c", number, batch * MINUTE_MS, blocks, slot),
                        f"c.{number}",
                    )
                    begin = time.process_time()
                    files[part] = part_files(
                        part, [due], root, checkpoint, f"{batch}-{slot is None}"
                    )
                    spent[slot is not None].append(time.process_time() - begin)
            tables.replace_parts("bench", batch, files)
        kept = {one.table: one for one in maintain(root, UpkeepSettings(), SLOTS * MINUTE_MS)}
        for spec, rows in zip(HISTORY_TABLES, (BUNDLES, BROKERS), strict=True):
            before, after = (
                size / rows / SLOTS
                for size in (kept[spec.name].bytes_before, kept[spec.name].bytes_after)
            )
            print(
                f"{spec.name}: {before:.1f} bytes a row, {after:.1f} after upkeep, at most "
                f"{after * 1.44:.1f} kB a day"
            )
        without, with_history = (
            statistics.median(spent[wanted]) * 1_000 for wanted in (False, True)
        )
        print(
            f"a task of {BUNDLES // SHARDS} bundles: {without:.0f} ms of a core, "
            f"{with_history:.0f} ms where a slot begins"
        )


if __name__ == "__main__":
    main()
