"""A scenario's folder is read whole, or refused in one line that names file, field, value and what
was expected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lb_stream.sim.scenario import ScenarioError, read_scenario, write_scenario
from tests.support.scenarios import NAMES, SCENARIOS, copied, edited, recolumned
from tests.support.wordings import check_wording

ALICE = "broker-0001:8080"


def refused(folder: Path) -> str:
    """What reading says, without the folder's name."""
    with pytest.raises(ScenarioError) as caught:
        read_scenario(folder)
    told = str(caught.value)
    assert len(told.splitlines()) == 1
    assert told.startswith(str(folder))
    return told.removeprefix(f"{folder}").removeprefix("/")


@pytest.mark.parametrize("name", NAMES)
def test_each_recorded_scenario_reads(name: str) -> None:
    scenario = read_scenario(SCENARIOS / name)
    assert scenario.name == name
    assert scenario.loads.shape == (
        4,
        len(scenario.bundles),
        -(-scenario.ticks // scenario.load_step_ticks),
    )
    assert scenario.noise is not None
    assert scenario.noise.shape == (
        len(scenario.bundles),
        -(-scenario.ticks // scenario.noise_step_ticks),
    )


def test_figures_stand_where_the_format_says(tmp_path: Path) -> None:
    scenario = read_scenario(SCENARIOS / "drain")
    raw = pq.read_table(SCENARIOS / "drain" / "loads.parquet")
    steps = scenario.loads.shape[2]
    assert scenario.loads[2, 7, 11] == raw["bytes_in"][7 * steps + 11].as_py()
    assert [
        (event.t_s, scenario.brokers.names[event.broker], event.kind)
        for event in scenario.events[:2]
    ] == [
        (600.0, "broker-0004:8080", "drain"),
        (1200.0, "broker-0006:8080", "drain"),
    ]


def test_policies_and_faults_name_brokers_by_their_rows() -> None:
    walls = read_scenario(SCENARIOS / "isolation_bound").policies
    assert walls.isolation[0].primary == (2, 3, 5, 13)
    assert (walls.isolation[0].secondary, walls.isolation[0].min_available) == ((4, 10), 2)
    (fault,) = read_scenario(SCENARIOS / "stale_reports").faults
    assert (fault.kind, fault.brokers, fault.delay_s) == ("stale_reports", (0, 6, 7), 180.0)


def _set(*path: Any, to: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for part in path[:-1]:
            document = document[part]
        document[path[-1]] = to

    return change


def _drop(*path: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for part in path[:-1]:
            document = document[part]
        del document[path[-1]]

    return change


EVENTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "unknown broker": (
        [{"t_s": 5, "broker": "x:1", "kind": "drain"}],
        "events[0].broker = 'x:1': expected the name of one",
    ),
    "unknown kind": (
        [{"t_s": 5, "broker": ALICE, "kind": "boom"}],
        "events[0].kind = 'boom': expected one of 'crash', 'leave', 'up'",
    ),
    "unknown key": (
        [{"t_s": 5, "broker": ALICE, "kind": "drain", "at": 1}],
        "events[0].at = 1: expected one of the known keys",
    ),
    "no time": ([{"broker": ALICE, "kind": "drain"}], "events[0].t_s is missing"),
    "negative time": (
        [{"t_s": -1, "broker": ALICE, "kind": "drain"}],
        "events[0].t_s = -1: expected 0 or more",
    ),
    "after the end": (
        [{"t_s": 3001, "broker": ALICE, "kind": "drain"}],
        "events[0].t_s = 3001.0: expected 3000 or less",
    ),
    "out of order": (
        [
            {"t_s": 9, "broker": ALICE, "kind": "drain"},
            {"t_s": 8, "broker": ALICE, "kind": "undrain"},
        ],
        "events[1].t_s = 8.0: expected 9 or more: events are in order of time",
    ),
    "up while up": (
        [{"t_s": 5, "broker": ALICE, "kind": "up"}],
        f"events[0].kind = 'up': expected another kind: {ALICE} is up at 5 s",
    ),
    "two crashes": (
        [
            {"t_s": 5, "broker": ALICE, "kind": "leave"},
            {"t_s": 6, "broker": ALICE, "kind": "crash"},
        ],
        f"events[1].kind = 'crash': expected another kind: {ALICE} is down at 6 s",
    ),
    "undrain of nothing": (
        [{"t_s": 5, "broker": ALICE, "kind": "undrain"}],
        f"{ALICE} is not drained at 5 s",
    ),
    "two drains": (
        [{"t_s": 5, "broker": ALICE, "kind": "drain"}] * 2,
        f"{ALICE} is drained at 5 s",
    ),
    "slow without factor": (
        [{"t_s": 5, "broker": ALICE, "kind": "slow"}],
        "events[0].factor is missing: expected it with kind slow",
    ),
    "slow to nothing": (
        [{"t_s": 5, "broker": ALICE, "kind": "slow", "factor": 0}],
        "events[0].factor = 0: expected more than 0",
    ),
    "drain with factor": (
        [{"t_s": 5, "broker": ALICE, "kind": "drain", "factor": 2}],
        "events[0].factor = 2.0: expected it with kind slow",
    ),
}


@pytest.mark.parametrize(("events", "told"), EVENTS.values(), ids=EVENTS)
def test_an_event_that_cannot_happen_is_refused(
    tmp_path: Path, events: list[dict[str, Any]], told: str
) -> None:
    folder = edited(copied("steady_skewed", tmp_path), _set("events", to=events))
    assert refused(folder).startswith("scenario.json: ")
    assert told in refused(folder)


def test_a_broker_may_be_drained_while_it_is_away_and_come_back_drained(tmp_path: Path) -> None:
    kinds = ("leave", "drain", "up", "undrain", "slow", "slow", "crash")
    events = [
        {"t_s": at, "broker": ALICE, "kind": kind, **({"factor": 2} if kind == "slow" else {})}
        for at, kind in enumerate(kinds)
    ]
    assert (
        tuple(
            event.kind
            for event in read_scenario(
                edited(copied("steady_skewed", tmp_path), _set("events", to=events))
            ).events
        )
        == kinds
    )


def _fault(**more: Any) -> dict[str, Any]:
    return {"kind": "lost_acks", "brokers": [ALICE], "from_s": 0, "to_s": 9} | more


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown broker": (_fault(brokers=[ALICE, "x:1"]), "faults[0].brokers[1] = 'x:1'"),
    "a broker twice": (
        _fault(brokers=[ALICE, ALICE]),
        f"faults[0].brokers[1] = '{ALICE}': expected each of them once",
    ),
    "no broker": (_fault(brokers=[]), "faults[0].brokers = []: expected at least one"),
    "unknown kind": (
        _fault(kind="lost"),
        "faults[0].kind = 'lost': expected 'lost_decisions', 'lost_acks' or 'stale_reports'",
    ),
    "ends first": (_fault(from_s=5, to_s=5), "faults[0].to_s = 5.0: expected more than from_s, 5"),
    "begins late": (
        _fault(from_s=3001, to_s=3002),
        "faults[0].from_s = 3001.0: expected 3000 or less",
    ),
    "stale without delay": (
        _fault(kind="stale_reports"),
        "faults[0].delay_s is missing: expected it with kind stale_reports",
    ),
    "delay of what is lost": (
        _fault(delay_s=5),
        "faults[0].delay_s = 5.0: expected it with kind stale_reports, and with no other",
    ),
}


@pytest.mark.parametrize(("fault", "told"), FAULTS.values(), ids=FAULTS)
def test_a_fault_that_cannot_be_is_refused(
    tmp_path: Path, fault: dict[str, Any], told: str
) -> None:
    assert told in refused(edited(copied("steady_skewed", tmp_path), _set("faults", to=[fault])))


def _isolation(**more: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": "a",
            "namespaces": ["t/n"],
            "primary": [ALICE],
            "secondary": [],
            "min_available": 1,
        }
        | more
    ]


POLICIES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown part": (
        {"anti_afinity": []},
        "policies.anti_afinity = []: expected one of the known keys; nearest: anti_affinity",
    ),
    "unknown primary": (
        {"isolation": _isolation(primary=["x:1"])},
        "policies.isolation[0].primary[0] = 'x:1'",
    ),
    "unknown secondary": (
        {"isolation": _isolation(secondary=["x:1"])},
        "policies.isolation[0].secondary[0] = 'x:1'",
    ),
    "no primary": (
        {"isolation": _isolation(primary=[])},
        "policies.isolation[0].primary = []: expected at least one",
    ),
    "negative least": (
        {"isolation": _isolation(min_available=-1)},
        "policies.isolation[0].min_available = -1: expected 0 or more",
    ),
    "two of a name": (
        {"isolation": _isolation() * 2},
        "policies.isolation.name[1] = 'a': expected each of them once",
    ),
    "no namespace": (
        {"isolation": _isolation(namespaces=["t"])},
        "policies.isolation[0].namespaces[0] = 't': expected tenant/namespace",
    ),
    "two groups": (
        {
            "anti_affinity": [
                {"name": "g", "namespaces": ["t/a", "t/b"]},
                {"name": "h", "namespaces": ["t/c", "t/b"]},
            ]
        },
        "policies.anti_affinity[1].namespaces[1] = 't/b': expected another namespace: group g has "
        "this one",
    ),
    "two pins": (
        {"pinned_namespaces": ["t/a", "t/a"]},
        "policies.pinned_namespaces[1] = 't/a': expected each of them once",
    ),
    "two budgets": (
        {
            "budgets": [
                {"namespace": "t/a", "moves_per_hour": 1},
                {"namespace": "t/a", "moves_per_hour": 2},
            ]
        },
        "policies.budgets.namespace[1] = 't/a': expected each of them once",
    ),
    "half a move": (
        {"budgets": [{"namespace": "t/a", "moves_per_hour": 0.5}]},
        "policies.budgets[0].moves_per_hour = 0.5: expected a whole",
    ),
}


@pytest.mark.parametrize(("policies", "told"), POLICIES.values(), ids=POLICIES)
def test_policies_that_contradict_are_refused(
    tmp_path: Path, policies: dict[str, Any], told: str
) -> None:
    assert told in refused(edited(copied("steady_skewed", tmp_path), _set("policies", to=policies)))


DOCUMENTS: dict[str, tuple[Callable[[Any], None], str]] = {
    "unknown key": (
        _set("tick", to=1),
        "tick = 1: expected one of the known keys; nearest: ticks, tick_s",
    ),
    "missing key": (
        _drop("settled_from_s"),
        "settled_from_s is missing: expected it: every key is needed",
    ),
    "another format": (_set("format", to=3), "format = 3: expected 1 or 2"),
    "text for a number": (_set("ticks", to="300"), "ticks = '300': expected a whole number"),
    "truth for a number": (_set("tick_s", to=True), "tick_s = True: expected a number"),
    "half a tick": (_set("ticks", to=1.5), "ticks = 1.5: expected a whole number"),
    "no time at all": (_set("tick_s", to=0), "tick_s = 0: expected more than 0"),
    "not a number": (
        _set("noise_unit", to=float("nan")),
        "noise_unit = nan: expected a finite number",
    ),
    "infinite": (
        _set("report_interval_s", to=float("inf")),
        "report_interval_s = inf: expected a finite number",
    ),
    "negative": (_set("move", "release_s", to=-2), "move.release_s = -2: expected 0 or more"),
    "no object": (_set("move", to=[1]), "move = [1]: expected an object with keys in it"),
    "judged": (_set("judged", to=["cpu"]), "judged = ['cpu']: expected ['cpu', 'bandwidth_in'"),
    "judged too late": (
        _set("settled_from_s", to=3000.0),
        "settled_from_s = 3000.0: expected 0 or more, and 2990, the last tick, or less",
    ),
    "settled before judged": (
        _set("judge_from_s", to=2000),
        "settled_from_s = 1500.0: expected 2000 or more",
    ),
    "no brokers": (_set("brokers", to=[]), "brokers = []: expected at least one"),
    "broker's capacity": (
        _set("brokers", 3, "cpu_msgs_per_s", to=0),
        "brokers[3].cpu_msgs_per_s = 0: expected more than 0",
    ),
    "broker's name": (
        _set("brokers", 3, "name", to="x"),
        "brokers[3].name = 'x': expected host:port",
    ),
    "two of a name": (
        _set("brokers", 1, "name", to=ALICE),
        f"brokers[1].name = '{ALICE}': expected a name that no other broker has",
    ),
    "broker's key": (_drop("brokers", 3, "up"), "brokers[3].up is missing"),
    "broker's unknown key": (
        _set("brokers", 3, "cpus", to=8),
        "brokers[3].cpus = 8: expected one of the known keys; nearest: cpu_base",
    ),
    "no list": (_set("events", to={}), "events = {}: expected a list"),
    "a line feed in it": (_set("format", to="a\nb"), "format = 'a\\nb': expected 1"),
}


@pytest.mark.parametrize(("change", "told"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_document_that_breaks_the_format_is_refused(
    tmp_path: Path, change: Callable[[Any], None], told: str
) -> None:
    assert f"scenario.json: {told}" in refused(edited(copied("steady_skewed", tmp_path), change))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b'{"format": 1,', "JSON in UTF-8"),
        (b"\xff", "JSON in UTF-8"),
        (b"[" * 100_000, "JSON in UTF-8"),
        (b"[]", "an object with keys in it"),
        (b'{"format": 1, "format": 1}', "each key once"),
    ],
)
def test_what_is_no_such_json_is_refused(tmp_path: Path, text: bytes, told: str) -> None:
    folder = copied("steady_skewed", tmp_path)
    (folder / "scenario.json").write_bytes(text)
    assert told in refused(folder)


def test_a_folder_without_a_scenario_is_refused(tmp_path: Path) -> None:
    assert "scenario.json is missing: expected a scenario's folder" in refused(tmp_path)
    assert "scenario.json is missing" in refused(tmp_path / "nowhere")


# --- bundles.parquet ---


def _bundle(row: int, **values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        table = pq.read_table(folder / "bundles.parquet")
        for name, value in values.items():
            column = table[name].to_pylist()
            column[row] = column[value] if name == "name" and isinstance(value, int) else value
            recolumned(
                folder / "bundles.parquet", {name: pa.array(column, table.schema.field(name).type)}
            )

    return change


BUNDLES: dict[str, tuple[Callable[[Path], None], str]] = {
    "owner that is not there": (_bundle(5, start_owner=12), "start_owner of row 5 ("),
    "owner below nobody": (
        _bundle(5, start_owner=-2),
        " = -2: expected -1 or a row of brokers, 0 to 11",
    ),
    "negative clients": (_bundle(5, producers=-1), " = -1: expected 0 or more"),
    "no name of a bundle": (
        _bundle(5, name="t/n"),
        "name of row 5 = 't/n': expected tenant/namespace/0xLLLLLLLL_0xHHHHHHHH",
    ),
    "empty range": (
        _bundle(5, name="t/n/0x00000001_0x00000001"),
        "expected a lower bound below the upper one",
    ),
    "a name twice": (_bundle(5, name=4), "name of row 5 = "),
    "null": (_bundle(5, topics=None), "column topics = None: expected no nulls; it has 1"),
}


@pytest.mark.parametrize(("spoil", "told"), BUNDLES.values(), ids=BUNDLES)
def test_a_bundle_that_cannot_be_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], told: str
) -> None:
    folder = copied("steady_skewed", tmp_path)
    spoil(folder)
    assert refused(folder).startswith("bundles.parquet: ")
    assert told in refused(folder)


def test_bundles_of_a_namespace_that_overlap_are_refused_wherever_they_stand(
    tmp_path: Path,
) -> None:
    folder = copied("steady_skewed", tmp_path)
    _bundle(0, name="t/n/0x40000000_0x80000000")(folder)
    _bundle(9, name="t/n/0x00000000_0x40000001")(folder)
    assert "a range that no other bundle has: it overlaps t/n/0x00000000_0x40000001" in refused(
        folder
    )
    _bundle(9, name="t/n/0x00000000_0x40000000")(folder)
    assert read_scenario(folder).bundles.names[9] == "t/n/0x00000000_0x40000000"


def test_an_owner_that_is_down_at_the_start_is_refused(tmp_path: Path) -> None:
    folder = edited(copied("steady_skewed", tmp_path), _set("brokers", 0, "up", to=False))
    assert "expected a broker that is up at the start, or -1" in refused(folder)


def test_a_start_that_breaks_anti_affinity_is_refused(tmp_path: Path) -> None:
    folder = copied("isolation_bound", tmp_path)
    scenario = read_scenario(folder)
    one, other = scenario.policies.anti_affinity[0].namespaces[:2]
    rows = [scenario.namespaces.index(namespace) for namespace in (one, other)]
    _bundle(rows[1], start_owner=int(scenario.bundles.start_owner[rows[0]]))(folder)
    assert "of the same anti-affinity group" in refused(folder)


COLUMNS: dict[str, tuple[dict[str, Any], str]] = {
    "missing": (
        {"topics": None},
        "column topics is missing: expected columns name, start_owner, topics",
    ),
    "unknown": (
        {"topic": [1] * 480},
        "column topic = 'int64': expected no columns but name, start_owner, topics",
    ),
    "text": (
        {"topics": ["1"] * 480},
        "column topics = 'string': expected a column of whole numbers",
    ),
    "fractions": (
        {"start_owner": [0.0] * 480},
        "column start_owner = 'double': expected a column of whole numbers",
    ),
}


@pytest.mark.parametrize(("columns", "told"), COLUMNS.values(), ids=COLUMNS)
def test_columns_that_do_not_fit_are_refused(
    tmp_path: Path, columns: dict[str, Any], told: str
) -> None:
    folder = copied("steady_skewed", tmp_path)
    recolumned(folder / "bundles.parquet", columns)
    assert refused(folder).startswith(f"bundles.parquet: {told}")


# --- loads and noise ---


@pytest.mark.parametrize(("value", "said"), [(np.nan, "nan"), (-1.0, "-1.0"), (np.inf, "inf")])
def test_a_load_that_is_no_load_is_refused(tmp_path: Path, value: float, said: str) -> None:
    folder = copied("drain", tmp_path)
    column = pq.read_table(folder / "loads.parquet")["bytes_in"].to_numpy().copy()
    column[7 * 120 + 11] = value
    recolumned(folder / "loads.parquet", {"bytes_in": column})
    check_wording(refused(folder))


def test_doubles_for_loads_are_refused(tmp_path: Path) -> None:
    folder = copied("steady_skewed", tmp_path)
    recolumned(folder / "loads.parquet", {"rate_in": np.zeros(480)})
    check_wording(refused(folder))


@pytest.mark.parametrize(
    ("file", "rows"),
    [
        ("loads.parquet", "480: 480 bundles × 1 steps"),
        ("noise.parquet", "48000: 480 bundles × 100"),
        ("broker_noise.parquet", "1200: 12 br"),
    ],
)
def test_too_few_rows_are_refused(tmp_path: Path, file: str, rows: str) -> None:
    folder = copied("steady_skewed", tmp_path)
    table = pq.read_table(folder / file)
    pq.write_table(table.slice(1), folder / file)
    assert refused(folder).startswith(f"{file}: rows = {len(table) - 1}: expected {rows}")


def test_noise_that_would_make_loads_negative_is_refused(tmp_path: Path) -> None:
    folder = edited(copied("steady_skewed", tmp_path), _set("noise_unit", to=0.5))
    assert "noise.parquet: q of row" in refused(folder)
    assert "expected -2 or more: 1 + q · noise_unit must not be negative" in refused(folder)


@pytest.mark.parametrize("file", ["bundles.parquet", "loads.parquet"])
def test_a_missing_table_is_refused(tmp_path: Path, file: str) -> None:
    folder = copied("steady_skewed", tmp_path)
    (folder / file).unlink()
    assert refused(folder).startswith(
        f"{file}: the file is missing: expected Parquet with columns "
    )


def test_noise_may_be_absent(tmp_path: Path) -> None:
    folder = copied("steady_skewed", tmp_path)
    for file in ("noise.parquet", "broker_noise.parquet"):
        (folder / file).unlink()
    scenario = read_scenario(folder)
    assert (scenario.noise, scenario.broker_noise) == (None, None)
    assert [set(factors.tolist()) for factors in scenario.noise_at(0)] == [{1.0}, {1.0}]


@pytest.mark.parametrize(
    "file", ["bundles.parquet", "loads.parquet", "noise.parquet", "broker_noise.parquet"]
)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_a_truncated_table_is_refused(tmp_path: Path, file: str, part: float) -> None:
    path = copied("steady_skewed", tmp_path) / file
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    assert refused(path.parent).startswith(f"{file}: expected a whole Parquet file")


def test_a_table_that_was_written_here_and_has_changed_since_is_refused(tmp_path: Path) -> None:
    write_scenario(read_scenario(SCENARIOS / "drain"), tmp_path)
    path = tmp_path / "loads.parquet"
    whole = bytearray(path.read_bytes())
    whole[1000] ^= 1
    path.write_bytes(whole)
    assert refused(tmp_path).startswith("loads.parquet: expected a whole Parquet file")


def test_the_error_keeps_its_parts(tmp_path: Path) -> None:
    folder = edited(copied("steady_skewed", tmp_path), _set("ticks", to=-1))
    with pytest.raises(ScenarioError) as caught:
        read_scenario(folder)
    error = caught.value
    assert (error.file, error.field, error.value, error.expected) == (
        str(folder / "scenario.json"),
        "ticks",
        -1,
        "1 or more",
    )
    assert json.dumps(error.args)  # text alone
