"""`lbctl report`: the page's figures are the tables'; thrash measures; a real browser, where there
is one, shows it without a complaint."""

import json
import math
import random
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lb_stream.cli.report.svg import (
    BESIDE,
    COLOURS,
    Overlay,
    Scale,
    _spread,
    bar_chart,
    line_chart,
    mark_chart,
    nice_ticks,
    short_names,
)
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import (
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    DECISIONS,
    OUTCOMES,
    REFUSALS,
    ROUNDS,
)
from lb_stream.query.costs import load_move_costs
from lb_stream.query.health import Facts, JobFacts
from lb_stream.query.lake import open_lake, records, run
from lb_stream.query.past.report_figures import (
    Thrash,
    find_gap_ms,
    find_thrashing,
    load_cluster_figures,
)
from lb_stream.store import Store
from tests.support.html_page import EVIL, Page
from tests.support.lbctl_runner import lbctl
from tests.support.recorded_tables import START_MS, Recorder
from tests.support.table_rows import decided, fill

BROWSER = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)


def written(root: Path, tmp_path: Path, *arguments: str) -> str:
    result = lbctl(
        "report", "--out", "page.html", *arguments, "--set", f"stream.tables={root}", cwd=tmp_path
    )
    assert (result.code, result.out) == (0, ""), result.err
    return (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clusters: 30 brokers over 900 rounds, one with a gap, every kind of decision, names that
    look like HTML; and a silent one."""
    root, chance = tmp_path_factory.mktemp("troubled") / "tables", random.Random(1)
    loads = [
        {
            "cluster": "eu-1",
            "seq": seq,
            "log_seq": seq,
            "now_ms": START_MS + 60_000 * seq,
            "usage_ratio": 0.5,
            "broker": f"broker-{number:02}.a-rather-long-name:6650",
            "alive": not (number == 3 and 300 < seq < 500),
            "latest_throughput_in_bytes_per_s": chance.uniform(1e6, 9e6),
            "latest_throughput_out_bytes_per_s": 1e6
            * (number + 40 * (number == 7) * math.sin(seq / 90) ** 2),
        }
        for seq in range(1, 901)
        for number in range(30)
    ]
    fill(root, BROKER_LOADS, loads)
    rounds = [
        ("eu-1", seq, "ValueError: once" if seq == 450 else None) for seq in (1, 450, 900)
    ] + [("us-1", 1, None)]
    fill(
        root,
        ROUNDS,
        [
            {
                "cluster": name,
                "seq": seq,
                "log_seq": seq,
                "now_ms": START_MS + 60_000 * seq,
                "error": error,
            }
            for name, seq, error in rounds
        ],
    )
    way = ["a", "b", "c", "b", "a", "d"]
    made, ended = [], []
    for number in range(5):
        seq = 100 * (number + 1)
        for ordinal, kind in enumerate(("unload", "assign")):
            at = seq + ordinal
            made.append(
                example_decision(
                    decision_id=f"eu-1:{at}:0",
                    seq=at,
                    issued_ms=START_MS + 60_000 * at,
                    kind=kind,
                    bundle=EVIL,
                    source=way[number] if kind == "unload" else None,
                    destination=way[number + 1],
                )
            )
            ended.append(
                {"decision_id": f"eu-1:{at}:0", "outcome": "confirmed", "took_ms": 900 + number}
            )
    more = {"transfer": "refused", "split": "expired", "unload": None}
    for number, (kind, outcome) in enumerate(more.items()):
        at = 700 + number
        made.append(
            example_decision(
                decision_id=f"eu-1:{at}:0",
                seq=at,
                issued_ms=START_MS + 60_000 * at,
                kind=kind,
                dry_run=False,
            )
        )
        ended += (
            [{"decision_id": f"eu-1:{at}:0", "outcome": outcome, "took_ms": 5}] if outcome else []
        )
    made.append(
        example_decision(
            decision_id="eu-1:800:0", seq=800, issued_ms=START_MS + 60_000 * 800, dry_run=True
        )
    )
    fill(root, DECISIONS, [decided(one) for one in made])
    fill(root, OUTCOMES, ended)
    fill(
        root,
        REFUSALS,
        [
            {
                "cluster": "eu-1",
                "seq": 9,
                "now_ms": START_MS + 540_000,
                "rule": "cool_down",
                "count": 7,
            }
        ],
    )
    fill(
        root,
        BUNDLE_AVERAGES,
        [
            {
                "cluster": "eu-1",
                "bundle": EVIL,
                "short_throughput_in_bytes_per_s": 2e6,
                "short_throughput_out_bytes_per_s": 1e6,
            }
        ],
    )
    return root


# --- figures ---


def test_the_pages_figures_are_the_tables(recorded: Recorder, tmp_path: Path) -> None:
    page = Page(written(recorded.root, tmp_path))
    lake = open_lake(Store.at(recorded.root))
    (one,) = page.data["clusters"]
    loads = records(
        run(
            lake,
            "SELECT seq, broker, latest_throughput_in_bytes_per_s + "
            "latest_throughput_out_bytes_per_s AS x FROM broker_loads",
        )
    )
    assert {
        (seq, name): one["loads"][name][at]
        for at, seq in enumerate(one["seqs"])
        for name in one["loads"]
    } == pytest.approx({(row["seq"], row["broker"]): row["x"] for row in loads}, abs=0.051)
    for at, seq in enumerate(one["seqs"]):
        values = [row["x"] for row in loads if row["seq"] == seq]
        mean = sum(values) / len(values)
        assert one["max_over_mean"][at] == pytest.approx(max(values) / mean)
        assert one["std_over_mean"][at] == pytest.approx(
            math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean
        )
    tiles = {text: value for value, text in page.tiles}
    counted = records(
        run(
            lake,
            "SELECT count(*) AS n, count(outcome) AS ended FROM decisions LEFT JOIN outcomes USING "
            "(decision_id)",
        )
    )[0]
    assert (tiles["rounds"], tiles["brokers"], tiles["decisions"]) == ("60", "6", str(counted["n"]))
    assert tiles[f"confirmed of {counted['n']}"] == str(counted["ended"])
    assert (
        tiles["max ÷ mean, first → last"]
        == f"{one['max_over_mean'][0]:.2f} → {one['max_over_mean'][-1]:.2f}"
    )
    rows = records(
        run(
            lake,
            "SELECT kind, reason, rule, count(*) AS n FROM decisions GROUP BY ALL ORDER BY ALL",
        )
    )
    assert [row[:4] for row in page.tables["reasons"][1:]] == [
        [*map(str, row.values())] for row in rows
    ]
    ids = [row["decision_id"] for row in records(run(lake, "SELECT decision_id FROM decisions"))]
    assert sorted(row[0] for row in page.tables["all"][1:]) == sorted(ids)


def test_the_drawn_lines_are_the_loads(recorded: Recorder, tmp_path: Path) -> None:
    """Each point of each line, mapped back from pixels by the axis that the chart states."""
    page = Page(written(recorded.root, tmp_path))
    chart, one = page.charts["loads-demo"], page.data["clusters"][0]
    bottom, top = 234.0, 14.0
    low, high = float(chart["data-low"]), float(chart["data-high"])
    assert sorted(page.lines["loads-demo"]) == sorted(one["loads"])
    for name, points in page.lines["loads-demo"].items():
        heights = [float(point.split(",")[1]) for point in points.split()]
        values = [low + (bottom - y) / (bottom - top) * (high - low) for y in heights]
        assert values == pytest.approx(
            [value / 1e6 for value in one["loads"][name]], abs=(high - low) / 220 * 0.06
        )


def test_the_figures_for_programs_are_the_pages(recorded: Recorder, tmp_path: Path) -> None:
    page = Page(written(recorded.root, tmp_path))
    (told,) = lbctl(
        "report", "--json", "--set", f"stream.tables={recorded.root}", cwd=tmp_path
    ).objects
    assert {name: told[name] for name in ("times_ms", "loads", "max_over_mean")} == {
        name: page.data["clusters"][0][name] for name in ("times_ms", "loads", "max_over_mean")
    }
    moves = sum(
        decision.kind == "unload" for made in recorded.rounds for decision in made.decisions
    )
    assert told["thrash"]["moves"] == moves > 5


def test_the_page_tells_what_moves_have_cost_by_week_and_tenant(
    recorded: Recorder, tmp_path: Path
) -> None:
    page = Page(written(recorded.root, tmp_path))
    rows = load_move_costs(open_lake(Store.at(recorded.root)), "demo", 0, "tenant", "week")
    assert rows and all(row["clients"] for row in rows)
    assert [row[:3] for row in page.tables["costs"][1:]] == [
        [row["span"], row["whose"], str(row["moves"])] for row in rows
    ]
    assert [row[3] for row in page.tables["costs"][1:]] == [
        f"{row['unserved_s']:.1f} s" for row in rows
    ]


def test_moves_and_limits_stand_on_the_chart_of_usages(recorded: Recorder, tmp_path: Path) -> None:
    text = written(recorded.root, tmp_path)
    usage = text.partition('<svg id="usage-demo"')[2].partition("</svg>")[0]
    unloads = [
        decision
        for made in recorded.rounds
        for decision in made.decisions
        if decision.kind == "unload"
    ]
    assert usage.count('class="mark confirmed"') == len(unloads) > 5
    assert all(f"<title>{unload.decision_id} unload" in usage for unload in unloads)
    limit = unloads[-1].explain.limit
    assert limit is not None and f"limit, last move {100 * limit:.1f}</text>" in usage
    assert usage.count('class="limit"') >= 1 and ">%</text>" in usage


def test_no_point_and_no_line_covers_a_time_without_rounds(tmp_path: Path) -> None:
    """1,000 rounds a second apart, three hours of nothing, 1,000 more: three rounds make a point,
    on one side of the gap."""
    times = [
        START_MS + 1000 * number + (10_800_000 if number >= 1000 else 0) for number in range(2000)
    ]
    rows = [
        {
            "cluster": "eu-1",
            "seq": number,
            "now_ms": at_ms,
            "broker": "a:1",
            "alive": True,
            "usage_ratio": 0.5,
            "log_seq": number,
        }
        | dict.fromkeys(
            ("latest_throughput_in_bytes_per_s", "latest_throughput_out_bytes_per_s"),
            1e6 if number < 1000 else 3e6,
        )
        for number, at_ms in enumerate(times)
    ]
    fill(tmp_path / "tables", BROKER_LOADS, rows)
    fill(
        tmp_path / "tables",
        ROUNDS,
        [
            {"cluster": "eu-1", "seq": 0, "log_seq": 0, "now_ms": at_ms}
            for at_ms in (times[0], times[-1])
        ],
    )
    facts = Facts(times[-1], JobFacts("p"))
    lake = open_lake(Store.at(tmp_path / "tables"))
    found = load_cluster_figures(lake, "eu-1", 0, times[-1], 100, facts)
    assert set(found.loads["a:1"]) == {2e6, 6e6} and found.rounds_per_point > 1
    assert {times[999], times[-1]} < set(found.times_ms)
    text = written(tmp_path / "tables", tmp_path)
    loads = text.partition('<svg id="loads-eu-1"')[2].partition("</svg>")[0]
    assert (loads.count("<polyline"), loads.count('class="gap"')) == (2, 1)
    assert re.search(
        r"no points from 2026-01-01 00:16:39 to 2026-01-01 03:16:4\d<", loads
    )  # where the first point behind it is


def test_trouble_is_on_the_page(troubled: Path, tmp_path: Path) -> None:
    text = written(troubled, tmp_path)
    page = Page(text)
    tiles = {words: value for value, words in page.tiles}
    assert tiles["rounds, 1 failed"] == "900"
    assert tiles["decisions, 1 in dry runs"] == "14"
    assert tiles["moves came back within 100 rounds"] == "1"  # b → c → b; back at a is too late
    assert tiles["moves redundant"] == "4 of 5"
    assert page.tables["returned"][1:] == [[EVIL, "b", "200", "300"]]
    assert [row[1] for row in page.tables["cycles"][1:]] == ["b → c → b", "a → b → a"]
    assert page.tables["refusals"][1][:2] == ["cool_down", "7"]
    ends = {row[0]: row[-1] for row in page.tables["all"][1:]}
    assert (ends["eu-1:700:0"], ends["eu-1:701:0"], ends["eu-1:702:0"], ends["eu-1:800:0"]) == (
        "refused in 0.0 s",
        "expired in 0.0 s",
        "pending",
        "dry run",
    )
    assert "No broker has reported in this time." in text  # us-1
    eu = page.data["clusters"][0]
    assert (
        len(eu["times_ms"]),
        len(eu["loads"]),
        "Each point is the mean of 3 rounds" in text,
    ) == (300, 30, True)
    assert None in eu["loads"]["broker-03.a-rather-long-name:6650"]


def test_names_that_look_like_html_stay_names(troubled: Path, tmp_path: Path) -> None:
    text = written(troubled, tmp_path)
    assert text.count("<script") == 2 and EVIL not in text
    assert Page(text).tables["all"][-1][3] == EVIL


def test_nothing_is_fetched(troubled: Path, tmp_path: Path) -> None:
    text = written(troubled, tmp_path)
    assert Page(text).fetched == []
    assert not re.search(r"url\(|@import|fetch\(|XMLHttp|https?://", text)
    assert "default-src 'none'" in text


def test_one_cluster_or_a_part_of_the_time_only(troubled: Path, tmp_path: Path) -> None:
    page = Page(written(troubled, tmp_path, "--cluster", "eu-1", "--hours", "1"))
    (one,) = page.data["clusters"]
    assert (one["seqs"][0], one["seqs"][-1]) == (840, 900)
    result = lbctl(
        "report",
        "--out",
        "x.html",
        "--cluster",
        "nowhere",
        "--set",
        f"stream.tables={troubled}",
        cwd=tmp_path,
    )
    assert (
        result.code,
        "--cluster nowhere: expected one that the log has: eu-1, us-1" in result.err,
    ) == (2, True)


@pytest.mark.parametrize("arguments", [(), ("--json", "--out", "x.html")])
def test_where_it_goes_must_be_said_once(
    recorded: Recorder, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    assert (
        lbctl("report", *arguments, "--set", f"stream.tables={recorded.root}", cwd=tmp_path).code
        == 2
    )


def test_a_file_that_cannot_be_written_is_an_error(recorded: Recorder, tmp_path: Path) -> None:
    result = lbctl(
        "report", "--out", "no/such/x.html", "--set", f"stream.tables={recorded.root}", cwd=tmp_path
    )
    assert (result.code, "no/such/x.html: No such file" in result.err) == (1, True)


# --- thrash ---


def way(
    *brokers: str, bundle: str = "x", every: int = 10, reason: str = "Overloaded"
) -> list[dict[str, Any]]:
    """Confirmed moves of one bundle along these brokers, one every ten rounds, each as unload and
    assignment."""
    rows = []
    for number in range(len(brokers) - 1):
        common = {"bundle": bundle, "dry_run": False, "outcome": "confirmed", "reason": reason}
        rows.append(
            common
            | {
                "kind": "unload",
                "seq": every * number,
                "source": brokers[number],
                "destination": None,
            }
        )
        rows.append(
            common
            | {
                "kind": "assign",
                "seq": every * number + 1,
                "source": None,
                "destination": brokers[number + 1],
            }
        )
    return rows


@pytest.mark.parametrize(
    ("brokers", "cycles", "redundant"),
    [
        ("ab", [], 0),
        ("abc", [], 0),
        ("aba", ["aba"], 2),
        ("abab", ["aba"], 2),
        ("ababa", ["aba", "aba"], 4),
        ("abcabd", ["abca"], 3),
        ("abcbad", ["bcb", "aba"], 4),
    ],
)
def test_a_cycle_is_a_way_back(brokers: str, cycles: list[str], redundant: int) -> None:
    found = find_thrashing(way(*brokers), 100)
    assert ["".join(row["brokers"]) for row in found.cycles] == cycles
    assert (found.moves, found.redundant) == (len(brokers) - 1, redundant)


@pytest.mark.parametrize(("within", "returned"), [(9, 0), (10, 2), (100, 2)])
def test_a_move_has_come_back_when_the_bundle_is_there_again_soon_enough(
    within: int, returned: int
) -> None:
    """The round that begins the way back counts: a → b → a → b, ten rounds between moves."""
    assert len(find_thrashing(way(*"abab"), within).returned) == returned


def test_moves_of_different_bundles_make_no_cycle() -> None:
    assert find_thrashing([*way("a", "b", bundle="x"), *way("b", "a", bundle="y")], 100) == Thrash(
        100, 2, (), 0, ()
    )


def test_operators_moves_are_no_thrashing() -> None:
    drain, undo = way(*"ab", reason="Admin"), way(*"ba", reason="Admin")
    assert find_thrashing([*drain, *undo], 100) == Thrash(100, 0, (), 0, (), operators_moves=2)
    # balancing fills the broker again after an undrain
    assert find_thrashing([*drain, *way(*"ba")], 100) == Thrash(
        100, 1, (), 0, (), operators_moves=1
    )
    # an operator takes back what balancing did
    assert find_thrashing([*way(*"ab"), *undo], 100) == Thrash(100, 1, (), 0, (), operators_moves=1)
    # a bundle's way goes on where an operator has put it
    after = find_thrashing([*way(*"ab"), *way(*"bc", reason="Admin"), *way(*"cdc")], 100)
    assert ["".join(row["brokers"]) for row in after.cycles] == ["cdc"]
    assert [(row["bundle"], row["broker"]) for row in after.returned] == [("x", "c")]
    assert (after.moves, after.redundant, after.operators_moves) == (3, 2, 1)


def test_what_was_not_confirmed_has_not_moved() -> None:
    rows = way(*"aba")
    for change in ({"outcome": "expired"}, {"outcome": None}, {"dry_run": True}):
        assert find_thrashing([*rows[:2], *(row | change for row in rows[2:])], 100).moves == 1


# --- drawing ---


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 1.0), (0.0, 143.6), (0.0, 0.07), (0.9, 2.5), (0.0, 1e9), (-3.0, 4.0), (0.0, 0.3)],
)
def test_ticks_are_round_numbers_that_cover_everything(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 7
    steps = {
        round((b - a) / 10 ** math.floor(math.log10(b - a) + 1e-9), 6) for a, b in pairwise(ticks)
    }
    assert len(steps) == 1 and steps <= {1.0, 2.0, 5.0, 10.0}


def test_names_beside_the_lines_never_overlap_and_stay_inside() -> None:
    placed = _spread({f"b{number}": 200.0 - number / 10 for number in range(COLOURS)}, 14, 204)
    heights = sorted(placed.values())
    assert all(b - a >= 14 - 1e-9 for a, b in pairwise(heights))
    assert heights[-1] <= 204 and heights[0] >= 14


def test_what_is_usual_between_rounds_says_what_a_gap_is() -> None:
    assert find_gap_ms([0, 1000, 2000, 900_000]) == 60_000
    assert find_gap_ms([0, 300_000, 600_000, 2_000_000]) == 1_500_000
    assert find_gap_ms([5]) == find_gap_ms([]) == 60_000


def test_a_line_ends_at_a_gap_and_at_a_missing_value() -> None:
    times = [0, 1000, 2000, 500_000, 501_000, 502_000, 503_000]
    drawn = line_chart("a", "a", times, {"x": [1.0, 1.0, None, 1.0, 1.0, None, 1.0]}, "")
    assert (drawn.count("<polyline"), drawn.count("<circle"), drawn.count('class="gap"')) == (
        2,
        1,
        1,
    )
    assert (
        line_chart("a", "a", times, {"x": [1.0] * 7}, "", over=Overlay(longest_ms=600_000)).count(
            "<polyline"
        )
        == 1
    )


def test_brokers_of_one_domain_are_told_apart_beside_the_chart() -> None:
    names = [f"pulsar-broker-{number:02}.messaging.svc.cluster.local:6650" for number in range(60)]
    short = short_names(names)
    assert len(set(short.values())) == 60 and max(map(len, short.values())) <= BESIDE
    assert all(value.endswith(name[14:16]) for name, value in short.items())
    assert short_names(["10.0.0.1:80", "10.0.9.1:80"]) == {
        "10.0.0.1:80": "10.0.0.1",
        "10.0.9.1:80": "10.0.9.1",
    }
    assert short_names(["a.long.domain.example"]) == {"a.long.domain.example": "a.long.domain"}


def test_bars_stand_over_an_axis_with_its_unit() -> None:
    drawn = bar_chart("a", "a", [("x", "y", 8.0), ("z", "y", 3.0)], "MB/s")
    assert [f'text-anchor="middle">{tick}</text>' in drawn for tick in (0, 2, 4, 6, 8)] == [
        True
    ] * 5
    assert ">MB/s</text>" in drawn


def test_a_scale_of_nothing_is_its_start() -> None:
    assert Scale(3.0, 3.0, 10, 20)(3.0) == 10


@pytest.mark.parametrize(
    "times_ms", [[START_MS], [START_MS, START_MS + 1], [START_MS, START_MS + 40 * 86_400_000]]
)
def test_charts_of_one_moment_and_of_many_days_are_drawn(times_ms: list[int]) -> None:
    line = [1.0] * len(times_ms)
    for chart in (
        line_chart("a", "a", times_ms, {"x": line}, "MB/s"),
        mark_chart("b", "b", times_ms, {}),
        bar_chart("c", "c", [], "MB/s"),
    ):
        assert chart.startswith("<svg ") and chart.endswith("</svg>") and "nan" not in chart
    assert 0 <= line_chart("a", "a", times_ms, {"x": line}, "").count('text-anchor="middle"') <= 7


# --- in a browser ---


def in_browser(folder: Path, option: str) -> "subprocess.CompletedProcess[str]":
    """The document of the folder's page once its script has run (stdout), and what Chromium says
    (stderr)."""
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
        option,
    ]
    page = (folder / "page.html").as_uri()
    return subprocess.run(
        [*command, "--dump-dom", page], capture_output=True, text=True, timeout=90, check=True
    )


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here (Debian: apt-get install chromium)")
@pytest.mark.parametrize("which", ["recorded", "troubled"])
def test_a_browser_shows_the_page_without_a_complaint(
    which: str, recorded: Recorder, troubled: Path, tmp_path: Path
) -> None:
    """Chromium runs its script to the end, logs nothing, fetches nothing, and has in its document
    what the tables have."""
    root = recorded.root if which == "recorded" else troubled
    text = written(root, tmp_path)
    done = in_browser(tmp_path, "--enable-logging=stderr")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    shown, made = Page(done.stdout), Page(text)
    assert f'data-ready="{len(made.data["clusters"])}"' in done.stdout
    assert (shown.tables, shown.tiles, shown.lines) == (made.tables, made.tiles, made.lines)


MEASURE = """<script>
const widths = (selector) => [...document.querySelectorAll(selector)].map((one) => one.getBoundingClientRect().width);
document.documentElement.dataset.widths = JSON.stringify({
  window: innerWidth, page: document.documentElement.scrollWidth, charts: Math.min(...widths("svg")),
  bundles: Math.min(...widths('[data-table="all"] td:nth-child(4)')), tiles: Math.max(...widths(".tile")),
});
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [500, 1300])
def test_it_can_be_read_in_a_narrow_window_too(
    width: int, recorded: Recorder, tmp_path: Path
) -> None:
    """What is wider than the window is moved sideways by itself, not made smaller; the page as a
    whole isn't wider."""
    text = written(recorded.root, tmp_path)
    (tmp_path / "page.html").write_text(
        text.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8"
    )
    (found,) = re.findall(
        r'data-widths="([^"]*)"', in_browser(tmp_path, f"--window-size={width},900").stdout
    )
    widths = json.loads(found.replace("&quot;", '"'))
    assert widths["window"] == pytest.approx(width, abs=20)
    assert widths["page"] <= widths["window"]
    assert widths["charts"] >= 700 and widths["bundles"] >= 200
    assert widths["tiles"] < width / 2
