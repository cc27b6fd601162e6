"""Figures that are too big for the log: Parquet files that executors write.

The log names those of rounds; the driver commits those of averages. A file becomes part of its
table when it is committed. Each attempt of a task writes files of its own: an attempt that Spark
has given up but that goes on can't change a file that a table has.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

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
from lb_stream.core.model.blocks import RESOURCES, Shard
from lb_stream.core.model.rates import RATE_COLUMNS
from lb_stream.core.model.resources import max_weighted_usage, percents
from lb_stream.core.model.topic_shares import TopicShares
from lb_stream.core.model.view import ClusterView, Rates
from lb_stream.core.round.decide import Round
from lb_stream.store import Store, tables_of
from lb_stream.stream.context import BatchContext
from lb_stream.stream.rows import FigureFile
from lb_stream.stream.shards.block_files import OpenFiles
from lb_stream.stream.shards.history import SlottedShard, broker_rows, bundle_rows
from lb_stream.stream.shards.joined import cluster_names, owner_names, shard_numbers, times_of
from lb_stream.stream.shards.shard_files import read_shard
from lb_stream.stream.shards.slicing import DueShard

logger = logging.getLogger(__name__)

Columns = dict[str, Sequence[object] | NDArray[Any]]
"""Rows of one table: column → values."""


def write_file(
    root: Store,
    spec: TableSpec,
    data: pa.Table,
    name: str,
    partition: str | None = None,
    compression: str = "zstd",
) -> FigureFile:
    """Write one Parquet file into a table's folder; it lacks the partition's column.

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


_RATIOS = tuple(f"{name}_ratio" for name in RESOURCES)
_REJECTED_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "append_ms",
    "broker",
    "field",
    "value",
    "expected",
)


def _rate_columns(rates: Rates, span: str) -> Columns:
    """Return the columns of one span (latest, short, long) of rates."""
    return {
        f"{span}_{name}": values for name, values in zip(RATE_COLUMNS, rates.columns, strict=True)
    }


class FigureFiles:
    """The figures of one task's rounds: one file for each table, for all clusters together.

    `task` names the task and its attempt.
    """

    def __init__(self, context: BatchContext, task: str) -> None:
        self._context = context
        self._name = f"{context.file_tag}-{task}"
        self._rejected: list[pa.Table] = []
        self._loads: list[Columns] = []  # one for each cluster
        self._named_by: dict[str, str] = {}  # table → the cluster whose round names its file

    def add_rejected(self, cluster: str, events: Iterable[Mapping[str, Any]]) -> None:
        """Add the events that are rejected records; others are ignored."""
        rows = [
            {**event, **json.loads(event["payload"])}
            for event in events
            if event["kind"] == "rejected"
        ]
        if not rows:
            return
        rows.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
        columns: Columns = {name: [row[name] for row in rows] for name in _REJECTED_COLUMNS}
        columns["cluster"] = [cluster] * len(rows)
        columns["log_seq"] = [self._context.log_seq] * len(rows)
        # The table is built here, so that values that don't fit fail this round alone.
        self._rejected.append(pa.table(columns, schema=REJECTED_REPORTS.schema))
        self._named_by.setdefault(REJECTED_REPORTS.name, cluster)

    def add_loads(self, view: ClusterView, made: Round) -> None:
        """Add a row for every broker, as its reports say, without pending moves."""
        brokers, count = view.brokers, len(view.brokers)
        # A command of this round may have changed the weights.
        weights = made.view.brokers.weights
        usage = (
            brokers.usage
            if brokers.weights == weights
            else max_weighted_usage(brokers.resources, weights)
        )
        columns: Columns = {
            "cluster": [view.cluster] * count,
            "seq": np.full(count, made.seq),
            "now_ms": np.full(count, made.now_ms),
            "broker": list(brokers.names),
            "alive": made.view.brokers.alive,
            "active": made.view.active,
            "seen_ms": brokers.seen_ms,
            "reported_ms": brokers.reported_ms,
            "usage_ratio": usage,
            "bundles": view.bundle_counts(),
            "topics": brokers.topics,
            "log_seq": np.full(count, self._context.log_seq),
        }
        ratios = percents(brokers.resources, RESOURCES).astype(np.float64) / 100.0
        columns |= zip(_RATIOS, ratios, strict=True)
        columns |= _rate_columns(brokers.latest, "latest")
        columns |= _rate_columns(brokers.short, "short")
        columns |= _rate_columns(brokers.long, "long")
        self._loads.append(columns)
        self._named_by.setdefault(BROKER_LOADS.name, view.cluster)

    def write(self, rows: list[RoundRow]) -> None:
        """Write the files, and name each in the round of the first cluster with rows in it."""
        tables = []
        if self._loads:
            loads = _concat_columns(BROKER_LOADS, self._loads)
            if len(loads):
                tables.append((BROKER_LOADS, loads))
        if self._rejected:
            tables.append((REJECTED_REPORTS, pa.concat_tables(self._rejected)))
        files: dict[str, dict[str, FigureFile]] = {}
        for spec, data in tables:
            file = write_file(tables_of(self._context.settings.stream), spec, data, self._name)
            files.setdefault(self._named_by[spec.name], {})[spec.name] = file
        for row in rows:
            if row.cluster in files:
                row.files, row.idle = canonical_json(files[row.cluster]), False


def _concat_columns(spec: TableSpec, parts: list[Columns]) -> pa.Table:
    """Return the rows of several clusters as one table, without those whose columns are damaged."""
    try:
        return _build_table(spec, parts)
    except (pa.ArrowException, ValueError):
        tables = [spec.schema.empty_table()]
        for part in parts:
            try:
                tables.append(_build_table(spec, [part]))
            except (pa.ArrowException, ValueError) as error:
                logger.warning(
                    "%s lacks the brokers of the cluster %s: %s",
                    spec.name,
                    part["cluster"][0],
                    error,
                )
        return pa.concat_tables(tables)


def _build_table(spec: TableSpec, parts: list[Columns]) -> pa.Table:
    """Return the rows of several clusters, with one array for each column."""
    columns: Columns = {}
    for name in spec.schema.names:
        values = [part[name] for part in parts]
        arrays = [column for column in values if isinstance(column, np.ndarray)]
        if len(arrays) == len(values):
            columns[name] = np.concatenate(arrays)
        else:
            columns[name] = list(chain.from_iterable(values))
    return pa.table(columns, schema=spec.schema)


def part_files(
    part: str,
    entries: list[DueShard],
    root: Store,
    checkpoint: Store,
    name: str,
    with_averages: bool = True,
) -> dict[str, FigureFile]:
    """Write the files for one part of `bundle_averages`, and its shards' history if a slot begins.

    Returns table → file, without tables that get no row. A shard whose blocks can't be read has no
    rows: its cluster's rounds report that, and other clusters of the part are not affected.
    `with_averages`: False: only the history is due.
    """
    shards: list[tuple[DueShard, Shard]] = []
    open_files = OpenFiles(checkpoint)
    for entry in entries:
        try:
            shard = read_shard(open_files, entry.blocks)
            require_known_owners(shard)
            shards.append((entry, shard))
        except (OSError, pa.ArrowException) as error:
            logger.warning(
                "bundle_averages lacks bundles of the cluster %s: %s", entry.cluster, error
            )
    return write_part(part, shards, root, name, with_averages)


def write_part(
    part: str,
    shards: list[tuple[DueShard, Shard]],
    root: Store,
    name: str,
    with_averages: bool = True,
) -> dict[str, FigureFile]:
    """Write the files for one part of `bundle_averages` from its shards, as `part_files` does."""
    # The averages.
    files: dict[str, FigureFile] = {}
    if with_averages and shards and len(averages := _averages(shards)):
        files[BUNDLE_AVERAGES.name] = write_file(
            root, BUNDLE_AVERAGES, averages, name, part, compression="lz4"
        )
    # The history. Every shard has all brokers, so the first one writes their rows.
    bundles, brokers = [], []
    for entry, shard in shards:
        if entry.slot is not None:
            slotted = SlottedShard(entry.cluster, shard, entry.slot)
            bundles.append(slotted)
            if entry.shard == 0:
                brokers.append(slotted)
    for spec, with_rows, rows_of in (
        (BUNDLE_HISTORY, bundles, bundle_rows),
        (BROKER_HISTORY, brokers, broker_rows),
    ):
        if with_rows and len(rows := rows_of(with_rows)):
            slots = pc.min_max(rows["slot_ms"]).as_py()
            file = write_file(root, spec, rows, f"{name}-{part}")
            file["slots"] = [slots["min"], slots["max"]]
            files[spec.name] = file
    return files


def require_known_owners(shard: Shard) -> None:
    """Raise ArrowInvalid if a bundle's owner is none of the shard's brokers."""
    owner, brokers = pc.max(shard.bundles["owner"]).as_py(), len(shard.brokers)
    if owner is not None and owner >= brokers:
        raise pa.ArrowInvalid(f"a bundle belongs to broker {owner} of {brokers}, counted from 0")


def _averages(shards: list[tuple[DueShard, Shard]]) -> pa.Table:
    """Return the rows of `bundle_averages` for some shards, by shard and bundle name."""
    schema = pa.schema(
        [field for field in BUNDLE_AVERAGES.schema if field.name != BUNDLE_AVERAGES.partition_by]
    )
    bundles = pa.concat_tables(shard.bundles for _, shard in shards)
    of_shard = shard_numbers([shard.bundles for _, shard in shards])
    columns = {name: bundles[name] for name in bundles.column_names if name in schema.names}
    columns |= {
        "bundle": bundles["name"],
        "owner": owner_names([shard for _, shard in shards], of_shard, bundles["owner"].to_numpy()),
        "cluster": cluster_names([entry.cluster for entry, _ in shards], of_shard),
        "now_ms": pa.array(times_of([entry.now_ms for entry, _ in shards], of_shard)),
        **_topic_columns(bundles["topic_shares"]),
    }
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def _topic_columns(packed: pa.ChunkedArray) -> dict[str, pa.Array]:
    """Return the columns about topics for bundles with these shares; null: they have none."""
    known = packed.is_valid().to_numpy()
    shares = TopicShares.from_packed(np.flatnonzero(known), packed.drop_null().to_pylist())
    counts = np.bincount(shares.bundle, minlength=len(packed))
    ends, unknown = np.cumsum(counts), pa.array(~known)
    offsets = pa.array(np.append(0, ends), pa.int32())
    hottest = np.zeros(len(packed))
    np.maximum.at(hottest, shares.bundle, shares.share)
    return {
        "topic_hashes": pa.ListArray.from_arrays(offsets, shares.hash, mask=unknown),
        "topic_shares": pa.ListArray.from_arrays(offsets, shares.share, mask=unknown),
        "hottest_topic_ratio": pa.array(hottest, mask=~known),
    }
