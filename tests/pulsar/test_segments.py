"""Bundles that hold segments of scalable topics: what an agent counts, and where it cuts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lb_stream.agent import LimitedCutsAdapter, Refused, SplitWatch
from lb_stream.core.model.topics import SegmentName, topic_hash
from lb_stream.settings.resolve import cluster_config
from tests.pulsar.fake_cluster import NAMESPACE, FakeCluster, fake_cluster
from tests.support.wordings import check_wording

ALGORITHMS = cluster_config({}).split_algorithms
MIDDLE = 0x20000000
COUNT = "topic_count_equally_divide"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        yield started


def add_segments(cluster: FakeCluster, count: int, below: int, row: int = 0) -> list[str]:
    """Segments whose hashes are in the bundle of a row, below a position."""
    low = cluster.boundaries[row]
    names = (
        SegmentName(f"topic://{NAMESPACE}/clicks", 0, 0xFFFF, number).full
        for number in range(100_000)
    )
    inside = (name for name in names if low <= topic_hash(name) < below)
    cluster.segments[cluster.ranges[row]] = [next(inside) for _ in range(count)]
    return cluster.segments[cluster.ranges[row]]


def test_segments_count_as_topics_with_their_rates() -> None:
    with fake_cluster(manager="extensible") as cluster:
        cluster.topics[cluster.ranges[0]] = 1
        names = add_segments(cluster, 4, MIDDLE)
        adapter = cluster.adapter(0)
        found = adapter.stats()[cluster.bundle(0)]
        assert (found.topics, found.msg_rate_in) == (5, 50.0)
        assert set(map(topic_hash, names)) < set(adapter.topics(cluster.bundle(0)).hashes.tolist())


def test_a_bundle_of_segments_only_is_cut_in_its_middle_where_pulsar_would_do_nothing(
    cluster: FakeCluster,
) -> None:
    cluster.topics[cluster.ranges[0]] = 0
    add_segments(cluster, 4, 0x10000000)
    cluster.adapter(0, algorithms=ALGORITHMS).split(cluster.bundle(0), [], COUNT)
    (act,) = cluster.acts()
    assert act.query["splitAlgorithmName"] == "range_equally_divide"
    assert MIDDLE in cluster.boundaries


def test_segments_beside_two_topics_count_in_where_a_bundle_is_cut(cluster: FakeCluster) -> None:
    names = [*cluster.topics_of(cluster.ranges[0]), *add_segments(cluster, 6, 0x08000000)]
    cluster.adapter(0, algorithms=ALGORITHMS).split(cluster.bundle(0), [], COUNT)
    (act,) = cluster.acts()
    low, high = sorted(map(topic_hash, names))[3:5]
    assert act.query["splitAlgorithmName"] == "specified_positions_divide"
    assert act.body == [low + (high - low) // 2]


def test_without_segments_pulsars_own_algorithm_finds_the_position(cluster: FakeCluster) -> None:
    cluster.adapter(0, algorithms=ALGORITHMS).split(cluster.bundle(0), [], COUNT)
    (act,) = cluster.acts()
    assert (act.query["splitAlgorithmName"], act.body) == (COUNT, None)


def test_a_position_at_which_pulsar_would_not_cut_is_refused_before_anything_is_done(
    cluster: FakeCluster,
) -> None:
    cluster.topics[cluster.ranges[0]] = 1
    add_segments(cluster, 4, MIDDLE)
    with pytest.raises(Refused) as error:
        cluster.adapter(0).split(cluster.bundle(0), [0x10000000], "specified_positions_divide")
    check_wording(error.value)
    assert not cluster.acts()


@pytest.mark.parametrize(("topics", "is_middle"), [(1, True), (2, False)])
def test_an_extensible_brokers_agent_asks_only_for_cuts_that_pulsar_makes(
    topics: int, is_middle: bool
) -> None:
    config = cluster_config(
        {
            "load_manager": "extensible",
            "split_hit_count": 1,
            "bundle_max_topics": 4,
            "split_algorithm": COUNT,
        }
    )
    with fake_cluster(manager="extensible") as cluster:
        cluster.topics[cluster.ranges[0]] = topics
        add_segments(cluster, 6, 0x08000000)
        adapter = cluster.adapter(0)
        assert isinstance(adapter, LimitedCutsAdapter)
        watch = SplitWatch(config.splitting, config.split_algorithms)
        watch.find_splits(adapter)
        (ask,) = watch.find_splits(adapter)
        assert (ask.boundaries == [MIDDLE]) == is_middle
        adapter.split(ask.bundle, ask.boundaries, ask.algorithm)
        assert set(ask.boundaries) < set(cluster.boundaries)
