"""`python -m tests.bench.admission`: what a storm and made-up clusters cost a batch, without a JVM.

Nine calm clusters of twenty brokers; each second a fifth of the brokers reports fifty bundles and
sends a heartbeat. A tenth cluster sends as much, then a hundred times as many. Then clusters that
don't exist report once, and are forgotten. The last line is one JSON object: ms of CPU time for
decode, fold, rounds and directory of a batch (medians of three). `--unlimited`: without limits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import Row

from lb_stream.contracts.settings import AdmissionSettings, Settings
from lb_stream.core.averages import FoldConfig
from lb_stream.store import Store
from lb_stream.stream import averages
from lb_stream.stream.averages import Folding
from lb_stream.stream.batch import blocks_of_rounds
from lb_stream.stream.context import BatchContext, DecodeConfig
from lb_stream.stream.decide import decide_clusters
from lb_stream.stream.decode import decode
from lb_stream.stream.shard_blocks import ALL_CLUSTERS
from lb_stream.stream.shards.directory import (
    NEW,
    ListeningTime,
    ShardMap,
    read_directory,
    write_directory,
)
from lb_stream.stream.shards.slicing import next_shard_map
from tests.bench.stream.fleet import Fleet, Shape
from tests.spark.shard_task import State
from tests.support.decoding import RECORDS

BEAT = json.dumps({"sent_ms": 0}).encode()
RUNS, CALM, EXPIRES_MS = 3, 9, 1_800_000
UNLIMITED = AdmissionSettings(records_per_second=0, clusters=0, unconfirmed_clusters=0)
_SHARDS = pa.schema(
    [
        ("cluster", pa.string()),
        ("shard", pa.int32()),
        *((name, pa.string()) for name in ("clock", "brokers", "names", "values")),
        ("events", pa.binary()),
    ]
)

Record = tuple[bytes, bytes, str | None]


class Stages:
    """All stages of a batch, one task each."""

    def __init__(self, folder: Path, admission: AdmissionSettings) -> None:
        (folder / "tables").mkdir()
        places = {"tables": str(folder / "tables"), "checkpoint": str(folder)}
        self._settings = Settings.model_validate({"stream": places})
        self._store, self._admission = Store.at(folder), admission
        self.directory: dict[str, ShardMap] = {}
        self._memories: dict[str, str] = {}
        self._states: dict[tuple[str, int], State] = {}
        self._batch = self._offset = 0
        self.now_ms = 1_700_000_000_000

    def run(self, records: list[Record], after_ms: int = 1_000) -> float:
        """Run a batch, so long after the last one; return ms of CPU time."""
        self._batch, self.now_ms = self._batch + 1, self.now_ms + after_ms
        rows = [
            {
                "key": key,
                "value": value,
                "kind": kind,
                "topic": "lb-load-reports",
                "partition": 0,
                "offset": self._offset + at,
                "append_ms": self.now_ms + at * 999 // len(records),
            }
            for at, (key, value, kind) in enumerate(records)
        ]
        self._offset += len(records)
        raw = pa.RecordBatch.from_pylist(rows, RECORDS)
        begin = time.process_time()
        self._decide(self._fold(raw))
        return 1_000 * (time.process_time() - begin)

    def _fold(self, raw: pa.RecordBatch) -> pa.Table:
        config = DecodeConfig(
            "default", "lb-commands", known=self.directory, admission=self._admission
        )
        rows: dict[tuple[str, int], list[Row]] = {}
        for batch in decode([raw], config):
            for row in batch.to_pylist():
                rows.setdefault((row["cluster"], row["slot"]), []).append(Row(**row))
        folding = Folding({}, FoldConfig(), self._store, "cafe0123", 1)
        with patch.object(averages, "current_task", lambda: (self._batch, 0, 0)):
            folding.begin(State())
        shards = []
        for key in sorted(rows):
            if key[0] != ALL_CLUSTERS:
                folding._state = self._states.setdefault(key, State())
            shards += [shard.asDict() for shard in folding.fold(key, iter(rows[key]))]
        folding.close()
        return pa.Table.from_pylist(shards, _SHARDS)

    def _decide(self, shards: pa.Table) -> None:
        context = BatchContext(
            self._settings, f"b-{self._batch}", self._batch, 1, True, dict(self._memories)
        )
        rounds = pa.Table.from_batches(decide_clusters(shards.to_batches(), context, "0"))
        for row in rounds.select(["cluster", "memory"]).to_pylist():
            self._memories.pop(row["cluster"], None)
            if row["memory"]:
                self._memories[row["cluster"]] = row["memory"]
        maps = dict(self.directory)
        for cluster, after in blocks_of_rounds(rounds).items():
            before = maps.pop(cluster, NEW)
            if after.blocks:
                maps[cluster] = next_shard_map(before, after, 50_000)
        write_directory(self._store, self._batch + 1, 1, maps)
        self.directory = read_directory(self._store, self._batch + 1, 1)


def with_beats(reports: list[tuple[bytes, bytes]]) -> list[Record]:
    """Reports, each with a heartbeat of its broker."""
    beats: list[Record] = [(key, BEAT, "heartbeat") for key, _ in reports]
    return [*((key, value, None) for key, value in reports), *beats]


def measure(admission: AdmissionSettings, made_up: int) -> dict[str, Any]:
    """Measure all states in turn."""
    calm = Fleet(Shape(CALM, 20, 50), seed=2, prefix="calm")
    wild = Fleet(Shape(1, 20, 50), seed=3, prefix="wild")
    fifth = range(0, calm.brokers, 5)

    def second(times: int) -> list[Record]:
        stormy = [report for _ in range(times) for report in wild.reports(range(0, 20, 5))]
        return with_beats(calm.reports(fifth)) + with_beats(stormy)

    with tempfile.TemporaryDirectory() as folder:
        stages = Stages(Path(folder), admission)
        stages.run(with_beats(calm.generation() + wild.generation()))

        def median(times: int = 1) -> float:
            stages.run(second(times))
            return round(statistics.median(stages.run(second(times)) for _ in range(RUNS)), 1)

        found: dict[str, Any] = {"calm": median(), "storm": median(100)}
        found["calm_again"], found["storm_again"] = median(), median(100)
        found["before"] = median()
        report = calm.reports([0])[0][1]
        fakes: list[Record] = [(f"x{at}/b:1".encode(), report, None) for at in range(made_up)]
        found["made_up_batches"] = [
            round(stages.run(fakes[at : at + 5_000])) for at in range(0, made_up, 5_000)
        ]
        found["after"], found["clusters"] = median(), len(stages.directory)
        listening = ListeningTime()
        for now_ms in range(stages.now_ms, stages.now_ms + EXPIRES_MS + 1, 50_000):
            listening.record_batch(now_ms, caught_up=True)
        stages.run(second(1), EXPIRES_MS)
        for cluster in listening.unconfirmed_clusters(stages.directory, stages.now_ms, EXPIRES_MS):
            stages.directory[cluster] = replace(stages.directory[cluster], leaving=True)
        stages.run(second(1))
        found["expired"], found["clusters_left"] = median(), len(stages.directory)
    storms = found["storm"] + found["storm_again"]
    found["storm_ratio"] = round(storms / (found["calm"] + found["calm_again"]), 2)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.admission", description=__doc__)
    parser.add_argument("--unlimited", action="store_true", help="without limits of admission")
    parser.add_argument("--clusters", type=int, default=10_000, help="made-up ones (10,000)")
    given = parser.parse_args()
    limits = UNLIMITED if given.unlimited else AdmissionSettings()
    print(json.dumps(measure(limits, given.clusters)))
