"""The table of averages over several batches, and with a new state. No JVM, no Kafka needed."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from lb_stream.contracts.tables import BUNDLE_AVERAGES
from lb_stream.io.tables.commits import Table
from lb_stream.io.tables.delta import dataset
from lb_stream.store import Store
from lb_stream.stream.figures import write_file
from tests.support.written_tables import Job


def part(job: Job, name: str, batch: int, *bundles: str) -> dict[str, dict[str, Any]]:
    """One part of the table, with these bundles of the cluster `a`."""
    fields = [
        field for field in BUNDLE_AVERAGES.schema if field.name != BUNDLE_AVERAGES.partition_by
    ]
    empty = {field.name: None for field in fields}
    rows = [empty | {"cluster": "a", "bundle": bundle, "now_ms": batch} for bundle in bundles]
    data = pa.Table.from_pylist(rows, pa.schema(fields))
    return {
        BUNDLE_AVERAGES.name: write_file(
            Store.at(job.tables), BUNDLE_AVERAGES, data, f"{job.log.app[2:]}-{batch}", name
        )
    }


def seen(job: Job) -> list[tuple[str, int]]:
    table = dataset(Table(Store.at(job.tables / BUNDLE_AVERAGES.name))).to_table()
    return sorted(zip(table["bundle"].to_pylist(), table["now_ms"].to_pylist(), strict=True))


def test_a_part_takes_the_place_of_its_earlier_self(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.tables_of.replace_parts(
        job.log.app, 3, {"a.0": part(job, "a.0", 3, "x"), "a.1": part(job, "a.1", 3, "y")}
    )
    job.tables_of.replace_parts(job.log.app, 4, {"a.1": part(job, "a.1", 4, "y", "z")})
    job.tables_of.replace_parts(
        job.log.app, 4, {"a.1": {}}
    )  # a batch that is run again has done it
    assert seen(job) == [("x", 3), ("y", 4), ("z", 4)]


def test_with_a_new_state_no_bundle_is_there_twice_however_its_cluster_is_cut(
    tmp_path: Path,
) -> None:
    before = Job(tmp_path, "u-1")
    before.tables_of.clear_averages()
    before.tables_of.replace_parts(
        before.log.app, 9, {"a.0": part(before, "a.0", 9, "x"), "a.1": part(before, "a.1", 9, "y")}
    )
    job = Job(tmp_path, "u-2")
    job.tables_of.clear_averages()
    assert seen(job) == []
    job.tables_of.replace_parts(job.log.app, 0, {"07": part(job, "07", 0, "x", "y")})
    assert seen(job) == [("x", 0), ("y", 0)]
