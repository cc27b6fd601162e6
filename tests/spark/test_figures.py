"""Files of figures: whose trouble stays whose, and which attempt of a task writes which.

No JVM needed.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lb_stream.contracts.columns.rounds import RoundRow
from lb_stream.contracts.reports import BundleStats
from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import Shard
from lb_stream.store import Store
from lb_stream.stream.context import BatchContext
from lb_stream.stream.figures import FigureFiles, part_files
from lb_stream.stream.shards.block_files import FOLDER, BlockRefs, BlockWriter
from lb_stream.stream.shards.shard_files import names_block
from lb_stream.stream.shards.slicing import DueShard
from tests.support.build import Report, batch_of

BUNDLE = "acme/orders/0x00000000_0xffffffff"


def written(checkpoint: Path, name: str, owner: int = 0) -> BlockRefs:
    """A shard of one broker with one bundle, which is the broker's of that number."""
    shard, _ = fold(
        Shard.empty(),
        batch_of([Report("b", 1_000, {BUNDLE: BundleStats()}, offset=0)], []),
        1_000,
        FoldConfig(),
    )
    writer = BlockWriter(Store.at(checkpoint), name)
    at = shard.bundles.schema.get_field_index("owner")
    bundles = shard.bundles.set_column(
        at, shard.bundles.schema.field(at), pa.array([owner], shard.bundles.schema.field(at).type)
    )
    tables = (shard.brokers, names_block(bundles["name"]), bundles.drop_columns("name"))
    blocks = (writer.put(tables[0]), writer.put(tables[1]), writer.put(tables[2]))
    writer.close()
    return blocks


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_cluster_whose_blocks_cannot_be_read_keeps_no_other_out_of_the_table(
    tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    entries = [
        DueShard(cluster, 0, 1_000, written(tmp_path, f"000-{cluster}.arrow"))
        for cluster in ("eu", "us")
    ]
    file = tmp_path / FOLDER / "000-eu.arrow"
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:100])
    made = part_files("07", entries, Store.at(tmp_path / "tables"), Store.at(tmp_path), "x")[
        "bundle_averages"
    ]
    assert pq.read_table(tmp_path / "tables" / "bundle_averages" / made["path"], partitioning=None)[
        "cluster"
    ].to_pylist() == ["us"]
    assert "lacks bundles of the cluster eu" in caplog.text


def test_an_owner_that_is_no_broker_of_its_shard_keeps_no_other_cluster_out_of_the_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = [
        DueShard(cluster, 0, 1_000, written(tmp_path, f"000-{cluster}.arrow", owner))
        for cluster, owner in (("eu", 1), ("us", 0))
    ]
    made = part_files("07", entries, Store.at(tmp_path / "tables"), Store.at(tmp_path), "x")[
        "bundle_averages"
    ]
    rows = pq.read_table(
        tmp_path / "tables" / "bundle_averages" / made["path"], partitioning=None
    ).to_pylist()
    assert [(row["cluster"], row["owner"]) for row in rows] == [("us", "b")]
    assert "lacks bundles of the cluster eu: a bundle belongs to broker 1 of 1" in caplog.text


def test_two_attempts_of_a_task_write_two_files(tmp_path: Path) -> None:
    stream = StreamSettings(tables=str(tmp_path), checkpoint=str(tmp_path))
    context = BatchContext(
        Settings(stream=stream), "tag", log_seq=0, epoch=1, caught_up=True, memories={}
    )
    position = {"topic": "reports", "partition": 0, "offset": 3, "append_ms": 5, "broker": "b"}
    event = {
        "kind": "rejected",
        "payload": json.dumps({"field": "value", "value": "x", "expected": "JSON"}),
    } | position
    paths = set()
    for task in ("1-4", "1-9"):
        taken = FigureFiles(context, task)
        row = RoundRow(cluster="eu", epoch=1, now_ms=5, memory="", inputs="", idle=True)
        taken.add_rejected("eu", [event])
        taken.write([row])
        paths.add(json.loads(str(row.files))["rejected_reports"]["path"])
    assert paths == {"tag-1-4.parquet", "tag-1-9.parquet"}
