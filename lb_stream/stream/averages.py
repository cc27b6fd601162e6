"""The stateful stage: one key for each (cluster, shard), its bundles and brokers as two Arrow blocks in the state store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.blocks import EVENT_SCHEMA, Batch, Shard, from_bytes, to_bytes
from lb_stream.stream.crash import crash_point

STATE_DDL = "brokers binary, bundles binary"
SHARD_DDL = "cluster string, shard int, now_ms bigint, brokers binary, bundles binary, events binary"


class ShardProcessor(StatefulProcessor):
    """Folds a micro-batch into each shard and emits the shard's whole view."""

    def __init__(self, configs: Mapping[str, FoldConfig], default: FoldConfig) -> None:
        self._configs, self._default = configs, default

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark once for each partition and batch."""
        self._state = handle.getValueState("shard", STATE_DDL)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """All rows of one (cluster, shard) in this batch: one from each partition that had something for it."""
        cluster, shard_number = key
        batch = _gather(list(rows))
        clock = batch.events.filter(pa.array([kind == "clock" for kind in batch.events["kind"].to_pylist()]))
        now_ms = max(clock["append_ms"].to_pylist())
        shard = _read(self._state.get())
        events = batch.events
        try:
            folded, refused = fold(shard, batch, now_ms, self._configs.get(cluster, self._default))
        except Exception as error:  # one cluster's trouble stays its own: its round will be an error round
            folded, refused = shard, _trouble(error, now_ms)
        crash_point("in_state")
        self._state.update((to_bytes(folded.brokers), to_bytes(folded.bundles)))
        yield Row(
            cluster=cluster,
            shard=shard_number,
            now_ms=now_ms,
            brokers=to_bytes(folded.brokers),
            bundles=to_bytes(folded.bundles),
            events=to_bytes(pa.concat_tables([events, refused])),
        )

    def close(self) -> None:
        """Nothing to release."""


def _gather(rows: list[Row]) -> Batch:
    """One batch from several partitions' blocks, in the order of their first record: arrival order must not show."""
    parts = sorted(
        (Batch(from_bytes(bytes(row.reports)), from_bytes(bytes(row.samples)), from_bytes(bytes(row.events))) for row in rows),
        key=lambda part: min((event["topic"], event["partition"]) for event in part.events.to_pylist()),
    )
    samples, before = [], 0
    for part in parts:
        shifted = pa.array(part.samples["report"].to_numpy() + before, pa.int32())
        samples.append(part.samples.set_column(1, part.samples.schema.field("report"), shifted))
        before += len(part.reports)
    return Batch(
        pa.concat_tables([part.reports for part in parts]), pa.concat_tables(samples), pa.concat_tables([part.events for part in parts])
    )


def _read(state: Any) -> Shard:
    if state is None:
        return Shard.empty()
    return Shard(from_bytes(bytes(state[0])), from_bytes(bytes(state[1])))


def _trouble(error: Exception, now_ms: int) -> pa.Table:
    payload = json.dumps({"stage": "averages", "error": f"{type(error).__name__}: {error}"})
    row = {"kind": "error", "broker": "", "topic": "", "partition": 0, "offset": 0, "append_ms": now_ms, "payload": payload}
    return pa.Table.from_pylist([row], EVENT_SCHEMA)
