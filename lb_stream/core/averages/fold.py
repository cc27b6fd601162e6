"""The fold of one micro-batch's reports into a shard.

What is a new sample and which report is an old one: docs/architecture.md "Rulings".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.averages.acknowledgements import follow_acks
from lb_stream.core.averages.brokers import SIGNS_OF_LIFE, fold_brokers
from lb_stream.core.averages.bundles import FoldConfig, fold_bundles
from lb_stream.core.model.blocks import NO_EVENTS, Batch, Shard, one_array, with_columns


def fold(shard: Shard, batch: Batch, now_ms: int, config: FoldConfig) -> tuple[Shard, pa.Table]:
    """Fold one micro-batch into a shard.

    Reports count in the order of their append time, partition and offset, one by one; the order of
    the rows given is irrelevant. Returns the shard after the batch and the events of reports that
    were refused as old (EVENT_SCHEMA). A table of the shard that the batch doesn't change is
    returned itself: without reports only signs of life and the passing of time can change anything.
    """
    if not len(batch.reports):
        lives = pc.any(pc.is_in(batch.events["kind"], value_set=pa.array(SIGNS_OF_LIFE))).as_py()
        brokers = (
            fold_brokers(shard.brokers, batch)[0]
            if lives or pc.any(shard.brokers["sampled"]).as_py()
            else shard.brokers
        )
        news = pc.any(shard.bundles["gained"]).as_py() or pc.any(shard.bundles["appeared"]).as_py()
        none = np.zeros(len(shard.bundles), np.bool_)
        bundles = (
            with_columns(shard.bundles, {"gained": none, "appeared": none})
            if news
            else shard.bundles
        )
        return _drop_expired(follow_acks(Shard(brokers, bundles), batch), now_ms, config), NO_EVENTS
    brokers, row_of, taken = fold_brokers(shard.brokers, batch)
    bundles = fold_bundles(shard.bundles, brokers, row_of, batch, taken, config)
    return _drop_expired(follow_acks(Shard(brokers, bundles), batch), now_ms, config), taken.refused


def _map_broker_rows(before: pa.ChunkedArray, after: pa.ChunkedArray) -> NDArray[np.int32]:
    """Old broker row → new broker row, with one entry more at the end so that -1 (nobody) stays
    -1."""
    rows = pc.index_in(before, value_set=one_array(after)).fill_null(-1)
    return np.append(rows.to_numpy().astype(np.int32), np.int32(-1))


def _drop_expired(shard: Shard, now_ms: int, config: FoldConfig) -> Shard:
    """Drop bundles that nobody has named, and brokers that have been silent, for their retention
    time.

    A broker stays much longer than it takes to declare it dead: that is decided with the whole
    cluster in sight. With it goes its ownership, from which its bundles' own time begins.
    """
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
    gone = shard.bundles["owner"].to_numpy() < 0
    if not gone.any():
        return shard
    if config.bundle_retention_ms:  # a round must have seen that it is nobody's
        gone &= ~shard.bundles["gained"].to_numpy(zero_copy_only=False)
    expired = gone & (
        now_ms - shard.bundles["owner_since_ms"].to_numpy() >= config.bundle_retention_ms
    )
    return (
        Shard(shard.brokers, shard.bundles.filter(pa.array(~expired))) if expired.any() else shard
    )
