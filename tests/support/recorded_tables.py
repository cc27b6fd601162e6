"""Tables of a simulated cluster's rounds, written by the stream's own code: log, projections,
figures. Without a JVM, in a second."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.columns.rounds import RoundRow
from lb_stream.contracts.settings import Settings
from lb_stream.contracts.tables import BATCHES, ROUNDS
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Round
from lb_stream.io.tables.delta import open_table
from lb_stream.io.tables.projections import Projections
from lb_stream.settings.load import load
from lb_stream.sim import build_cluster
from lb_stream.store import Store
from lb_stream.stream.context import BatchContext
from lb_stream.stream.decide import encode_entries
from lb_stream.stream.figures import FigureFiles, part_files
from lb_stream.stream.ports import Logged
from lb_stream.stream.shards.block_files import BlockWriter
from lb_stream.stream.shards.history import Slot, next_slot
from lb_stream.stream.shards.shard_files import names_block
from lb_stream.stream.shards.slicing import DueShard
from tests.support.sim_loop import ClosedLoop

START_MS = 1_767_225_600_000
"""2026-01-01 00:00 UTC: the same rounds at every run."""
DEMO: Mapping[str, Any] = load(
    Path(__file__).parents[2] / "conf" / "local.toml", None, ()
).settings.of_cluster("demo")
"""The demo's settings."""


class Recorder:
    """Runs one cluster (named demo) and writes every round as the stream would."""

    def __init__(
        self, root: Path, loop: ClosedLoop, settings: Mapping[str, Any], pipeline: str = "lb_stream"
    ) -> None:
        self.root, self.loop, self.settings = root, loop, settings
        self.rounds: list[Round] = []
        self._checkpoint = root.parent / f"{root.name}-checkpoint"
        self._stream = Settings.model_validate(
            {"stream": {"tables": str(root), "checkpoint": str(self._checkpoint)}}
        )
        self._log = open_table(Store.at(root), ROUNDS)
        self._projections = Projections(Store.at(root), pipeline)
        self._log_seq, self._app = -1, f"{pipeline}/recorded"
        self._history_ms: int | None = None

    def run(self, steps: int, step_ms: int = 1000) -> None:
        """So many rounds, with their history, and the averages after the last one."""
        for _ in range(steps):
            self._write(self.loop.step(step_ms))
            if slot := next_slot(
                self._history_ms, self.loop.now_ms, self._stream.stream.history_resolution_ms
            ):
                self._write_parts(slot)
                self._history_ms = self.loop.now_ms
        self._write_parts(None)

    def _write(self, made: Round) -> None:
        assert self.loop.view is not None
        self.rounds.append(made)
        self._log_seq += 1
        context = BatchContext(
            self._stream, f"batch-{self._log_seq}", self._log_seq, made.memory.epoch, True, {}
        )
        taken = FigureFiles(context, "0-0")
        taken.add_loads(self.loop.view, made)
        inputs = {"offsets": {}, "caught_up": True, "settings": self.settings, "acks": []}
        row = RoundRow(
            cluster=made.cluster,
            seq=made.seq,
            epoch=made.memory.epoch,
            now_ms=made.now_ms,
            memory=made.memory.to_json(),
            inputs=canonical_json(inputs),
            **encode_entries(made),
        )
        taken.write([row])
        place = {"app": self._app, "batch_id": self._log_seq, "log_seq": self._log_seq}
        rounds = pa.Table.from_pylist([asdict(row) | place], ROUNDS.schema)
        write_deltalake(self._log, rounds, mode="append")
        self._projections.project(Logged(self._log_seq, rounds))

    def _write_parts(self, slot: Slot | None) -> None:
        name = f"{self._log_seq}-{slot is None}"
        writer, shard = BlockWriter(Store.at(self._checkpoint), f"{name}-blocks"), self.loop.shard
        blocks = (
            writer.put(shard.brokers),
            writer.put(names_block(shard.bundles["name"])),
            writer.put(shard.bundles.drop_columns("name")),
        )
        writer.close()
        entries = [DueShard("demo", 0, self.loop.now_ms, blocks, slot)]
        files = part_files(
            "demo-0", entries, Store.at(self.root), Store.at(self._checkpoint), f"averages-{name}"
        )
        self._projections.replace_parts(f"demo-{name}", self._log_seq, {"demo-0": files})


def record(
    root: Path,
    steps: int = 60,
    *,
    brokers: int = 6,
    bundles: int = 48,
    workload: str = "hot_spot",
    settings: Mapping[str, Any] = {},
) -> Recorder:
    """Tables of one run under the demo's settings."""
    given = json.loads(json.dumps(dict(DEMO) | {"mode": "act"} | dict(settings)))
    cluster = build_cluster(brokers, bundles, workload, 1, START_MS, at_s=5.0)
    recorder = Recorder(root, ClosedLoop(cluster, given, START_MS, Memory(epoch=1)), given)
    recorder.run(steps)
    return recorder


def batches(root: Path, rounds: int) -> None:
    """Rows of `batches` as the stream's monitor writes them: one a second, 40 ms of work, three
    records left unread by the last."""
    rows = [
        {
            "app": "lb_stream/recorded",
            "epoch": 1,
            "batch_id": number,
            "log_seq": number,
            "started_ms": START_MS + 1000 * (number + 1),
            "input_records": 7,
            "lag_records": 3 if number == rounds - 1 else 0,
            "rounds": 1,
            "decisions": 0,
            "refusals": 0,
            "errors": 0,
            "whole_ms": 40 + number % 5,
            "offsets_ms": 2,
            "planning_ms": 5,
            "wal_ms": 3,
            "decide_ms": 20.0,
            "log_ms": 4.0,
            "publish_ms": 3.0,
            "project_ms": 2.0,
            "next_ms": 0.5,
            "commit_ms": 1,
        }
        for number in range(rounds)
    ]
    write_deltalake(
        open_table(Store.at(root), BATCHES),
        pa.Table.from_pylist(rows, BATCHES.schema),
        mode="append",
    )
