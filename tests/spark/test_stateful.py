"""Decode and fold as one streaming query on a real Spark: whoever says something and whoever is
silent hears how far was read."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.store import Store
from lb_stream.stream.shards.directory import ShardMap, write_directory
from lb_stream.stream.shards.shard_files import read_shard
from lb_stream.stream.transforms import to_blocks, to_shards
from tests.support.decoding import RECORD_DDL, RECORDS, record, report

pytestmark = pytest.mark.jvm

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
NAMES = ("zz", "Zz", "0a", "a_b", "a-b")


def test_every_cluster_hears_the_clock_before_anything_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint, arrived = tmp_path / "checkpoint", tmp_path / "arrived"
    settings = Settings(stream=StreamSettings(checkpoint=str(checkpoint), shuffle_partitions=1))
    write_directory(Store.at(checkpoint), 0, 1, {"silent": ShardMap(), "large": ShardMap(4)})
    records = [
        record(f"{name}/b1".encode(), report(), at, partition=at % 2)
        for at, name in enumerate((*NAMES, "large"))
    ]
    arrived.mkdir()
    pq.write_table(pa.Table.from_pylist(records, RECORDS), arrived / "records.parquet")
    found: list[dict[str, Any]] = []

    def take(shards: DataFrame, _batch: int) -> None:
        found.extend(shards.toArrow().to_pylist())

    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKS)
    try:
        raw = spark.readStream.schema(RECORD_DDL).parquet(str(arrived))
        shards = raw.transform(to_blocks(settings, epoch=1)).transform(to_shards(settings, epoch=1))
        writer = (
            shards.writeStream.outputMode("update")
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(take)
        )
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.set(PROVIDER, str(before))

    assert sorted((row["cluster"], row["shard"]) for row in found) == sorted(
        [("silent", 0), *(("large", at) for at in range(4)), *((name, 0) for name in NAMES)]
    )
    clocks = {row["clock"] for row in found if row["shard"] == 0}
    (clock,) = clocks
    assert [(seen["partition"], seen["first"], seen["last"]) for seen in json.loads(clock)] == [
        (0, 0, 4),
        (1, 1, 5),
    ]
    places = {
        row["cluster"]: (row["brokers"], row["names"], row["values"])
        for row in found
        if row["shard"] == 0
    }
    brokers = {
        name: read_shard(Store.at(checkpoint), blocks).brokers["name"].to_pylist()
        for name, blocks in places.items()
    }
    assert brokers == {
        name: [] if name == "silent" else ["b1"] for name in ("silent", "large", *NAMES)
    }
