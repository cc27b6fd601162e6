"""Tables of one large cluster: an hour as a job has left it, and the rounds that it goes on with,
without Spark and Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lb_stream.contracts.columns.rounds import ROUND_SCHEMA
from lb_stream.contracts.decisions import Decision, example_decision
from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import (
    BROKER_HISTORY,
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    BUNDLE_HISTORY,
    DECISIONS,
    OUTCOMES,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory
from lb_stream.io.tables.commits import Mark
from lb_stream.io.tables.delta import append_rows, open_table
from lb_stream.io.tables.log import RoundLog
from lb_stream.io.tables.projections import Projections
from lb_stream.store import Store
from lb_stream.stream.figures import write_file

CLUSTER, PIPELINE, CHECKPOINT = "large-1", "bench", "bench-console"
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
SHARDS = 4
"""Parts of `bundle_averages`; each round writes all of them anew, as when every shard has had a
report."""
MOVES = 3
"""Decisions of a round; the next round confirms them."""
TAIL = 20
"""The hour's last rounds, which the job hasn't put together into a larger file yet."""
TOGETHER = 60
"""So many of the rounds before make one file of broker_loads."""


@dataclass(frozen=True)
class Cluster:
    """The rows of a cluster's brokers and bundles; loads differ from round to round, the same for
    the same seed."""

    brokers: int
    bundles: int
    draw: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    @cached_property
    def broker_names(self) -> list[str]:
        """Those of a large cluster's brokers."""
        return [f"broker-{at:05d}.large.example:8080" for at in range(self.brokers)]

    @cached_property
    def bundle_names(self) -> list[str]:
        """Four bundles in each namespace, twenty tenants."""
        return [
            f"tenant-{at % 20}/app-{at // 4:06d}/0x{at % 4 * 4:x}0000000_0x{at % 4 * 4 + 3:x}fffffff"
            for at in range(self.bundles)
        ]

    @cached_property
    def rates(self) -> Any:
        """Msgs/s of each bundle: a few carry most of it."""
        return np.exp(np.random.default_rng(2).normal(3, 1.5, self.bundles))

    def loads(self, seq: int, now_ms: int) -> pa.Table:
        """A round's rows of broker_loads."""
        usage = np.clip(
            0.45 + 0.15 * np.sin(np.arange(self.brokers)) + self.draw.normal(0, 0.03, self.brokers),
            0,
            1,
        )
        given: dict[str, Any] = {
            "cluster": [CLUSTER] * self.brokers,
            "broker": self.broker_names,
            "alive": np.full(self.brokers, True),
            "active": np.full(self.brokers, True),
        }
        given |= {
            "usage_ratio": usage,
            "cpu_ratio": usage,
            "bundles": np.full(self.brokers, self.bundles // self.brokers),
        }
        given |= {
            name: np.full(self.brokers, number)
            for name, number in (("seq", seq), ("log_seq", seq), ("now_ms", now_ms))
        }
        given |= {
            name: now_ms - self.draw.integers(0, MINUTE_MS, self.brokers)
            for name in ("seen_ms", "reported_ms")
        }
        return _table(BROKER_LOADS, given, self.brokers, self.draw)

    def averages(self, shard: int, now_ms: int) -> pa.Table:
        """A shard's rows of bundle_averages, without its part's column."""
        at = np.arange(shard, self.bundles, SHARDS)
        given = {
            "owner_since_ms": np.full(len(at), now_ms - HOUR_MS),
            "now_ms": np.full(len(at), now_ms),
            **self._names(at),
        }
        for span in ("latest", "short", "long"):
            given |= {f"{span}_{name}": column for name, column in self._four(at).items()}
        return _table(BUNDLE_AVERAGES, given, len(at), self.draw)

    def history(self, slot_ms: int) -> tuple[tuple[TableSpec, pa.Table], ...]:
        """A slot's rows of the tables of history."""
        return (BUNDLE_HISTORY, self._bundle_history(slot_ms)), (
            BROKER_HISTORY,
            self._broker_history(slot_ms),
        )

    def _bundle_history(self, slot_ms: int) -> pa.Table:
        at = np.arange(self.bundles)
        return _table(
            BUNDLE_HISTORY,
            self._names(at) | self._four(at) | {"slot_ms": np.full(len(at), slot_ms)},
            len(at),
            self.draw,
        )

    def _broker_history(self, slot_ms: int) -> pa.Table:
        given: dict[str, Any] = {
            "cluster": [CLUSTER] * self.brokers,
            "broker": self.broker_names,
            "left": np.full(self.brokers, False),
        }
        given |= {
            name: np.full(self.brokers, slot_ms) for name in ("slot_ms", "seen_ms", "reported_ms")
        }
        return _table(BROKER_HISTORY, given, self.brokers, self.draw)

    def decisions(self, seq: int, now_ms: int) -> list[Decision]:
        """A round's moves."""
        made = []
        for number in range(MOVES):
            bundle, source, destination = (
                int(self.draw.integers(0, most))
                for most in (self.bundles, self.brokers, self.brokers)
            )
            told = {
                "decision_id": f"{CLUSTER}:{seq}:{number}",
                "cluster": CLUSTER,
                "seq": seq,
                "bundle": self.bundle_names[bundle],
            }
            told |= {
                "source": self.broker_names[source],
                "expected_owner": self.broker_names[source],
            }
            told |= {
                "destination": self.broker_names[destination],
                "issued_ms": now_ms,
                "expires_ms": now_ms + MINUTE_MS,
            }
            made.append(example_decision(**told))
        return made

    @cached_property
    def _texts(self) -> pa.Table:
        """Of each bundle."""
        owners = pa.DictionaryArray.from_arrays(
            pa.array(np.arange(self.bundles) % self.brokers), pa.array(self.broker_names)
        )
        return pa.table(
            {
                "cluster": pa.repeat(CLUSTER, self.bundles),
                "bundle": self.bundle_names,
                "owner": owners.cast(pa.string()),
            }
        )

    def _names(self, at: Any) -> dict[str, Any]:
        some = self._texts.take(at)
        return {name: some[name] for name in some.column_names}

    def _four(self, at: Any) -> dict[str, Any]:
        rate = self.rates[at] * self.draw.normal(1, 0.03, len(at))
        names = (
            "throughput_in_bytes_per_s",
            "throughput_out_bytes_per_s",
            "rate_in_msgs_per_s",
            "rate_out_msgs_per_s",
        )
        return dict(zip(names, (1_000 * rate, 1_500 * rate, rate, 1.5 * rate), strict=True))


def _table(
    spec: TableSpec, given: Mapping[str, Any], rows: int, draw: np.random.Generator
) -> pa.Table:
    """Rows of a table without its partition's column; texts that aren't given are null, numbers
    drawn."""
    columns = {}
    for one in spec.schema:
        if one.name == spec.partition_by:
            continue
        if one.name in given:
            found = given[one.name]
            columns[one.name] = (
                found if isinstance(found, pa.ChunkedArray) else pa.array(found)
            ).cast(one.type)
        elif pa.types.is_floating(one.type):
            columns[one.name] = pa.array(draw.random(rows)).cast(one.type)
        elif pa.types.is_integer(one.type):
            columns[one.name] = pa.array(draw.integers(0, 100, rows)).cast(one.type)
        else:
            columns[one.name] = pa.nulls(rows, one.type)
    return pa.table(columns)


def _ended(decisions: list[Decision], seq: int, now_ms: int) -> list[dict[str, Any]]:
    """Each confirmed."""
    return [
        {
            "decision_id": decision.decision_id,
            "cluster": CLUSTER,
            "seq": seq,
            "bundle": decision.bundle,
            "outcome": "confirmed",
            "detail": None,
        }
        | {"at_ms": now_ms, "took_ms": now_ms - decision.issued_ms, "log_seq": seq}
        for decision in decisions
    ]


class Job:
    """Writes rounds as the job's driver and tasks do. `seq`: the last one that is there."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        checkpoint = folder / "checkpoint"
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": CHECKPOINT}))
        self.root, self.cluster = Store.at(folder / "tables"), cluster
        self._log = RoundLog(self.root, PIPELINE, Store.at(checkpoint))
        self._tables = Projections(self.root, PIPELINE)
        self.seq, self._open, self._slot_ms = self._log.last_seq, list[Decision](), 0

    def round(self, now_ms: int) -> list[Decision]:
        """Write one; its decisions."""
        seq = self.seq + 1
        made = self.cluster.decisions(seq, now_ms)
        name = f"{CHECKPOINT}-{seq:09d}-0"
        loads = write_file(self.root, BROKER_LOADS, self.cluster.loads(seq, now_ms), name)
        row = _round(seq, now_ms, made) | {"files": json.dumps({BROKER_LOADS.name: loads})}
        row["outcomes"] = json.dumps(_ended(self._open, seq, now_ms))
        rounds = pa.Table.from_pylist(
            [{one.name: row.get(one.name) for one in ROUND_SCHEMA}], ROUND_SCHEMA
        )
        self._log.find(seq)
        logged = self._log.append_once(seq, rounds)
        self._tables.project(logged)
        self._tables.replace_parts(CHECKPOINT, seq, self._parts(seq, now_ms, name))
        self._log.run_upkeep()
        self.seq, self._open = seq, made
        return made

    def _parts(self, seq: int, now_ms: int, name: str) -> dict[str, dict[str, Any]]:
        parts: dict[str, dict[str, Any]] = {}
        for shard in range(SHARDS):
            part = f"{CLUSTER}.{shard}"
            rows = self.cluster.averages(shard, now_ms)
            parts[part] = {
                BUNDLE_AVERAGES.name: write_file(
                    self.root, BUNDLE_AVERAGES, rows, name, part, compression="lz4"
                )
            }
        slot_ms = now_ms // MINUTE_MS * MINUTE_MS
        if slot_ms > self._slot_ms:
            for spec, rows in self.cluster.history(slot_ms):
                parts[f"{CLUSTER}.0"][spec.name] = write_file(self.root, spec, rows, name) | {
                    "slots": [slot_ms, slot_ms]
                }
            self._slot_ms = slot_ms
        return parts


def _round(seq: int, now_ms: int, made: list[Decision]) -> dict[str, Any]:
    """A row of the log with these decisions, without outcomes and files."""
    lists = dict.fromkeys((one.name for one in ROUND_SCHEMA if pa.types.is_string(one.type)), "[]")
    inputs = {
        "offsets": {"lb-reports": {"0": [seq, seq]}},
        "settings": {"shedding_strategy": "ThresholdShedder"},
    }
    return lists | {
        "cluster": CLUSTER,
        "seq": seq,
        "epoch": 1,
        "now_ms": now_ms,
        "error": None,
        "files": "{}",
        "shadow_memory": "{}",
        "decisions": json.dumps([one.model_dump(mode="json") for one in made]),
        "memory": Memory(seq=seq, epoch=1, first_ms=now_ms - HOUR_MS).to_json(),
        "inputs": json.dumps(inputs),
    }


def hour(folder: Path, cluster: Cluster, end_ms: int, step_ms: int) -> Job:
    """Write the hour before `end_ms`: most of its rounds, `step_ms` apart, at once, and the last
    ones as the job does."""
    Job(folder, cluster)  # creates the tables
    count = HOUR_MS // step_ms
    times = [end_ms - HOUR_MS + number * step_ms for number in range(count)]
    _at_once(Store.at(folder / "tables"), cluster, times[: max(1, count - TAIL)], step_ms)
    job = Job(folder, cluster)
    for at_ms in times[job.seq + 1 :]:
        job.round(at_ms)
    return job


def _at_once(root: Store, cluster: Cluster, times: list[int], step_ms: int) -> None:
    """The first rounds of a log."""

    def put(
        spec: TableSpec, rows: pa.Table | list[dict[str, Any]], last: int | None, name: str = "hour"
    ) -> None:
        if isinstance(rows, list):
            rows = pa.Table.from_pylist(
                [{name: row.get(name) for name in spec.schema.names} for row in rows], spec.schema
            )
        marks: list[Mark] = [] if last is None else [(PIPELINE, last)]
        if spec is ROUNDS and last is not None:
            marks.append((app, last))
        append_rows(open_table(root, spec), spec, rows.select(spec.schema.names), name, marks)

    app, last, numbers = f"{PIPELINE}/{CHECKPOINT}", len(times) - 1, range(len(times))
    made = [cluster.decisions(seq, times[seq]) for seq in numbers]
    put(
        ROUNDS,
        [
            _round(seq, times[seq], made[seq]) | {"app": app, "batch_id": seq, "log_seq": seq}
            for seq in numbers
        ],
        last,
    )
    told = [
        one.model_dump(mode="json") | {"explain": one.explain.to_json(), "log_seq": one.seq}
        for some in made
        for one in some
    ]
    put(DECISIONS, told, last)
    put(
        OUTCOMES,
        [row for seq in numbers for row in _ended(made[seq], seq, times[seq] + step_ms)],
        last,
    )
    for some in (numbers[begin : begin + TOGETHER] for begin in numbers[::TOGETHER]):
        put(
            BROKER_LOADS,
            pa.concat_tables(cluster.loads(seq, times[seq]) for seq in some),
            some[-1],
            f"hour-{some[0]}",
        )
    for slot_ms in range(times[0] // MINUTE_MS * MINUTE_MS, times[-1], MINUTE_MS):
        for spec, rows in cluster.history(slot_ms):
            put(spec, rows, None, f"hour-{slot_ms}")


def now_ms() -> int:
    """Ms since the epoch."""
    return time.time_ns() // 1_000_000
