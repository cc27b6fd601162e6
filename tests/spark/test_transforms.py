"""The steps of the dataflow on a real Spark, from raw records to rounds, without the stream around
them."""

import json
import os
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import Batch, Shard, from_bytes, to_bytes
from lb_stream.store import Store
from lb_stream.stream.averages import SHARD_DDL
from lb_stream.stream.context import BatchContext
from lb_stream.stream.shard_blocks import ALL_CLUSTERS
from lb_stream.stream.shards.block_files import BlockWriter
from lb_stream.stream.shards.directory import write_directory
from lb_stream.stream.shards.shard_files import names_block
from lb_stream.stream.transforms import to_blocks, to_rounds
from tests.support.decoding import RECORD_DDL

pytestmark = [pytest.mark.jvm, pytest.mark.loop]


def report(usage: float) -> bytes:
    return json.dumps(
        {
            "cpu": {"usage": usage, "limit": 100.0},
            "lastStats": {},
            "loadReportType": "LocalBrokerData",
        }
    ).encode()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Folders of this test's own; no cluster is known before the first batch."""
    write_directory(Store.at(tmp_path / "checkpoint"), 0, 1, {})
    return Settings(
        stream=StreamSettings(
            tables=str(tmp_path / "tables"), checkpoint=str(tmp_path / "checkpoint")
        )
    )


def records(spark: SparkSession, rows: list[tuple[bytes, bytes]]) -> DataFrame:
    """Raw records of one partition, in the order given."""
    data = [
        (key, value, None, "lb-load-reports", 0, offset, 1_000 + offset)
        for offset, (key, value) in enumerate(rows)
    ]
    return spark.createDataFrame(data, RECORD_DDL)


def shards(spark: SparkSession, settings: Settings, blocks: DataFrame) -> DataFrame:
    """What the stateful stage would emit for these blocks when it has no state yet."""
    rows = []
    clock, *rest = sorted(blocks.collect(), key=lambda block: (block.cluster, block.slot))
    for block in (block for block in rest if block.cluster != ALL_CLUSTERS):
        batch = Batch(
            from_bytes(bytes(block.reports)), from_bytes(bytes(block.samples)), Batch.empty().events
        )
        folded, _ = fold(Shard.empty(), batch, 2_000, FoldConfig())
        writer = BlockWriter(Store.at(settings.stream.checkpoint), f"{block.cluster}.arrow")
        parts = (
            folded.brokers,
            names_block(folded.bundles["name"]),
            folded.bundles.drop_columns("name"),
        )
        references = [writer.put(part) for part in parts]
        writer.close()
        rows.append((block.cluster, block.shard, clock.clock, *references, to_bytes(batch.events)))
    return spark.createDataFrame(rows, SHARD_DDL)


def test_blocks_are_keyed_by_cluster_and_shard(spark: SparkSession, settings: Settings) -> None:
    raw = records(spark, [(b"eu/b1", report(50)), (b"us/b1", report(60)), (b"eu/b2", b"broken")])
    keys = (
        raw.transform(to_blocks(settings, epoch=1))
        .where(f"cluster <> '{ALL_CLUSTERS}'")
        .select("cluster", "shard")
    )
    assert_df_equality(
        keys, spark.createDataFrame([("eu", 0), ("us", 0)], keys.schema), ignore_row_order=True
    )


def test_each_cluster_gets_its_own_round_and_one_clusters_trouble_stays_its_own(
    spark: SparkSession, settings: Settings
) -> None:
    raw = records(spark, [(b"eu/b1", report(50)), (b"us/b1", report(60)), (b"zz/b1", report(70))])
    context = BatchContext(
        settings, "test-0", log_seq=0, epoch=1, caught_up=True, memories={"zz": "not json"}
    )
    rounds = (
        shards(spark, settings, raw.transform(to_blocks(settings, epoch=1)))
        .transform(to_rounds(context))
        .collect()
    )
    made = {
        row.cluster: (row.seq, "DecodeError" in (row.error or ""), row.memory) for row in rounds
    }
    assert made["zz"] == (0, True, "not json")
    assert [made[cluster][:2] for cluster in ("eu", "us")] == [(1, False), (1, False)]


def test_what_clusters_remember_leaves_no_file_behind_however_much_it_is(
    spark: SparkSession, settings: Settings
) -> None:
    memories = {f"c{number}": os.urandom(50_000).hex() for number in range(20)}
    context = BatchContext(
        settings, "test-0", log_seq=0, epoch=1, caught_up=True, memories=memories
    )
    views = shards(
        spark,
        settings,
        records(spark, [(b"eu/b1", report(50))]).transform(to_blocks(settings, epoch=1)),
    )
    before = set(os.listdir(spark.sparkContext._temp_dir))
    assert views.transform(to_rounds(context)).toArrow()["cluster"].to_pylist() == ["eu"]
    assert set(os.listdir(spark.sparkContext._temp_dir)) == before
