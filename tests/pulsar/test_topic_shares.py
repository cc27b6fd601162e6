"""The shares of topics that agents of Pulsar brokers add to reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lb_stream.agent.pulsar.stats import BundleTraffic
from lb_stream.agent.pulsar.topic_shares import HEAVIEST, heaviest_shares
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.names import bundle_name
from lb_stream.core.model.topics import topic_hash
from lb_stream.stream.records import parse_report
from tests.pulsar.fake_cluster import FakeCluster, fake_cluster

LOAD = b'{"weightedMaxEMA":0.5,"msgRateIn":1.0,"reportedAt":7}'


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as started:
        yield started


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Written:
    """Load data of an extensible broker, taken again and again."""

    def take(self, broker: str) -> list[bytes]:
        return [LOAD, b'{"topBundlesLoadData":[]}']


def traffic(rates: dict[str, tuple[float, float]]) -> BundleTraffic:
    """A bundle of topics with (messages/s, bytes/s)."""
    msgs, flow = (sum(column) for column in zip(*rates.values(), strict=True))
    stats = BundleStats(msg_rate_in=msgs, msg_throughput_in=flow, topics=len(rates))
    return BundleTraffic(stats, rates)


def reads_of(cluster: FakeCluster) -> int:
    return sum(call.path.endswith("broker-stats/topics") for call in cluster.calls)


def test_a_report_gains_the_shares_and_stays_byte_for_byte_otherwise(cluster: FakeCluster) -> None:
    cluster.topics[cluster.ranges[0]] = 5
    plain = cluster.adapter(0, topic_shares_s=0).report()
    report = cluster.adapter(0).report()
    assert isinstance(plain, bytes) and isinstance(report, bytes)
    assert report.startswith(plain.rstrip()[:-1])
    read = parse_report(report, "a")
    assert read.wrong_shares is None
    hashes, share = read.topic_shares[cluster.bundle(0)]
    assert hashes.tolist() == sorted(map(topic_hash, cluster.topics_of(cluster.ranges[0])))
    assert_allclose(share, 0.2)


def test_an_extensible_brokers_load_data_gains_them() -> None:
    with fake_cluster(manager="extensible") as cluster:
        load, top = cluster.adapter(0, load_data=Written()).report()
        assert set(parse_report(load, "a").topic_shares) == {cluster.bundle(0), cluster.bundle(3)}
        assert json.loads(top) == {"topBundlesLoadData": []}


def test_topics_are_read_once_in_a_while_and_not_at_all_if_so_set(cluster: FakeCluster) -> None:
    clock = Clock()
    adapter = cluster.adapter(0, clock=clock, topic_shares_s=60.0)
    for _ in range(3):
        adapter.report()
    assert reads_of(cluster) == 1
    clock.now_s += 60
    adapter.report()
    assert reads_of(cluster) == 2
    cluster.adapter(0, topic_shares_s=0).report()
    assert reads_of(cluster) == 2


@pytest.mark.parametrize("answer", [(500, b"", {}), (200, [], {}), (200, b"<html>", {})])
def test_a_report_is_sent_without_shares_that_cant_be_read(
    cluster: FakeCluster, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plain = cluster.adapter(0, topic_shares_s=0).report()
    cluster.before = lambda call: answer if call.path.endswith("broker-stats/topics") else None
    clock = Clock()
    adapter = cluster.adapter(0, clock=clock)
    assert adapter.report() == plain
    clock.now_s += 60
    assert adapter.report() == plain
    assert len(caplog.records) == 1


def test_shares_of_a_bundle_that_the_report_does_not_name_are_left_out(
    cluster: FakeCluster,
) -> None:
    clock = Clock()
    adapter = cluster.adapter(0, clock=clock)
    adapter.report()
    cluster.owners[cluster.ranges[0]] = 1
    cluster.take_statistics()
    report = adapter.report()
    assert isinstance(report, bytes)
    assert set(json.loads(report)["topicShares"]) == {cluster.bundle(3)}
    assert parse_report(report, "a").wrong_shares is None


def test_a_share_is_the_mean_of_the_parts_of_messages_and_bytes() -> None:
    bundle = bundle_name("t/n", 0, 0xFFFFFFFF)
    names = ["persistent://t/n/a", "persistent://t/n/b"]
    rates = dict(zip(names, [(30.0, 100.0), (10.0, 900.0)], strict=True))
    found = dict(heaviest_shares({bundle: traffic(rates)})[bundle])
    assert_allclose([found[topic_hash(name)] for name in names], [0.425, 0.575])
    silent = {name: (rate, 0.0) for name, (rate, _) in rates.items()}
    found = dict(heaviest_shares({bundle: traffic(silent)})[bundle])
    assert_allclose([found[topic_hash(name)] for name in names], [0.75, 0.25])


def test_only_the_heaviest_bundles_of_several_topics_have_shares() -> None:
    step = 1 << 28
    ring = [bundle_name("t/n", at * step, (at + 1) * step) for at in range(15)]
    topics: dict[str, list[str]] = {name: [] for name in ring}
    for number in range(400):
        name = f"persistent://t/n/{number}"
        if (at := topic_hash(name) // step) < len(ring):
            topics[ring[at]].append(name)
    bundles = {
        bundle: traffic({name: (10.0 + at, 1.0) for name in topics[bundle][:3]})
        for at, bundle in enumerate(ring)
    }
    bundles[ring[14]] = traffic({topics[ring[14]][0]: (1e6, 1.0)})  # the heaviest has one topic
    bundles[ring[13]] = traffic(dict.fromkeys(topics[ring[13]][:3], (0.0, 0.0)))
    heaviest = sorted(ring[:13])[-(HEAVIEST - 1) :]
    assert sorted(heaviest_shares(bundles)) == heaviest


def test_many_topics_become_a_few_entries() -> None:
    bundle = bundle_name("t/n", 0, 0xFFFFFFFF)
    rng = np.random.default_rng(1)
    rates = {f"persistent://t/n/{at}": (rate, rate) for at, rate in enumerate(rng.pareto(1, 9_000))}
    entries = heaviest_shares({bundle: traffic(rates)})[bundle]
    assert 50 < len(entries) <= 200
    assert sum(share for _, share in entries) == pytest.approx(1, abs=1e-4)
    heaviest = max(rates, key=lambda name: rates[name])
    total = sum(rate for rate, _ in rates.values())
    assert dict(entries)[topic_hash(heaviest)] == pytest.approx(rates[heaviest][0] / total)


def test_a_bundle_with_a_hash_outside_of_its_range_has_no_shares() -> None:
    name = "persistent://t/n/a"
    at = topic_hash(name)
    elsewhere = bundle_name("t/n", at + 1, at + 2)
    assert heaviest_shares({elsewhere: traffic({name: (1, 1), "persistent://t/n/b": (1, 1)})}) == {}


def test_segments_count_by_the_hash_of_their_names() -> None:
    segment = "segment://shop/orders/s/0000-7fff-0"
    bundle = bundle_name("shop/orders", 0, 0xFFFFFFFF)
    rates = {"persistent://shop/orders/a": (1.0, 1.0), segment: (3.0, 3.0)}
    assert dict(heaviest_shares({bundle: traffic(rates)})[bundle])[topic_hash(segment)] == 0.75
