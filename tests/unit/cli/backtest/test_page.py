"""The page of a back-test: its figures are the rows', each trial is a point, and names stay
names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import lb_stream.job.submit
from lb_stream.backtest.trial import TrialWindow, compare_policies, cut_time, run_trial
from lb_stream.cli.backtest import command
from lb_stream.cli.backtest.page import SHOWN, cells, page
from lb_stream.query.past.reports import build_history
from lb_stream.sim.scenario.from_history import LoadHistory, build_from_history
from lb_stream.sim.simulation import Policy, read_policy
from tests.support.html_page import EVIL, Page
from tests.support.lbctl_runner import lbctl

CAPTURED = Path(__file__).parents[3] / "data" / "modular-load-reports.jsonl.gz"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Two windows of real brokers, played with two policies and with one that there isn't."""
    past = build_history(CAPTURED, "lab")
    policies = [
        read_policy("none"),
        read_policy("AvgShedder"),
        Policy("broken", {"shedding_strategy": "NoSuchShedder"}),
    ]
    found = []
    for begin, end in cut_time(past["from_ms"], past["from_ms"] + 240_000, 1 / 30):
        scenario = build_from_history(
            LoadHistory(**past | {"from_ms": begin, "to_ms": end}), 10.0
        ).scenario
        found += [
            {"run": "x"} | run_trial(TrialWindow(EVIL, begin, end, scenario), policy)
            for policy in policies
        ]
    return found


def order(row: dict[str, Any]) -> tuple[int, str]:
    """By window; both policies are as even, and in the order of their names."""
    return row["from_ms"], row["policy"]


def test_policies_stand_side_by_side_with_each_windows_measures_and_what_failed(
    rows: list[dict[str, Any]],
) -> None:
    made = Page(page("x", rows))
    assert made.tables["policies"] == [
        ["policy", *SHOWN.values()],
        *([one["policy"], *cells(one)] for one in compare_policies(rows)),
    ]
    assert [row[0] for row in made.tables["failed"][1:]] == ["broken", "broken"]
    assert [row[2:] for row in made.tables[f"windows-{EVIL}"][1:]] == [
        cells(row) for row in sorted(rows, key=order) if row["error"] is None
    ]
    (one,) = made.data["clusters"]
    assert one["loads"]["none"] == [
        row["max_over_bound_median"] for row in rows if row["policy"] == "none"
    ]


def test_each_policy_is_a_large_point_and_each_of_its_windows_a_small_one(
    rows: list[dict[str, Any]],
) -> None:
    drawn = re.findall(
        r'<g class="line c\d" data-name="(\w+)">((?:<circle .*?</circle>)+)</g>', page("x", rows)
    )
    assert sorted(name for name, _ in drawn) == ["AvgShedder", "none"]
    for name, circles in drawn:
        assert re.findall(r' r="(\d)"', circles) == ["6", "3", "3"]
        (mean,) = (one for one in compare_policies(rows) if one["policy"] == name)
        assert (
            f"{name}: max/bound {mean['max_over_bound_median']:.3f}, {mean['moves']:,.0f} moves"
            in circles
        )


def test_a_single_window_has_no_line_over_time_and_failures_alone_make_a_page(
    rows: list[dict[str, Any]],
) -> None:
    single = Page(page("x", rows[:3]))
    assert (list(single.lines), single.data["clusters"]) == (["scatter"], [])
    assert {"measure", "none", "AvgShedder"} == {*single.tables[f"measures-{EVIL}"][0]}
    failed = Page(page("x", rows[2:3]))
    assert (failed.charts, len(failed.tables["failed"])) == ({}, 2)


def test_names_that_look_like_html_stay_names(rows: list[dict[str, Any]]) -> None:
    text = page("x", rows)
    assert text.count("<script") == 2 and EVIL not in text
    assert EVIL in Page(text).tables["failed"][1][1]


def test_the_command_shows_the_rows_and_writes_the_page(
    rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lb_stream.job.submit, "submit_command", lambda *_: ([], {}))
    monkeypatch.setattr(command, "_run", lambda *_: ({"run": "x", "rows": rows}, 1))
    asked = ("backtest", "--reports", str(CAPTURED), "--policy", "none", "--html")
    done = lbctl(*asked, "page.html", cwd=tmp_path)
    assert (done.code, done.err.splitlines()[-1]) == (1, "wrote page.html")
    assert "2 windows of" in done.err and "AvgShedder" in done.out
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page("x", rows)
    lost = lbctl(*asked, "no/such.html", cwd=tmp_path)
    assert (lost.code, lost.out, "no/such.html: No such file" in lost.err) == (1, done.out, True)
