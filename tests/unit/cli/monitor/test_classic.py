"""`lbctl monitor --classic`: which of the documented tables is printed when.

The tables themselves: test_monitor_tables.py.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lb_stream.cli.monitor.classic import (
    BrokerAverages,
    BrokerFormat,
    BrokerRecord,
    ClassicMonitor,
    Key,
    follow_reports,
)
from lb_stream.cli.monitor.documented_tables import Four
from tests.support.classic_screens import EIGHT, MODULAR, OURS, SEVEN, SIMPLE, THREE, usage

LONG = Four(4300000.0, 8100000.0, 4100.0, 7800.0)
STANDING = {
    SEVEN: BrokerAverages(Four(5100000.0, 9300000.0, 4870.5, 9011.2), LONG, alive=True, seen_ms=50)
}


def sent(
    key: Key, report: dict[str, Any] | None, append_ms: int = 10, caught_up: bool = False
) -> BrokerRecord:
    return BrokerRecord(
        key, b"" if report is None else json.dumps(report).encode(), append_ms, caught_up
    )


def shown(
    *given: BrokerRecord | None,
    standing: dict[Key, BrokerAverages] = STANDING,
    once: bool = False,
    **manner: Any,
) -> tuple[list[str], list[str]]:
    """The lines of tables, and what was told beside them."""
    lines: list[str] = []
    told: list[str] = []

    def records() -> Iterator[BrokerRecord | None]:
        yield from given

    follow_reports(
        ClassicMonitor(lambda _: BrokerFormat(**manner)),
        records(),
        lambda: standing,
        lines.extend,
        told.append,
        once,
    )
    return lines, told


def test_each_form_has_its_heading_and_its_documented_table() -> None:
    lines, told = shown(sent(SEVEN, MODULAR), sent(THREE, SIMPLE), None, once=True)
    simple = ["Load Report for broker-3.eu.example:8080:", *OURS["simple"]]
    modular = ["Broker Data for broker-7.eu.example:8080:", *OURS["modular"]]
    assert lines[: len(simple) + len(modular)] == simple + modular
    assert told == []


def test_all_brokers_come_last_with_long_rates_of_tables_and_allocated_ones_of_reports() -> None:
    lines, _ = shown(sent(SEVEN, MODULAR), sent(THREE, SIMPLE), None, once=True)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[-6:]]
    assert rows[1:5] == [
        ["BROKER", "BUNDLE", "MSG/S", "LONG/S", "KB/S", "MAX %"],
        ["broker-3.eu.example:8080", "1", "630.00", "540.00", "4.22", "36.13"],
        ["broker-7.eu.example:8080", "2", "14336.00", "11900.00", "14336.00", "38.28"],
        ["TOTAL", "3", "14966.00", "12440.00", "14340.22", "38.28"],
    ]


def test_without_tables_the_averages_are_blank() -> None:
    lines, _ = shown(sent(SEVEN, MODULAR), None, standing={}, once=True)
    assert lines[1:9] == OURS["modular"][:8]
    assert {line.replace("|", "").strip() for line in (lines[9], lines[11])} == {""}


def test_a_broker_is_printed_when_its_record_changes_and_not_when_it_says_the_same_again() -> None:
    more = MODULAR | {"numTopics": 41}
    lines, told = shown(
        sent(SEVEN, MODULAR),
        None,
        sent(SEVEN, MODULAR, 11, True),
        None,
        sent(SEVEN, more, 12, True),
        sent(EIGHT, MODULAR, 13, True),
    )
    assert [line for line in lines if line.startswith("Broker Data")] == [
        f"Broker Data for {broker}:" for _, broker in (SEVEN, SEVEN, EIGHT)
    ]
    assert sum("||               |41 " in line for line in lines) == 1
    assert told == ["broker gained: eu-1/broker-8.eu.example:8080"]


def test_a_withdrawn_report_and_a_death_in_the_tables_are_told_once() -> None:
    dead = {SEVEN: BrokerAverages(LONG, LONG, alive=False, seen_ms=10)}
    lines, told = shown(
        sent(SEVEN, MODULAR),
        sent(EIGHT, MODULAR),
        None,
        sent(EIGHT, None, 20, True),
        sent(EIGHT, None, 21, True),
        standing=dead,
    )
    assert told == [
        "broker lost: eu-1/broker-7.eu.example:8080",
        "broker lost: eu-1/broker-8.eu.example:8080",
    ]
    assert "broker-7" not in "\n".join(lines)


def test_a_report_that_is_newer_than_the_tables_shows_that_its_broker_lives() -> None:
    dead = {SEVEN: BrokerAverages(LONG, LONG, alive=False, seen_ms=9)}
    lines, told = shown(sent(SEVEN, MODULAR), None, standing=dead, once=True)
    assert told == [] and lines[0].startswith("Broker Data for broker-7")


def test_extensible_brokers_are_printed_together_with_all() -> None:
    lines, _ = shown(
        sent(SEVEN, MODULAR),
        None,
        sent(SEVEN, MODULAR | {"numTopics": 41}, 11, True),
        extensible=True,
    )
    assert [line for line in lines if line.startswith("Broker Data")] == [
        "Broker Data for broker-7.eu.example:8080:"
    ]
    assert lines[4] == OURS["modular"][3]  # headings of COUNT, of which only BUNDLE is filled
    assert lines[5].split("|")[3:5] == ["               ", "2              "]


def test_what_is_no_load_report_is_passed_over() -> None:
    none = [
        BrokerRecord(SEVEN, value, 1, False)
        for value in (b"no JSON", b"[]", b"{}", b'{"loadReportType": "LocalBrokerData", "cpu": 3}')
    ]
    lines, told = shown(*none, None, once=True)
    assert [line for line in lines if line.startswith("Broker Data")] == [] and told == []


@pytest.mark.parametrize(
    ("others", "name"),
    [([], "broker-7.eu.example:8080"), ([("us-1", "u-1:1")], "eu-1/broker-7.eu.example:8080")],
)
def test_a_broker_is_named_with_its_cluster_where_there_are_several(
    others: list[Key], name: str
) -> None:
    lines, _ = shown(
        sent(SEVEN, MODULAR), *(sent(other, MODULAR) for other in others), None, once=True
    )
    assert lines[0] == f"Broker Data for {name}:"


def test_the_profile_2_x_counts_heap_memory_in_the_maximum() -> None:
    lines, _ = shown(
        sent(SEVEN, MODULAR | {"memory": usage(99.0, 100.0)}), None, once=True, usage_profile="2.x"
    )
    assert "|99.00          ||" in lines[3]
