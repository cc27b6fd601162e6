"""The stream's benchmark: that its load and its arithmetic are what they say, without a JVM; then
the smallest run of all of it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.reports import BundleStats, ModularLoadReport
from lb_stream.stream.records import parse_report
from tests.bench.stream.driver import can_watch, resident_bytes, session_members
from tests.bench.stream.example import decision
from tests.bench.stream.figures import FIGURES, GROUPS, Size, ratio
from tests.bench.stream.fleet import Fleet, Shape, bundle_names
from tests.bench.stream.spark import REPORT_DDL

PROJECT = Path(__file__).parents[2]
HOT_PERCENT = 50.0


def decoded(fleet: Fleet) -> dict[bytes, dict[str, Any]]:
    """A new generation by key, as the stream decodes it: bundles, and the cpu usage in percent."""
    found = {}
    for key, value in fleet.generation():
        record = parse_report(value, "")
        cpu = 100.0 * record.fields["cpu_usage"] / record.fields["cpu_limit"]
        found[key] = {"broker": record.broker, "stats": record.stats, "cpu": cpu, "value": value}
    return found


def test_every_broker_reports_its_own_bundles_in_a_form_and_size_that_brokers_have() -> None:
    fleet = Fleet(Shape(2, 3, 50))
    reports = decoded(fleet)
    assert sorted(reports) == [
        f"bench-{cluster:04d}/broker-{broker:04d}:8080".encode()
        for cluster in (0, 1)
        for broker in (0, 1, 2)
    ]
    for cluster in (b"bench-0000/", b"bench-0001/"):
        named = [
            name
            for key, report in reports.items()
            if key.startswith(cluster)
            for name in report["stats"]
        ]
        assert sorted(named) == sorted(bundle_names(150))
    for key, report in reports.items():
        model = ModularLoadReport.model_validate_json(report["value"])
        assert list(model.last_stats) == model.bundles and len(model.bundles) == 50
        assert key.endswith(f"/{report['broker']}".encode())
    bytes_each = sum(len(report["value"]) for report in reports.values()) / 300
    assert (
        250 < bytes_each < 310
    )  # 267 in the captured reports of a real cluster, and a report's other fields


def test_each_generation_has_other_numbers_for_the_same_bundles_and_other_hot_brokers() -> None:
    fleet = Fleet(Shape(1, 4, 20))
    first, second = decoded(fleet), decoded(fleet)
    for key, report in first.items():
        assert list(report["stats"]) == list(second[key]["stats"])
        assert all(
            stats.msg_rate_in != second[key]["stats"][name].msg_rate_in
            for name, stats in report["stats"].items()
        )
    hot = [
        {key for key, report in reports.items() if report["cpu"] > HOT_PERCENT}
        for reports in (first, second)
    ]
    assert [len(one) for one in hot] == [1, 1] and hot[0] != hot[1]


def test_brokers_obey_and_their_next_reports_show_it() -> None:
    fleet = Fleet(Shape(2, 2, 3))
    source, bundle = next(
        (key, name)
        for key, report in decoded(fleet).items()
        if key.startswith(b"bench-0001")
        for name in report["stats"]
    )
    names = [f"broker-{number:04d}:8080" for number in (0, 1)]
    own = source.decode().rpartition("/")[2]
    (other,) = set(names) - {own}
    assert fleet.obey([decision("unload", bundle, own, other)]) == 1
    released = decoded(fleet)
    assert not any(
        bundle in report["stats"]
        for key, report in released.items()
        if key.startswith(b"bench-0001")
    )
    assert (
        sum(bundle in report["stats"] for report in released.values()) == 1
    )  # the other cluster's bundle of this name
    fleet.obey([decision("assign", bundle, None, other)])
    assert bundle in decoded(fleet)[f"bench-0001/{other}".encode()]["stats"]
    with pytest.raises(RuntimeError, match="split"):
        fleet.obey([decision("split", bundle, other, None)])


def test_the_other_side_is_told_every_field_of_a_report() -> None:
    aliases = [
        str(field.alias)
        for model in (ModularLoadReport, BundleStats)
        for field in model.model_fields.values()
    ]
    assert [
        name for name in aliases if f"{name} " not in REPORT_DDL and f"{name}: " not in REPORT_DDL
    ] == [
        "webServiceUrlTls",
        "pulsarServiceUrlTls",
        "topicShares",  # the three are left out in the reports too
    ]


def test_every_figure_is_measured_in_one_group_and_the_shapes_are_those_of_their_names() -> None:
    assert sorted(key for keys, _ in GROUPS for key in keys) == sorted(FIGURES)
    size = Size()
    assert (size.whole, size.tenth, size.clusters) == (
        Shape(1, 1_000, 1_000),
        Shape(1, 100, 1_000),
        Shape(1_000, 10, 100),
    )
    assert {shape.all_bundles for shape in (Size(2_000).whole, Size(2_000).clusters)} == {2_000}


def test_a_ratio_is_the_median_of_the_ratios_of_neighbouring_runs() -> None:
    measured = ratio([1.0, 8.0, 3.0], [2.0, 4.0, 4.0])
    assert (measured.value, measured.ours_s, measured.other_s) == (0.75, 3.0, 4.0)


@pytest.mark.skipif(not can_watch(), reason="needs /proc")
def test_the_memory_of_a_job_is_that_of_all_its_processes() -> None:
    nested = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); "
        "input()'])"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", nested],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert parent.stdout is not None and parent.stdout.readline() == b"1\n"
        members = session_members(parent.pid)
        assert parent.pid in members and len(members) == 2
        assert all(resident_bytes(pid) > 1_000_000 for pid in members)
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
    assert resident_bytes(parent.pid) == 0


@pytest.mark.long
def test_the_smallest_run_measures_every_figure() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.bench.stream",
        "--bundles",
        "2000",
        "--runs",
        "1",
        "--latencies",
        "2",
        "--batches",
        "280",
    ]
    result = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=1_800
    )
    assert result.returncode == 0, result.stderr[-4_000:]
    values = json.loads(result.stdout.splitlines()[-1])
    assert list(values) == list(FIGURES)
    assert all(value > 0 for value in values.values())
