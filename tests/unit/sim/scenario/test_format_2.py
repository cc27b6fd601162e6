"""Format 2 is read and written whole; what breaks it is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from lb_stream.sim.scenario import ScenarioError, read_scenario, write_scenario
from lb_stream.sim.scenario.scenario import Event, ScenarioRollout
from tests.support.format_2 import TOPICS, WIDTH, format_2_scenario
from tests.support.scenarios import edited, recolumned, same

ROLLOUT = ScenarioRollout(100.0, 60.0, 1, (1, 0), in_order=True)
WHOLE = replace(
    format_2_scenario(
        [0, 0, 1],
        cpu_base=[0.25, 0.0, 0.0],
        stated={"bandwidth_in": [0.0, 1e12, 5e6], "memory": [1e12, 0.0, 1e12]},
        rollout=ROLLOUT,
        events=(Event(100.0, 2, "drain"), Event(110.0, 2, "undrain")),
    ),
    background=np.array([[0.0], [0.5], [0.0]], np.float32),
)


def written(folder: Path) -> Path:
    write_scenario(WHOLE, folder)
    return folder


def test_all_of_format_2_reads_back_equal_and_is_written_alike(tmp_path: Path) -> None:
    again = read_scenario(written(tmp_path / "a"))
    assert same(again, WHOLE)
    write_scenario(again, tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert {"topics.parquet", "background.parquet"} < set(names)
    assert all(
        (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        for name in names
    )


def test_a_scenario_without_topics_leaves_none_of_an_earlier_one(tmp_path: Path) -> None:
    write_scenario(format_2_scenario([0, 1], topics=None), written(tmp_path))
    again = read_scenario(tmp_path)
    assert (again.format, again.topics, again.background) == (2, None, None)


def test_topics_are_sorted_and_share_their_bundles_load(tmp_path: Path) -> None:
    path = written(tmp_path) / "topics.parquet"
    mixed = pq.read_table(path).take([7, 2, 0, 11, 9, 1, 3, 10, 4, 8, 6, 5])
    pq.write_table(mixed, path)
    hashes, parts = read_scenario(tmp_path).topics.of(1)  # type: ignore[union-attr]
    assert hashes.tolist() == [WIDTH + at for at in TOPICS]
    assert parts.tolist() == [0.375, 0.125, 0.125, 0.375]


def test_background_adds_to_the_base_and_limits_are_as_stated(tmp_path: Path) -> None:
    scenario = read_scenario(written(tmp_path))
    background = scenario.background_at(0)
    assert background is not None
    assert background.tolist() == [0.25, 0.5, 0.0]
    assert scenario.brokers.stated_limit("bandwidth_in").tolist() == [0.0, 1e12, 5e6]
    assert scenario.brokers.stated_limit("bandwidth_out").tolist() == [1e12] * 3


def test_a_rollout_that_names_no_brokers_is_of_those_that_are_up(tmp_path: Path) -> None:
    folder = written(tmp_path)
    down = {"t_s": 100.0, "broker": "b1:8080", "kind": "leave"}
    order = {"t_s": 100.0, "kind": "rollout", "restart_s": 60, "at_most": 2}
    edited(folder, lambda document: document.update(events=[order, down]))
    assert read_scenario(folder).rollout == ScenarioRollout(100.0, 60.0, 2, (0, 2))


def _set(*path: Any, to: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for part in path[:-1]:
            document = document[part]
        document[path[-1]] = to

    return change


def _rollouts(*changes: dict[str, Any]) -> Callable[[Any], None]:
    entry = {"t_s": 5, "kind": "rollout", "restart_s": 9, "at_most": 1, "brokers": ["b0:8080"]}
    return _set("events", to=[entry | change for change in changes])


DOCUMENTS: dict[str, tuple[Callable[[Any], None], str]] = {
    "format 1": (_set("format", to=1), "brokers[0].unreported = ['bandwidth_in']: expected none"),
    "unknown limit": (
        _set("brokers", 1, "unreported", to=["cpu"]),
        "brokers[1].unreported[0] = 'cpu': expected 'bandwidth_in', 'bandwidth_out', 'memory'",
    ),
    "unknown false limit": (
        _set("brokers", 1, "misreported", to={"cpu": 5}),
        "brokers[1].misreported",
    ),
    "both": (
        _set("brokers", 0, "misreported", to={"bandwidth_in": 5}),
        "brokers[0].misreported = 'bandwidth_in': expected a limit that brokers[0].unreported",
    ),
    "negative base": (_set("brokers", 0, "cpu_base", to=-0.1), "brokers[0].cpu_base = -0.1"),
    "no split": (lambda document: document.pop("split"), "split is missing: expected it"),
    "half a split": (
        lambda document: document["split"].pop("max_rate"),
        "split.max_rate is missing",
    ),
    "two rollouts": (
        _rollouts({}, {}),
        "events[1].kind = 'rollout': expected at most one rollout in a scenario",
    ),
    "rollout without brokers": (
        _rollouts({"brokers": []}),
        "events[0].brokers = []: expected at least",
    ),
    "rollout of a stranger": (_rollouts({"brokers": ["x:1"]}), "events[0].brokers[0] = 'x:1'"),
    "none at once": (_rollouts({"at_most": 0}), "events[0].at_most = 0: expected 1 or more"),
    "unknown order": (
        _rollouts({"order": "random"}),
        "events[0].order = 'random': expected 'any' or 'given'",
    ),
    "rollout with a broker": (
        _rollouts({"broker": "b0:8080"}),
        "events[0].broker = 'b0:8080': expected one of the known keys; nearest: brokers",
    ),
}


@pytest.mark.parametrize(("change", "expected"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_document_that_breaks_format_2_is_refused(
    tmp_path: Path, change: Callable[[Any], None], expected: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_scenario(edited(written(tmp_path), change))
    assert str(caught.value).startswith(f"{tmp_path}/scenario.json: {expected}")


TABLES: dict[str, tuple[str, dict[str, Any], str]] = {
    "no such bundle": ("topics", {"bundle": [3, *[0] * 11]}, "bundle of row 0 = 3: expected a row"),
    "too few topics": (
        "topics",
        {"bundle": [0] * 3 + [1] * 5 + [2] * 4, "hash": [5] * 3 + [WIDTH] * 5 + [2 * WIDTH] * 4},
        "rows of acme/shop/0x00000000_0x10000000 = 3: expected 4, its topics",
    ),
    "outside": (
        "topics",
        {"hash": [0, 0, 0, WIDTH] + [WIDTH] * 4 + [2 * WIDTH] * 4},
        f"hash of row 3 = {WIDTH}: expected a hash in the range of its bundle",
    ),
    "no shares": (
        "topics",
        {"share": np.array([0.0] * 4 + [1.0] * 8, np.float32)},
        "shares of acme/shop/0x00000000_0x10000000 = 0.0: expected a sum of more than 0",
    ),
    "a share that is none": (
        "topics",
        {"share": np.array([1.0, np.nan] + [1.0] * 10, np.float32)},
        "share of row 1 = nan: expected a number of 0 or more",
    ),
    "negative background": (
        "background",
        {"cpu": np.array([0.0, -1.0, 0.0], np.float32)},
        "cpu of b1:8080 at step 0 = -1.0: expected a number from 0",
    ),
}


@pytest.mark.parametrize(("table", "columns", "expected"), TABLES.values(), ids=TABLES)
def test_a_table_that_breaks_format_2_is_refused(
    tmp_path: Path, table: str, columns: dict[str, Any], expected: str
) -> None:
    recolumned(written(tmp_path) / f"{table}.parquet", columns)
    with pytest.raises(ScenarioError) as caught:
        read_scenario(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/{table}.parquet: {expected}")


def test_tables_of_format_2_are_none_of_format_1(tmp_path: Path) -> None:
    write_scenario(replace(format_2_scenario([0, 1]), format=1, splits=None), tmp_path)
    with pytest.raises(ScenarioError, match=r"topics\.parquet = 'a file': expected none in format"):
        read_scenario(tmp_path)
