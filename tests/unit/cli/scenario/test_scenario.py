"""`lbctl scenario`: what it makes is valid, what it says is true, what is wrong is one line and
exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from lb_stream.sim.families import families, preset
from lb_stream.sim.scenario import read_scenario
from tests.support.lbctl_runner import Result, lbctl
from tests.support.sampling import sampled
from tests.support.scenarios import SCENARIOS, copied, edited, same
from tests.support.wordings import check_wording

FAST = ("--set", "cluster.brokers=3", "--set", "cluster.bundles_per_broker=8", "--set", "ticks=60")


def scenario(*arguments: str | Path, cwd: Path) -> Result:
    return lbctl("scenario", *map(str, arguments), cwd=cwd)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- new ---


def test_a_family_makes_a_scenario_that_checks_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert (
            scenario("new", "--family", "drain", "--set", "load.usage=0.6", name, cwd=tmp_path).code
            == 0
        )
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    checked = scenario("check", "one", cwd=tmp_path)
    assert (checked.code, checked.err) == (0, "")
    check_wording(checked.out.splitlines()[0])
    assert checked.out.splitlines()[2] == "with 2 drain, 2 undrain"


def test_a_printed_file_is_one_to_begin_with(tmp_path: Path) -> None:
    printed = scenario("new", "--print", "--family", "drain", cwd=tmp_path)
    assert printed.out == preset("drain")
    (tmp_path / "mine.toml").write_text(printed.out)
    assert scenario("new", "mine.toml", "mine", cwd=tmp_path).code == 0
    assert scenario("new", "--family", "drain", "theirs", cwd=tmp_path).code == 0
    assert same(read_scenario(tmp_path / "mine"), read_scenario(tmp_path / "theirs"))
    template = scenario("new", "--print", cwd=tmp_path)
    assert template.out == preset("template")


def test_what_is_there_is_written_over_only_when_asked(tmp_path: Path) -> None:
    assert scenario("new", *FAST, "mine", cwd=tmp_path).code == 0
    before = contents(tmp_path / "mine")
    again = scenario("new", *FAST, "--set", "seed=2", "mine", cwd=tmp_path)
    assert (again.code, again.err) == (
        2,
        "lbctl: mine: there is something already; --force writes over a scenario\n",
    )
    assert contents(tmp_path / "mine") == before
    assert scenario("new", *FAST, "--set", "seed=2", "--force", "mine", cwd=tmp_path).code == 0
    assert contents(tmp_path / "mine") != before


def test_what_is_made_is_told_to_programs_too(tmp_path: Path) -> None:
    (told,) = scenario("new", *FAST, "--json", "mine", cwd=tmp_path).objects
    (checked,) = scenario("check", "--json", "mine", cwd=tmp_path).objects
    assert told == checked
    assert {name: told[name] for name in ("ok", "brokers", "bundles", "length_s", "notes")} == {
        "ok": True,
        "brokers": 3,
        "bundles": 24,
        "length_s": 600.0,
        "notes": [],
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "name a folder for the scenario"),
        (("a.toml", "b.toml", "c"), "name a folder for the scenario"),
        (("mine",), "say what to make"),
        (
            ("--family", "drains", "mine"),
            "--family: family = 'drains': expected one of the families; nearest: drain",
        ),
        (
            ("--family", "drain", "--set", "cluster.broker=3", "mine"),
            "--set: cluster.broker = 3: expected one of the known keys; nearest: brokers",
        ),
        (("none.toml", "mine"), "none.toml: expected a file that can be read"),
        (("--print", "mine"), "--print takes --family and nothing else"),
        (("--print", "--family", "x"), "--family: family = 'x': expected one of the families"),
    ],
)
def test_what_cannot_be_made_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    result = scenario("new", *arguments, cwd=tmp_path)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert result.err.startswith(f"lbctl: {told}")
    assert not (tmp_path / "mine").exists()


def test_families_are_listed(tmp_path: Path) -> None:
    assert {
        one["family"]: one["why"] for one in scenario("families", "--json", cwd=tmp_path).objects
    } == families()
    assert "steady_skewed" in scenario("families", cwd=tmp_path).out


# --- check ---


def test_a_broken_scenario_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    folder = edited(
        copied("drain", tmp_path), lambda document: document["events"][0].update(broker="x:1")
    )
    result = scenario("check", folder, cwd=tmp_path)
    expected = (
        f"{folder}/scenario.json: events[0].broker = 'x:1': expected the name of one of the brokers"
    )
    assert (result.code, result.out, result.err) == (2, "", f"lbctl: {expected}\n")
    (told,) = scenario("check", folder, "--json", cwd=tmp_path).objects
    assert told == {
        "folder": str(folder),
        "ok": False,
        "error": expected,
        "file": f"{folder}/scenario.json",
        "field": "events[0].broker",
    }
    assert scenario("show", folder, cwd=tmp_path).code == 2


def test_what_is_hardly_meant_is_noted(tmp_path: Path) -> None:
    def odd(document: dict[str, object]) -> None:
        brokers = document["brokers"]
        assert isinstance(brokers, list)
        brokers[3]["report_phase_s"] = 5
        name = brokers[0]["name"]
        document["policies"] = {
            "pinned_namespaces": ["no/where"],
            "isolation": [_walls(name, read_scenario(folder).namespaces[0])],
        }
        document["faults"] = [{"kind": "lost_acks", "brokers": [name], "from_s": 0, "to_s": 1e6}]

    folder = copied("steady_skewed", tmp_path)
    result = scenario("check", edited(folder, odd), cwd=tmp_path)
    notes = result.err.splitlines()
    assert result.code == 0
    assert notes[0].startswith(
        "note: 1 brokers never report by their rhythm, broker-0004:8080 first: "
    )
    check_wording(notes[1])
    assert notes[2].endswith("bundles start where isolation doesn't allow them")
    check_wording(notes[3])


def _walls(broker: str, namespace: str) -> dict[str, object]:
    return {
        "name": "a",
        "namespaces": [namespace],
        "primary": [broker],
        "secondary": [],
        "min_available": 1,
    }


# --- show ---


def test_figures_of_what_is_shown_follow_from_the_scenario(tmp_path: Path) -> None:
    (told,) = scenario("show", SCENARIOS / "crash_return", "--json", cwd=tmp_path).objects
    given = read_scenario(SCENARIOS / "crash_return")
    loads = given.loads_at(0)
    cpu = (
        loads[:2].sum(axis=0) / given.brokers.cpu_msgs_per_s[0]
        + loads[2:].sum(axis=0) / given.brokers.cpu_bytes_per_s[0]
    )
    by_broker = np.bincount(given.bundles.start_owner, cpu)
    assert {one["broker"]: one["cpu"] for one in told["at_start"]} == pytest.approx(
        dict(zip(given.brokers.names, by_broker, strict=True))
    )
    assert [one["usage"] for one in told["at_start"]] == sorted(
        (one["usage"] for one in told["at_start"]), reverse=True
    )
    assert told["events"] == [
        {"t_s": 600.0, "what": "crash broker-0003:8080"},
        {"t_s": 1500.0, "what": "up broker-0003:8080"},
    ]
    lost = int((given.bundles.start_owner == 2).sum())
    assert [(one["t_s"], one["orphaned"]) for one in told["unmoved"]] == [
        (0.0, 0),
        (1500.0, lost),
        (2400.0, lost),
        (3590.0, lost),
    ]
    assert told["unmoved"][0]["max_usage"] == pytest.approx(by_broker.max())


def test_people_see_brokers_and_what_happens(tmp_path: Path) -> None:
    shown = scenario("show", SCENARIOS / "stale_reports", cwd=tmp_path).out
    assert "broker-0003:8080       61   0.69" in shown
    assert "0 to 3600" in shown
    assert "If nothing is moved:" in shown


def test_what_reports_hide_is_shown(tmp_path: Path) -> None:
    several = (
        "background=[{brokers=['broker-0002:8080'], cpu=0.3}]",
        "limits=[{brokers=1}, {brokers=2, stated_times=0.1}]",
        "split.detailed_bundles=0",
        "rollout={order='given', t_s=300.0}",
        "noise.cpu=0.0",
    )
    sets = [part for key in several for part in ("--set", key)]
    made = scenario("new", *FAST, *sets, "mine", cwd=tmp_path)
    check_wording(made.out)
    (shown,) = scenario("show", "mine", "--json", cwd=tmp_path).objects
    given = read_scenario(tmp_path / "mine")
    assert given.topics is not None
    assert shown["unreported"] == {
        "brokers_with_unknown_limits": 1,
        "brokers_with_wrong_limits": 2,
        "brokers_with_background": 1,
        "topics": len(given.topics),
    }
    assert shown["events"][0]["t_s"] == 300.0
    assert shown["events"][0]["what"].startswith("rollout: restart of 3 brokers, 60 s each")
    background = {row["broker"]: row["background"] for row in shown["at_start"]}
    assert background == {
        "broker-0001:8080": 0.0,
        "broker-0002:8080": 0.3,
        "broker-0003:8080": 0.0,
    }
    busy = next(row for row in shown["at_start"] if row["background"])
    assert busy["usage"] == pytest.approx(busy["cpu"])
    people = scenario("show", "mine", cwd=tmp_path).out
    assert "cpu of no bundle" in people
    assert "cpu of no bundle" not in scenario("show", SCENARIOS / "drain", cwd=tmp_path).out
    for picture in ("--png", "--html"):
        done = scenario("show", "mine", picture, f"mine.{picture[2:]}", cwd=tmp_path)
        assert (done.code, done.err) == (0, f"wrote mine.{picture[2:]}\n")
    page = (tmp_path / "mine.html").read_text()
    assert "rollout: restart of 3 brokers" in page
    assert "30% of its cpu taken" in page


def test_the_bound_with_splits_is_shown_where_bundles_can_be_split(tmp_path: Path) -> None:
    for family, ratio in (("huge_splittable", 1 / 1.8), ("hot_topic", 0.97)):
        sets = ("--set", "ticks=60", "--set", "load.jitter=0.0")
        assert scenario("new", "--family", family, *sets, family, cwd=tmp_path).code == 0
        (shown,) = scenario(
            "show", family, "--json", "--html", f"{family}.html", cwd=tmp_path
        ).objects
        first = shown["unmoved"][0]
        assert first["finest"] / first["bound"] == pytest.approx(ratio, rel=0.03)
        assert "with splits" in scenario("show", family, cwd=tmp_path).out
        assert "bound if split" in (tmp_path / f"{family}.html").read_text()
    (shown,) = scenario("show", SCENARIOS / "drain", "--json", cwd=tmp_path).objects
    assert shown["unmoved"][0]["finest"] is None
    assert "with splits" not in scenario("show", SCENARIOS / "drain", cwd=tmp_path).out


def test_many_brokers_are_cut_short(tmp_path: Path) -> None:
    many = (
        "--set",
        "cluster.brokers=25",
        "--set",
        "cluster.bundles_per_broker=2",
        "--set",
        "ticks=6",
        "many",
    )
    assert scenario("new", *many, cwd=tmp_path).code == 0
    assert "and 5 more brokers (--json has all)" in scenario("show", "many", cwd=tmp_path).out
    assert len(scenario("show", "many", "--json", cwd=tmp_path).objects[0]["at_start"]) == 25


@pytest.mark.parametrize("name", sampled(["drain", "isolation_bound", "stale_reports"]))
def test_a_picture_shows_something_and_is_the_same_each_time(tmp_path: Path, name: str) -> None:
    for file in ("one.png", "two.png"):
        result = scenario("show", SCENARIOS / name, "--png", file, cwd=tmp_path)
        assert (result.code, result.err) == (0, f"wrote {file}\n")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    pixels = imread(tmp_path / "one.png")
    assert pixels.shape[0] > 500
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20


def test_a_page_needs_nothing_else_and_obeys_no_name(tmp_path: Path) -> None:
    evil = "</title><script>alert(1)</script>"
    folder = edited(
        copied("drain", tmp_path), lambda document: document.update(name=evil, why=evil)
    )
    assert scenario("show", folder, "--html", "page.html", cwd=tmp_path).err == "wrote page.html\n"
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert evil not in page
    assert "600 s: drain broker-0004:8080" in page
    assert all(word not in page for word in ("http://", "https://", "src="))
    assert page.count("<svg") == page.count("</svg>") == 3


def test_a_page_for_which_there_is_no_folder_is_one_line(tmp_path: Path) -> None:
    result = scenario("show", SCENARIOS / "drain", "--html", "no/page.html", cwd=tmp_path)
    assert (result.code, result.err) == (1, "lbctl: no/page.html: No such file or directory\n")


def test_json_is_one_object_and_nothing_else(tmp_path: Path) -> None:
    for command in ("check", "show"):
        out = scenario(command, SCENARIOS / "steady_skewed", "--json", cwd=tmp_path).out
        assert json.loads(out)["name"] == "steady_skewed"
