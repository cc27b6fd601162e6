"""The charts of the console: their range of time, gaps and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import (
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    BUNDLE_HISTORY,
    DECISIONS,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory
from lb_stream.query.lake import open_lake
from lb_stream.query.screens import heat, over_time
from lb_stream.query.screens.group_chart import build_group_chart
from lb_stream.query.screens.limits import Limit, find_limit
from lb_stream.query.screens.lists import ListRequest
from lb_stream.settings.overrides import resolve_in_force
from lb_stream.store import Store
from tests.support.table_rows import NOW, decided, fill, load

MINUTE_MS = 60_000


def test_a_chart_has_gaps_where_the_job_was_dead_and_none_where_loads_come_seldom(
    tmp_path: Path,
) -> None:
    fill(tmp_path, ROUNDS, [{"cluster": "eu", "seq": 1, "log_seq": 1, "now_ms": NOW}])
    at_ms = [minute * MINUTE_MS for minute in (0, 1, 2, 3, 4, 30, 31, 32)]
    rows = [load("eu", 1, "b-1:80", 1.0) | {"now_ms": NOW - 32 * MINUTE_MS + at} for at in at_ms]
    fill(tmp_path, BROKER_LOADS, rows)
    lake = open_lake(Store.at(tmp_path))
    assert over_time.find_known_times(lake, "eu") == (NOW - 32 * MINUTE_MS, NOW)
    assert over_time.find_known_times(lake, "us") is None
    begin, end = over_time.find_chart_window(lake, "eu", "1h", None)
    assert (begin, end) == (NOW - 32 * MINUTE_MS, NOW)
    limit = Limit("limit", 1.2, 0.05)
    chart = over_time.build_broker_chart(lake, "eu", "b-1:80", begin, end, limit)
    (gap,) = chart.gaps
    minutes = [round((ms - begin) / MINUTE_MS) for ms in (gap.begin_ms, gap.end_ms)]
    assert minutes == [4, 30]
    for line, value in zip(chart.lines, (0.5, 0.65, 0.5), strict=True):
        for at, shown in zip(chart.times_ms, line.values, strict=True):
            in_gap = gap.begin_ms <= at < gap.end_ms
            assert shown == (None if in_gap else pytest.approx(value)), (line.name, at)


def test_a_range_that_is_chosen_is_shown_as_it_is_and_begins_with_the_tables(
    tmp_path: Path,
) -> None:
    rows = [load("eu", 1, "b-1:80", 1.0) | {"now_ms": NOW - ago} for ago in (600_000, 0)]
    fill(tmp_path, BROKER_LOADS, rows)
    fill(tmp_path, ROUNDS, [{"cluster": "eu", "seq": 1, "log_seq": 1, "now_ms": NOW}])
    lake = open_lake(Store.at(tmp_path))
    known = over_time.find_known_times(lake, "eu")
    assert known is not None
    first, last = known
    chosen = (first + MINUTE_MS, last - MINUTE_MS)
    assert over_time.find_chart_window(lake, "eu", "15m", chosen[1], first - 99) == (
        first,
        chosen[1],
    )
    later = (last + MINUTE_MS, last + 2 * MINUTE_MS)
    assert over_time.find_chart_window(lake, "eu", "15m", later[1], later[0]) == later
    assert over_time.find_chart_window(lake, "eu", "1h", None, later[0])[0] == later[0]
    days = [(1, ["15m", "1h", "6h", "24h", "7d"]), (8, ["30d"]), (31, ["30d", "90d"])]
    for count, more in days:
        offered = over_time.list_offered_spans((0, count * over_time.DAY_MS))
        assert list(offered)[-len(more) :] == more


def test_the_limit_of_a_strategy_is_that_of_its_settings_in_force() -> None:
    def limit_of(**settings: object) -> Limit | None:
        return find_limit(resolve_in_force(settings, Memory()))

    above = limit_of(shedding_strategy="ThresholdShedder", threshold_percent=15)
    assert above is not None and above.at_mean(0.5) == pytest.approx(0.65)
    fixed = limit_of(shedding_strategy="OverloadShedder", overloaded_threshold_percent=70)
    assert fixed is not None and fixed.at_mean(0.5) == pytest.approx(0.7)
    trigger = limit_of(shedding_strategy="LeastMoves", least_moves_trigger_ratio=1.2)
    assert trigger is not None and trigger.at_mean(0.5) == pytest.approx(0.6)
    assert trigger.at_mean(None) is None
    assert limit_of(shedding_strategy="UniformLoadShedder") is None


def test_a_heat_map_has_the_hottest_brokers_of_the_range_first_and_the_rest_on_other_pages(
    tmp_path: Path,
) -> None:
    begin = NOW - 600_000
    rows = [
        load("eu", 1, f"b-{number:04}:80", 1.0) | {"now_ms": at, "usage_ratio": number / 1000}
        for number in range(1000)
        for at in (begin, NOW)
    ]
    rows.append(load("eu", 1, "b-0003:80", 1.0) | {"now_ms": NOW, "usage_ratio": 1.25})
    dead = load("eu", 1, "dead:80", 1.0, alive=False) | {"now_ms": NOW, "usage_ratio": 9.0}
    fill(tmp_path, BROKER_LOADS, [*rows, dead])
    fill(tmp_path, ROUNDS, [{"cluster": "eu", "seq": 1, "log_seq": 1, "now_ms": NOW}])
    move = example_decision(
        decision_id="eu:1:0",
        cluster="eu",
        issued_ms=begin + 15_000,
        source="b-0999:80",
        destination="b-0001:80",
    )
    tried = move.model_copy(
        update={"decision_id": "eu:2:0", "issued_ms": begin + 200_000, "dry_run": True}
    )
    fill(tmp_path, DECISIONS, [decided(move), decided(tried)])
    lake = open_lake(Store.at(tmp_path))
    found = heat.load_heat_map(lake, "eu", begin, NOW, ListRequest())
    names = [row["broker"] for row in found.brokers.rows]
    assert (names[:2], len(names), found.brokers.total) == (["b-0003:80", "b-0999:80"], 50, 1000)
    hottest, second = found.brokers.rows[:2]
    assert (hottest["values"][0], hottest["values"][-1], hottest["peak"]) == (0.003, 1.25, 1.25)
    assert set(hottest["values"][1:-1]) == {None} and len(found.gaps) == 1
    assert len(found.times_ms) <= heat.MAX_COLUMNS + 2
    assert sum(hottest["moves"]) == 0 and [at for at, n in enumerate(second["moves"]) if n] == [
        (begin + 15_000) // found.step_ms - found.times_ms[0] // found.step_ms
    ]
    last = heat.load_heat_map(lake, "eu", begin, NOW, ListRequest(sort="broker", page=20))
    assert last.brokers.rows[-1]["broker"] == "b-0999:80"


@pytest.fixture
def grouped(tmp_path: Path) -> Any:
    """Six namespaces of the tenant acme with one bundle each, n MB/s; one of shop; loads of ten
    minutes. The bundle of acme/n6 has no owner for the last five; acme/n5 has one old row."""
    flows = [
        f"{kind}_throughput_{way}_bytes_per_s"
        for kind in ("latest", "short", "long")
        for way in ("in", "out")
    ]
    bundles = {f"acme/n{n}/0x00000000_0xffffffff": n * 1e6 for n in range(1, 7)}
    bundles["shop/x/0x00000000_0xffffffff"] = 20e6
    shared = {"cluster": "eu", "owner": "b-1:80", "part": "eu-0", "now_ms": NOW, "topics": 1}
    averages = [
        shared | {"bundle": name, "owner_since_ms": NOW} | dict.fromkeys(flows, rate / 2)
        for name, rate in bundles.items()
    ]
    history = []
    for name, rate in bundles.items():
        minutes = (40,) if "/n5/" in name else range(11)
        for ago in minutes:
            owner = None if "/n6/" in name and ago < 5 else "b-1:80"
            each = dict.fromkeys(
                ("throughput_in_bytes_per_s", "throughput_out_bytes_per_s"), rate / 2
            )
            slot = {"slot_ms": NOW - ago * MINUTE_MS, "owner": owner}
            history.append({"cluster": "eu", "bundle": name} | each | slot)
    loads = [
        load("eu", 1, "b-1:80", 25_000.0) | {"now_ms": NOW - ago * MINUTE_MS} for ago in range(11)
    ]
    fill(tmp_path, BUNDLE_AVERAGES, averages)
    fill(tmp_path, BUNDLE_HISTORY, history)
    fill(tmp_path, BROKER_LOADS, loads)
    return open_lake(Store.at(tmp_path))


def test_a_tenants_chart_has_its_five_heaviest_namespaces_and_all_others(grouped: Any) -> None:
    begin = NOW - 10 * MINUTE_MS
    chart = build_group_chart(grouped, "eu", begin, NOW, "namespace", tenant="acme")
    values = {line.name: [(value or 0) / 1e6 for value in line.values] for line in chart.lines}
    assert list(values) == [f"acme/n{n}" for n in (6, 5, 4, 3, 2)] + ["all others"]
    assert values["acme/n5"][-1] == pytest.approx(5.0), "it carries what its last row says"
    assert (values["acme/n6"][1], values["acme/n6"][-1]) == (pytest.approx(6.0), 0.0)
    assert values["all others"][-1] == pytest.approx(1.0)
    assert chart.unit == "bytes/s" and chart.note == "" and chart.gaps == ()
    of_bundles = build_group_chart(grouped, "eu", begin, NOW, "bundle", namespace="acme/n4")
    assert [(line.name, line.values[-1]) for line in of_bundles.lines] == [
        ("acme/n4/0x00000000_0xffffffff", pytest.approx(4e6))
    ]


def test_others_of_a_cluster_are_the_rest_of_what_its_brokers_report(grouped: Any) -> None:
    begin = NOW - 10 * MINUTE_MS
    chart = build_group_chart(grouped, "eu", begin, NOW, "namespace")
    last = {line.name: line.values[-1] for line in chart.lines}
    assert list(last)[:2] == ["shop/x", "acme/n6"] and len(last) == 6
    assert last["all others"] == pytest.approx(50e6 - (20 + 0 + 5 + 4 + 3) * 1e6)
    tenants = build_group_chart(grouped, "eu", begin, NOW, "tenant")
    assert [line.name for line in tenants.lines] == ["acme", "shop", "all others"]
    assert build_group_chart(grouped, "us", begin, NOW, "tenant").lines == ()


def test_a_range_that_needs_too_many_rows_begins_later_and_says_so(
    grouped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lb_stream.query.screens.group_chart.MAX_ROWS", 5 * 6)
    begin = NOW - 10 * MINUTE_MS
    chart = build_group_chart(grouped, "eu", begin, NOW, "namespace", tenant="acme")
    assert chart.times_ms[0] >= NOW - 6 * MINUTE_MS and "5 min" in chart.note
