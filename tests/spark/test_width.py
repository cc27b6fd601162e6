"""More decoding tasks than Kafka has partitions: what they make of a partition together is what one
makes of it. No JVM needed."""

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from lb_stream.contracts.settings import Settings
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import Shard
from lb_stream.stream.averages import merge_clocks
from lb_stream.stream.decode import decode
from lb_stream.stream.gathering import gather_batch
from lb_stream.stream.shard_blocks import ALL_CLUSTERS
from lb_stream.stream.source import read_records
from tests.support.decoding import BUNDLE, KNOWN, RECORDS, record, report

SENT = [
    *(
        record(
            f"eu/b{at % 3}".encode(),
            report(lastStats={BUNDLE: {"msgRateIn": float(at)}}, lastUpdate=at),
            at,
        )
        for at in range(9)
    ),
    *(
        record(f"eu/b{at % 3}".encode(), b'{"sent_ms": 1}', at, kind="heartbeat")
        for at in range(9, 14)
    ),
    record(b"eu/b1", None, 14),
]


def whole(pieces: list[list[dict[str, Any]]]) -> tuple[list[dict[str, Any]], list[Any]]:
    """The clock, and brokers and bundles of the shard, after a batch that several tasks have
    decoded."""
    rows = [
        Row(**row)
        for piece in pieces
        for batch in decode([pa.RecordBatch.from_pylist(piece, RECORDS)], KNOWN)
        for row in batch.to_pylist()
    ]
    clock = merge_clocks(
        seen for row in rows if row.cluster == ALL_CLUSTERS for seen in json.loads(row.clock)
    )
    batch = gather_batch(
        [row for row in rows if row.cluster == "eu"],
        lambda reference: pytest.fail(f"{reference}: they are few"),
    )
    shard, refused = fold(Shard.empty(), batch, 2_000, FoldConfig())
    return clock, [shard.brokers.to_pylist(), shard.bundles.to_pylist(), refused.to_pylist()]


@pytest.mark.parametrize("cuts", [(4,), (1, 2, 13), (9, 10), (8, 3)])
def test_a_partition_that_several_tasks_have_read_is_taken_as_if_one_had(
    cuts: tuple[int, ...],
) -> None:
    ends = [0, *sorted(cuts), len(SENT)]
    pieces = [SENT[begin:end] for begin, end in pairwise(ends)]
    if cuts != tuple(sorted(cuts)):
        pieces.reverse()  # whichever comes first
    assert whole(pieces) == whole([SENT])


class Reader:
    """Spark's reader of a stream: it notes its options."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    @property
    def readStream(self) -> "Reader":
        return self

    def format(self, _name: str) -> "Reader":
        return self

    def options(self, **_options: str) -> "Reader":
        return self

    def option(self, name: str, value: str) -> "Reader":
        self.given[name] = value
        return self

    def load(self) -> "Reader":
        return self

    def selectExpr(self, *_columns: str) -> dict[str, str]:
        return self.given


@pytest.mark.parametrize(("tasks", "option"), [(0, None), (7, "7")])
def test_kafka_partitions_bound_the_number_of_tasks_unless_more_are_wanted(
    tasks: int, option: str | None
) -> None:
    settings = Settings.model_validate({"stream": {"decode_tasks": tasks}})
    given: Any = read_records(Reader(), settings, {}, "earliest")
    assert given.get("minPartitions") == option
