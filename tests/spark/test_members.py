"""Clusters of one shard go to the fold in one row, and are folded together. No JVM needed."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import Row

from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.brokers import LastBrokers
from lb_stream.core.model.blocks import Batch, Shard, from_bytes, to_bytes
from lb_stream.store import Store
from lb_stream.stream import averages
from lb_stream.stream.averages import Folding
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.decode import decode
from lb_stream.stream.shard_blocks import ALL_CLUSTERS, MEMBER_SCHEMA
from lb_stream.stream.shards import changed_rows
from lb_stream.stream.shards.block_files import BlockWriter
from lb_stream.stream.shards.directory import ShardMap
from lb_stream.stream.shards.partition_keys import deciding_task
from lb_stream.stream.shards.shard_files import ShardChange, ShardWriter, read_shard
from tests.support.decoding import RECORDS, record, report

NAMES = ("c1", "c2", "c3", "eu")
BUNDLES = [f"acme/orders/0x{at:08x}_0x{at + 1:08x}" for at in range(9)]


def sent(batch: int, clusters: Iterable[str] = NAMES) -> list[dict[str, Any]]:
    """Reports of three brokers of each cluster.

    In every batch a bundle is another broker's, and one more is there.
    """
    found = []
    for name in clusters:
        for broker in range(3):
            own = [
                bundle
                for at, bundle in enumerate(BUNDLES[: batch + 4])
                if (at * (at < 2) * batch + at) % 3 == broker
            ]
            stats = {
                bundle: {"msgRateIn": float(batch + place)} for place, bundle in enumerate(own)
            }
            at = 100 * batch + len(found)
            found.append(
                record(
                    f"{name}/b{broker}".encode(),
                    report(lastStats=stats, lastUpdate=at),
                    at,
                    partition=broker % 2,
                )
            )
    return found


@dataclass
class Job:
    """Decode and fold, batch after batch.

    `together`: the directory says where the blocks are, so that no cluster needs a state.
    """

    folder: Path
    together: bool = True
    configs: Mapping[str, FoldConfig] = field(default_factory=dict)
    directory: dict[str, ShardMap] = field(default_factory=dict)
    states: dict[tuple[str, int], Any] = field(default_factory=dict)

    def batch(self, batch: int, records: list[dict[str, Any]]) -> dict[str, Row]:
        """The row of each cluster."""
        self.folder.mkdir(exist_ok=True)
        store, here = Store.at(self.folder), [("", 0)]
        samples = BlockWriter(store, f"{batch}-samples.arrow", durable=False)
        known = self.directory if self.together else {name: ShardMap() for name in self.directory}
        pieces = [
            [record for record in records if record["partition"] == task] for task in range(2)
        ]
        rows = []
        for task, piece in enumerate(pieces):
            config = DecodeConfig("home", "commands", known, first=task == 0)
            given = [pa.RecordBatch.from_pylist(piece, RECORDS)] if piece else []
            rows += [
                Row(**row)
                for emitted in decode(given, config, samples.put)
                for row in emitted.to_pylist()
            ]
        samples.close()
        state = SimpleNamespace(
            get=lambda: self.states.get(here[0]),
            update=lambda value: self.states.update({here[0]: value}),
            clear=lambda: self.states.pop(here[0], None),
        )
        task = Folding(self.configs, FoldConfig(), store, "cafe0123", 1)
        with patch.object(averages, "current_task", lambda: (batch, 0, 0)):
            task.begin(state)
        found: dict[str, Row] = {}
        for key in sorted({(row.cluster, row.slot) for row in rows}):
            here[0] = key
            results = task.fold(key, iter([row for row in rows if (row.cluster, row.slot) == key]))
            found |= {row.cluster: row for row in results}
        task.close()
        self.directory = {
            name: ShardMap(1, (blocks(row),))
            for name, row in found.items()
            if row.brokers is not None
        }
        return found

    def content(self, row: Row) -> list[bytes]:
        """A cluster's row and blocks, as bytes."""
        shard = read_shard(Store.at(self.folder), blocks(row))
        tables = [
            table.take(pa.array(range(len(table)), pa.int64()))
            for table in (shard.brokers, shard.bundles)
        ]
        return [*map(to_bytes, tables), row.clock.encode(), row.events]


def blocks(row: Row) -> tuple[str, str, str]:
    return row.brokers, row.names, row.values


def troubles(row: Row) -> list[str]:
    return [
        event["payload"] for event in from_bytes(row.events).to_pylist() if event["kind"] == "error"
    ]


@pytest.mark.parametrize("bundles_at_once", [1, 12, 1_000])
def test_clusters_folded_together_are_what_each_is_by_itself(
    tmp_path: Path, bundles_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(averages, "FOLDED_BUNDLES", bundles_at_once)
    configs = {"c2": FoldConfig(short_samples=2), "c3": FoldConfig(sample_mode="reference")}
    together, alone = (
        Job(tmp_path / "a", configs=configs),
        Job(tmp_path / "b", together=False, configs=configs),
    )
    for batch in range(5):
        records = sent(batch, NAMES[: 2 + batch])
        one, other = together.batch(batch, records), alone.batch(batch, records)
        assert {name: together.content(row) for name, row in one.items()} == {
            name: alone.content(row) for name, row in other.items()
        }


@pytest.mark.parametrize("together", [False, True])
def test_clusters_whose_changed_rows_are_written_are_what_those_written_whole_are(
    tmp_path: Path, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed, whole = Job(tmp_path / "a", together), Job(tmp_path / "b", together)
    used = 0
    for batch in range(9):
        # From the sixth batch on some brokers report, and no bundle is new.
        records = sent(batch, ("c1", "eu"))
        if batch > 5:
            records = records[batch % 2 :: 2]
        with monkeypatch.context() as patched:
            patched.setattr(changed_rows, "MIN_ROWS", 1)
            one = changed.batch(batch, records)
        other = whole.batch(batch, records)
        assert {name: changed.content(row) for name, row in one.items()} == {
            name: whole.content(row) for name, row in other.items()
        }
        used += sum(row.values.count("+") > 1 for row in one.values())
    assert used > 2


def test_clusters_of_one_shard_whose_blocks_are_known_need_one_row_and_no_state(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path)
    job.batch(0, sent(0))
    config = DecodeConfig("home", "commands", job.directory, partitions=3)
    rows = [
        row
        for emitted in decode([pa.RecordBatch.from_pylist(sent(1), RECORDS)], config)
        for row in emitted.to_pylist()
    ]
    assert {row["cluster"] for row in rows} == {ALL_CLUSTERS}
    members = [from_bytes(row["members"]) for row in rows if row["members"] is not None]
    assert all(member.schema == MEMBER_SCHEMA for member in members)
    assert sorted(name for member in members for name in member["cluster"].to_pylist()) == sorted(
        NAMES
    )
    assert len(members) == len({deciding_task(name, 3) for name in NAMES})
    job.states = {}
    assert troubles(job.batch(1, sent(1))["eu"]) == [] and job.states == {}


def test_what_a_state_says_of_a_cluster_of_one_shard_is_not_asked(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.batch(0, sent(0))
    job.states = {(name, 0): (1, "gone:0:1", "gone:1:1", "gone:2:1") for name in NAMES}
    assert troubles(job.batch(1, sent(1))["eu"]) == []
    job.directory["eu"] = replace(job.directory["eu"], leaving=True)
    heard = job.batch(2, sent(2, ["eu", "c1"]))
    assert (
        troubles(heard["eu"]) == []
        and len(read_shard(Store.at(tmp_path), blocks(heard["eu"])).bundles) == 6
    )
    job.directory["eu"] = replace(job.directory["eu"], leaving=True)
    assert job.batch(3, sent(3, ["c1"]))["eu"].brokers is None
    assert ("eu", 0) not in job.states and "eu" not in job.directory


def test_a_cluster_whose_block_is_gone_begins_anew_and_the_others_do_not_notice(
    tmp_path: Path,
) -> None:
    whole, job = Job(tmp_path / "a"), Job(tmp_path / "b")
    for run in (whole, job):
        run.batch(0, sent(0))
    brokers, names, values = job.directory["eu"].blocks[0]
    job.directory["eu"] = ShardMap(1, ((brokers, f"gone-{names}", values),))
    expected, found = whole.batch(1, sent(1)), job.batch(1, sent(1))
    (error,) = troubles(found["eu"])
    assert "come back with the next full reports" in error
    for name in NAMES[:-1]:
        assert whole.content(expected[name]) == job.content(found[name])
    assert troubles(job.batch(2, sent(2))["eu"]) == []


def test_a_cluster_that_cannot_be_folded_stays_as_it_was_and_the_others_do_not_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = {"eu": FoldConfig(short_samples=7)}
    whole, job = Job(tmp_path / "a", configs=configs), Job(tmp_path / "b", configs=configs)
    for run in (whole, job):
        run.batch(0, sent(0))
    before, expected = job.directory["eu"], whole.batch(1, sent(1))

    def broken(
        shard: Shard, batch: Batch, now_ms: int, config: FoldConfig, brokers: LastBrokers
    ) -> tuple[Shard, pa.Table]:
        if config.short_samples == 7:
            raise ValueError("no")
        return fold(shard, batch, now_ms, config, brokers)

    monkeypatch.setattr(averages, "fold", broken)
    monkeypatch.setattr(averages, "fold_together", lambda *_: 1 / 0)
    found = job.batch(1, sent(1))
    assert [json.loads(trouble)["error"] for trouble in troubles(found["eu"])] == ["ValueError: no"]
    assert blocks(found["eu"]) == before.blocks[0]
    for name in NAMES[:-1]:
        assert whole.content(expected[name]) == job.content(found[name])


def test_clusters_share_blocks_of_what_a_batch_has_changed(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.batch(0, sent(0))
    every = job.batch(1, sent(1))
    for part in range(3):
        places = {blocks(row)[part].rsplit(":", 2)[0] for row in every.values()}
        assert len(places) == 1 and places.pop().count(":") == 2, "all are in one block"
    before = job.batch(2, sent(2, NAMES[:2]))
    some = job.batch(3, sent(3, NAMES[:2]))
    places = {blocks(some[name])[2].rsplit(":", 2)[0] for name in NAMES[:2]}
    assert len(places) == 1
    for name in NAMES[2:]:
        assert blocks(some[name])[1:] == blocks(before[name])[1:], "its rows stay where they are"


def test_where_clusters_cannot_be_written_together_each_is_written_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, job = Job(tmp_path / "a"), Job(tmp_path / "b")
    for run in (whole, job):
        run.batch(0, sent(0))
    before, expected = job.directory["eu"], whole.batch(1, sent(1))
    write = ShardWriter.write

    def broken(writer: ShardWriter, change: ShardChange) -> tuple[str, str, str]:
        if change.blocks == before.blocks[0]:
            raise ValueError("no")
        return write(writer, change)

    monkeypatch.setattr(ShardWriter, "write_together", lambda *_: 1 / 0)
    monkeypatch.setattr(ShardWriter, "write", broken)
    found = job.batch(1, sent(1))
    assert [json.loads(trouble)["error"] for trouble in troubles(found["eu"])] == ["ValueError: no"]
    assert blocks(found["eu"]) == before.blocks[0]
    for name in NAMES[:-1]:
        assert whole.content(expected[name]) == job.content(found[name])


def test_a_task_whose_store_fails_fails_too_so_that_it_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path)
    job.batch(0, sent(0))
    put = BlockWriter.put

    def full(writer: BlockWriter, table: pa.Table, compress: bool = False) -> str:
        if "short_samples" in table.column_names:
            raise OSError("no space left")
        return put(writer, table, compress)

    monkeypatch.setattr(BlockWriter, "put", full)
    with pytest.raises(OSError, match="no space left"):
        job.batch(1, sent(1))
