"""Parts of `bundle_averages` that the deciding task writes meanwhile. No JVM needed."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import Shard
from lb_stream.store import Store
from lb_stream.stream import averages_ahead
from lb_stream.stream.batch import blocks_of_rounds
from lb_stream.stream.context import BatchContext
from lb_stream.stream.decide import decide_clusters
from lb_stream.stream.figures import part_files
from lb_stream.stream.shards.block_files import BlockWriter
from lb_stream.stream.shards.directory import ShardMap
from lb_stream.stream.shards.shard_files import names_block
from lb_stream.stream.shards.slicing import LastWritten, due_parts
from tests.support.build import Report, batch_of

BUNDLES = ("t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff")
NOW_MS = 100_000
LONG_AGO = LastWritten(averages_ms=NOW_MS - 10_000, history_ms={"eu": NOW_MS})
SLOT_BEGINS = replace(LONG_AGO, history_ms={"eu": NOW_MS - 60_000})
CLOCK = json.dumps(
    [{"topic": "lb-load-reports", "partition": 0, "first": 0, "last": 0, "append_ms": NOW_MS}]
)


class Patient(ThreadPoolExecutor):
    """Writes all parts, however soon the rounds are made."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all parts written."""
    monkeypatch.setattr(averages_ahead, "ThreadPoolExecutor", Patient)


def shard_rows(folder: Path, shards: int = 2, again: bool = False) -> pa.Table:
    """A cluster of one broker, a bundle in each shard. `again`: it has sent nothing since."""
    writer, rows = BlockWriter(Store.at(folder), f"eu-{shards}-{again}.arrow"), []
    for number, bundle in enumerate(BUNDLES[:shards]):
        batch = batch_of([Report("b1", NOW_MS, {bundle: BundleStats(topics=3)})], [])
        shard, _ = fold(Shard.empty(), batch, NOW_MS, FoldConfig())
        if again:
            shard, _ = fold(shard, batch_of([], []), NOW_MS, FoldConfig())
        blocks = {
            "brokers": writer.put(shard.brokers),
            "names": writer.put(names_block(shard.bundles["name"])),
            "values": writer.put(shard.bundles.drop_columns("name")),
        }
        clock = CLOCK if number == 0 else None
        rows.append({"cluster": "eu", "shard": number, "clock": clock, "events": None} | blocks)
    writer.close()
    return pa.Table.from_pylist(rows)


def context_of(folder: Path, last: LastWritten | None = LONG_AGO) -> BatchContext:
    """The context of a batch that begins with what was written last."""
    stream = StreamSettings(tables=str(folder / "tables"), checkpoint=str(folder))
    return BatchContext(Settings(stream=stream), "tag", 0, 1, True, {}, last_written=last)


def run(shards: pa.Table, context: BatchContext) -> pa.Table:
    """The rounds of the deciding task."""
    return pa.Table.from_batches(decide_clusters(shards.to_batches(), context, "0-7"))


def files_of(rounds: pa.Table) -> dict[str, Any]:
    """The files that the cluster's round names."""
    return dict(blocks_of_rounds(rounds)["eu"].part_files)


@pytest.mark.parametrize(
    ("last", "tables"),
    [
        (LONG_AGO, ["bundle_averages"]),
        (SLOT_BEGINS, ["broker_history", "bundle_averages", "bundle_history"]),
    ],
)
def test_a_part_is_what_a_task_of_the_driver_would_write(
    tmp_path: Path, last: LastWritten, tables: list[str]
) -> None:
    rounds = run(shard_rows(tmp_path), context_of(tmp_path, last))
    known = ShardMap(2, history_ms=last.history_ms["eu"], averages_ms=last.averages_ms)
    parts = due_parts({"eu": known}, blocks_of_rounds(rounds), 60_000)
    ahead, root = files_of(rounds), Store.at(tmp_path / "tables")
    assert list(ahead) == list(parts) == ["eu.0", "eu.1"]
    assert sorted(ahead["eu.0"]) == tables
    for part, entries in parts.items():
        files = part_files(part, entries, root, Store.at(tmp_path), "later")
        for table, file in files.items():
            mine = ahead[part][table]
            assert (tmp_path / "tables" / table / mine["path"]).read_bytes() == (
                tmp_path / "tables" / table / file["path"]
            ).read_bytes()
            assert mine == file | {"path": file["path"].replace("later", "tag-0-7-ahead")}


@pytest.mark.parametrize(
    "last",
    [
        None,
        replace(LONG_AGO, averages_ms=NOW_MS),
        replace(SLOT_BEGINS, averages_ms=NOW_MS - 9_999),
    ],
)
def test_nothing_is_written_before_it_is_due(tmp_path: Path, last: LastWritten | None) -> None:
    assert files_of(run(shard_rows(tmp_path), context_of(tmp_path, last))) == {}
    assert not (tmp_path / "tables" / "bundle_averages").exists()


def test_a_cluster_of_one_shard_waits_for_those_that_share_its_part(tmp_path: Path) -> None:
    assert files_of(run(shard_rows(tmp_path, shards=1), context_of(tmp_path))) == {}


def test_a_batch_without_a_sample_writes_nothing_ahead(tmp_path: Path) -> None:
    assert files_of(run(shard_rows(tmp_path, again=True), context_of(tmp_path))) == {}


def test_a_round_that_fails_names_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr("lb_stream.stream.decide.decide", fail)
    rounds = run(shard_rows(tmp_path), context_of(tmp_path))
    assert "no" in rounds["error"][0].as_py() and files_of(rounds) == {}


def test_a_part_that_cannot_be_written_is_left_to_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = averages_ahead.write_part

    def fail(part: str, *rest: Any) -> Any:
        if part == "eu.0":
            raise OSError("disk full")
        return write(part, *rest)

    monkeypatch.setattr(averages_ahead, "write_part", fail)
    rounds = run(shard_rows(tmp_path), context_of(tmp_path))
    assert rounds["error"][0].as_py() is None and list(files_of(rounds)) == ["eu.1"]
    assert "could not be written ahead: disk full" in caplog.text


def test_a_round_waits_for_no_part_that_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, write, began = threading.Event(), averages_ahead.write_part, []

    class Short(ThreadPoolExecutor):
        """Its first part is still being written when the rounds are made."""

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            made.set()
            super().shutdown()

    def write_slowly(part: str, *rest: Any) -> Any:
        began.append(part)
        assert made.wait(60)
        return write(part, *rest)

    monkeypatch.setattr(averages_ahead, "write_part", write_slowly)
    monkeypatch.setattr(averages_ahead, "ThreadPoolExecutor", Short)
    assert list(files_of(run(shard_rows(tmp_path), context_of(tmp_path)))) == began == ["eu.0"]
