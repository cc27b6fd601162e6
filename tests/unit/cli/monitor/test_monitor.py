"""`lbctl monitor` over tables: on terminals of two sizes, without colour, piped, for programs."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from lb_stream.cli.monitor.dashboard import _shared_end, draw_bar, render
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import BROKER_LOADS, DECISIONS, REFUSALS, ROUNDS
from lb_stream.query.snapshot import Snapshot, load_snapshot, measure_imbalance
from lb_stream.store import Store
from tests.support.lbctl_runner import lbctl
from tests.support.recorded_tables import START_MS, Recorder
from tests.support.table_rows import decided, fill
from tests.support.terminal import on_terminal

LBCTL = [sys.executable, "-c", "from lb_stream.cli.main import main; main()"]
SIZES = [(80, 24), (160, 50)]


def command(recorded: Recorder, *arguments: str) -> list[str]:
    return [*LBCTL, "monitor", *arguments, "--set", f"stream.tables={recorded.root}"]


@pytest.fixture(scope="module")
def seen(recorded: Recorder) -> Snapshot:
    return load_snapshot(Store.at(recorded.root))


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """Two clusters: one of 40 brokers with long names, one of them dead, pending moves and
    refusals; one whose last round failed."""
    root = tmp_path_factory.mktemp("troubled")
    rates = {
        f"{span}_{four}": 5e6
        for span in ("latest", "short", "long")
        for four in ("throughput_in_bytes_per_s", "rate_in_msgs_per_s")
    }
    loads = [
        {
            "cluster": "eu-1",
            "seq": 9,
            "log_seq": 9,
            "now_ms": START_MS,
            "broker": f"broker-{number:02}.a-long-name.eu.example:6650",
            "alive": number != 7,
            "usage_ratio": number / 40,
            "cpu_ratio": 1.5 if number == 8 else number / 40,
            "bundles": number,
        }
        | rates
        for number in range(40)
    ]
    fill(root, BROKER_LOADS, loads)
    rounds = [("eu-1", 9, None), ("us-1", 4, "Traceback:\nValueError: no such thing")]
    fill(
        root,
        ROUNDS,
        [
            {"cluster": name, "seq": seq, "log_seq": seq, "now_ms": START_MS, "error": error}
            for name, seq, error in rounds
        ],
    )
    made = [
        example_decision(
            decision_id=f"eu-1:9:{number}", seq=9, issued_ms=START_MS, dry_run=number == 11
        )
        for number in range(12)
    ]
    fill(root, DECISIONS, [decided(one) for one in made])
    rows = [
        {
            "cluster": "eu-1",
            "seq": 9,
            "log_seq": 9,
            "now_ms": START_MS - ago_ms,
            "rule": rule,
            "broker": "b-1:1",
            "count": 3,
            "limit": 10485760.0,
            "least": 5.5e6,
            "greatest": 9e6,
            "unit": "bytes/s",
        }
        for rule, ago_ms in (("min_throughput", 0), ("min_throughput", 1000), ("long_ago", 600_000))
    ]
    fill(root, REFUSALS, rows)
    return load_snapshot(Store.at(root))


# --- on a terminal ---


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_the_live_view_fills_a_terminal_and_never_more(
    recorded: Recorder, tmp_path: Path, columns: int, rows: int
) -> None:
    with on_terminal(command(recorded), columns, rows, tmp_path) as session:
        lines = session.wait_for(lambda screen: any("decisions" in line for line in screen.lines))
        session.read(0.5)
        text = "\n".join(lines)
        assert session.screen.alternate and session.screen.coloured
        for words in (
            "demo round 60",
            "max/mean",
            "6 of 6 brokers",
            "48 bundles",
            "lag 3 records",
            "cpu %",
            "last decisions",
            "released",
        ):
            assert words in text
        assert sum(line.startswith("broker-") for line in lines) == 6
        assert ("a batch, median of 60" in text, "msg/s" in text) == ((columns >= 120,) * 2)
        assert not session.screen.overflowed
        assert session.interrupt() == 0
        assert not session.screen.alternate  # the user's own screen is back


def test_the_live_view_follows_the_terminals_size(recorded: Recorder, tmp_path: Path) -> None:
    with on_terminal(command(recorded, "--interval", "60"), 80, 24, tmp_path) as session:
        session.wait_for(lambda screen: any("decisions" in line for line in screen.lines))
        session.resize(160, 50)
        lines = session.wait_for(
            lambda screen: any("a batch, median" in line for line in screen.lines)
        )
        assert any("msg/s" in line for line in lines)
        assert session.interrupt() == 0


def test_no_colour_is_used_when_none_is_wanted(recorded: Recorder, tmp_path: Path) -> None:
    with on_terminal(command(recorded), 80, 24, tmp_path, {"NO_COLOR": "1"}) as session:
        session.wait_for(lambda screen: any("decisions" in line for line in screen.lines))
        assert not session.screen.coloured


def test_it_shows_what_the_tables_gain(tmp_path: Path) -> None:
    root = tmp_path / "tables"
    row = {"cluster": "eu-1", "alive": True, "bundles": 1, "broker": "b-1:80"}
    first = {
        "seq": 1,
        "log_seq": 1,
        "latest_throughput_in_bytes_per_s": 1e6,
        "latest_throughput_out_bytes_per_s": 0.0,
    }
    fill(root, BROKER_LOADS, [row | first])
    with on_terminal(
        [*LBCTL, "monitor", "--interval", "0.2", "--set", f"stream.tables={root}"], 80, 24, tmp_path
    ) as session:
        session.wait_for(
            lambda screen: any(line.startswith("b-1 ") and " 1 " in line for line in screen.lines)
        )
        more = {
            "seq": 2,
            "log_seq": 2,
            "latest_throughput_in_bytes_per_s": 77e6,
            "latest_throughput_out_bytes_per_s": 0.0,
        }
        fill(root, BROKER_LOADS, [row | more])
        session.wait_for(
            lambda screen: any(line.startswith("b-1 ") and " 77 " in line for line in screen.lines)
        )


def test_tables_that_cannot_be_read_for_a_moment_leave_the_last_figures_and_a_word(
    tmp_path: Path,
) -> None:
    root = tmp_path / "tables"
    fill(
        root,
        BROKER_LOADS,
        [
            {
                "cluster": "eu-1",
                "alive": True,
                "bundles": 1,
                "broker": "b-1:80",
                "seq": 1,
                "log_seq": 1,
            }
        ],
    )
    (file,) = (root / BROKER_LOADS.name).glob("*.parquet")
    with on_terminal(
        [*LBCTL, "monitor", "--interval", "0.2", "--set", f"stream.tables={root}"], 80, 24, tmp_path
    ) as session:
        session.wait_for(lambda screen: any(line.startswith("b-1 ") for line in screen.lines))
        file.rename(tmp_path / "aside")
        lines = session.wait_for(
            lambda screen: any("the tables can't be read just now" in line for line in screen.lines)
        )
        assert any(line.startswith("b-1 ") for line in lines)
        (tmp_path / "aside").rename(file)
        session.wait_for(
            lambda screen: (
                not any("just now" in line for line in screen.lines)
                and any("b-1" in line for line in screen.lines)
            )
        )
        assert session.interrupt() == 0


# --- piped, and for programs ---


def test_piped_it_prints_once_starts_no_jvm_and_cuts_nothing(
    recorded: Recorder, tmp_path: Path
) -> None:
    no_java = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    done = subprocess.run(
        command(recorded),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=no_java,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "NOT UP TO DATE: no job of the pipeline lb-stream has been started with these tables"
    )
    assert "\x1b" not in done.stdout
    made = sum(len(one.decisions) for one in recorded.rounds)
    assert (
        len([line for line in done.stdout.splitlines() if " unload " in line or " assign " in line])
        == made
        > 10
    )
    assert "…" not in done.stdout


def test_where_only_ascii_can_be_shown_nothing_else_is(recorded: Recorder, tmp_path: Path) -> None:
    env = {"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command(recorded), cwd=tmp_path, capture_output=True, env=env, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"#" in done.stdout and done.stdout.isascii()


def test_the_figures_for_programs_are_those_of_the_last_round(
    recorded: Recorder, tmp_path: Path
) -> None:
    (told,) = lbctl(
        "monitor", "--json", "--set", f"stream.tables={recorded.root}", cwd=tmp_path
    ).objects
    last = recorded.rounds[-1]
    assert told["clusters"] == [
        {"cluster": "demo", "seq": last.seq, "now_ms": last.now_ms, "error": None, "failed": 0}
    ]
    assert [row["broker"] for row in told["brokers"]] == list(last.view.brokers.names)
    assert [row["short_msgs_per_s"] for row in told["brokers"]] == pytest.approx(
        last.view.brokers.short.rate.tolist()
    )
    assert measure_imbalance(told["brokers"]) == pytest.approx(
        float(
            last.view.brokers.latest.throughput.max() / last.view.brokers.latest.throughput.mean()
        )
    )
    assert told["pending"] == []
    assert (
        told["timings"]["lag_records"],
        told["timings"]["whole"],
        told["timings"]["decide"],
    ) == (3, 42.0, 20.0)


@pytest.mark.parametrize(
    "command",
    [
        ("monitor",),
        ("monitor", "--json"),
        ("brokers",),
        ("decisions",),
        ("commands",),
        ("lookup", "t/n/topic"),
    ],
)
def test_a_cluster_that_is_not_there_is_an_error_that_says_which_there_are(
    recorded: Recorder, tmp_path: Path, command: tuple[str, ...]
) -> None:
    result = lbctl(
        *command, "--cluster", "nowhere", "--set", f"stream.tables={recorded.root}", cwd=tmp_path
    )
    assert (result.code, result.out, result.err) == (
        2,
        "",
        "lbctl: there is no cluster nowhere: there are demo\n",
    )


def test_how_old_the_figures_are_is_told_on_the_narrowest_screen(seen: Snapshot) -> None:
    (narrow, wide) = (render(seen, columns, 24)[0].plain for columns in (80, 160))
    assert narrow.endswith(" d ago") and wide.endswith(" d ago")
    assert [bool(re.search(r"\d\d:\d\d:\d\d", line)) for line in (narrow, wide)] == [False, True]


def test_the_documented_tables_and_figures_for_programs_exclude_each_other(tmp_path: Path) -> None:
    assert lbctl("monitor", "--classic", "--json", cwd=tmp_path).code == 2


# --- what is shown ---


@pytest.mark.parametrize(("columns", "rows"), [*SIZES, (40, 10), (100, 30), (250, 70)])
def test_whatever_there_is_fits_every_screen(
    troubled: Snapshot, seen: Snapshot, columns: int, rows: int
) -> None:
    for shown in (troubled, seen, Snapshot([], [], [], [], [], {})):
        for unicode in (True, False):
            lines = render(shown, columns, rows, unicode)
            assert len(lines) <= rows
            assert max(cell_len(line.plain) for line in lines) <= columns


def test_with_several_clusters_every_row_names_its_own(troubled: Snapshot, seen: Snapshot) -> None:
    lines = [line.plain for line in render(troubled, 200, None)]
    assert sum("unload   eu-1: acme/" in line for line in lines) == 11 + 12
    assert any("min_throughput  eu-1/b-1:1" in line for line in lines)
    alone = "\n".join(line.plain for line in render(seen, 200, None))
    assert "demo: shop" not in alone and "demo/broker" not in alone


def test_brokers_of_the_same_name_in_two_clusters_are_two(tmp_path: Path) -> None:
    row = {"seq": 1, "log_seq": 1, "now_ms": START_MS, "rule": "min_throughput", "count": 1}
    clusters = [{"cluster": name} for name in ("eu-1", "us-1")]
    fill(tmp_path, REFUSALS, [row | {"broker": "broker-1:80"} | cluster for cluster in clusters])
    fill(
        tmp_path,
        ROUNDS,
        [{"seq": 1, "log_seq": 1, "now_ms": START_MS} | cluster for cluster in clusters],
    )
    lines = [line.plain for line in render(load_snapshot(Store.at(tmp_path)), 100, None)]
    assert any("2 × min_throughput  2 brokers of 2 clusters" in line for line in lines)


def test_decisions_of_another_day_say_which(troubled: Snapshot) -> None:
    rows = [
        row | {"issued_ms": row["issued_ms"] - 86_400_000 * (number > 0)}
        for number, row in enumerate(troubled.decisions[:2])
    ]
    lines = [line.plain for line in render(replace(troubled, decisions=rows), 120, None)]
    at = lines.index("last decisions, on 2026-01-01")
    assert re.match(r"\d\d:\d\d:\d\d ", lines[at + 1]) and re.match(
        r"12-31 \d\d:\d\d ", lines[at + 2]
    )


def test_trouble_is_told_in_words(troubled: Snapshot) -> None:
    whole = "\n".join(line.plain for line in render(troubled, 100, None))
    for words in (
        "39 of 40 brokers",
        "its last round failed: ValueError: no such thing",
        "pending: 11",
        "6 × min_throughput  eu-1/b-1:1, saw 5.5M–9.0M, limit 10.5M bytes/s",
        " dead ",
        "dry run",
        "eu-1/broker-08 ",
    ):
        assert words in whole
    assert "long_ago" not in whole
    small = [line.plain for line in render(troubled, 80, 24)]
    assert "and 32 more" in "\n".join(small)
    assert "last decisions, on 2026-01-01, 1 of 12" in small
    assert [
        sum(words in line for line in small)
        for words in (" ~ unload ", "unload   eu-1: acme/", "6 × min_throughput")
    ] == [1, 2, 1]
    assert [line[5:14] for line in small if line.startswith("eu-1/")][:2] == [
        "broker-39",
        "broker-38",
    ]  # the busiest first


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        (["a:80", "b:80"], ":80"),
        (["a.x.eu:80", "b.x.eu:80"], ".x.eu:80"),
        (["a:80", "b:81"], ""),
        (["a1.eu", "b1.eu"], ".eu"),
        (["a.eu", "a.eu"], ".eu"),
        (["10.0.0.1:80", "10.0.1.1:80"], ":80"),
        (["a.eu:80"], ":80"),
        (["a"], ""),
        ([], ""),
    ],
)
def test_the_end_that_all_names_share(names: list[str], shared: str) -> None:
    assert _shared_end(names) == shared


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.0, "    "),
        (0.001, "    "),
        (0.01, "▏   "),
        (0.5, "██  "),
        (0.28, "█▏  "),
        (1.0, "████"),
        (7.0, "████"),
    ],
)
def test_a_bar(ratio: float, text: str) -> None:
    assert draw_bar(ratio, 4) == text
    assert len(draw_bar(ratio, 4, unicode=False)) == 4
