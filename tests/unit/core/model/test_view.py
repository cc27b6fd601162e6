"""The view of one cluster: shards put together, and moves that are carried out before their reports
say so."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.filters.candidates import Candidates
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.names import bundle_name
from lb_stream.core.model.view import ClusterView, with_moves
from lb_stream.core.placement.base import Targets
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of

X, Y, Z = (f"t/n/0x{index}0000000_0x{index + 1}0000000" for index in range(3))
HEAVY = BundleStats(msg_throughput_in=30.0, msg_throughput_out=0.0, msg_rate_in=3.0, topics=7)
LIGHT = BundleStats(msg_throughput_in=5.0, msg_throughput_out=5.0, msg_rate_in=1.0, topics=2)
A, B = 0, 1


def view(**resources_of_b: tuple[float, float]) -> ClusterView:
    """a owns X and Y (40 bytes/s, cpu 80 of 100), b owns nothing (cpu 20 of 400), Z was dropped by
    b."""
    cpu = resources_of_b.get("cpu", (20.0, 400.0))
    reports = [
        Report("b", 1, {Z: LIGHT}, {"cpu": cpu}),
        Report("a", 2, {X: HEAVY, Y: LIGHT}, {"cpu": (80.0, 100.0), "direct_memory": (-1.0, -1.0)}),
        Report("b", 3, {}, {"cpu": cpu}),
    ]
    shard, _ = fold(Shard.empty(), batch_of(reports), 3, FoldConfig())
    return view_of("c", [shard], 3, cluster_config({}).balancer.weights)


def moved(seen: ClusterView, bundle: str, destination: int) -> ClusterView:
    return with_moves(seen, seen.bundles.rows_of([bundle]), np.array([destination], np.intp))


def test_a_move_takes_the_bundles_rates_and_topics_along() -> None:
    after = moved(view(), X, B)
    assert after.brokers.latest.throughput.tolist() == [10.0, 30.0]
    assert after.brokers.latest.rate.tolist() == [1.0, 3.0]
    assert after.brokers.short.rate.tolist() == after.brokers.long.rate.tolist() == [1.0, 3.0]
    assert after.brokers.topics.tolist() == [2, 7]
    assert after.bundle_counts().tolist() == [1, 1]


def test_a_move_takes_the_bundles_share_of_each_resource_scaled_to_the_destinations_limit() -> None:
    after = moved(view(), X, B)
    assert after.brokers.resources["cpu"][0].tolist() == [20.0, 80.0]  # 30/40 of 80 leave
    assert after.brokers.usage.tolist() == pytest.approx([0.20, 0.20])  # of limits 100 and 400
    assert after.brokers.resources["direct_memory"][0].tolist() == [
        -1.0,
        0.0,
    ]  # what is not known stays so


def test_a_bundle_without_destination_only_leaves() -> None:
    after = moved(view(), X, -1)
    assert after.brokers.latest.throughput.tolist() == [10.0, 0.0]
    assert after.brokers.usage.tolist() == pytest.approx([0.20, 0.05])
    assert after.bundles.owner[after.bundles.rows_of([X])].tolist() == [-1]


def test_an_unassigned_bundle_brings_its_rates_and_what_it_would_use_at_the_average_broker() -> (
    None
):
    after = moved(view(), Z, B)
    assert after.brokers.latest.throughput.tolist() == [40.0, 10.0]
    assert after.brokers.topics.tolist() == [9, 2]
    assert after.brokers.usage.tolist() == pytest.approx(
        [0.80, 0.10]
    )  # 10/40 of 80: only a carries anything


def test_the_view_that_was_given_stays_as_it_was() -> None:
    before = view()
    moved(before, X, B)
    assert (before.brokers.topics.tolist(), before.brokers.latest.throughput.tolist()) == (
        [9, 0],
        [40.0, 0.0],
    )
    assert (before.bundles.in_flight.any(), before.bundle_counts().tolist()) == (False, [2, 0])


def test_topics_under_way_keep_a_full_broker_from_taking_more() -> None:
    seen = view()
    targets = cluster_config({"broker_max_topics": 8}).balancer
    row = int(seen.bundles.rows_of([Z])[0])
    assert Candidates(seen, targets).pool_for(row, Targets.from_view(seen)).kept.tolist() == [B]
    after = moved(moved(seen, X, B), Y, B)
    assert Candidates(after, targets).pool_for(row, Targets.from_view(after)).kept.tolist() == [A]


def test_a_broker_that_serves_no_persistent_topics_is_no_candidate() -> None:
    seen = view()
    seen = replace(seen, brokers=replace(seen.brokers, persistent_topics=np.array([True, False])))
    pool = Candidates(seen, cluster_config({}).balancer).pool_for(
        int(seen.bundles.rows_of([Z])[0]), Targets.from_view(seen)
    )
    assert (pool.kept.tolist(), pool.allowed.tolist()) == ([A], [A])


def test_rows_are_found_by_name_however_often_it_is_asked_for_and_others_are_nowhere() -> None:
    bundles = view().bundles
    names = [X, Z, Y, X, "t/n/0xf0000000_0xffffffff", X]
    assert bundles.rows_of(names).tolist() == [0, 2, 1, 0, -1, 0]
    assert bundles.rows_of([]).tolist() == []


@pytest.mark.parametrize("count", [1, 3, 700])
def test_bundles_are_found_by_name_whether_few_or_many_are_sought_and_however_rows_lie(
    count: int,
) -> None:
    seen = view().bundles
    names = [bundle_name(f"t/é{at % 7}", at, at + 1) for at in range(700)]
    for rows in (sorted(names, key=str.encode), names[::-1]):
        for column in (pa.array(rows), pa.array(["a", *rows])[1:]):
            bundles = replace(seen, names=column)
            assert bundles.rows_of(names[:count]).tolist() == [
                rows.index(name) for name in names[:count]
            ]
            assert bundles.rows_of([*names[:count], "t/n/none", names[0]]).tolist()[-2:] == [
                -1,
                rows.index(names[0]),
            ]


@pytest.mark.parametrize("parent", [(0, 2), (1, 3), (4, 15), (0, 15), (1, 2), (14, 15), (9, 10)])
def test_rows_inside_are_the_other_bundles_that_lie_in_the_range(parent: tuple[int, int]) -> None:
    ends = [(0, 2), (0, 1), (1, 2), (1, 3), (2, 4), (4, 8), (4, 15), (14, 15)]
    names = [
        bundle_name(namespace, low << 28, high << 28 if high < 15 else 0xFFFFFFFF)
        for namespace in ("t/m", "t/n", "t/n2")
        for low, high in ends
    ]
    reports = [Report("a", 1, dict.fromkeys(names, LIGHT))]
    shard, _ = fold(Shard.empty(), batch_of(reports), 1, FoldConfig())
    bundles = view_of("c", [shard], 1, cluster_config({}).balancer.weights).bundles
    low, high = parent
    whole = bundle_name("t/n", low << 28, high << 28 if high < 15 else 0xFFFFFFFF)
    expected = [end for end in sorted(ends) if low <= end[0] and end[1] <= high and end != parent]
    found = [bundles.name(row) for row in bundles.rows_inside(whole).tolist()]
    assert found == [
        bundle_name("t/n", begin << 28, end << 28 if end < 15 else 0xFFFFFFFF)
        for begin, end in expected
    ]
