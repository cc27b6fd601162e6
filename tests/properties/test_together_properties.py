"""Shards that are folded together, and views that share columns, are what each is by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import zip_longest

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.core.averages import FoldConfig, fold, fold_together
from lb_stream.core.averages.cluster_view import JoinedViews, may_be_joined, view_of
from lb_stream.core.model.blocks import BUNDLE_SCHEMA, Shard, to_bytes
from lb_stream.core.model.topic_shares import pack_shares
from tests.properties.strategies import BUNDLES, SYSTEM_BUNDLES, Record, block_of, cuts, records
from tests.support.build import Event

NAMES = (*BUNDLES[:4], *SYSTEM_BUNDLES)
configs = st.builds(
    FoldConfig,
    short_samples=st.integers(1, 4),
    long_samples=st.integers(1, 6),
    bundle_retention_ms=st.sampled_from([0, 40_000, 300_000]),
    broker_retention_ms=st.sampled_from([40_000, 86_400_000]),
    sample_mode=st.sampled_from(["per_report", "per_report", "per_report", "reference"]),
)


@st.composite
def one_cluster(draw: st.DrawFn) -> list[Record]:
    """What brokers of one cluster send; their acknowledgements name bundles."""
    sent = draw(records(bundles=NAMES))
    said = draw(
        st.sampled_from(
            [
                {},
                {"bundle": None},
                *({"bundle": name, "outcome": word} for name in NAMES for word in WORDS),
            ]
        )
    )
    return [
        replace(one, payload=json.dumps(said))
        if isinstance(one, Event) and one.kind == "ack"
        else one
        for one in sent
    ]


WORDS = ("acquired", "released", "failed")


@given(st.data(), st.lists(one_cluster(), min_size=2, max_size=4), configs)
def test_shards_folded_together_are_what_each_is_by_itself(
    data: st.DataObject, sent: list[list[Record]], config: FoldConfig
) -> None:
    together, alone = [Shard.empty() for _ in sent], [Shard.empty() for _ in sent]
    now_ms = 0
    for batches in zip_longest(*(data.draw(cuts(one)) for one in sent), fillvalue=()):
        blocks = [block_of(batch) for batch in batches]
        now_ms = max([now_ms, *(record.append_ms for batch in batches for record in batch)])
        joint = fold_together(together, blocks, now_ms, config)
        single = [
            fold(shard, block, now_ms, config) for shard, block in zip(alone, blocks, strict=True)
        ]
        assert [content(*one) for one in joint] == [content(*one) for one in single]
        together, alone = [shard for shard, _ in joint], [shard for shard, _ in single]


@given(st.lists(one_cluster(), min_size=2, max_size=4), configs, st.booleans())
def test_views_that_share_columns_are_what_each_is_by_itself(
    sent: list[list[Record]], config: FoldConfig, have_topic_shares: bool
) -> None:
    now_ms = max(record.append_ms for one in sent for record in one)
    shards = {
        f"c{number}": fold(Shard.empty(), block_of(one), now_ms, config)[0]
        for number, one in enumerate(sent)
    }
    if have_topic_shares:
        shards["c0"] = _with_topic_shares(shards["c0"])
    times = {0: now_ms - 7}
    joined = JoinedViews(shards, now_ms, times)
    for cluster, shard in shards.items():
        for weights in ({"cpu": 1.0}, {"cpu": 0.3, "memory": 2.0}):
            alone = view_of(cluster, [shard], now_ms, weights, times=times)
            view = joined.view(cluster, weights)
            assert may_be_joined(shard) and view is not None
            assert flat(view) == flat(alone)
    assert joined.view("another", {"cpu": 1.0}) is None


def _with_topic_shares(shard: Shard) -> Shard:
    """The same shard, with measured topics of every second bundle."""
    packed = [
        pack_shares(1, np.array([7, 9 + at]), np.array([0.5, 1.5]))
        for at in range(len(shard.bundles))
    ]
    column = pa.array([one if at % 2 else None for at, one in enumerate(packed)], pa.binary())
    at = shard.bundles.schema.get_field_index("topic_shares")
    return replace(shard, bundles=shard.bundles.set_column(at, BUNDLE_SCHEMA.field(at), column))


def flat(value: object) -> object:
    """All that is in a view: the values of arrays as bytes, with their types."""
    if is_dataclass(value):
        return {field.name: flat(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tobytes()
    if isinstance(value, pa.Array):
        return value.to_pylist()
    if isinstance(value, Mapping):
        return {name: flat(one) for name, one in value.items()}
    return [flat(one) for one in value] if isinstance(value, tuple) else value


def content(shard: Shard, refused: pa.Table) -> list[bytes]:
    """All that is in a shard's tables, as bytes."""
    return [
        to_bytes(table.take(pa.array(range(len(table)), pa.int64())))
        for table in (shard.brokers, shard.bundles, refused)
    ]
