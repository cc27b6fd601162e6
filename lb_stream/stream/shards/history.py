"""Loads over time: which batches add rows to `bundle_history` and `broker_history`, and which rows.

The first batch of a slot of time that brings a cluster anything new adds a row for each bundle that
was reported since the batch that did so last, and for all bundles once an hour: whoever reads looks
back one hour at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.tables import BROKER_HISTORY, BUNDLE_HISTORY
from lb_stream.core.model.blocks import RATE_COLUMNS, Shard

WHOLE_MS = 3_600_000
"""So often all bundles get a row."""


class Slot(NamedTuple):
    """A slot of time that begins for a cluster's history.

    `since_ms`: what was reported before then has its row already.
    """

    begin_ms: int
    since_ms: int


def next_slot(before_ms: int | None, now_ms: int, resolution_ms: int) -> Slot | None:
    """The slot that begins with a batch of this time; None: no new one does.

    `before_ms`: time of the batch that began the last one.

    What is written reaches back one slot more than needed: a partition may be read a little later
    than the others.
    """
    if not resolution_ms or (
        before_ms is not None and now_ms // resolution_ms <= before_ms // resolution_ms
    ):
        return None
    begin_ms = now_ms // resolution_ms * resolution_ms
    whole = before_ms is None or now_ms // WHOLE_MS > before_ms // WHOLE_MS
    return Slot(begin_ms, 0 if whole or before_ms is None else before_ms - resolution_ms)


def bundle_rows(cluster: str, shard: Shard, slot: Slot) -> pa.Table:
    """Rows of `bundle_history`: the shard's bundles that a report has named, or that have lost
    their owner, since then; sorted by name."""
    bundles = shard.bundles
    changed = (
        np.maximum(bundles["reported_ms"].to_numpy(), bundles["owner_since_ms"].to_numpy())
        >= slot.since_ms
    )
    bundles = bundles if changed.all() else bundles.filter(pa.array(changed))
    owner = bundles["owner"].to_numpy()
    owners = pa.DictionaryArray.from_arrays(
        pa.array(owner, mask=owner < 0), shard.brokers["name"].combine_chunks()
    )
    columns = {name: bundles[f"latest_{name}"] for name in RATE_COLUMNS} | {
        "bundle": bundles["name"],
        "owner": owners.cast(pa.string()),
    }
    columns |= {
        name: bundles[name] for name in ("topics", "producers", "consumers", "cache_size_bytes")
    }
    return _table(BUNDLE_HISTORY.schema, cluster, slot, columns, len(bundles))


def broker_rows(cluster: str, shard: Shard, slot: Slot) -> pa.Table:
    """Rows of `broker_history`: every broker of the cluster, whichever shard is asked."""
    brokers = shard.brokers.filter(pc.greater(shard.brokers["reported_ms"], 0))
    columns = {
        name: brokers[name] for name in brokers.column_names if name in BROKER_HISTORY.schema.names
    }
    columns |= {name: brokers[f"latest_{name}"] for name in RATE_COLUMNS} | {
        "broker": brokers["name"]
    }
    return _table(BROKER_HISTORY.schema, cluster, slot, columns, len(brokers))


def _table(
    schema: pa.Schema, cluster: str, slot: Slot, columns: dict[str, pa.ChunkedArray], rows: int
) -> pa.Table:
    columns |= {
        "cluster": pa.repeat(pa.scalar(cluster), rows),
        "slot_ms": pa.repeat(pa.scalar(slot.begin_ms, pa.int64()), rows),
    }
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)
