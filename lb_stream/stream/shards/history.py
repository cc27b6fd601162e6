"""The rows that a batch adds to `bundle_history` and `broker_history`.

Time is divided into slots. The first batch in a slot with a new sample of a cluster adds a row for
each bundle that was reported since the last such batch. Once an hour it adds a row for every
bundle, as readers look back one hour at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.tables import BROKER_HISTORY, BUNDLE_HISTORY
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.rates import RATE_COLUMNS

WHOLE_MS = 3_600_000
"""Time after which every bundle gets a row."""


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


def bundle_rows(cluster: str, shard: Shard, slot: Slot) -> pa.Table:
    """Return the shard's rows of `bundle_history` for a slot, sorted by name.

    They are the bundles that were reported, or became unassigned, since `slot.since_ms`.
    """
    bundles = shard.bundles
    changed_ms = np.maximum(bundles["reported_ms"].to_numpy(), bundles["owner_since_ms"].to_numpy())
    changed = changed_ms >= slot.since_ms
    if not changed.all():
        bundles = bundles.filter(pa.array(changed))
    owner = bundles["owner"].to_numpy()
    owners = pa.DictionaryArray.from_arrays(
        pa.array(owner, mask=owner < 0), shard.brokers["name"].combine_chunks()
    )
    columns = {name: bundles[f"latest_{name}"] for name in RATE_COLUMNS}
    columns |= {"bundle": bundles["name"], "owner": owners.cast(pa.string())}
    columns |= {
        name: bundles[name] for name in ("topics", "producers", "consumers", "cache_size_bytes")
    }
    return _build_table(BUNDLE_HISTORY.schema, cluster, slot, columns, len(bundles))


def broker_rows(cluster: str, shard: Shard, slot: Slot) -> pa.Table:
    """Return the cluster's rows of `broker_history` for a slot, from any of its shards."""
    brokers = shard.brokers.filter(pc.greater(shard.brokers["reported_ms"], 0))
    columns = {
        name: brokers[name] for name in brokers.column_names if name in BROKER_HISTORY.schema.names
    }
    columns |= {name: brokers[f"latest_{name}"] for name in RATE_COLUMNS}
    columns["broker"] = brokers["name"]
    return _build_table(BROKER_HISTORY.schema, cluster, slot, columns, len(brokers))


def _build_table(
    schema: pa.Schema, cluster: str, slot: Slot, columns: dict[str, pa.ChunkedArray], rows: int
) -> pa.Table:
    """Return the columns as a table of the schema, with the cluster and the slot added."""
    columns |= {
        "cluster": pa.repeat(pa.scalar(cluster), rows),
        "slot_ms": pa.repeat(pa.scalar(slot.begin_ms, pa.int64()), rows),
    }
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)
