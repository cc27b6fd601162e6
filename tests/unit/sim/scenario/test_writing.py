"""What is written reads back the same, and the same scenario gives the same bytes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lb_stream.sim.scenario import ScenarioError, read_scenario, write_scenario
from lb_stream.sim.scenario.scenario import Event
from tests.support.scenarios import NAMES, SCENARIOS, copied, same


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_reads_back_equal_and_is_written_alike_each_time(
    tmp_path: Path, name: str
) -> None:
    scenario = read_scenario(SCENARIOS / name)
    write_scenario(scenario, tmp_path / "one")
    again = read_scenario(tmp_path / "one")
    assert same(scenario, again)
    write_scenario(again, tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_a_changed_scenario_does_not_read_back_as_the_old_one(tmp_path: Path) -> None:
    scenario = read_scenario(SCENARIOS / "steady_skewed")
    slowed = dataclasses.replace(scenario, events=(Event(5.0, 3, "slow", 0.5),))
    write_scenario(slowed, tmp_path)
    assert read_scenario(tmp_path).events == slowed.events
    assert not same(scenario, read_scenario(tmp_path))


def test_noise_of_an_earlier_scenario_goes(tmp_path: Path) -> None:
    folder = copied("steady_skewed", tmp_path)
    write_scenario(dataclasses.replace(read_scenario(folder), noise=None), folder)
    assert read_scenario(folder).noise is None
    assert read_scenario(folder).broker_noise is not None


def test_a_folder_that_is_half_written_is_no_scenario(tmp_path: Path) -> None:
    folder = copied("steady_skewed", tmp_path)
    scenario = read_scenario(folder)
    (folder / "loads.parquet").unlink()
    (folder / "loads.parquet").mkdir()
    with pytest.raises(OSError, match=r"loads\.parquet"):
        write_scenario(scenario, folder)
    with pytest.raises(ScenarioError, match=r"scenario\.json is missing"):
        read_scenario(folder)
