"""Figures that are too big for the log: Parquet files, written where the round is made and only named in the log.

A file becomes part of its table when the projection commits it; a batch that is run again writes the same files again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from lb_stream.contracts.tables import BROKER_LOADS, BUNDLE_AVERAGES, REJECTED_REPORTS, TableSpec
from lb_stream.core.blocks import FOUR, RESOURCES, Shard
from lb_stream.core.resources import percent
from lb_stream.core.round import Round
from lb_stream.core.view import ClusterView, Rates

if TYPE_CHECKING:
    from lb_stream.stream.decide import BatchContext

File = dict[str, Any]
"""path (relative to its table), bytes, rows, and the partition's value if the table has partitions."""


def _write(spec: TableSpec, cluster: str, columns: dict[str, Any], context: BatchContext) -> File:
    table = pa.table({field.name: columns[field.name] for field in spec.schema if field.name != spec.partition_by})
    table = table.cast(pa.schema([field for field in spec.schema if field.name != spec.partition_by]))
    folder = f"{spec.partition_by}={cluster}/" if spec.partition_by else ""
    path = f"{folder}{context.file_tag}-{cluster}.parquet"
    root = context.settings.stream.tables
    filesystem, base = fs.FileSystem.from_uri(root) if "://" in root else (fs.LocalFileSystem(), root)
    target = f"{base.rstrip('/')}/{spec.name}/{path}"
    filesystem.create_dir(target.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(target) as out:
        pq.write_table(table, out, compression="zstd")
    size = filesystem.get_file_info(target).size
    return {"path": path, "bytes": size, "rows": len(table), "cluster": cluster}


def _four(rates: Rates, span: str) -> dict[str, Any]:
    return {f"{span}_{name}": column for name, column in zip(FOUR, rates.columns, strict=True)}


def bundle_averages(view: ClusterView, shards: list[Shard], made: Round, context: BatchContext) -> File:
    """Every bundle of the cluster with its averages, sorted by name."""
    blocks = pa.concat_tables([shard.bundles for shard in shards]).sort_by("name")
    owners = pa.array([*view.brokers.names, None], pa.string()).take(
        pa.array(np.where(view.bundles.owner < 0, len(view.brokers), view.bundles.owner))
    )
    columns = {name: blocks[name] for name in blocks.column_names if name in BUNDLE_AVERAGES.schema.names}
    columns |= {
        "bundle": blocks["name"],
        "owner": owners,
        "seq": np.full(len(blocks), made.seq),
        "now_ms": np.full(len(blocks), made.now_ms),
    }
    return _write(BUNDLE_AVERAGES, view.cluster, columns, context)


def broker_loads(view: ClusterView, made: Round, context: BatchContext) -> File:
    """Every broker of the cluster as its reports say, pending moves not counted."""
    brokers, count = view.brokers, len(view.brokers)
    columns: dict[str, Any] = {
        "cluster": [view.cluster] * count,
        "seq": np.full(count, made.seq),
        "now_ms": np.full(count, made.now_ms),
        "broker": list(brokers.names),
        "alive": made.view.brokers.alive,
        "seen_ms": brokers.seen_ms,
        "reported_ms": brokers.reported_ms,
        "usage_ratio": brokers.usage,
        "bundles": view.bundle_counts(),
        "topics": brokers.topics,
        "log_seq": np.full(count, context.log_seq),
    }
    columns |= {f"{name}_ratio": percent(*brokers.resources[name]).astype(np.float64) / 100.0 for name in RESOURCES}
    columns |= _four(brokers.latest, "latest") | _four(brokers.short, "short") | _four(brokers.long, "long")
    return _write(BROKER_LOADS, view.cluster, columns, context)


def rejected(cluster: str, events: list[dict[str, Any]], context: BatchContext) -> File | None:
    """The records that were not taken, with the reason."""
    rows = [event | json.loads(event["payload"]) for event in events if event["kind"] == "rejected"]
    if not rows:
        return None
    rows.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
    columns = {
        name: [row[name] for row in rows] for name in ("topic", "partition", "offset", "append_ms", "broker", "field", "value", "expected")
    }
    columns |= {"cluster": [cluster] * len(rows), "log_seq": [context.log_seq] * len(rows)}
    return _write(REJECTED_REPORTS, cluster, columns, context)
