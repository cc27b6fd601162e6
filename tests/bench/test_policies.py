"""The comparison of policies: which there are, and what it prints."""

import json
from pathlib import Path

import pytest

from lb_stream.sim.simulation import read_policy
from tests.bench.policies import main, pairs

SCENARIOS = Path(__file__).parents[1] / "data/scenarios"


def test_every_pair_is_a_policy_and_no_two_are_the_same() -> None:
    configs = [read_policy(pair).resolve().config for pair in pairs()]
    assert (
        len(
            {
                (
                    config.balancer.enabled,
                    config.balancer.profile,
                    config.shedder.name,
                    config.placement.name,
                )
                for config in configs
            }
        )
        == len(configs)
        > 15
    )


@pytest.mark.slow
def test_the_last_line_has_the_measures_of_each_pair_in_each_scenario(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        main(
            [
                str(SCENARIOS),
                "--policies",
                "none",
                "AvgShedder",
                "--scenarios",
                "steady_skewed",
                "--processes",
                "1",
            ]
        )
        == 0
    )
    table, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    found = json.loads(last)
    assert list(found) == ["none", "AvgShedder"]
    assert (
        found["none"]["steady_skewed"]["moves"] == 0 < found["AvgShedder"]["steady_skewed"]["moves"]
    )
    assert "1.571" in table, "what nobody moves stays as it is"


def test_a_folder_without_scenarios_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert "expected scenarios" in capsys.readouterr().err
