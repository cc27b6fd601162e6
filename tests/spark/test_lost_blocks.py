"""A file of blocks that is gone or cut off: told, and healed by the next reports. No JVM needed."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Row

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import Shard, from_bytes
from lb_stream.core.model.view import ClusterView
from lb_stream.settings.resolve import cluster_config
from lb_stream.store import Store
from lb_stream.stream.shards import changed_rows
from lb_stream.stream.shards.block_files import FOLDER, BlockWriter, read_block
from lb_stream.stream.shards.shard_files import names_block
from lb_stream.stream.views import cluster_view, read_shards, require_complete
from tests.spark.shard_task import BATCH, State, emitted, folded, rates
from tests.support.build import Report, batch_of
from tests.support.decoding import record, report

CUTS: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
}


def troubles(emitted: Row) -> list[str]:
    """The errors that a task tells the round of."""
    events = from_bytes(emitted.events).to_pylist()
    return [json.loads(event["payload"])["error"] for event in events if event["kind"] == "error"]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("which", ["", "-names"])
def test_a_shard_whose_file_cannot_be_read_says_so_once_and_begins_anew(
    tmp_path: Path, cut: str, which: str
) -> None:
    state = State()
    folded(tmp_path, 1, [10.0], state)
    (file,) = (tmp_path / FOLDER).glob(f"*cafe0123{which}.arrow")
    CUTS[cut](file)
    healed = folded(tmp_path, 1, [20.0], state, BATCH + 1)
    (error,) = troubles(healed)
    assert str(file) in error and "come back with the next full reports" in error
    assert rates(tmp_path, healed) == [20.0]
    after = folded(tmp_path, 1, [30.0], state, BATCH + 2)
    assert troubles(after) == []
    assert rates(tmp_path, after) == [30.0]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of a few hundred bundles have changed rows, too."""
    monkeypatch.setattr(changed_rows, "MIN_ROWS", 256)


MANY = [f"acme/orders/0x{at:08x}_0x{at + 1:08x}" for at in range(300)]


def reported(checkpoint: Path, state: State, batch: int, brokers: int = 1) -> Row:
    """What the task emits when broker b0, which has ten of many bundles, has reported.

    `brokers`: 2: so has the broker of the others.
    """
    parts = {b"eu/b0": MANY[:10], b"eu/b1": MANY[10:]}
    stats = [{name: {"msgRateIn": float(batch)} for name in own} for own in parts.values()]
    records = [
        record(key, report(lastStats=own, lastUpdate=batch), 100 * batch + offset)
        for offset, (key, own) in enumerate(zip(parts, stats, strict=True))
    ]
    return emitted(checkpoint, 1, records[:brokers], state, batch)


def test_a_report_of_few_bundles_writes_their_rows_and_all_are_read(tmp_path: Path) -> None:
    state, sizes = State(), []
    for batch in range(1, 6):
        shard = reported(tmp_path, state, batch, brokers=2 if batch == 1 else 1)
        assert troubles(shard) == []
        assert rates(tmp_path, shard) == [float(batch)] * 10 + [1.0] * 290
        sizes.append(sum(path.stat().st_size for path in (tmp_path / FOLDER).glob(f"*{batch}-e1*")))
    # The second batch still takes the news of the first one from all rows.
    assert all(later < sizes[1] / 2 for later in sizes[2:])
    assert len({reported(tmp_path, state, 6).names, shard.names}) == 1


@pytest.mark.parametrize("lost", [2, 3])
def test_a_shard_whose_base_or_changed_rows_are_gone_begins_anew(tmp_path: Path, lost: int) -> None:
    state = State()
    for batch in (1, 2, 3):
        reported(tmp_path, state, batch, brokers=2 if batch == 1 else 1)
    (file,) = (tmp_path / FOLDER).glob(f"{lost:012d}-e1-*cafe0123.arrow")
    file.unlink()
    healed = reported(tmp_path, state, 4)
    (error,) = troubles(healed)
    assert str(file) in error and rates(tmp_path, healed) == [4.0] * 10
    after = reported(tmp_path, state, 5, brokers=2)
    assert troubles(after) == [] and rates(tmp_path, after) == [5.0] * 300


def test_a_block_behind_the_end_of_its_file_is_no_block(tmp_path: Path) -> None:
    writer = BlockWriter(Store.at(tmp_path), "7-0-a.arrow")
    reference = writer.put(pa.table({"x": list(range(1_000))}))
    writer.close()
    CUTS["cut off"](tmp_path / FOLDER / "7-0-a.arrow")
    with pytest.raises(pa.ArrowInvalid, match=r"7-0-a\.arrow is cut off"):
        read_block(Store.at(tmp_path), reference)


def written(folder: Path, name: str, brokers: list[str], at_ms: int) -> tuple[str, str, str]:
    """A shard that has heard these brokers."""
    reports = [
        Report(broker, at_ms, {f"acme/{broker}/0x00000000_0xffffffff": BundleStats()}, offset=at)
        for at, broker in enumerate(brokers)
    ]
    shard = fold(Shard.empty(), batch_of(reports, []), at_ms, FoldConfig())[0]
    writer = BlockWriter(Store.at(folder), name)
    parts = (shard.brokers, names_block(shard.bundles["name"]), shard.bundles.drop_columns("name"))
    brokers_at, names, values = (writer.put(part) for part in parts)
    writer.close()
    return brokers_at, names, values


def test_nothing_is_decided_before_a_shard_that_began_anew_has_heard_all_brokers_that_speak(
    tmp_path: Path,
) -> None:
    timeout_ms = cluster_config({}).balancer.report_timeout_ms

    def complete(blocks: list[tuple[str, str, str]], now_ms: int) -> ClusterView:
        shards = read_shards(Store.at(tmp_path), blocks)
        require_complete(shards, now_ms - timeout_ms)
        return cluster_view("eu", shards, blocks, now_ms, {"cpu": 1.0}, {})

    heard, fresh = (
        written(tmp_path, "a.arrow", ["b1", "b2"], 1_000),
        written(tmp_path, "b.arrow", ["b1"], 1_000),
    )
    with pytest.raises(RuntimeError, match="not known before these brokers report: b2"):
        complete([heard, fresh], 2_000)
    later_ms = 1_001 + timeout_ms
    fresh = written(tmp_path, "c.arrow", ["b1"], later_ms)
    heard_again = written(tmp_path, "d.arrow", ["b1"], later_ms)
    assert len(complete([heard_again, fresh], later_ms).brokers) == 1
    assert len(complete([heard, heard], 2_000).brokers) == 2
