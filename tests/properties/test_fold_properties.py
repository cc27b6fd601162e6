"""The columnar fold is the plain definition, however the same reports are batched, sharded and
ordered."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.model.blocks import BUNDLE_SCHEMA, Shard, from_bytes, to_bytes
from tests.properties.model import Model, broker_rows, bundle_rows
from tests.properties.strategies import (
    BROKERS,
    BUNDLES,
    SHARD_COUNTS,
    Record,
    Shards,
    cuts,
    fold_configs,
    records,
    statistics,
)
from tests.support.build import Event, Report, batch_of

OF_THE_BATCH = {"gained", "appeared", "sampled"}


@given(st.data(), records(), fold_configs, st.sampled_from(SHARD_COUNTS), st.integers())
def test_every_batch_folds_to_what_the_definition_says(
    data: st.DataObject, sent: list[Record], config: FoldConfig, count: int, seed: int
) -> None:
    shards, model = Shards.empty(count, config), Model(config)
    for batch in data.draw(cuts(sent)):
        shards.take(batch, shuffle=Random(seed).shuffle)
        model.batch(batch, shards.now_ms)
        assert bundle_rows(shards.shards) == model.bundle_rows()
        assert all(broker_rows(shard) == model.broker_rows() for shard in shards.shards)


@given(st.data(), records())
def test_batches_of_any_size_leave_the_same_bytes(data: st.DataObject, sent: list[Record]) -> None:
    at_once, bit_by_bit = (Shards.empty(1, FoldConfig()) for _ in range(2))
    at_once.take(sent)
    for batch in data.draw(cuts(sent)):
        bit_by_bit.take(batch)
    assert lasting_bytes(at_once.shards[0]) == lasting_bytes(bit_by_bit.shards[0])


def lasting_bytes(shard: Shard) -> list[bytes]:
    """A shard's bytes without the columns that speak of the last batch only."""
    return [
        to_bytes(table.drop_columns([name for name in table.column_names if name in OF_THE_BATCH]))
        for table in (shard.brokers, shard.bundles)
    ]


@given(records(), st.integers())
def test_the_order_of_a_batchs_rows_does_not_show(sent: list[Record], seed: int) -> None:
    one, other = (Shards.empty(1, FoldConfig()) for _ in range(2))
    one.take(sent)
    other.take(sent, shuffle=Random(seed).shuffle)
    for left, right in zip(one.shards, other.shards, strict=True):
        assert [to_bytes(left.brokers), to_bytes(left.bundles)] == [
            to_bytes(right.brokers),
            to_bytes(right.bundles),
        ]


@given(st.lists(st.tuples(st.integers(0, 3_000), statistics), min_size=1, max_size=6), st.data())
def test_within_a_partition_offsets_give_the_order_even_if_its_clock_runs_backwards(
    sent: list[tuple[int, object]], data: st.DataObject
) -> None:
    history = [
        Report(BROKERS[0], append_ms, {BUNDLES[0]: stats}, offset=offset, last_update_ms=offset)
        for offset, (append_ms, stats) in enumerate(sent)
    ]
    model, shards = Model(FoldConfig()), Shards.empty(1, FoldConfig())
    model.batch(history, 3_000)
    for batch in data.draw(cuts(history)):
        shards.take(batch, now_ms=3_000, shuffle=Random(1).shuffle)
    timeless = [
        {name: value for name, value in row.items() if name != "gained"}
        for row in bundle_rows(shards.shards)
    ]
    assert timeless == [
        {name: value for name, value in row.items() if name != "gained"}
        for row in model.bundle_rows()
    ]


@given(
    st.data(),
    records(),
    st.sampled_from([0, 1, 1_000, 40_000]),
    st.sampled_from([1_000, 60_000, 86_400_000]),
)
def test_bundles_and_brokers_are_forgotten_when_the_definition_says(
    data: st.DataObject, sent: list[Record], bundle_retention_ms: int, broker_retention_ms: int
) -> None:
    config = FoldConfig(
        bundle_retention_ms=bundle_retention_ms, broker_retention_ms=broker_retention_ms
    )
    shards, model = Shards.empty(2, config), Model(config)
    for batch in data.draw(cuts(sent)):
        shards.take(batch)
        model.batch(batch, shards.now_ms)
        assert bundle_rows(shards.shards) == model.bundle_rows()
        assert all(broker_rows(shard) == model.broker_rows() for shard in shards.shards)


@given(records())
def test_the_refused_reports_are_those_that_the_definition_refuses(sent: list[Record]) -> None:
    model = Model(FoldConfig())
    model.batch(sent, sent[-1].append_ms)
    reports, events = (
        [record for record in sent if isinstance(record, kind)] for kind in (Report, Event)
    )
    _, refused = fold(Shard.empty(), batch_of(reports, events), sent[-1].append_ms, FoldConfig())
    assert [(row["broker"], row["offset"]) for row in refused.to_pylist()] == [
        (report.broker, report.at) for report in model.refused
    ]


@given(records())
def test_a_shard_survives_being_written_down(sent: list[Record]) -> None:
    shards = Shards.empty(1, FoldConfig())
    shards.take(sent)
    shard = shards.shards[0]
    again = Shard(from_bytes(to_bytes(shard.brokers)), from_bytes(to_bytes(shard.bundles)))
    assert (again.brokers.equals(shard.brokers), again.bundles.equals(shard.bundles)) == (
        True,
        True,
    )
    assert again.bundles.schema == BUNDLE_SCHEMA
    assert shard.bundles["name"].to_pylist() == sorted(
        shard.bundles["name"].to_pylist(), key=str.encode
    )


def test_a_report_with_the_content_of_the_last_one_is_no_new_sample_but_confirms_ownership() -> (
    None
):
    stats = {BUNDLES[0]: None} | dict.fromkeys(BUNDLES[1:2], example())
    first = Report(BROKERS[0], 1_000, stats, content="x")
    shard, _ = fold(Shard.empty(), batch_of([first]), 1_000, FoldConfig())
    shard, _ = fold(shard, batch_of([replace(first, append_ms=2_000)]), 2_000, FoldConfig())
    rows = {row["name"]: row for row in shard.bundles.to_pylist()}
    assert [rows[name]["short_samples"] for name in BUNDLES[:2]] == [0, 1]
    assert [rows[name]["reported_ms"] for name in BUNDLES[:2]] == [2_000, 2_000]
    assert shard.brokers["sampled"].to_pylist() == [False]


def example() -> object:
    from lb_stream.contracts.reports import BundleStats

    return BundleStats(msg_rate_in=5.0)


def test_an_empty_batch_changes_nothing_lasting() -> None:
    shard, _ = fold(
        Shard.empty(),
        batch_of([Report(BROKERS[0], 1_000, {BUNDLES[0]: None})]),
        1_000,
        FoldConfig(),
    )
    again, refused = fold(shard, batch_of([]), 1_001, FoldConfig())
    assert lasting_bytes(again) == lasting_bytes(shard)
    assert isinstance(refused, pa.Table)
    assert len(refused) == 0
