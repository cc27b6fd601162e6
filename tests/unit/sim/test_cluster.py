"""The model of a cluster and the reports that its brokers give."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest

from lb_stream.agent.adapter import Refused
from lb_stream.contracts.reports import ModularLoadReport, SimpleLoadReport, find_report_kind
from lb_stream.core.model.names import BUNDLE_PATTERN
from lb_stream.sim import Load, SimBroker, SimCluster, build_cluster
from lb_stream.sim.cluster import max_over_mean
from lb_stream.sim.reports import make_report, report_throughput
from lb_stream.sim.scenario.scenario import ScenarioBundles
from lb_stream.sim.workload import bundle_names, endless_scenario, equal_brokers
from tests.support.wordings import check_wording

START = 1_700_000_000_000
FIRST, SECOND = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
A, B = "broker-1:8080", "broker-2:8080"


def small_cluster(noise_ratio: float = 0.0) -> SimCluster:
    """Two brokers, two bundles, both at the first; the first bundle trebles after 10 s."""
    ones = np.ones(2, np.int64)
    bundles = ScenarioBundles(
        (FIRST, SECOND), 0 * ones, 4 * ones, 4 * ones, 8 * ones, 8 * 2**20 * ones
    )
    first, second = [100.0, 200.0, 100_000.0, 200_000.0], [300.0, 300.0, 150_000.0, 150_000.0]
    loads = np.array([[first, second], [[3 * value for value in first], second]]).transpose(2, 1, 0)
    return SimCluster(
        endless_scenario(equal_brokers(2), bundles, loads, at_s=10.0),
        START,
        noise_ratio=noise_ratio,
    )


def test_a_brokers_load_is_the_sum_of_its_bundles() -> None:
    assert small_cluster().loads(START) == {A: Load(400.0, 500.0, 250_000.0, 350_000.0), B: Load()}


def test_load_follows_the_workload() -> None:
    cluster = small_cluster()
    assert cluster.bundle_load(FIRST, START + 9_999) == Load(100.0, 200.0, 100_000.0, 200_000.0)
    assert cluster.bundle_load(FIRST, START + 10_000) == Load(300.0, 600.0, 300_000.0, 600_000.0)


def test_load_moves_with_the_bundle_and_a_released_bundle_is_nobodys() -> None:
    cluster = small_cluster()
    cluster.release(A, FIRST)
    assert cluster.owners() == {FIRST: None, SECOND: A}
    cluster.acquire(B, FIRST)
    assert cluster.loads(START)[B].throughput_bytes_per_s == 300_000.0
    assert cluster.owners() == {FIRST: B, SECOND: A}


def test_a_split_bundle_is_no_more_and_its_children_carry_what_it_carried() -> None:
    cluster = small_cluster()
    before = cluster.bundle_load(FIRST, START)
    cluster.split(A, FIRST, [0x20000000, 0x30000000])
    children = [
        f"t/n/0x{low:08x}_0x{high:08x}"
        for low, high in pairwise([0, 0x20000000, 0x30000000, 0x80000000])
    ]
    assert cluster.owners() == {SECOND: A} | {child: A for child in children}
    assert [cluster.bundle_load(child, START).rate_in_msgs_per_s for child in children] == [
        25.0,
        12.5,
        62.5,
    ]
    assert (
        sum(cluster.bundle_load(child, START).throughput_bytes_per_s for child in children)
        == before.throughput_bytes_per_s
    )
    assert cluster.bundle_load(children[0], START + 10_000).rate_in_msgs_per_s == 75.0, (
        "it follows its parent's workload"
    )
    rows = [cluster.row(child) for child in children]
    assert [
        int(getattr(cluster.model, name)[rows].sum())
        for name in ("topics", "producers", "consumers")
    ] == [4, 4, 8]
    report = make_report(cluster, A, START)
    assert report["bundles"] == sorted([SECOND, *children])


def test_a_merged_bundle_carries_what_both_carried_also_after_a_split_and_a_merge() -> None:
    cluster = small_cluster()
    whole = "t/n/0x00000000_0xffffffff"
    cluster.merge(A, [SECOND, FIRST], whole)
    assert cluster.owners() == {whole: A}
    assert cluster.bundle_load(whole, START) == Load(400.0, 500.0, 250_000.0, 350_000.0)
    assert cluster.bundle_load(whole, START + 10_000).rate_in_msgs_per_s == 600.0, (
        "each half follows its own workload"
    )
    assert [
        int(getattr(cluster.model, name)[0]) for name in ("topics", "producers", "consumers")
    ] == [8, 8, 16]
    quarters = [
        f"t/n/0x{low:08x}_0x{high:08x}"
        for low, high in pairwise([0, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF])
    ]
    cluster.split(A, whole, [0x40000000, 0x80000000, 0xC0000000])
    assert [
        round(cluster.bundle_load(quarter, START).rate_in_msgs_per_s) for quarter in quarters
    ] == [
        100,
        100,
        100,
        100,
    ]
    cluster.merge(A, quarters[1:3], "t/n/0x40000000_0xc0000000")
    assert sorted(cluster.owners()) == [quarters[0], "t/n/0x40000000_0xc0000000", quarters[3]]
    assert cluster.loads(START)[A].throughput_bytes_per_s == pytest.approx(600_000.0)
    assert sum(one["topics"] for one in make_report(cluster, A, START)["lastStats"].values()) == 8


def test_only_neighbours_that_a_broker_serves_are_merged() -> None:
    cluster = small_cluster()
    with pytest.raises(ValueError) as error:
        cluster.merge(A, [FIRST, SECOND], "t/n/0x00000000_0x90000000")
    check_wording(error.value)
    with pytest.raises(KeyError):
        cluster.merge(B, [FIRST, SECOND], "t/n/0x00000000_0xffffffff")
    assert cluster.owners() == {FIRST: A, SECOND: A}


def test_without_boundaries_a_bundle_is_halved_and_an_impossible_split_is_an_error() -> None:
    cluster = small_cluster()
    SimBroker(cluster, A).split(SECOND, [], "topic_count_equally_divide")
    assert [name for name in cluster.owners() if name != FIRST] == [
        "t/n/0x80000000_0xbfffffff",
        "t/n/0xbfffffff_0xffffffff",
    ]
    with pytest.raises(ValueError, match="strictly inside"):
        cluster.split(A, FIRST, [0x80000000])
    with pytest.raises(KeyError):
        cluster.split(B, FIRST)
    assert cluster.owners()[FIRST] == A


def test_a_bundle_that_somebody_serves_is_not_acquired_by_another() -> None:
    cluster = small_cluster()
    assert not cluster.acquire(B, FIRST) and cluster.owners()[FIRST] == A
    with pytest.raises(Refused, match="another broker"):
        SimBroker(cluster, B).acquire(FIRST)
    SimBroker(cluster, A).acquire(FIRST)


def test_releasing_what_is_not_owned_and_acquiring_what_does_not_exist_are_errors() -> None:
    cluster = small_cluster()
    with pytest.raises(KeyError):
        cluster.release(B, FIRST)
    with pytest.raises(KeyError):
        cluster.acquire(B, "t/n/0x00000000_0xffffffff")


def test_a_modular_report_says_what_its_bundles_carry_in_every_field() -> None:
    report = make_report(small_cluster(), A, START + 5)
    assert find_report_kind(report) == "modular"
    model = ModularLoadReport.model_validate_json(json.dumps(report))
    assert (
        model.msg_rate_in,
        model.msg_rate_out,
        model.msg_throughput_in,
        model.msg_throughput_out,
    ) == (400.0, 500.0, 250e3, 350e3)
    assert model.bundles == list(model.last_stats) == model.last_bundle_gains == [FIRST, SECOND]
    assert (model.num_bundles, model.num_topics, model.num_producers, model.num_consumers) == (
        2,
        8,
        8,
        16,
    )
    assert (model.last_update, model.start_timestamp) == (START + 5, START)
    assert (
        model.bandwidth_in.usage == 250_000 * 8 / 1000
        and model.bandwidth_out.usage == 350_000 * 8 / 1000
    )
    assert model.cpu.usage == pytest.approx(800 * (600e3 / 320e6 + 900 / 320e3), abs=1e-3)
    assert model.max_resource_usage == pytest.approx(
        (256 + 0.25e6 / 2**20) / 8192, abs=1e-6
    )  # direct memory
    assert model.web_service_url == f"http://{A}"
    assert all(
        report[name] not in (None, 0, "")
        for name in report
        if name not in ("protocols", "advertisedListeners", "lastBundleLosses")
    )


def test_a_simple_report_tells_the_same_in_its_own_form() -> None:
    report = make_report(small_cluster(), A, START + 5, "simple")
    assert find_report_kind(report) == "simple"
    model = SimpleLoadReport.model_validate_json(json.dumps(report))
    assert (model.name, model.timestamp, model.under_loaded, model.over_loaded) == (
        A,
        START + 5,
        True,
        False,
    )
    assert (
        sum(stat.msg_rate_in for stat in model.bundle_stats.values()) == model.msg_rate_in == 400.0
    )
    assert model.system_resource_usage.bandwidth_in.usage == 2000.0
    assert model.bundle_gains == [FIRST, SECOND] and model.allocated_cpu == 8.0
    assert (
        report_throughput(report)
        == report_throughput(make_report(small_cluster(), A, START + 5))
        == 600_000.0
    )


def test_gains_and_losses_are_those_since_the_last_report() -> None:
    cluster = small_cluster()
    make_report(cluster, A, START)
    cluster.release(A, FIRST)
    changed, same = make_report(cluster, A, START + 1), make_report(cluster, A, START + 2)
    assert (changed["lastBundleGains"], changed["lastBundleLosses"]) == ([], [FIRST])
    assert (same["lastBundleGains"], same["lastBundleLosses"]) == ([], [])


def test_a_bundle_that_went_and_came_back_between_two_reports_is_no_change() -> None:
    cluster = small_cluster()
    make_report(cluster, A, START)
    cluster.release(A, FIRST)
    cluster.acquire(A, FIRST)
    report = make_report(cluster, A, START + 1)
    assert (report["lastBundleGains"], report["lastBundleLosses"]) == ([], [])


def test_the_time_of_reports_never_goes_back_even_when_the_clock_does() -> None:
    cluster = small_cluster()
    assert [
        make_report(cluster, A, at)["lastUpdate"] for at in (START + 9, START + 3, START + 10)
    ] == [
        START + 9,
        START + 9,
        START + 10,
    ]


def test_measurements_are_noisy_but_small_in_error_and_the_same_at_the_same_moment() -> None:
    def measured() -> list[float]:
        cluster = small_cluster(noise_ratio=0.01)
        return [report_throughput(make_report(cluster, A, START + at)) for at in range(200)]

    values = measured()
    assert values == measured() and len(set(values)) > 100
    assert sum(values) / len(values) == pytest.approx(600_000, rel=0.005)
    assert max(abs(value / 600_000 - 1) for value in values) < 0.05


def test_a_broker_that_is_asked_for_more_than_it_has_delivers_less_and_is_full() -> None:
    cluster = small_cluster()
    cluster.model.factor[:] = 0.001
    report = make_report(cluster, A, START)
    assert report["cpu"]["usage"] == report["cpu"]["limit"] and report["maxResourceUsage"] == 1.0
    assert report_throughput(report) == pytest.approx(
        600_000 * 0.001 / (600e3 / 320e6 + 900 / 320e3), rel=1e-4
    )


def test_the_adapter_speaks_for_its_own_broker_only() -> None:
    cluster = small_cluster()
    a, b = (SimBroker(cluster, name, clock=lambda: START) for name in (A, B))
    assert (a.name, a.owns(FIRST), b.owns(FIRST)) == (A, True, False)
    a.release(FIRST)
    b.acquire(FIRST)
    assert (a.owns(FIRST), b.owns(FIRST)) == (False, True)
    assert (
        b.report()["bundles"] == [FIRST] and SimBroker(cluster, B, "simple").report()["name"] == B
    )


@pytest.mark.parametrize(("brokers", "bundles"), [(1, 1), (3, 5), (6, 96), (10, 1000)])
def test_a_built_cluster_deals_all_bundles_evenly_whatever_its_size(
    brokers: int, bundles: int
) -> None:
    cluster = build_cluster(brokers, bundles, "steady", seed=1, start_ms=START)
    counts = [len(cluster.owned(broker)) for broker in cluster.brokers]
    assert sum(counts) == bundles and max(counts) - min(counts) <= 1
    cpu = cluster.model.demand(cluster.model.sums(cluster.model.loads(0.0)), 0.0)["cpu"]
    assert sum(cpu) / brokers == pytest.approx(0.25, abs=1e-4)


@pytest.mark.parametrize("seed", range(1, 9))
def test_the_demos_cluster_begins_clearly_uneven_with_room_on_every_broker(seed: int) -> None:
    cluster = build_cluster(seed=seed, start_ms=START)
    reports = {name: make_report(cluster, name, START) for name in cluster.brokers}
    assert max_over_mean(map(report_throughput, reports.values())) >= 1.8
    assert max(reports, key=lambda name: reports[name]["maxResourceUsage"]) == "broker-1:8080"
    assert max(report["maxResourceUsage"] for report in reports.values()) < 1.0


def test_bundle_names_are_well_formed_and_tile_their_namespaces() -> None:
    names = bundle_names(10)
    assert len(set(names)) == 10 and all(re.match(BUNDLE_PATTERN, name) for name in names)
    bounds = [
        name.rpartition("/")[2].split("_") for name in names if name.startswith("shop/app-01/")
    ]
    assert bounds[0][0] == "0x00000000" and bounds[-1][1] == "0xffffffff"
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
    assert [name for name in names if name.startswith("shop/app-03/")] == [
        "shop/app-03/0x00000000_0x80000000",
        "shop/app-03/0x80000000_0xffffffff",
    ]


@pytest.mark.parametrize(
    ("throughputs", "expected"),
    [([3.0, 1.0, 2.0], 1.5), ([5.0], 1.0), ([0.0, 0.0], 1.0), ([4.0, 0.0], 2.0)],
)
def test_unevenness_is_the_greatest_over_the_mean(
    throughputs: list[float], expected: float
) -> None:
    assert max_over_mean(throughputs) == expected
