"""Figures that are too big for the log: Parquet files, written by executors and only named in the
log or by the driver.

A file becomes part of its table when the projection commits it. Each attempt of a task writes files
of its own: one that Spark has given up and that goes on all the same can't touch a file that a
table names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.columns.rounds import RoundRow
from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import (
    BROKER_HISTORY,
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    BUNDLE_HISTORY,
    REJECTED_REPORTS,
)
from lb_stream.core.model.blocks import RATE_COLUMNS, RESOURCES, Shard
from lb_stream.core.model.resources import max_weighted_usage, percents
from lb_stream.core.model.view import ClusterView, Rates
from lb_stream.core.round.decide import Round
from lb_stream.store import Store, tables_of
from lb_stream.stream.averages import read_shard
from lb_stream.stream.context import BatchContext
from lb_stream.stream.shards.block_files import OpenFiles
from lb_stream.stream.shards.history import broker_rows, bundle_rows
from lb_stream.stream.shards.slicing import DueShard

logger = logging.getLogger(__name__)

File = dict[str, Any]
"""path (relative to its table), bytes, rows, and the partition's value if the table has partitions;
of history its first and last slot."""


def write_file(
    root: Store,
    spec: TableSpec,
    data: pa.Table,
    name: str,
    partition: str | None = None,
    compression: str = "zstd",
) -> File:
    """One Parquet file in a table's folder, without the partition's column.

    `root`: the folder of all tables.
    """
    folder = f"{spec.partition_by}={partition}/" if partition is not None else ""
    path = f"{folder}{name}.parquet"
    texts = [field.name for field in data.schema if pa.types.is_string(field.type)]
    repeated = [name for name in texts if name != "bundle"]
    out = pa.BufferOutputStream()
    pq.write_table(
        data, out, compression=compression, use_dictionary=repeated, write_statistics=texts
    )
    content = out.getvalue()
    root.put(f"{spec.name}/{path}", content, durable=False)
    return {"path": path, "bytes": content.size, "rows": len(data), "partition": partition}


def _columns_of(spec: TableSpec) -> pa.Schema:
    return pa.schema([field for field in spec.schema if field.name != spec.partition_by])


_RATIOS = tuple(f"{name}_ratio" for name in RESOURCES)
_FOUR = {
    span: tuple(f"{span}_{name}" for name in RATE_COLUMNS) for span in ("latest", "short", "long")
}


def _four(rates: Rates, span: str) -> Iterable[tuple[str, Any]]:
    return zip(_FOUR[span], rates.columns, strict=True)


class FigureFiles:
    """What the rounds of one task have to show: one file for each table, whatever the number of
    clusters.

    `task` names the task and its attempt.
    """

    def __init__(self, context: BatchContext, task: str) -> None:
        self._context, self._name = context, f"{context.file_tag}-{task}"
        self._rejected: list[pa.Table] = []
        self._loads: list[dict[str, Any]] = []  # of each cluster its columns: lists, or arrays
        self._first: dict[str, str] = {}  # table → the cluster whose round names the file

    def add_rejected(self, cluster: str, events: list[dict[str, Any]]) -> None:
        """The records that were not taken, with the reason."""
        rows = [
            event | json.loads(event["payload"]) for event in events if event["kind"] == "rejected"
        ]
        if not rows:
            return
        rows.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
        given = (
            "topic",
            "partition",
            "offset",
            "append_ms",
            "broker",
            "field",
            "value",
            "expected",
        )
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in given}
        columns |= {
            "cluster": [cluster] * len(rows),
            "log_seq": [self._context.log_seq] * len(rows),
        }
        self._rejected.append(
            pa.table(columns, schema=REJECTED_REPORTS.schema)
        )  # now: what can't be written fails this round alone
        self._first.setdefault(REJECTED_REPORTS.name, cluster)

    def add_loads(self, view: ClusterView, made: Round) -> None:
        """Every broker of the cluster as its reports say, pending moves not counted."""
        brokers, count = view.brokers, len(view.brokers)
        weights = made.view.brokers.weights  # those that a command of this very round may have set
        columns: dict[str, Any] = {
            "cluster": [view.cluster] * count,
            "seq": np.full(count, made.seq),
            "now_ms": np.full(count, made.now_ms),
            "broker": list(brokers.names),
            "alive": made.view.brokers.alive,
            "active": made.view.active,
            "seen_ms": brokers.seen_ms,
            "reported_ms": brokers.reported_ms,
            "usage_ratio": brokers.usage
            if brokers.weights == weights
            else max_weighted_usage(brokers.resources, weights),
            "bundles": view.bundle_counts(),
            "topics": brokers.topics,
            "log_seq": np.full(count, self._context.log_seq),
        }
        columns |= zip(
            _RATIOS, percents(brokers.resources, RESOURCES).astype(np.float64) / 100.0, strict=True
        )
        columns.update(
            chain(
                _four(brokers.latest, "latest"),
                _four(brokers.short, "short"),
                _four(brokers.long, "long"),
            )
        )
        self._loads.append(columns)
        self._first.setdefault(BROKER_LOADS.name, view.cluster)

    def write(self, rows: list[RoundRow]) -> None:
        """Write the files, and name each in the round of the first cluster that it speaks of."""
        tables = (
            [(BROKER_LOADS, data)]
            if self._loads and len(data := _tables_of(BROKER_LOADS, self._loads))
            else []
        )
        tables += [(REJECTED_REPORTS, pa.concat_tables(self._rejected))] if self._rejected else []
        files: dict[str, dict[str, File]] = {}
        for spec, data in tables:
            file = write_file(tables_of(self._context.settings.stream), spec, data, self._name)
            files.setdefault(self._first[spec.name], {})[spec.name] = file
        for row in rows:
            if row.cluster in files:
                row.files, row.idle = canonical_json(files[row.cluster]), False


def _tables_of(spec: TableSpec, parts: list[dict[str, Any]]) -> pa.Table:
    """The rows of several clusters.

    One whose columns are damaged is left out: the others don't suffer.
    """
    try:
        return _table_of(spec, parts)
    except (pa.ArrowException, ValueError):
        whole = []
        for part in parts:
            try:
                whole.append(_table_of(spec, [part]))
            except (pa.ArrowException, ValueError) as error:
                logger.warning(
                    "%s lacks the brokers of the cluster %s: %s",
                    spec.name,
                    part["cluster"][0],
                    error,
                )
        return pa.concat_tables([spec.schema.empty_table(), *whole])


def _table_of(spec: TableSpec, parts: list[dict[str, Any]]) -> pa.Table:
    """The rows of several clusters: one array of each column, not one for each cluster."""
    columns = {}
    for name in spec.schema.names:
        given = [part[name] for part in parts]
        columns[name] = (
            np.concatenate(given)
            if isinstance(given[0], np.ndarray)
            else list(chain.from_iterable(given))
        )
    return pa.table(columns, schema=spec.schema)


def part_files(
    part: str, entries: list[DueShard], root: Store, checkpoint: Store, name: str
) -> dict[str, File]:
    """Write what a batch has to say of one part of `bundle_averages`: every bundle of some shards,
    and their rows of history where a slot begins. Returns table → file; a table that gets no row is
    not in it.

    A shard whose blocks can't be read has no rows: its cluster's rounds say so, the others that
    share the part don't suffer.
    """
    shards: list[tuple[DueShard, Shard]] = []
    open_files = OpenFiles(checkpoint)
    for entry in entries:
        try:
            shards.append((entry, _sound(read_shard(open_files, entry.blocks))))
        except (OSError, pa.ArrowException) as error:
            logger.warning(
                "bundle_averages lacks bundles of the cluster %s: %s", entry.cluster, error
            )
    found = {BUNDLE_AVERAGES.name: [_averages(shards)]} if shards else {}
    for entry, shard in shards:
        if entry.slot is not None:
            found.setdefault(BUNDLE_HISTORY.name, []).append(
                bundle_rows(entry.cluster, shard, entry.slot)
            )
            if entry.shard == 0:  # every shard knows all brokers
                found.setdefault(BROKER_HISTORY.name, []).append(
                    broker_rows(entry.cluster, shard, entry.slot)
                )
    tables = {table: pa.concat_tables(some) for table, some in found.items()}
    files = {}
    if len(averages := tables.get(BUNDLE_AVERAGES.name, ())):
        files[BUNDLE_AVERAGES.name] = write_file(
            root, BUNDLE_AVERAGES, averages, name, part, compression="lz4"
        )
    for spec in (BUNDLE_HISTORY, BROKER_HISTORY):
        if len(rows := tables.get(spec.name, ())):
            slots = pc.min_max(rows["slot_ms"]).as_py()
            files[spec.name] = write_file(root, spec, rows, f"{name}-{part}") | {
                "slots": [slots["min"], slots["max"]]
            }
    return files


def _sound(shard: Shard) -> Shard:
    """The shard; raises ArrowInvalid if a bundle's owner is none of its brokers."""
    owner, brokers = pc.max(shard.bundles["owner"]).as_py(), len(shard.brokers)
    if owner is not None and owner >= brokers:
        raise pa.ArrowInvalid(f"a bundle belongs to broker {owner} of {brokers}, counted from 0")
    return shard


def _averages(shards: list[tuple[DueShard, Shard]]) -> pa.Table:
    """Every bundle of some shards with its averages, of each shard sorted by name."""
    schema = _columns_of(BUNDLE_AVERAGES)
    bundles = pa.concat_tables(shard.bundles for _, shard in shards)
    counts = [len(shard.bundles) for _, shard in shards]
    brokers = pa.chunked_array(
        [chunk for _, shard in shards for chunk in shard.brokers["name"].chunks], pa.string()
    )
    before = np.cumsum(
        [0, *(len(shard.brokers) for _, shard in shards[:-1])]
    )  # of all brokers' names, those of earlier shards
    owner = bundles["owner"].to_numpy()
    owners = pa.DictionaryArray.from_arrays(
        pa.array(owner + np.repeat(before, counts), mask=owner < 0), brokers.combine_chunks()
    )
    at = pa.array(np.repeat(np.arange(len(shards)), counts))
    clusters = pa.DictionaryArray.from_arrays(at, [entry.cluster for entry, _ in shards])
    columns = {name: bundles[name] for name in bundles.column_names if name in schema.names}
    columns |= {
        "bundle": bundles["name"],
        "owner": owners.cast(pa.string()),
        "cluster": clusters.cast(pa.string()),
    }
    columns["now_ms"] = pa.array(
        np.repeat([entry.now_ms for entry, _ in shards], counts), pa.int64()
    )
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)
