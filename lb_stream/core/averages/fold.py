"""The fold of one micro-batch's records into a shard.

docs/architecture.md "Behaviour in detail" has the rules of samples and of old reports.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.averages.acknowledgements import follow_acks
from lb_stream.core.averages.brokers import SIGNS_OF_LIFE, LastBrokers
from lb_stream.core.averages.bundles import fold_bundles
from lb_stream.core.model.blocks import NO_EVENTS, Batch, Shard, one_array, with_columns
from lb_stream.core.model.rates import FoldConfig


def fold(
    shard: Shard,
    batch: Batch,
    now_ms: int,
    config: FoldConfig,
    last_brokers: LastBrokers | None = None,
) -> tuple[Shard, pa.Table]:
    """Fold one micro-batch into a shard; return it, and the events of refused reports.

    Reports count in the order of append time, partition and offset, not of rows. Refused reports
    are too old, or have only top bundles of an unknown broker. A table that the batch doesn't
    change is returned as the same object. `last_brokers`: of the shards that are folded one after
    another.
    """
    last_brokers = last_brokers or LastBrokers()
    # Without reports, only signs of life and time can change a table.
    if not len(batch.reports):
        lives = pc.any(pc.is_in(batch.events["kind"], value_set=pa.array(SIGNS_OF_LIFE))).as_py()
        brokers, bundles = shard.brokers, shard.bundles
        if lives or pc.any(brokers["sampled"]).as_py():
            brokers = last_brokers.fold(brokers, batch)[0]
        news = pc.any(shard.bundles["gained"]).as_py() or pc.any(shard.bundles["appeared"]).as_py()
        if news:
            none = np.zeros(len(bundles), np.bool_)
            bundles = with_columns(bundles, {"gained": none, "appeared": none})
        return _drop_expired(follow_acks(Shard(brokers, bundles), batch), now_ms, config), NO_EVENTS
    brokers, row_of, taken = last_brokers.fold(shard.brokers, batch)
    bundles = fold_bundles(shard.bundles, brokers, row_of, batch, taken, config)
    return _drop_expired(follow_acks(Shard(brokers, bundles), batch), now_ms, config), taken.refused


def _map_broker_rows(before: pa.ChunkedArray, after: pa.ChunkedArray) -> NDArray[np.int32]:
    """Return old broker row → new one, with -1 at the end for unassigned bundles."""
    rows = pc.index_in(before, value_set=one_array(after)).fill_null(-1)
    return np.append(rows.to_numpy().astype(np.int32), np.int32(-1))


def _drop_expired(shard: Shard, now_ms: int, config: FoldConfig) -> Shard:
    """Drop silent brokers and unassigned bundles after their retention times.

    The retention of brokers is much longer than the time after which they are dead. The bundles of
    a dropped broker become unassigned, and their retention begins.
    """
    # Silent brokers.
    silent = now_ms - shard.brokers["seen_ms"].to_numpy() >= config.broker_retention_ms
    if silent.any():
        brokers = shard.brokers.filter(pa.array(~silent))
        before = shard.bundles["owner"].to_numpy()
        owner = _map_broker_rows(shard.brokers["name"], brokers["name"])[before]
        lost = (owner < 0) & (before >= 0)
        since = np.where(lost, now_ms, shard.bundles["owner_since_ms"].to_numpy())
        gained = lost | shard.bundles["gained"].to_numpy(zero_copy_only=False)
        shard = Shard(
            brokers,
            with_columns(
                shard.bundles, {"owner": owner, "owner_since_ms": since, "gained": gained}
            ),
        )
    # Bundles that have been unassigned for long.
    gone = shard.bundles["owner"].to_numpy() < 0
    if not gone.any():
        return shard
    if config.bundle_retention_ms:  # a round must have seen the bundle unassigned
        gone &= ~shard.bundles["gained"].to_numpy(zero_copy_only=False)
    unassigned_ms = now_ms - shard.bundles["owner_since_ms"].to_numpy()
    expired = gone & (unassigned_ms >= config.bundle_retention_ms)
    if not expired.any():
        return shard
    return Shard(shard.brokers, shard.bundles.filter(pa.array(~expired)))
