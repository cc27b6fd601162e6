"""Where Spark puts the key of a shard."""

import pytest
from pyspark.sql import SparkSession

from lb_stream.stream.shards.partition_keys import deciding_task, partition, slots_of


@pytest.mark.jvm
def test_a_key_goes_where_spark_says(spark: SparkSession) -> None:
    keys = [
        (cluster, slot)
        for cluster in ("", "a", "eu-1", "eu-west", "größe", "c" * 37)
        for slot in (0, 1, 2, 77, 2**31 - 1)
    ]
    frame = spark.createDataFrame(keys, "cluster string, slot int").selectExpr(
        "cluster", "slot", "pmod(hash(cluster, slot), 7) as at"
    )
    assert {(row.cluster, row.slot): row.at for row in frame.collect()} == {
        key: partition(*key, 7) for key in keys
    }


@pytest.mark.jvm
@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_all_shards_of_a_cluster_go_where_spark_says(spark: SparkSession, tasks: int) -> None:
    clusters = ["", "a", "eu-1", "eu-west", "größe", *("c" * length for length in range(1, 40))]
    frame = spark.createDataFrame([(name,) for name in clusters], "cluster string").repartition(
        tasks, "cluster"
    )
    found = {
        row.cluster: row.task
        for row in frame.selectExpr("cluster", "spark_partition_id() as task").collect()
    }
    assert found == {name: deciding_task(name, tasks) for name in clusters}


@pytest.mark.parametrize(("shards", "partitions"), [(2, 1), (8, 3), (32, 2), (64, 200)])
def test_shards_are_spread_evenly_and_no_two_share_a_key(shards: int, partitions: int) -> None:
    slots = slots_of("eu", shards, partitions)
    assert len(set(slots)) == shards
    assert [partition("eu", slot, partitions) for slot in slots] == [
        shard % partitions for shard in range(shards)
    ]


def test_the_only_shard_of_a_cluster_has_the_first_key() -> None:
    assert slots_of("eu", 1, 8) == (0,)
