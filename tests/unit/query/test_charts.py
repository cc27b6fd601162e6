"""The charts of the console: their range of time, gaps and limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.contracts.tables import BROKER_LOADS, ROUNDS
from lb_stream.core.model.memory import Memory
from lb_stream.query.lake import open_lake
from lb_stream.query.screens import over_time
from lb_stream.query.screens.limits import Limit, find_limit
from lb_stream.settings.overrides import resolve_in_force
from lb_stream.store import Store
from tests.support.table_rows import NOW, fill, load

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
