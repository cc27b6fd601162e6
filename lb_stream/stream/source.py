"""Both topics as one stream of raw records."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from lb_stream.contracts.settings import Settings


def _header(name: str) -> str:
    """Return the expression of a header's bytes.

    Headers are an array. The last one of a name counts, as in Kafka's own clients.
    """
    return f"try_element_at(filter(headers, h -> h.key = '{name}'), -1).value"


def _text(name: str) -> str:
    return f"make_valid_utf8(cast({_header(name)} as string))"


RECORD_COLUMNS: tuple[str, ...] = (
    "key",
    "value",
    f"{_text('kind')} as kind",
    "topic",
    "partition",
    "offset",
    "unix_millis(timestamp) as append_ms",
)
SIGNATURE_COLUMNS = (
    f"{_text('lb-key')} as key_id",
    f"try_cast({_text('lb-signed-us')} as bigint) as signed_us",
    f"{_header('lb-signature')} as signature",
)
"""The columns of decode.SIGNATURE_FIELDS."""
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

    Where signatures are checked, they have SIGNATURE_COLUMNS, too.

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
    columns = RECORD_COLUMNS
    if settings.security.checks_records:
        columns += SIGNATURE_COLUMNS
    return reader.load().selectExpr(*columns)
