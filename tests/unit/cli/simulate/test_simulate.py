"""`lbctl simulate`: policies side by side, for people, programs and browsers; why a scenario is
lost; traces in files."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lb_stream.sim.measures import measure_figures, read_trace
from lb_stream.sim.scenario import read_scenario, write_scenario
from lb_stream.sim.scenario.scenario import ScenarioPolicies
from tests.support.html_page import EVIL, Page
from tests.support.lbctl_runner import Result, lbctl
from tests.support.small_scenario import event, small_scenario
from tests.support.wordings import check_wording

EAGER = """
[balancer]
load_manager = "modular"
shedding_strategy = "ThresholdShedder"
placement_strategy = "LeastLongTermMessageRate"
min_throughput_mb = 0.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker with all the load; and the same with a broker that goes down, and with a budget."""
    made = tmp_path_factory.mktemp("scenarios")
    skewed = small_scenario([0, 0, 0, 0, 0, 0, 1, 2], ticks=60)
    write_scenario(replace(skewed, name="skewed"), made / "skewed")
    crash = replace(
        skewed,
        name="crash",
        events=(event(200.0, 2, "crash"),),
        policies=ScenarioPolicies(budgets={"acme/shop": 1}),
        why=EVIL,
    )
    write_scenario(crash, made / "crash")
    (made / "eager.toml").write_text(EAGER)
    return made


def simulate(folder: Path, *arguments: str) -> Result:
    return lbctl("simulate", *arguments, cwd=folder)


def test_the_measures_are_those_of_the_trace_that_it_writes(folder: Path, tmp_path: Path) -> None:
    result = simulate(
        folder,
        "--scenario",
        "skewed",
        "--policy",
        "eager.toml",
        "--trace",
        str(tmp_path / "t.jsonl"),
        "--json",
    )
    assert result.code == 0, result.err
    header, *lines = read_trace(tmp_path / "t.jsonl")
    assert {name: header[name] for name in ("event", "format", "scenario", "policy")} == {
        "event": "header",
        "format": 1,
        "scenario": "skewed",
        "policy": "eager",
    }
    figures = measure_figures(read_scenario(folder / "skewed"), lines)
    assert result.objects[-1] == figures and figures["moves"] > 0


def test_several_policies_and_scenarios_are_told_apart(folder: Path, tmp_path: Path) -> None:
    policies = ("--policy", "none", "--policy", "eager.toml")
    one = simulate(folder, "--scenario", "skewed", *policies, "--json").objects[-1]
    assert list(one) == ["none", "eager"] and one["none"]["moves"] == 0 < one["eager"]["moves"]
    both = simulate(
        folder,
        "--scenario",
        "skewed",
        "--scenario",
        "crash",
        *policies,
        "--trace",
        str(tmp_path / "t.jsonl"),
        "--json",
    )
    assert {name: list(of) for name, of in both.objects[-1].items()} == {
        name: ["none", "eager"] for name in ("skewed", "crash")
    }
    assert both.objects[-1]["skewed"] == one
    names = [
        f"t-{scenario}-{policy}.jsonl"
        for scenario in ("crash", "skewed")
        for policy in ("eager", "none")
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    scenarios = simulate(
        folder, "--scenario", "skewed", "--scenario", "crash", "--policy", "none", "--json"
    ).objects[-1]
    assert {name: of["scenario"] for name, of in scenarios.items()} == {
        "skewed": "skewed",
        "crash": "crash",
    }


def test_people_see_who_lost_and_why(folder: Path) -> None:
    result = simulate(folder, "--scenario", "skewed", "--policy", "none", "--policy", "eager.toml")
    said = " ".join(result.out.split())
    assert (
        "1 none: lost: never balanced for 5 minutes on end: max usage 2.25 of the bound at "
        "300 s, b0:8080 at 60%" in said
    )
    assert "no move in 10 min from 0 s on" in said and "2 eager: " in said
    assert (
        re.search(r"\nmeasure +1 +2", result.out)
        and re.search(r"\nmoves +0 +\d", result.out)
        and "isolation_bundle_s" not in result.out
    )


def test_the_page_shows_the_same_figures_and_names_stay_names(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    result = simulate(
        folder,
        "--scenario",
        "skewed",
        "--scenario",
        "crash",
        "--policy",
        "none",
        "--policy",
        "eager.toml",
        "--html",
        str(path),
        "--json",
    )
    assert result.code == 0 and f"wrote {path}" in result.err
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    measures = {row[0]: row[1:] for row in page.tables["measures-skewed"]}
    figures = result.objects[-1]["skewed"]
    assert measures["measure"] == ["none", "eager"] and measures["moves"] == [
        str(figure["moves"]) for figure in figures.values()
    ]
    assert measures["time_to_balance_s"][0] == "–" and page.tables["verdicts-skewed"][1][:2] == [
        "none",
        "lost",
    ]
    assert {
        "over-skewed",
        "moves-skewed",
        "unserved-crash",
        "heat-skewed/none",
        "heat-crash/eager",
    } <= set(page.charts)
    assert page.tables["lost-crash/none"][1][:2] == ["b2:8080 went down at 200 s", "1"]
    assert page.tables["budgets-crash/eager"][1] == ["acme/shop", "1", "1", "1", "0"]
    assert "no bundle was ever without an owner" in text
    assert EVIL not in text and text.count("<script") == 2 and page.fetched == []
    assert {one["cluster"] for one in page.data["clusters"]} >= {
        "skewed",
        "skewed/none",
        "crash/eager",
    }
    heat = next(one for one in page.data["clusters"] if one["cluster"] == "crash/none")
    assert (
        heat["loads"]["b0:8080"][0] == pytest.approx(0.6) and heat["loads"]["b2:8080"][-1] is None
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--scenario", "nowhere", "--policy", "none"),
        ("--scenario", "skewed", "--policy", "NoShedder"),
        ("--scenario", "skewed", "--policy", "none", "--policy", "none"),
        ("--scenario", "skewed", "--scenario", "skewed", "--policy", "none"),
    ],
)
def test_what_cannot_be_played_is_told_in_a_line(folder: Path, arguments: tuple[str, ...]) -> None:
    result = simulate(folder, *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    check_wording(result.err)


def test_a_file_that_cannot_be_written_is_an_error(folder: Path) -> None:
    result = simulate(
        folder, "--scenario", "skewed", "--policy", "none", "--trace", "no/such/t.jsonl"
    )
    assert (result.code, "no/such/t.jsonl: No such file or directory" in result.err) == (1, True)


def test_two_runs_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    def run(name: str) -> tuple[Any, ...]:
        files = [tmp_path / f"{name}.{kind}" for kind in ("jsonl", "html")]
        out = simulate(
            folder,
            "--scenario",
            "crash",
            "--policy",
            "eager.toml",
            "--trace",
            str(files[0]),
            "--html",
            str(files[1]),
            "--json",
        ).out
        return (out, *(file.read_bytes() for file in files))

    first = run("one")
    assert first == run("two") and json.loads(first[0])["failovers"] > 0
