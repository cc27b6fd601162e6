"""Both topics as one stream of raw records."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from lb_stream.contracts.settings import Settings

RECORD_COLUMNS = (
    "key",
    "value",
    # An array of headers; the last one of that name counts, as in Kafka's own clients.
    "make_valid_utf8(cast(try_element_at(filter(headers, h -> h.key = 'kind'), -1).value as "
    "string)) as kind",
    "topic",
    "partition",
    "offset",
    "unix_millis(timestamp) as append_ms",
)


def read_records(
    spark: SparkSession,
    settings: Settings,
    client: Mapping[str, str],
    starting: str,
    one_by_one: bool = False,
) -> DataFrame:
    """key, value (binary), kind, topic, partition, offset, append_ms of every record of the reports
    and commands topics.

    `client`: how to reach Kafka, as options of Spark's Kafka source. `starting`: where a new
    checkpoint begins, as its option startingOffsets has it. `one_by_one`: Kafka's client
    decompresses no record before it is read; it is slow so.
    """
    reader = (
        spark.readStream.format("kafka")
        .options(**client)
        .option("subscribe", f"{settings.topics.reports},{settings.topics.commands}")
        .option("startingOffsets", starting)
        .option("includeHeaders", "true")
        .option("failOnDataLoss", str(settings.stream.lost_records == "stop").lower())
        .option(
            "kafka.fetch.max.wait.ms", "10"
        )  # the default 500 makes every small batch wait that long
        .option("kafka.max.partition.fetch.bytes", str(10 * 1024 * 1024))
    )
    if one_by_one:
        reader = reader.option("kafka.max.poll.records", "1")
    if settings.stream.max_offsets_per_trigger:
        reader = reader.option("maxOffsetsPerTrigger", str(settings.stream.max_offsets_per_trigger))
    if settings.stream.decode_tasks:
        reader = reader.option("minPartitions", str(settings.stream.decode_tasks))
    return reader.load().selectExpr(*RECORD_COLUMNS)
