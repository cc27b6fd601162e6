"""What is wrong in a file, a family or an argument is said in one line: where it stands, the key,
the value, what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.sim.families import build_from_file, families, preset
from lb_stream.sim.scenario import ScenarioError
from tests.support.wordings import check_wording


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def refused(file: Path | None, family: str = "", *sets: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        build_from_file(file, family, sets)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


FILES = {
    "unknown key": ("brokers = 3", "brokers = 3: expected one of the known keys; nearest: "),
    "unknown key below": (
        "cluster.broker = 3",
        "cluster.broker = 3: expected one of the known keys; nearest: brokers",
    ),
    "wrong type": ('cluster.brokers = "3"', "cluster.brokers = '3': expected a whole number"),
    "no table": ("cluster = 3", "cluster = 3: expected an object with keys in it"),
    "too few": ("cluster.brokers = 0", "cluster.brokers = 0: expected 1 or more"),
    "no number": ("load.usage = nan", "load.usage = nan: expected a finite number"),
    "unknown choice": (
        'load.sizes = "pareto"',
        "load.sizes = 'pareto': expected 'equal', 'lognormal' or 'zipf'",
    ),
    "unknown shape": (
        "shapes = [{ kind = 'sine' }]",
        "shapes[0].kind = 'sine': expected one of 'diurnal', 'flash_crowd'",
    ),
    "no shape": ("shapes = [{ times = 2.0 }]", "shapes[0].kind is missing: expected one of "),
    "key of another shape": (
        "shapes = [{ kind = 'diurnal', times = 2.0 }]",
        "shapes[0].times = 2.0: expected one of the known keys",
    ),
    "shape's figure": (
        "shapes = [{ kind = 'diurnal', amplitude = 2.0 }]",
        "shapes[0].amplitude = 2.0: expected 1 or less",
    ),
    "kind's figure": (
        "load.kinds = [{}, { share = 0.0 }]",
        "load.kinds[1].share = 0.0: expected 1e-06 or more",
    ),
    "unknown event": (
        "events = [{ kind = 'boom' }]",
        "events[0].kind = 'boom': expected 'crash', 'leave'",
    ),
    "event without kind": ("events = [{ t_s = 5.0 }]", "events[0].kind is missing: expected it"),
    "event too late": (
        "events = [{ kind = 'drain', t_s = 4000.0 }]",
        "events[0].t_s = 4000.0: expected 3600 or less",
    ),
    "unknown broker": (
        "events = [{ kind = 'drain', brokers = ['x:1'] }]",
        "events[0].brokers = 'x:1': expected a name of the brokers",
    ),
    "too many brokers": (
        "events = [{ kind = 'drain', brokers = 13 }]",
        "events[0].brokers = 13: expected 12 or fewer: so many brokers",
    ),
    "no choice of brokers": (
        "events = [{ kind = 'drain', brokers = 'some' }]",
        "events[0].brokers = 'some': expected how many brokers",
    ),
    "what can't be undone": (
        "events = [{ kind = 'up', for_s = 5.0 }]",
        "events[0].for_s = 5.0: expected none with kind up",
    ),
    "slow without factor": (
        "events = [{ kind = 'slow' }]",
        "events[0].factor is missing: expected it with kind slow",
    ),
    "two crashes": (
        "events = [{ kind = 'crash', brokers = 'all' }, { kind = 'crash', t_s = 700.0, brokers = "
        "['broker-0001:8080'] }]",
        "events[1].kind = 'crash': expected another kind: broker-0001:8080 is down at 700 s",
    ),
    "nobody is there": (
        "events = [{ kind = 'up', brokers = 'all' }]",
        "expected at least one broker that is up at the start",
    ),
    "fault ends first": (
        "faults = [{ kind = 'lost_acks', from_s = 9.0, to_s = 5.0 }]",
        "faults[0].to_s = 5.0: expected more than from_s",
    ),
    "stale without delay": (
        "faults = [{ kind = 'stale_reports' }]",
        "faults[0].delay_s is missing: expected it with kind stale_reports",
    ),
    "unknown tenant": (
        "policies.isolation = [{ tenant = 't' }]",
        "policies.isolation[0].tenant = 't': expected a tenant",
    ),
    "walls all round": (
        "policies.isolation = [{ tenant = 'tenant-1', primary = 'all' }]",
        "policies.isolation = ['tenant-1']: expected enough",
    ),
    "one namespace apart": (
        "policies.anti_affinity = [1]",
        "policies.anti_affinity[0] = 1: expected 2 or more",
    ),
    "no room apart": ("policies.anti_affinity = [20]", "expected enough brokers"),
    "settled too late": (
        "settled_from_s = 3600.0",
        "settled_from_s = 3600.0: expected 0 or more, and 3590, the last tick, or less",
    ),
    "all in one": (
        "load.largest = [{ size = 12.0 }]",
        "load.largest = [12.0]: expected less than 12 in all: that is the whole load",
    ),
    "family": ("family = 3", "family = 3: expected the name of a family"),
}


@pytest.mark.parametrize(("text", "told"), FILES.values(), ids=FILES)
def test_a_file_that_cannot_be_followed_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = written(tmp_path, text)
    assert refused(file).startswith(f"{file}: ")
    assert told in refused(file)


@pytest.mark.parametrize(
    ("content", "told"), [(b"a = ", "TOML in UTF-8"), (b"\xff", "TOML in UTF-8")]
)
def test_what_is_no_toml_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(content)
    assert told in refused(file)
    assert "a file that can be read (No such file" in refused(tmp_path / "none.toml")


SETS = {
    "no equals sign": ("cluster.brokers", "argument = 'cluster.brokers': expected KEY=VALUE"),
    "unknown key": (
        "cluster.broker=3",
        "cluster.broker = 3: expected one of the known keys; nearest: brokers",
    ),
    "beyond the list": ("events.2.t_s=3", "events.2 is missing: expected a number from 0 to 1"),
    "no number": ("events.first.t_s=3", "events.first is missing: expected a number from 0 to 1"),
    "no table": ("seed.x=3", "seed = 1: expected a table with keys in it"),
    "text": ("cluster.brokers=many", "cluster.brokers = 'many': expected a whole number"),
}


@pytest.mark.parametrize(("argument", "told"), SETS.values(), ids=SETS)
def test_an_argument_that_cannot_be_followed_is_refused(argument: str, told: str) -> None:
    assert refused(None, "drain", "seed=1", argument).startswith(f"--set: {told}")


def test_a_number_in_a_list_has_no_keys() -> None:
    error = refused(None, "drain", "cluster.machines=[1.0]", "cluster.machines.0.x=3")
    assert error == "--set: cluster.machines.0 = 1.0: expected a table with keys in it"


def test_an_unknown_family_names_the_nearest() -> None:
    check_wording(refused(None, "drains"))
    assert refused(None, "../x").startswith("--family: ")
    assert set(families()) > {"steady_skewed", "zipf", "drain"}
    assert preset("drain").startswith('name = "drain"')


def test_a_file_lies_over_its_family_and_arguments_lie_over_both(tmp_path: Path) -> None:
    file = written(
        tmp_path, 'family = "drain"\nname = "mine"\nload.usage = 0.3\ncluster.tenants = 2\n'
    )
    scenario = build_from_file(file, sets=("cluster.tenants=3", "events.1.t_s=900.0", "name=ours"))
    assert (scenario.name, len(scenario.brokers)) == ("ours", 13)
    assert {name.partition("/")[0] for name in scenario.namespaces} == {
        "tenant-1",
        "tenant-2",
        "tenant-3",
    }
    assert [event.t_s for event in scenario.events] == [600.0, 900.0, 1700.0, 1800.0]


def test_an_error_names_the_layer_that_gave_the_value(tmp_path: Path) -> None:
    file = written(tmp_path, 'family = "drain"\nload.usage = 0.3\n')
    assert refused(file, "", "ticks=30").startswith(
        "family drain: judge_from_s = 2000.0: expected 0 or more, and 290"
    )
    assert refused(file, "", "load.usage=-1.0").startswith(
        "--set: load.usage = -1.0: expected 1e-06 or more"
    )
