"""The broker monitor's tables, byte for byte as documented."""

import json
from pathlib import Path
from typing import Any

import pytest

from lb_stream.cli.monitor.documented_tables import (
    BrokerRow,
    Four,
    all_brokers_table,
    allocated_percent,
    broker_table,
    extensible_table,
    max_percent,
    modular_table,
    simple_table,
    two_decimals,
)
from lb_stream.contracts.reports import (
    BundleStats,
    ModularLoadReport,
    ResourceUsage,
    SimpleLoadReport,
    SystemResourceUsage,
)

VECTOR: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "data" / "vectors" / "monitor_tables.json").read_text(
        encoding="utf-8"
    )
)
OURS = VECTOR["ours"]
ZERO = Four(0.0, 0.0, 0.0, 0.0)


def of(usage: float, limit: float = 100.0) -> ResourceUsage:
    return ResourceUsage(usage=usage, limit=limit)


@pytest.mark.parametrize("table", ["modular", "simple"])
def test_the_documented_cells_give_the_documented_lines(table: str) -> None:
    assert broker_table(VECTOR[table]["cells"]) == VECTOR[table]["lines"]


def test_the_documented_modular_table_counts_heap_memory_in_its_maximum_only_under_the_old_profile() -> (
    None
):
    report = ModularLoadReport(
        memory=of(48.33),
        direct_memory=of(0.01),
        num_topics=4,
        num_bundles=4,
        num_consumers=2,
        last_bundle_gains=["a", "b", "c", "d"],
    )
    lines = VECTOR["modular"]["lines"]
    assert modular_table(report, ZERO, ZERO, "2.x") == lines
    new = lines[2][: lines[2].rindex("48.33")] + "0.01           ||"
    assert modular_table(report, ZERO, ZERO, "4.0") == [*lines[:2], new, *lines[3:]]
    assert two_decimals(max_percent(report, "2.x")) == "48.33"


def test_the_documented_simple_table_comes_out_of_a_report() -> None:
    stats = {
        name: BundleStats(topics=1, consumer_count=consumers)
        for name, consumers in (("a", 1), ("b", 1), ("c", 0), ("d", 0))
    }
    report = SimpleLoadReport(
        system_resource_usage=SystemResourceUsage(
            cpu=of(6.0, 2400.0),
            memory=of(3927.0, 8192.0),
            direct_memory=of(1.0, 8192.0),
            bandwidth_in=of(6.4, 10240000.0),
            bandwidth_out=of(6.6, 10240000.0),
        ),
        bundle_stats=stats,
        allocated_cpu=4.733,
        allocated_memory=155.0,
        allocated_bandwidth_in=126.54 * 1024,
        allocated_bandwidth_out=320.96 * 1024,
        allocated_msg_rate_in=54.836,
        allocated_msg_rate_out=134.477,
    )
    assert simple_table(report) == VECTOR["simple"]["lines"]


def test_the_documented_allocations_fit_the_documented_limits() -> None:
    known = VECTOR["simple"]["consistency"]
    raw = VECTOR["simple"]["cells"][4]
    figures = {
        "allocCpuPercent": ((raw[1] + raw[2]) * 0.025, 2400.0),
        "allocBwInPercent": (raw[4] * 1024, 10240000.0),
        "allocBwOutPercent": (raw[5] * 1024, 10240000.0),
    }
    for name, (allocated, limit) in figures.items():
        exact, printed = known[name]
        share = allocated_percent(allocated, of(0.0, limit))
        assert share == pytest.approx(exact, rel=1e-12)
        assert two_decimals(share) == two_decimals(printed)
    assert [raw[3], raw[6]] == known["printedTotalsRoundAfterSumming"]


def test_a_modular_broker() -> None:
    report = ModularLoadReport(
        cpu=of(612.5, 1600.0),
        memory=of(2210.4, 6144.0),
        direct_memory=of(1536.0, 12288.0),
        bandwidth_in=of(412000.0, 10240000.0),
        bandwidth_out=of(905500.0, 10240000.0),
        msg_throughput_in=5242880.0,
        msg_throughput_out=9437184.0,
        msg_rate_in=5120.0,
        msg_rate_out=9216.0,
        num_topics=40,
        num_bundles=2,
        num_consumers=16,
        num_producers=7,
        last_bundle_gains=["acme/audit/0x80000000_0xc0000000"],
    )
    short, long = (
        Four(5100000.0, 9300000.0, 4870.5, 9011.2),
        Four(4300000.0, 8100000.0, 4100.0, 7800.0),
    )
    for profile in ("4.0", "2.x"):
        assert modular_table(report, short, long, profile) == OURS["modular"]
    blank = "||" + "|".join([" " * 15] * 7) + "||"
    unknown = modular_table(report, None, None)
    assert unknown[:8] == OURS["modular"][:8]
    assert [unknown[8], unknown[10]] == [blank, blank]


def test_a_simple_broker() -> None:
    report = SimpleLoadReport(
        system_resource_usage=SystemResourceUsage(
            cpu=of(88.4, 800.0),
            memory=of(1480.0, 4096.0),
            direct_memory=of(256.0, 8192.0),
            bandwidth_in=of(1450.2, 1024000.0),
            bandwidth_out=of(2875.9, 1024000.0),
        ),
        bundle_stats={
            "acme/mail/0x00000000_0xffffffff": BundleStats(
                msg_rate_in=210.0, msg_rate_out=420.0, consumer_count=6, producer_count=3, topics=5
            )
        },
        bundle_losses=["acme/old/0x00000000_0x80000000"],
        allocated_cpu=13.5,
        allocated_memory=64.0,
        allocated_bandwidth_in=150000.0,
        allocated_bandwidth_out=330000.0,
        allocated_msg_rate_in=180.0,
        allocated_msg_rate_out=360.0,
    )
    assert simple_table(report) == OURS["simple"]


@pytest.mark.parametrize(
    ("allocated", "limit", "expected"),
    [(1.0, 0.0, 0.0), (1.0, -1.0, 0.0), (-1.0, 5.0, 0.0), (9.0, 5.0, 100.0)],
)
def test_an_allocation_has_no_share_of_an_unknown_limit_and_at_most_all_of_a_known_one(
    allocated: float, limit: float, expected: float
) -> None:
    assert allocated_percent(allocated, of(0.0, limit)) == expected


def test_an_extensible_broker() -> None:
    resources = SystemResourceUsage(
        cpu=of(310.0, 800.0),
        memory=of(900.0, 4096.0),
        direct_memory=of(512.0, 8192.0),
        bandwidth_in=of(90000.0, 1024000.0),
        bandwidth_out=of(150000.0, 1024000.0),
    )
    assert (
        extensible_table(resources, 24, Four(11520000.0, 19200000.0, 11250.0, 18750.0))
        == OURS["extensible"]
    )


def test_all_brokers() -> None:
    rows = [
        BrokerRow("broker-7.eu.example:8080", 2, 14336.0, 11900.0, 14680064.0, 38.28125),
        BrokerRow("broker-8.eu.example:8080", 3, 2048.0, 1900.0, 2010.5 * 1024, 12.1),
    ]
    assert all_brokers_table(rows) == OURS["all"]


def test_a_cell_is_cut_to_its_width_and_a_missing_value_is_blank() -> None:
    cut, total = all_brokers_table([BrokerRow("b" * 61, None, 1e13, None, None, None)])[2:4]
    blank = " " * 13
    assert cut == f"||{'b' * 60} |{blank}|1{'0' * 11} |{blank}|{blank}|{blank}||"
    assert total.startswith("||TOTAL ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.125, "3.13"),
        (1.005, "1.01"),
        (0.0, "0.00"),
        (2.675, "2.68"),
        (1e300, "1" + "0" * 300 + ".00"),
        (float("inf"), "Infinity"),
    ],
)
def test_decimals_are_rounded_half_up_on_the_shortest_form(value: float, text: str) -> None:
    assert two_decimals(value) == text
