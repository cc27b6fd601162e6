"""The model of a cluster and the reports that its brokers give."""

import json
import re
from itertools import pairwise

import pytest

from lb_stream.contracts.reports import ModularLoadReport, SimpleLoadReport, report_kind
from lb_stream.core.model.names import BUNDLE_PATTERN
from lb_stream.sim import BrokerProfile, BundleProfile, Load, SimBroker, SimCluster, build_cluster, hot_spot, steady
from lb_stream.sim.cluster import bundle_names, max_over_mean
from lb_stream.sim.reports import make_report, throughput_of

START = 1_700_000_000_000
SMALL = [BundleProfile("t/n/0x00000000_0x80000000", 100.0, 1000.0, 2.0), BundleProfile("t/n/0x80000000_0xffffffff", 300.0, 500.0, 1.0)]
FIRST, SECOND = (bundle.name for bundle in SMALL)


def small_cluster(noise_ratio: float = 0.0) -> SimCluster:
    """Two brokers, two bundles, both at a:1; the first bundle trebles after 10 s."""
    cluster = SimCluster([BrokerProfile("a:1"), BrokerProfile("b:1")], SMALL, hot_spot({0}, 3.0, 10.0), START, noise_ratio=noise_ratio)
    cluster.acquire("a:1", FIRST)
    cluster.acquire("a:1", SECOND)
    return cluster


def test_a_brokers_load_is_the_sum_of_its_bundles() -> None:
    assert small_cluster().loads(START) == {"a:1": Load(400.0, 500.0, 250_000.0, 350_000.0), "b:1": Load()}


def test_load_follows_the_workload() -> None:
    cluster = small_cluster()
    assert cluster.bundle_load(FIRST, START + 9_999) == Load(100.0, 200.0, 100_000.0, 200_000.0)
    assert cluster.bundle_load(FIRST, START + 10_000) == Load(300.0, 600.0, 300_000.0, 600_000.0)


def test_load_moves_with_the_bundle_and_a_released_bundle_is_nobodys() -> None:
    cluster = small_cluster()
    cluster.release("a:1", FIRST)
    assert cluster.owners() == {FIRST: [], SECOND: ["a:1"]}
    cluster.acquire("b:1", FIRST)
    assert cluster.loads(START)["b:1"].throughput_bytes_per_s == 300_000.0
    assert cluster.owners() == {FIRST: ["b:1"], SECOND: ["a:1"]}


def test_a_split_bundle_is_no_more_and_its_children_carry_what_it_carried() -> None:
    cluster = small_cluster()
    before = cluster.bundle_load(FIRST, START)
    cluster.split("a:1", FIRST, [0x20000000, 0x30000000])
    children = [f"t/n/0x{low:08x}_0x{high:08x}" for low, high in pairwise([0, 0x20000000, 0x30000000, 0x80000000])]
    assert cluster.owners() == {SECOND: ["a:1"]} | {child: ["a:1"] for child in children}
    assert [cluster.bundle_load(child, START).rate_in_msgs_per_s for child in children] == [25.0, 12.5, 62.5]
    assert Load.total(cluster.bundle_load(child, START) for child in children) == before
    assert cluster.bundle_load(children[0], START + 10_000).rate_in_msgs_per_s == 75.0, "it follows its parent's workload"
    profiles = [cluster.bundles[child] for child in children]
    sums = [sum(counts) for counts in zip(*((one.topics, one.producers, one.consumers) for one in profiles), strict=True)]
    assert sums == [4, 4, 8]
    report = make_report(cluster, "a:1", START)
    assert report["bundles"] == sorted([SECOND, *children])


def test_without_boundaries_a_bundle_is_split_into_halves_and_what_cannot_be_split_is_an_error() -> None:
    cluster = small_cluster()
    SimBroker(cluster, "a:1").split(SECOND, [], "topic_count_equally_divide")
    assert [name for name in cluster.owners() if name != FIRST] == ["t/n/0x80000000_0xbfffffff", "t/n/0xbfffffff_0xffffffff"]
    with pytest.raises(ValueError, match="strictly inside"):
        cluster.split("a:1", FIRST, [0x80000000])
    with pytest.raises(KeyError):
        cluster.split("b:1", FIRST)
    assert cluster.owners()[FIRST] == ["a:1"]


def test_a_bundle_at_two_brokers_shows() -> None:
    cluster = small_cluster()
    cluster.acquire("b:1", FIRST)
    assert cluster.owners()[FIRST] == ["a:1", "b:1"]


def test_releasing_what_is_not_owned_and_acquiring_what_does_not_exist_are_errors() -> None:
    cluster = small_cluster()
    with pytest.raises(KeyError):
        cluster.release("b:1", FIRST)
    with pytest.raises(KeyError):
        cluster.acquire("b:1", "t/n/0x00000000_0xffffffff")


def test_a_modular_report_says_what_its_bundles_carry_in_every_field() -> None:
    report = make_report(small_cluster(), "a:1", START + 5)
    assert report_kind(report) == "modular"
    model = ModularLoadReport.model_validate_json(json.dumps(report))
    assert (model.msg_rate_in, model.msg_rate_out, model.msg_throughput_in, model.msg_throughput_out) == (400.0, 500.0, 250e3, 350e3)
    assert model.bundles == list(model.last_stats) == model.last_bundle_gains == [FIRST, SECOND]
    assert (model.num_bundles, model.num_topics, model.num_producers, model.num_consumers) == (2, 8, 8, 16)
    assert (model.last_update, model.start_timestamp) == (START + 5, START)
    assert model.bandwidth_in.usage == 250_000 * 8 / 1000 and model.bandwidth_out.usage == 350_000 * 8 / 1000
    assert model.cpu.usage == pytest.approx(800 * (600e3 / 320e6 + 900 / 320e3), abs=1e-3)
    assert model.max_resource_usage == 256 / 8192  # direct memory
    assert model.web_service_url == "http://a:1"
    assert all(report[name] not in (None, 0, "") for name in report if name not in ("protocols", "advertisedListeners", "lastBundleLosses"))


def test_a_simple_report_tells_the_same_in_its_own_form() -> None:
    report = make_report(small_cluster(), "a:1", START + 5, "simple")
    assert report_kind(report) == "simple"
    model = SimpleLoadReport.model_validate_json(json.dumps(report))
    assert (model.name, model.timestamp, model.under_loaded, model.over_loaded) == ("a:1", START + 5, True, False)
    assert sum(one.msg_rate_in for one in model.bundle_stats.values()) == model.msg_rate_in == 400.0
    assert model.system_resource_usage.bandwidth_in.usage == 2000.0
    assert model.bundle_gains == [FIRST, SECOND] and model.allocated_cpu == 8.0
    assert throughput_of(report) == throughput_of(make_report(small_cluster(), "a:1", START + 5)) == 600_000.0


def test_gains_and_losses_are_those_since_the_last_report() -> None:
    cluster = small_cluster()
    make_report(cluster, "a:1", START)
    cluster.release("a:1", FIRST)
    changed, same = make_report(cluster, "a:1", START + 1), make_report(cluster, "a:1", START + 2)
    assert (changed["lastBundleGains"], changed["lastBundleLosses"]) == ([], [FIRST])
    assert (same["lastBundleGains"], same["lastBundleLosses"]) == ([], [])


def test_a_bundle_that_went_and_came_back_between_two_reports_is_no_change() -> None:
    cluster = small_cluster()
    make_report(cluster, "a:1", START)
    cluster.release("a:1", FIRST)
    cluster.acquire("a:1", FIRST)
    report = make_report(cluster, "a:1", START + 1)
    assert (report["lastBundleGains"], report["lastBundleLosses"]) == ([], [])


def test_the_time_of_reports_never_goes_back_even_when_the_clock_does() -> None:
    cluster = small_cluster()
    assert [make_report(cluster, "a:1", at)["lastUpdate"] for at in (START + 9, START + 3, START + 10)] == [
        START + 9,
        START + 9,
        START + 10,
    ]


def test_measurements_are_noisy_but_small_in_error_and_the_seed_repeats_them() -> None:
    def measured() -> list[float]:
        cluster = small_cluster(noise_ratio=0.01)
        return [throughput_of(make_report(cluster, "a:1", START)) for _ in range(200)]

    values = measured()
    assert values == measured() and len(set(values)) > 100
    assert sum(values) / len(values) == pytest.approx(600_000, rel=0.005)
    assert max(abs(value / 600_000 - 1) for value in values) < 0.05


def test_usage_never_exceeds_its_limit() -> None:
    profile = BrokerProfile("a:1", nic_kbit_per_s=1000.0, rate_capacity_msgs_per_s=10.0)
    cluster = SimCluster([profile], SMALL, steady(), START)
    cluster.acquire("a:1", SECOND)
    report = make_report(cluster, "a:1", START)
    assert report["cpu"]["usage"] == report["cpu"]["limit"]
    assert report["bandwidthIn"]["usage"] == report["bandwidthIn"]["limit"]
    assert report["maxResourceUsage"] == 1.0


def test_the_adapter_speaks_for_its_own_broker_only() -> None:
    cluster = small_cluster()
    a, b = (SimBroker(cluster, name, clock=lambda: START) for name in ("a:1", "b:1"))
    assert (a.name, a.owns(FIRST), b.owns(FIRST)) == ("a:1", True, False)
    a.release(FIRST)
    b.acquire(FIRST)
    assert (a.owns(FIRST), b.owns(FIRST)) == (False, True)
    assert b.report()["bundles"] == [FIRST] and SimBroker(cluster, "b:1", "simple").report()["name"] == "b:1"


@pytest.mark.parametrize(("brokers", "bundles"), [(1, 1), (3, 5), (6, 96), (10, 1000)])
def test_a_built_cluster_deals_all_bundles_evenly_whatever_its_size(brokers: int, bundles: int) -> None:
    cluster = build_cluster(brokers, bundles, "steady", seed=1, start_ms=START)
    assert {len(owners) for owners in cluster.owners().values()} == {1}
    counts = [len(broker.owned) for broker in cluster.brokers.values()]
    assert sum(counts) == bundles and max(counts) - min(counts) <= 1
    cpu = [broker.profile.demand_ratio(load) for broker, load in zip(cluster.brokers.values(), cluster.loads(START).values(), strict=True)]
    assert sum(cpu) / brokers == pytest.approx(0.25, abs=1e-4)


@pytest.mark.parametrize("seed", range(1, 9))
def test_the_demos_cluster_begins_clearly_uneven_with_room_on_every_broker(seed: int) -> None:
    cluster = build_cluster(seed=seed, start_ms=START)
    reports = {name: make_report(cluster, name, START) for name in cluster.brokers}
    assert max_over_mean(map(throughput_of, reports.values())) >= 1.8
    assert max(reports, key=lambda name: reports[name]["maxResourceUsage"]) == "broker-1:8080"
    assert max(report["maxResourceUsage"] for report in reports.values()) < 1.0


def test_bundle_names_are_well_formed_and_tile_their_namespaces() -> None:
    names = bundle_names(10)
    assert len(set(names)) == 10 and all(re.match(BUNDLE_PATTERN, name) for name in names)
    bounds = [name.rpartition("/")[2].split("_") for name in names if name.startswith("shop/app-01/")]
    assert bounds[0][0] == "0x00000000" and bounds[-1][1] == "0xffffffff"
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
    assert [name for name in names if name.startswith("shop/app-03/")] == [
        "shop/app-03/0x00000000_0x80000000",
        "shop/app-03/0x80000000_0xffffffff",
    ]


@pytest.mark.parametrize(("throughputs", "expected"), [([3.0, 1.0, 2.0], 1.5), ([5.0], 1.0), ([0.0, 0.0], 1.0), ([4.0, 0.0], 2.0)])
def test_unevenness_is_the_greatest_over_the_mean(throughputs: list[float], expected: float) -> None:
    assert max_over_mean(throughputs) == expected
