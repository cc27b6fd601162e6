"""The rows that a batch adds to `bundle_history` and `broker_history`.

Time is divided into slots. The first batch in a slot with a new sample of a cluster adds a row for
each bundle that was reported since the last such batch. Once an hour it adds a row for every
bundle, as readers look back one hour at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.tables import BROKER_HISTORY, BUNDLE_HISTORY
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.rates import RATE_COLUMNS
from lb_stream.core.model.view import Ints
from lb_stream.stream.shards.joined import cluster_names, owner_names, shard_numbers, times_of

WHOLE_MS = 3_600_000
"""Time after which every bundle gets a row."""
_LATEST = tuple(f"latest_{name}" for name in RATE_COLUMNS)


class Slot(NamedTuple):
    """A slot of time for which a cluster's history gets rows.

    `since_ms`: bundles that were last reported before this time have their rows already.
    """

    begin_ms: int
    since_ms: int


def next_slot(before_ms: int | None, now_ms: int, resolution_ms: int) -> Slot | None:
    """Return the slot that begins with a batch at `now_ms`; None: no slot begins.

    `before_ms`: time of the batch that began the last slot. `since_ms` is one slot earlier than
    that, as partitions may be read at different times.
    """
    if not resolution_ms or (
        before_ms is not None and now_ms // resolution_ms <= before_ms // resolution_ms
    ):
        return None
    begin_ms = now_ms // resolution_ms * resolution_ms
    if before_ms is None or now_ms // WHOLE_MS > before_ms // WHOLE_MS:
        return Slot(begin_ms, 0)
    return Slot(begin_ms, before_ms - resolution_ms)


class SlottedShard(NamedTuple):
    """A shard of a cluster that gets rows for a slot."""

    cluster: str
    shard: Shard
    slot: Slot


_BUNDLE_COLUMNS = ("topics", "producers", "consumers", "cache_size_bytes")
"""Those that `bundle_history` has from a block, besides rates, name and owner."""


def bundle_rows(slotted: Sequence[SlottedShard]) -> pa.Table:
    """Return the rows of `bundle_history` of shards, one behind another, each sorted by name.

    They are the bundles that were reported, or became unassigned, since `slot.since_ms`.
    """
    shards = [shard for _, shard, _ in slotted]
    of_shard = shard_numbers([shard.bundles for shard in shards])
    bundles = pa.concat_tables(shard.bundles for shard in shards)
    changed_ms = np.maximum(bundles["reported_ms"].to_numpy(), bundles["owner_since_ms"].to_numpy())
    changed = changed_ms >= times_of([slot.since_ms for _, _, slot in slotted], of_shard)
    bundles = bundles.select(["name", "owner", *_LATEST, *_BUNDLE_COLUMNS])
    if not changed.all():
        bundles, of_shard = bundles.filter(pa.array(changed)), of_shard[changed]
    columns = {name: bundles[f"latest_{name}"] for name in RATE_COLUMNS}
    columns |= {name: bundles[name] for name in _BUNDLE_COLUMNS}
    columns |= {
        "bundle": bundles["name"],
        "owner": owner_names(shards, of_shard, bundles["owner"].to_numpy()),
    }
    return _build_table(BUNDLE_HISTORY.schema, slotted, of_shard, columns)


def broker_rows(slotted: Sequence[SlottedShard]) -> pa.Table:
    """Return the rows of `broker_history` of clusters, one behind another.

    `slotted`: one shard of each cluster, any of its shards.
    """
    tables = [shard.brokers for _, shard, _ in slotted]
    brokers = pa.concat_tables(tables)
    columns = {
        name: brokers[name] for name in brokers.column_names if name in BROKER_HISTORY.schema.names
    }
    columns |= {name: brokers[f"latest_{name}"] for name in RATE_COLUMNS}
    columns["broker"] = brokers["name"]
    rows = _build_table(BROKER_HISTORY.schema, slotted, shard_numbers(tables), columns)
    return rows.filter(pc.greater(brokers["reported_ms"], 0))


def _build_table(
    schema: pa.Schema,
    slotted: Sequence[SlottedShard],
    of_shard: Ints,
    columns: dict[str, pa.ChunkedArray],
) -> pa.Table:
    """Return the columns as a table of the schema, with clusters and slots added.

    `of_shard`: the shard of each row.
    """
    columns |= {
        "cluster": cluster_names([cluster for cluster, _, _ in slotted], of_shard),
        "slot_ms": pa.array(times_of([slot.begin_ms for _, _, slot in slotted], of_shard)),
    }
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)
