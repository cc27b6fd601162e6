"""Builds what a scenario's brokers send, as the decoder's columns.

These are load reports, heartbeats, acknowledgements and goodbyes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lb_stream.core.model.blocks import EVENT_SCHEMA, REPORT_SCHEMA, SAMPLE_SCHEMA, Batch
from lb_stream.sim.model import BrokerMeasurements, ClusterModel
from lb_stream.sim.reports import MANAGERS, ReportForm, true_and_stated_limits
from lb_stream.sim.scenario.scenario import Bools, Floats, Ints
from lb_stream.sim.simulation.splits import SplittableModel, pack_topic_shares

Column: TypeAlias = NDArray[np.generic] | pa.Array | Sequence[object]
"""Values of a column, from which Arrow builds an array."""

TOPIC = "reports"
START_MS = 1_700_000_000_000
"""The time, ms since the epoch, at which every scenario begins."""
CPU_LIMIT = 100.0
"""The limit of cpu that every report states: one core, in hundredths."""
_FOUR = (
    "rate_in_msgs_per_s",
    "rate_out_msgs_per_s",
    "throughput_in_bytes_per_s",
    "throughput_out_bytes_per_s",
)
"""Names in reports' columns of the rows of LOADS."""
_COUNTS = ("topics", "producers", "consumers")


def at_ms(t_s: float) -> int:
    """Convert a scenario's time (s) to ms since the epoch."""
    return START_MS + round(t_s * 1000)


@dataclass(frozen=True, slots=True)
class ReportTables:
    """Reports of some brokers at one time, and samples of their bundles, without positions.

    Their columns are those of REPORT_SCHEMA and SAMPLE_SCHEMA.
    """

    reports: pa.Table
    samples: pa.Table


@dataclass(slots=True)
class SimulatedReporter:
    """Builds reports of a model's brokers. It keeps the measurements of stale brokers."""

    model: ClusterModel
    manager: ReportForm  # the load manager whose reports these are
    stale: frozenset[int] = frozenset()  # brokers that may report old figures
    _names: pa.Array = field(init=False)
    _limits: dict[str, tuple[Floats, Floats]] = field(init=False)  # true and stated ones
    _past: dict[int, list[_PastMeasurements]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names = pa.array(self.model.names, pa.string())
        self._limits = true_and_stated_limits(self.model.scenario.brokers)

    def remember(self, t_s: float, brokers: Iterable[int] | None = None) -> None:
        """Keep the measurements of a tick for brokers that may report them later.

        `brokers`: only for these, which come up between ticks.
        """
        wanted = sorted(self.stale if brokers is None else self.stale.intersection(brokers))
        if not wanted:
            return
        measured = self.model.measure(t_s)
        for broker in wanted:
            rows = np.flatnonzero(self.model.owner == broker)
            self._past.setdefault(broker, []).append(
                _PastMeasurements(t_s, rows, measured.loads[:, rows], measured)
            )

    def make(self, brokers: Sequence[int], t_s: float, late_s: Mapping[int, float]) -> ReportTables:
        """Build the reports of these brokers now, in this order.

        `late_s`: broker → the age of its figures, seconds, for those with stale reports.
        """
        model, measured = self.model, self.model.measure(t_s)
        # bundles, grouped by the rank of their broker among `brokers`
        rank = np.full(len(model.up) + 1, -1)
        rank[np.asarray(brokers, np.int64)] = np.arange(len(brokers))
        rank_of = rank[model.owner]
        rows = np.flatnonzero(rank_of >= 0)
        rows = rows[np.argsort(rank_of[rows], kind="stable")]
        loads = measured.loads[:, rows]
        has_stats = np.ones(len(rows), np.bool_)
        figures = _broker_figures(measured, np.asarray(brokers, np.int64))
        # stale brokers report what they measured earlier
        for broker, delay_s in late_s.items():
            past = self._find_past(broker, t_s - delay_s)
            its = np.flatnonzero(rank_of[rows] == rank[broker])
            loads[:, its], has_stats[its] = past.loads_of(rows[its])
            for name, column in _broker_figures(past.measured, np.array([broker])).items():
                figures[name][rank[broker]] = column[0]
        # counts of each broker
        rank_of = rank_of[rows]
        counted = {
            name: np.bincount(rank_of, getattr(model, name)[rows], len(brokers)) for name in _COUNTS
        }
        counted["bundles"] = np.bincount(rank_of, minlength=len(brokers))
        return ReportTables(
            self._reports(brokers, t_s, figures, counted),
            self._samples(rows, rank_of, loads, has_stats, t_s),
        )

    def _find_past(self, broker: int, t_s: float) -> _PastMeasurements:
        """Find a broker's measurements at the last tick until `t_s`, or its first ones."""
        own = [
            past for past in self._past[broker] if past.t_s >= self.model.up_since_s[broker] - 1e-9
        ]
        return next((past for past in reversed(own) if past.t_s <= t_s + 1e-9), own[0])

    def _reports(
        self,
        brokers: Sequence[int],
        t_s: float,
        figures: Mapping[str, Floats],
        counted: Mapping[str, Ints],
    ) -> pa.Table:
        model, count, now_ms = self.model, len(brokers), at_ms(t_s)
        columns: dict[str, Column] = {
            "name": [model.scenario.brokers.names[row] for row in brokers],
            "kind": ["modular"] * count,
            # No two reports of a broker are equal, as their times are not.
            "digest": [now_ms.to_bytes(8, "big")] * count,
            "start_timestamp_ms": [at_ms(model.up_since_s[row]) for row in brokers],
            "last_update_ms": np.full(count, now_ms, np.int64),
            "bundle_gains": np.zeros(count, np.int64),
            "bundle_losses": np.zeros(count, np.int64),
            "persistent_topics": [True] * count,
            "non_persistent_topics": [True] * count,
            "version": [None] * count,
            "load_manager": [MANAGERS[self.manager]] * count,
            **{name: column.astype(np.int64) for name, column in counted.items()},
        }
        cpu = np.full(count, CPU_LIMIT)
        columns |= {"cpu_limit": cpu, "cpu_usage": figures["cpu"] * cpu}
        rows = np.asarray(brokers, np.int64)
        for resource, (true, stated) in self._limits.items():
            columns[f"{resource}_limit"] = stated[rows]
            columns[f"{resource}_usage"] = figures[resource] * true[rows]
        columns |= {f"latest_{name}": figures[name] for name in _FOUR}
        return _table(columns, count, REPORT_SCHEMA)

    def _samples(
        self, rows: Ints, rank: Ints, loads: Floats, has_stats: Bools, t_s: float
    ) -> pa.Table:
        model = self.model
        columns: dict[str, Column] = {
            f"latest_{name}": row for name, row in zip(_FOUR, loads, strict=True)
        }
        columns |= {name: getattr(model, name)[rows] for name in _COUNTS}
        if len(self._names) < len(model.names):  # splits have added some
            self._names = pa.array(model.names, pa.string())
        names = self._names.take(pa.array(rows))
        cached = loads[2].astype(np.int64)
        columns |= {
            "name": names,
            "report": rank.astype(np.int32),
            "has_stats": has_stats,
            "cache_size_bytes": cached,
        }
        if isinstance(model, SplittableModel):
            arrive_ms = at_ms(t_s + model.scenario.report_delay_s)
            shares = pack_topic_shares(model, rows, model.owner[rows], loads, arrive_ms)
            columns["topic_shares"] = shares
        return _table(columns, len(rows), SAMPLE_SCHEMA)


@dataclass(frozen=True, slots=True)
class _PastMeasurements:
    """What one broker measured at one tick."""

    t_s: float
    rows: Ints  # its bundles, ascending
    loads: Floats  # LOADS × its bundles
    measured: BrokerMeasurements

    def loads_of(self, rows: Ints) -> tuple[Floats, Bools]:
        """Return the loads of bundles, 0 for those that it didn't serve, and which it served."""
        place = np.searchsorted(self.rows, rows)
        place[place == len(self.rows)] = 0
        known = self.rows[place] == rows if len(self.rows) else np.zeros(len(rows), np.bool_)
        return np.where(known, self.loads[:, place] if len(self.rows) else 0.0, 0.0), known


def _broker_figures(measured: BrokerMeasurements, brokers: Ints) -> dict[str, Floats]:
    """Return what these brokers report of themselves: usage ratios, and sums of loads."""
    return {name: ratio[brokers] for name, ratio in measured.used.items()} | {
        name: row[brokers] for name, row in zip(_FOUR, measured.sums, strict=True)
    }


def _table(columns: Mapping[str, Column], count: int, schema: pa.Schema) -> pa.Table:
    """Build a table of the schema; columns that are not given are null."""
    arrays = [
        pa.array(columns[column.name], column.type)
        if column.name in columns
        else pa.nulls(count, column.type)
        for column in schema
    ]
    return pa.table(arrays, schema=schema)


@dataclass(slots=True)
class Mailbox:
    """The reports' topic with one partition: records in the order in which they arrived."""

    offset: int = 0
    _reports: list[pa.Table] = field(default_factory=list)
    _samples: list[pa.Table] = field(default_factory=list)
    _events: list[dict[str, object]] = field(default_factory=list)
    _reported: int = 0

    def add_reports(self, made: ReportTables, t_s: float) -> None:
        """Append reports that arrive at `t_s`."""
        count = len(made.reports)
        position = {
            "topic": pa.array([TOPIC] * count, pa.string()),
            "partition": pa.array(np.zeros(count, np.int32)),
            "offset": pa.array(self.offset + np.arange(count, dtype=np.int64)),
            "append_ms": pa.array(np.full(count, at_ms(t_s), np.int64)),
        }
        columns = [position.get(column.name, made.reports[column.name]) for column in REPORT_SCHEMA]
        self._reports.append(pa.table(columns, schema=REPORT_SCHEMA))
        shifted = pa.array(made.samples["report"].to_numpy() + np.int32(self._reported), pa.int32())
        self._samples.append(
            made.samples.set_column(1, SAMPLE_SCHEMA.field("report"), shifted)
            if self._reported
            else made.samples
        )
        self._reported += count
        self.offset += count

    def add_events(
        self, kind: str, brokers: Iterable[str], t_s: float, payload: str = "{}"
    ) -> None:
        """Append an event of each of these brokers: a heartbeat, goodbye or acknowledgement."""
        position = {"topic": TOPIC, "partition": 0, "append_ms": at_ms(t_s), "payload": payload}
        for broker in brokers:
            self._events.append({"kind": kind, "broker": broker, "offset": self.offset, **position})
            self.offset += 1

    def take(self) -> Batch:
        """Return all that has arrived since the last call, as one micro-batch."""
        reports = _joined(self._reports, REPORT_SCHEMA)
        samples = _joined(self._samples, SAMPLE_SCHEMA)
        batch = Batch(reports, samples, pa.Table.from_pylist(self._events, EVENT_SCHEMA))
        self._reports, self._samples, self._events, self._reported = [], [], [], 0
        return batch


def _joined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()
