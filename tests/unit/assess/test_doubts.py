"""What reports leave out, and where they contradict themselves or each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lb_stream.agent.pulsar.recorder import BROKERS, line_aside
from lb_stream.assess.doubts import Doubt
from tests.support.assessed_cluster import EVEN, bundle, minutes, observed, report
from tests.support.wordings import check_wording

CARRIED_KBITS = 300 / 2 * 100 / 125
"""What a broker's bundles carry in one direction."""


def doubts(path: Path, lines: list[str]) -> dict[str, Doubt]:
    return {doubt.kind: doubt for doubt in observed(path, lines).doubts}


def with_c(minute_count: int = 2, **changed: Any) -> list[str]:
    """Three alike brokers, of which the last one's reports have other fields."""
    others = {name: own for name, own in EVEN.items() if name != "c:8080"}
    odd = minutes({"c:8080": EVEN["c:8080"]}, minute_count, **changed)
    return [*minutes(others, minute_count), *odd]


def test_reports_without_a_fault_cause_no_doubt(tmp_path: Path) -> None:
    assert doubts(tmp_path, minutes(EVEN, 2)) == {}


@pytest.mark.parametrize(
    ("limit", "text"),
    [(0.0, "the limit is 0 (1)"), (-1.0, "the limit is -1 (1)"), (None, "the field is absent (1)")],
)
def test_a_limit_that_is_not_stated_is_a_doubt(
    tmp_path: Path, limit: float | None, text: str
) -> None:
    field = None if limit is None else {"usage": CARRIED_KBITS, "limit": limit}
    found = doubts(tmp_path, with_c(bandwidthIn=field))["no_limit"]
    assert found.brokers == ("c:8080",)
    assert "bandwidth in" in found.description
    assert found.description.endswith(text)


def test_a_limit_below_what_bundles_carry_is_exceeded(tmp_path: Path) -> None:
    low = {"usage": CARRIED_KBITS, "limit": CARRIED_KBITS / 3}
    found = doubts(tmp_path, with_c(bandwidthIn=low))["exceeded"]
    assert found.brokers == ("c:8080",)
    check_wording(f"{found.description}: {found.consequence}")


def test_a_limit_into_which_hardly_a_bundle_fits_is_implausible(tmp_path: Path) -> None:
    lines = [
        *minutes({"a:8080": EVEN["a:8080"]}, 2),
        report("c:8080", {}, 0, bandwidthIn={"usage": 0.0, "limit": 0.01}),
    ]
    found = doubts(tmp_path, lines)["implausible"]
    assert found.brokers == ("c:8080",)


def test_cpu_of_which_a_busy_broker_reports_no_use_is_unknown(tmp_path: Path) -> None:
    found = doubts(tmp_path, with_c(cpu={"usage": 2e-7, "limit": 100.0}))
    assert found["cpu_unknown"].brokers == ("c:8080",)


def test_more_cpu_than_the_limit_is_a_contradiction(tmp_path: Path) -> None:
    found = doubts(tmp_path, with_c(cpu={"usage": 150.0, "limit": 100.0}))["cpu_exceeded"]
    assert found.brokers == ("c:8080",)
    assert "at most 150.0%" in found.description


def test_bandwidth_that_sees_less_than_the_bundles_carry_is_a_doubt(tmp_path: Path) -> None:
    found = doubts(tmp_path, with_c(bandwidthOut={"usage": 0.0, "limit": 1_000_000.0}))
    assert found["traffic_unseen"].brokers == ("c:8080",)


def test_direct_memory_without_use_is_not_believed(tmp_path: Path) -> None:
    found = doubts(tmp_path, with_c(directMemory={"usage": 0.0, "limit": 1000.0}))
    assert found["no_use"].brokers == ("c:8080",)


def test_a_bundle_that_two_brokers_name_is_a_contradiction(tmp_path: Path) -> None:
    twice = {**EVEN, "c:8080": {**EVEN["c:8080"], bundle(0): 10.0}}
    found = doubts(tmp_path, minutes(twice, 2))["two_owners"]
    assert found.brokers == ("a:8080", "c:8080")
    check_wording(found.description)


def test_several_versions_and_unknown_ones_are_named(tmp_path: Path) -> None:
    lines = with_c(brokerVersionString="3.0.7")
    kinds = [doubt.description for doubt in observed(tmp_path, lines).doubts]
    assert any("1 of 3.0.7, 2 of 5.0.1" in line for line in kinds)
    assert any("'3.0.7' has no profile of its own" in line for line in kinds)


def test_brokers_that_gave_no_report_are_named_with_the_reason(tmp_path: Path) -> None:
    silent = line_aside(BROKERS, {"d:8080": "GET http://d:8080/x: no answer in time"})
    found = observed(tmp_path, [silent.rstrip(), *minutes(EVEN, 2)])
    (doubt,) = found.doubts
    assert (doubt.kind, doubt.brokers) == ("no_report", ("d:8080",))
    check_wording(doubt.description)
