"""Both topics as one stream of raw records."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from lb_stream.contracts.settings import Settings

RECORD_COLUMNS = (
    "key",
    "value",
    # Headers are an array. The last one of a name counts, as in Kafka's own clients.
    "make_valid_utf8(cast(try_element_at(filter(headers, h -> h.key = 'kind'), -1).value as "
    "string)) as kind",
    "topic",
    "partition",
    "offset",
    "unix_millis(timestamp) as append_ms",
)
MAX_FETCH_BYTES = 10 << 20
"""Bytes of one partition that one request to Kafka brings."""


def read_records(
    spark: SparkSession,
    settings: Settings,
    client: Mapping[str, str],
    starting: str,
    one_by_one: bool = False,
) -> DataFrame:
    """Return the records of the topics of load reports and commands, with RECORD_COLUMNS.

    `key` and `value` are binary. `client`: options of Spark's Kafka source that reach Kafka.
    `starting`: where a new checkpoint begins, as the source's option startingOffsets.
    `one_by_one`: Kafka's client decompresses no record before it is read, which is slow.
    """
    reader = (
        spark.readStream.format("kafka")
        .options(**client)
        .option("subscribe", f"{settings.topics.reports},{settings.topics.commands}")
        .option("startingOffsets", starting)
        .option("includeHeaders", "true")
        .option("failOnDataLoss", str(settings.stream.lost_records == "stop").lower())
        # Every small batch would wait for the default of 500 ms.
        .option("kafka.fetch.max.wait.ms", "10")
        .option("kafka.max.partition.fetch.bytes", str(MAX_FETCH_BYTES))
    )
    if one_by_one:
        reader = reader.option("kafka.max.poll.records", "1")
    if settings.stream.max_offsets_per_trigger:
        reader = reader.option("maxOffsetsPerTrigger", str(settings.stream.max_offsets_per_trigger))
    if settings.stream.decode_tasks:
        reader = reader.option("minPartitions", str(settings.stream.decode_tasks))
    return reader.load().selectExpr(*RECORD_COLUMNS)
