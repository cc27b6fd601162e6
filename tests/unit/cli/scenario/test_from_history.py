"""`lbctl scenario from-tables` and `from-reports`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lb_stream.sim.scenario.reading import read_scenario
from lb_stream.sim.scenario.scenario import Event, ScenarioAntiAffinity
from tests.support.lbctl_runner import Result, lbctl
from tests.support.past_tables import write_past

CAPTURED = Path(__file__).parents[3] / "data" / "modular-load-reports.jsonl.gz"


def scenario(folder: Path, *arguments: str | Path) -> Result:
    return lbctl("scenario", *map(str, arguments), cwd=folder)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clusters eu and us."""
    folder = tmp_path_factory.mktemp("tables")
    write_past(folder)
    return folder


def test_a_scenario_of_a_live_cluster_has_its_loads_deaths_drains_and_rules(
    tables: Path, tmp_path: Path
) -> None:
    done = scenario(tmp_path, "from-tables", tables, tmp_path / "eu", "--cluster", "eu", "--json")
    assert (done.code, done.objects[0]["bundles"], done.objects[0]["seconds"]) == (0, 2, 360.0)
    made = read_scenario(tmp_path / "eu")
    assert made.loads[0].tolist() == [[10.0, 11.0, 12.0, 13.0, 14.0, 15.0]] * 2
    assert made.events == (Event(60.0, 0, "drain"), Event(120.0, 1, "crash"), Event(240.0, 1, "up"))
    assert made.policies.anti_affinity == (
        ScenarioAntiAffinity("apart", ("shop/carts", "shop/orders")),
    )
    assert (made.move.acquire_s, made.move.release_s, made.report_interval_s) == (3.0, 2.0, 30.0)
    assert [note for note in done.objects[0]["notes"] if note.startswith("assumed")] == [
        "assumed: report_delay_s = 1, reconnect_s = 2"
    ]
    assert "explains 12 reports" in done.objects[0]["notes"][0]


def test_a_part_of_the_time_is_taken(tables: Path, tmp_path: Path) -> None:
    asked = ("--from", "2026-01-01T00:02Z", "--to", "2026-01-01T00:05Z")
    done = scenario(
        tmp_path, "from-tables", tables, tmp_path / "eu", "--cluster", "eu", "--tick", "30", *asked
    )
    assert (done.code, done.out) == (0, f"{tmp_path / 'eu'}: 2 brokers, 2 bundles, 180 s\n")
    made = read_scenario(tmp_path / "eu")
    assert made.loads[0].tolist() == [[12.0, 13.0, 14.0]] * 2
    assert (made.brokers.up.tolist(), made.bundles.start_owner.tolist()) == ([True, False], [0, -1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--cluster is needed: expected one that bundle_history has: eu, us"),
        (
            ("--cluster", "nowhere"),
            "--cluster nowhere: expected one that bundle_history has: eu, us",
        ),
        (
            ("--cluster", "eu", "--from", "2026-02-01"),
            "bundle_history has nothing of eu then: expected a time from 2026-01-01T00:00:00Z to",
        ),
        (
            ("--cluster", "eu", "--from", "2026-01-02", "--to", "2026-01-01"),
            "--to 2026-01-01: expected a time after --from 2026-01-02",
        ),
        (("--cluster", "eu", "--from", "noon"), "'noon': expected a time as 2026-11-21T13:00"),
        (
            ("--cluster", "eu", "--tick", "7"),
            "tick = 7.0: expected a divisor of the history's resolution, 60 s",
        ),
    ],
)
def test_what_cannot_be_made_is_told_in_a_line(
    tables: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = scenario(tmp_path, "from-tables", tables, tmp_path / "x", *arguments)
    assert (done.code, said in " ".join(done.err.split())) == (2, True), done.err


def test_captured_reports_of_real_brokers_make_a_scenario(tmp_path: Path) -> None:
    done = scenario(tmp_path, "from-reports", CAPTURED, tmp_path / "captured", "--json")
    assert (done.code, done.objects[0]["brokers"]) == (0, 3)
    made = read_scenario(tmp_path / "captured")
    assert len(made.bundles) == done.objects[0]["bundles"] > 50
    assert made.loads.max() > 100 and (made.bundles.start_owner >= 0).all()
    first = (tmp_path / "captured" / "loads.parquet").read_bytes()
    refused = scenario(tmp_path, "from-reports", CAPTURED, tmp_path / "captured")
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert scenario(tmp_path, "from-reports", CAPTURED, tmp_path / "captured", "--force").code == 0
    assert (tmp_path / "captured" / "loads.parquet").read_bytes() == first


def test_reports_that_cannot_be_read_are_told_in_a_line(tmp_path: Path) -> None:
    timeless = json.dumps(
        {"webServiceUrl": "http://a:8080", "loadReportType": "LocalBrokerData"}
    ).encode()
    for number, (text, said) in enumerate(
        (
            (b"", "has no load report"),
            (b"{", "line 1: not a JSON object"),
            (timeless, "has no time"),
        )
    ):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(text)
        done = scenario(tmp_path, "from-reports", file, tmp_path / "x")
        assert done.code in (1, 2) and said in done.err and len(done.err.splitlines()) == 1
