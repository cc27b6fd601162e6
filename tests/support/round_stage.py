"""Rounds of a cluster as the stream decides them, without Spark."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lb_stream.contracts.columns.rounds import ROUND_SCHEMA
from lb_stream.contracts.settings import Settings
from lb_stream.contracts.tables import SHADOW_ROUNDS
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import Shard, to_bytes
from lb_stream.io.tables.log import RoundLog
from lb_stream.io.tables.projections import Projections
from lb_stream.store import Store
from lb_stream.stream.context import BatchContext
from lb_stream.stream.decide import decide_clusters
from lb_stream.stream.shards.block_files import BlockWriter
from lb_stream.stream.shards.shard_files import names_block
from tests.support.build import Event, Report, batch_of
from tests.support.hot_broker import HOT, SETTINGS, STATS
from tests.support.written_tables import Job, rows_of

SHADOWS = {"keen": {"threshold_percent": 9}, "other": {"shedding_strategy": "OverloadShedder"}}


class Stage:
    """The deciding stage, a log, and tables; one batch a minute."""

    def __init__(self, folder: Path, shadows: Mapping[str, Any] = SHADOWS, **stream: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.job = Job(folder)
        places = {
            "tables": str(self.job.tables),
            "checkpoint": str(self.job.checkpoint),
            "pipeline_id": "p",
        }
        own = {"eu": {"shadow": dict(shadows)}} if shadows else {}
        self.settings = Settings.model_validate(
            {"stream": places | stream, "balancer": SETTINGS | {"dry_run": False}, "cluster": own}
        )
        self.shard, self.batch = Shard.empty(), -1
        self.owned: Mapping[str, Sequence[str]] = HOT
        self.versions: Mapping[str, str] = {}  # broker → the version that it reports
        self.events: list[Event] = []  # of the next batch

    def restart(self) -> None:
        """A new job: it knows what the log says."""
        self.job.log = RoundLog(Store.at(self.job.tables), "p", Store.at(self.job.checkpoint))
        self.job.tables_of = Projections(Store.at(self.job.tables), "p")

    def run(self, batches: int = 1, heard: bool = True) -> dict[str, Any]:
        """So many batches; `heard`: with a report of every broker.

        Returns the last row, logged or not.
        """
        for _ in range(batches):
            self.batch += 1
            (row,) = pa.Table.from_batches(
                decide_clusters(self._shards(heard), self._context(), "0")
            ).to_pylist()
            if not row["idle"]:
                logged = self.job.log.append_once(
                    self.batch, pa.Table.from_pylist([row], ROUND_SCHEMA)
                )
                self.job.tables_of.project(logged)
        return row

    def _context(self) -> BatchContext:
        log = self.job.log
        return BatchContext(
            self.settings,
            f"b-{self.batch}",
            log.last_seq + 1,
            1,
            True,
            dict(log.memories),
            shadow_memories=dict(log.shadow_memories),
        )

    def _shards(self, heard: bool) -> list[pa.RecordBatch]:
        now_ms = 1_000_000 + 60_000 * self.batch + (0 if heard else 1)
        reports = [
            Report(
                name,
                now_ms,
                dict.fromkeys(names, STATS),
                {"cpu": (15.0 * len(names), 100.0)},
                offset=now_ms + place,
                version=self.versions.get(name, ""),
            )
            for place, (name, names) in enumerate(self.owned.items())
        ]
        batch = batch_of(reports if heard else [], self.events)
        self.events = []
        self.shard, _ = fold(self.shard, batch, now_ms, FoldConfig())
        writer = BlockWriter(Store.at(self.job.checkpoint), f"eu-{self.batch}.arrow")
        blocks = (
            self.shard.brokers,
            names_block(self.shard.bundles["name"]),
            self.shard.bundles.drop_columns("name"),
        )
        given: dict[str, Any] = dict(
            zip(("brokers", "names", "values"), map(writer.put, blocks), strict=True)
        )
        writer.close()
        clock = json.dumps(
            [
                {
                    "topic": "lb-load-reports",
                    "partition": 0,
                    "first": self.batch,
                    "last": self.batch,
                    "append_ms": now_ms,
                }
            ]
        )
        rows = pa.Table.from_pylist(
            [
                given
                | {"cluster": "eu", "shard": 0, "clock": clock, "events": to_bytes(batch.events)}
            ]
        )
        return list(rows.to_batches())

    def outcomes(self) -> dict[str, list[str]]:
        """Policy → the outcomes of its rounds."""
        found: dict[str, list[str]] = {}
        for row in rows_of(self.job, SHADOW_ROUNDS).to_pylist():
            found.setdefault(row["policy"], []).append(row["outcome"])
        return found
