"""Which batches add to history, and that history tells what each slot found."""

import numpy as np
import pyarrow as pa
import pytest

from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.sim import build_cluster
from lb_stream.stream.shards.directory import NEW, ShardMap
from lb_stream.stream.shards.history import (
    WHOLE_MS,
    Slot,
    SlottedShard,
    broker_rows,
    bundle_rows,
    next_slot,
)
from lb_stream.stream.shards.slicing import ClusterBlocks, due_parts, next_shard_map
from tests.support.recorded_tables import START_MS
from tests.support.sim_loop import ClosedLoop, batch_of

MINUTE_MS = 60_000
BLOCKS = (("brokers:0:1", "names:0:1", "values:0:1"),)


@pytest.mark.parametrize(
    ("before_ms", "now_ms", "slot"),
    [
        (None, 90_000, Slot(60_000, 0)),
        (61_000, 119_999, None),
        (61_000, 120_000, Slot(120_000, 1_000)),
        (61_000, 3 * MINUTE_MS + 5, Slot(3 * MINUTE_MS, 1_000)),
        (WHOLE_MS - 5, WHOLE_MS + 5, Slot(WHOLE_MS, 0)),
        (200_000, 100_000, None),  # a clock that runs backwards
    ],
)
def test_the_first_batch_of_a_slot_begins_it(
    before_ms: int | None, now_ms: int, slot: Slot | None
) -> None:
    assert next_slot(before_ms, now_ms, MINUTE_MS) == slot
    assert next_slot(before_ms, now_ms, 0) is None


def test_a_batch_without_news_begins_no_slot_and_the_next_one_with_news_does() -> None:
    before = ShardMap(1, BLOCKS, history_ms=61_000)

    def of(view: ClusterBlocks) -> tuple[int | None, list[Slot | None]]:
        due = due_parts({"eu": before}, {"eu": view}, MINUTE_MS)
        return next_shard_map(before, view, 100, MINUTE_MS).history_ms, [
            entry.slot for entries in due.values() for entry in entries
        ]

    assert of(ClusterBlocks(130_000, BLOCKS, sampled=False)) == (61_000, [])
    assert of(ClusterBlocks(110_000, BLOCKS, sampled=True)) == (61_000, [None])
    assert of(ClusterBlocks(130_000, BLOCKS, sampled=True)) == (130_000, [Slot(120_000, 1_000)])
    failed = ClusterBlocks(130_000, (("", "", ""),), sampled=True)
    assert of(failed) == (61_000, [])
    assert next_shard_map(NEW, ClusterBlocks(5, BLOCKS, sampled=True), 100).history_ms is None, (
        "nobody asked for history"
    )


def test_with_each_bundles_last_row_history_tells_what_every_slot_found() -> None:
    loop = ClosedLoop(build_cluster(6, 48, "hot_spot", 1, START_MS, at_s=5.0), {}, START_MS)
    names, shard, before_ms, fewer = sorted(loop.brokers), Shard.empty(), None, 0
    last: dict[str, dict[str, object]] = {}
    for second in range(80):
        loop.now_ms += 1_000
        if second % 7 == 6:  # a bundle moves, which its old broker may be long in saying
            source, destination = names[second % 6], names[(second + 1) % 6]
            moving = min(loop.cluster.owned(source))
            loop.cluster.release(source, moving)
            loop.cluster.acquire(destination, moving)
        speaking = [name for number, name in enumerate(names) if second % (4 * number + 1) == 0]
        batch = batch_of(
            [(name, loop.brokers[name].report()) for name in speaking], loop.now_ms, 10 * second
        )
        shard, _ = fold(shard, batch, loop.now_ms, loop.config.fold)
        if slot := next_slot(before_ms, loop.now_ms, 5_000):
            before_ms = loop.now_ms
            rows = (
                bundle_rows([SlottedShard("demo", shard, slot)]).drop_columns("slot_ms").to_pylist()
            )
            last |= {row["bundle"]: row for row in rows}
            fewer += len(rows) < len(shard.bundles)
            whole = (
                bundle_rows([SlottedShard("demo", shard, Slot(slot.begin_ms, 0))])
                .drop_columns("slot_ms")
                .to_pylist()
            )
            assert [last[row["bundle"]] for row in whole] == whole
    assert fewer > 10


def test_a_bundle_that_has_lost_its_owner_gets_a_row_without_one() -> None:
    loop = ClosedLoop(
        build_cluster(3, 12, "hot_spot", 1, START_MS), {"shedding_enabled": False}, START_MS
    )
    loop.step()
    name, report = "broker-1:8080", loop.brokers["broker-1:8080"].report()
    lost = report["bundles"][0]
    report |= {
        "bundles": report["bundles"][1:],
        "lastStats": {bundle: report["lastStats"][bundle] for bundle in report["bundles"][1:]},
    }
    at_ms = loop.now_ms + 1_000
    shard, _ = fold(
        loop.shard,
        batch_of([(name, report | {"lastUpdate": at_ms})], at_ms, 1_000),
        at_ms,
        loop.config.fold,
    )
    rows = {
        row["bundle"]: row["owner"]
        for row in bundle_rows([SlottedShard("demo", shard, Slot(0, at_ms))]).to_pylist()
    }
    assert rows[lost] is None
    assert {bundle: owner for bundle, owner in rows.items() if owner} == dict.fromkeys(
        report["bundles"], name
    )


def test_brokers_that_have_reported_get_a_row_with_what_they_have() -> None:
    loop = ClosedLoop(build_cluster(3, 12, "hot_spot", 1, START_MS), {}, START_MS)
    loop.step()
    rows = broker_rows([SlottedShard("demo", loop.shard, Slot(START_MS, 0))]).to_pylist()
    brokers = view_of("demo", [loop.shard], loop.now_ms, {"cpu": 1.0}).brokers
    assert [row["broker"] for row in rows] == list(brokers.names)
    assert [[row[f"cpu_{part}"] for row in rows] for part in ("usage", "limit")] == [
        column.tolist() for column in brokers.resources["cpu"]
    ]
    assert [row["rate_in_msgs_per_s"] for row in rows] == brokers.latest.rate_in.tolist()
    assert not len(broker_rows([SlottedShard("demo", Shard.empty(), Slot(0, 0))]))


def test_rows_of_several_clusters_are_those_of_each_one_behind_another() -> None:
    slotted = []
    for number, (brokers, bundles) in enumerate([(3, 12), (5, 40), (2, 6)]):
        loop = ClosedLoop(
            build_cluster(brokers, bundles, "hot_spot", number, START_MS), {}, START_MS
        )
        loop.step()
        last_ms = int(np.max(loop.shard.bundles["reported_ms"].to_numpy()))
        since_ms = last_ms + 1 if number == 2 else 0
        slot = Slot(START_MS + 60_000 * number, since_ms)
        slotted.append(SlottedShard(f"cluster-{number}", loop.shard, slot))
    # A shard of the first cluster whose first half is unassigned, and one without brokers.
    cluster, shard, slot = slotted[0]
    owner = shard.bundles["owner"].to_numpy().copy()
    owner[: len(owner) // 2] = -1
    at = shard.bundles.schema.get_field_index("owner")
    bundles = shard.bundles.set_column(at, shard.bundles.schema.field(at), pa.array(owner))
    slotted.insert(1, SlottedShard(cluster, Shard(shard.brokers, bundles), slot))
    slotted.insert(1, SlottedShard("empty", Shard.empty(), Slot(START_MS, 0)))
    for rows_of in (bundle_rows, broker_rows):
        alone = pa.concat_tables(rows_of([one]) for one in slotted)
        assert rows_of(slotted).equals(alone)
    found = bundle_rows(slotted)
    assert set(found["cluster"].to_pylist()) == {"cluster-0", "cluster-1"}
    assert found["owner"].null_count == 6 and found["owner"][0].as_py() == "broker-1:8080"
