"""What a task has decoded lies in a file as it would have travelled through the rows.

No JVM needed.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row

from lb_stream.store import Store
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.decode import decode
from lb_stream.stream.gathering import count_samples, gather_batch, gather_batches
from lb_stream.stream.shard_blocks import ALL_CLUSTERS
from lb_stream.stream.shards.block_files import BlockWriter, read_block
from lb_stream.stream.shards.directory import ShardMap
from tests.support.decoding import RECORDS, record, report

KNOWN = {
    "large": ShardMap(4),
    "silent": ShardMap(),
    **{f"c{number}": ShardMap() for number in range(9)},
}


def several(broker: int) -> bytes:
    """A report of some bundles; every third broker has none."""
    names = [f"acme/n{broker}/0x{at:08x}_0x{at + 1:08x}" for at in range(broker % 3 * 40)]
    return report(lastStats={name: {"msgRateIn": float(at)} for at, name in enumerate(names)})


def rows(config: DecodeConfig, folder: Path, stored: bool) -> list[Row]:
    """What two tasks make of the reports of all clusters but one."""
    found = []
    for task in range(2):
        keys = [
            (name, broker) for broker in range(task, 6, 2) for name in KNOWN if name != "silent"
        ]
        records = [
            record(f"{name}/b{broker}".encode(), several(broker), at, partition=task)
            for at, (name, broker) in enumerate(keys)
        ]
        writer = BlockWriter(Store.at(folder), f"{task}.arrow", durable=False)
        batches = decode(
            [pa.RecordBatch.from_pylist(records, RECORDS)], config, writer.put if stored else None
        )
        found += [Row(**row) for batch in batches for row in batch.to_pylist()]
        writer.close()
    return [row for row in found if row.cluster != ALL_CLUSTERS]


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_each_shard_gets_the_same_from_a_file_as_through_rows(
    tmp_path: Path, partitions: int
) -> None:
    config = DecodeConfig("home", "commands", KNOWN, partitions)
    kept, travelled = rows(config, tmp_path, stored=True), rows(config, tmp_path, stored=False)
    assert {row.reports for row in kept} == {None} and {
        row.stored_reports for row in travelled
    } == {None}
    keys = sorted({(row.cluster, row.slot) for row in kept})
    assert len(keys) == 4 + 1 + 9
    for key in keys:
        one, other = (
            gather_batch(
                [row for row in side if (row.cluster, row.slot) == key],
                lambda reference: read_block(Store.at(tmp_path), reference),
            )
            for side in (kept, travelled)
        )
        assert one.reports.equals(other.reports) and one.samples.equals(other.samples)
        assert len(one.reports) == (0 if key[0] == "silent" else 6)


@pytest.mark.parametrize("stored", [True, False])
def test_many_shards_gathered_at_once_get_what_each_gets_alone(
    tmp_path: Path, stored: bool
) -> None:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows(DecodeConfig("home", "commands", KNOWN, 2), tmp_path, stored=stored):
        found.setdefault((row.cluster, row.slot), []).append(row)

    def read(reference: str) -> pa.Table:
        return read_block(Store.at(tmp_path), reference)

    for shards in (list(found.values()), list(found.values())[::-1]):
        together = gather_batches(shards, read)
        assert sum(len(batch.samples) for batch in together) > 1_000
        for own, batch in zip(shards, together, strict=True):
            alone = gather_batch(own, read)
            assert batch.reports.equals(alone.reports) and batch.samples.equals(alone.samples)
            assert count_samples(own) == len(alone.samples)
            # The tasks' reports, one task's after the other's, each with the samples of its own.
            names = batch.reports["name"].to_pylist()
            assert [name[1] for name in names] == (list("024135") if names else [])
            sizes = np.bincount(batch.samples["report"].to_numpy(), minlength=6).tolist()
            if own[0].cluster != "large" and names:
                assert sizes == [int(name[1]) % 3 * 40 for name in names]


def test_a_file_has_a_block_of_reports_and_one_of_samples_for_each_partition(
    tmp_path: Path,
) -> None:
    blocks: dict[str, set[str]] = {"reports": set(), "samples": set()}
    for row in rows(DecodeConfig("home", "commands", KNOWN, 2), tmp_path, stored=True):
        for name, place in (("reports", row.stored_reports), ("samples", row.stored_samples)):
            if place is not None:
                blocks[name].add(place.rsplit(":", 2)[0])
    assert {name: len(found) for name, found in blocks.items()} == {"reports": 2, "samples": 4}, (
        "of two tasks"
    )


def test_little_travels_with_its_row(tmp_path: Path) -> None:
    writer = BlockWriter(Store.at(tmp_path), "0.arrow", durable=False)
    given = [pa.RecordBatch.from_pylist([record(b"c1/b1", report(), 0)], RECORDS)]
    found = [
        row
        for batch in decode(given, DecodeConfig("home", "commands", KNOWN), writer.put)
        for row in batch.to_pylist()
    ]
    assert [row["reports"] is not None for row in found if row["cluster"] == "c1"] == [True]
    assert json.loads(found[0]["clock"]) and not list(tmp_path.iterdir())
