"""The charts of the console: their range of time, gaps and limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import BROKER_LOADS, DECISIONS, ROUNDS
from lb_stream.core.model.memory import Memory
from lb_stream.query.lake import open_lake
from lb_stream.query.screens import heat, over_time
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
    fill(tmp_path, DECISIONS, [decided(move)])
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
