"""Shards that are folded together are what each is by itself."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import zip_longest

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.core.averages import FoldConfig, fold, fold_together
from lb_stream.core.model.blocks import Shard, to_bytes
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


def content(shard: Shard, refused: pa.Table) -> list[bytes]:
    """All that is in a shard's tables, as bytes."""
    return [
        to_bytes(table.take(pa.array(range(len(table)), pa.int64())))
        for table in (shard.brokers, shard.bundles, refused)
    ]
