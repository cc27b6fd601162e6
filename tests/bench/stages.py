"""All stages of a batch in one process, without a JVM: decode, fold, rounds, the next directory."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import Row

from lb_stream.contracts.decisions import Decision, read_decision
from lb_stream.contracts.settings import AdmissionSettings, Settings
from lb_stream.core.averages import FoldConfig
from lb_stream.store import Store
from lb_stream.stream import averages
from lb_stream.stream.averages import Folding
from lb_stream.stream.batch import blocks_of_rounds
from lb_stream.stream.columns.reading import ColumnarReader
from lb_stream.stream.context import BatchContext, DecodeConfig
from lb_stream.stream.decide import decide_clusters
from lb_stream.stream.decode import decode
from lb_stream.stream.shard_blocks import ALL_CLUSTERS
from lb_stream.stream.shards.block_files import BlockWriter, delete_unused_files, sample_file
from lb_stream.stream.shards.directory import (
    NEW,
    ShardMap,
    delete_directories,
    read_directory,
    write_directory,
)
from lb_stream.stream.shards.slicing import next_shard_map
from tests.spark.shard_task import State
from tests.support.decoding import RECORDS

EPOCH = 1
SHARD_BUNDLES = 50_000
_SHARDS = pa.schema(
    [
        ("cluster", pa.string()),
        ("shard", pa.int32()),
        *((name, pa.string()) for name in ("clock", "brokers", "names", "values")),
        ("events", pa.binary()),
    ]
)

Record = tuple[bytes, bytes, str | None]
"""Key, value and kind."""


class Cost(NamedTuple):
    """CPU time of a batch's stages, in ms; `directory`: what the driver makes of the rounds."""

    decode: float
    fold: float
    decide: float
    directory: float


class Stages:
    """Runs batches. `tasks`: decoding tasks, each with a Kafka partition; else there is one task.

    Times advance with each batch. `stream`: other settings of the job than the defaults.
    """

    def __init__(
        self,
        folder: Path,
        admission: AdmissionSettings | None = None,
        balancer: Mapping[str, Any] | None = None,
        tasks: int = 1,
        stream: Mapping[str, Any] | None = None,
    ) -> None:
        (folder / "tables").mkdir(parents=True)
        places = {"tables": str(folder / "tables"), "checkpoint": str(folder)}
        self._settings = Settings.model_validate(
            {"stream": places | (stream or {}), "balancer": balancer or {}}
        )
        self._store, self._admission = Store.at(folder), admission or AdmissionSettings()
        self._tasks = tasks
        self.directory: dict[str, ShardMap] = {}
        self._memories: dict[str, str] = {}
        self._states: dict[tuple[str, int], State] = {}
        self.batch = 0
        self._offsets = [0] * tasks
        self.now_ms = 1_700_000_000_000
        self.rounds = pa.table({})

    def run(self, records: Sequence[Record], after_ms: int = 1_000) -> Cost:
        """Run a batch, so long after the last one; return what it costs."""
        self.batch, self.now_ms = self.batch + 1, self.now_ms + after_ms
        raw = [self._raw(records, task) for task in range(self._tasks)]
        times = [time.process_time()]
        rows = self._decode(raw)
        times.append(time.process_time())
        shards = self._fold(rows)
        times.append(time.process_time())
        self.rounds = self._decide(shards)
        times.append(time.process_time())
        self._write_directory(self.rounds)
        times.append(time.process_time())
        # As the driver does now and then.
        used = delete_directories(self._store, self.batch)
        delete_unused_files(self._store, used, self.batch)
        return Cost(*(1_000 * (end - begin) for begin, end in itertools.pairwise(times)))

    def decisions(self) -> Iterator[Decision]:
        """Yield the decisions of the last batch."""
        for entries in self.rounds["decisions"].to_pylist():
            for entry in json.loads(entries):
                yield read_decision(json.dumps(entry).encode())

    def _raw(self, records: Sequence[Record], task: int) -> pa.RecordBatch:
        """Return the records of one task's partition: those of a broker are in one."""
        own = [
            record
            for at, record in enumerate(records)
            if self._tasks == 1 or sum(record[0]) % self._tasks == task
        ]
        rows = [
            {
                "key": key,
                "value": value,
                "kind": kind,
                "topic": "lb-load-reports",
                "partition": task,
                "offset": self._offsets[task] + at,
                "append_ms": self.now_ms + at * 999 // len(own),
            }
            for at, (key, value, kind) in enumerate(own)
        ]
        self._offsets[task] += len(own)
        return pa.RecordBatch.from_pylist(rows, RECORDS)

    def _decode(self, raw: Sequence[pa.RecordBatch]) -> dict[tuple[str, int], list[Row]]:
        rows: dict[tuple[str, int], list[Row]] = {}
        for task, batch in enumerate(raw):
            samples = BlockWriter(self._store, sample_file(self.batch, EPOCH, task), durable=False)
            config = DecodeConfig(
                "default",
                "lb-commands",
                known=self.directory,
                admission=self._admission,
                first=task == 0,
                columnar=ColumnarReader(self._store, self.batch),
            )
            for emitted in decode([batch], config, samples.put):
                for row in emitted.to_pylist():
                    rows.setdefault((row["cluster"], row["slot"]), []).append(Row(**row))
            samples.close()
        return rows

    def _fold(self, rows: Mapping[tuple[str, int], list[Row]]) -> pa.Table:
        folding = Folding({}, FoldConfig(), self._store, "cafe0123", EPOCH)
        with patch.object(averages, "current_task", lambda: (self.batch, 0, 0)):
            folding.begin(State())
        shards = []
        for key in sorted(rows):
            if key[0] != ALL_CLUSTERS:
                folding._state = self._states.setdefault(key, State())
            shards += [shard.asDict() for shard in folding.fold(key, iter(rows[key]))]
        folding.close()
        return pa.Table.from_pylist(shards, _SHARDS)

    def _decide(self, shards: pa.Table) -> pa.Table:
        context = BatchContext(
            self._settings, f"b-{self.batch}", self.batch, EPOCH, True, dict(self._memories)
        )
        return pa.Table.from_batches(decide_clusters(shards.to_batches(), context, "0"))

    def _write_directory(self, rounds: pa.Table) -> None:
        """Keep the memories, and write the next batch's directory."""
        for row in rounds.select(["cluster", "memory"]).to_pylist():
            self._memories.pop(row["cluster"], None)
            if row["memory"]:
                self._memories[row["cluster"]] = row["memory"]
        maps = dict(self.directory)
        for cluster, after in blocks_of_rounds(rounds).items():
            before = maps.pop(cluster, NEW)
            if after.blocks:
                maps[cluster] = next_shard_map(before, after, SHARD_BUNDLES)
        write_directory(self._store, self.batch + 1, EPOCH, maps)
        self.directory = read_directory(self._store, self.batch + 1, EPOCH)
