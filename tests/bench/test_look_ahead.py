"""The measurement of forecasts: what they are, and what it prints."""

import json
from pathlib import Path

import pytest

from lb_stream.core.least_moves import fleet
from lb_stream.sim.families import build_from_spec
from lb_stream.sim.families.spec import Spec
from lb_stream.sim.measures import measure_figures
from lb_stream.sim.scenario.scenario import Scenario
from lb_stream.sim.scenario.writing import write_scenario
from lb_stream.sim.simulation import read_policy, run_simulation
from tests.bench.look_ahead import FORECASTS, SHOWN, errors, looking_ahead, main

DAY_S = 3_600.0


@pytest.fixture(scope="module")
def days() -> Scenario:
    """Two short days of three tenants."""
    spec = {
        "name": "days",
        "tick_s": 30.0,
        "ticks": 240,
        "load_step_ticks": 1,
        "noise_step_ticks": 1,
        "cluster": {"brokers": 3, "tenants": 3, "bundles_per_broker": 16},
        "shapes": [{"kind": "diurnal", "period_s": DAY_S, "amplitude": 0.6}],
        "start": {"placement": "by_tenant"},
    }
    return build_from_spec(Spec.model_validate(spec))


def test_a_trend_and_a_profile_beat_what_is_now_where_load_comes_and_goes_within_an_hour(
    days: Scenario,
) -> None:
    found = errors(days, 300.0, DAY_S)
    assert found["profile"] < found["trend"] < found["now"] / 1.4


def test_what_least_moves_does_is_looked_at_through_a_forecast_only_while_that_is_asked_for(
    days: Scenario,
) -> None:
    level = fleet._current_rates
    with looking_ahead(days, "true", 300.0, None):
        assert fleet._current_rates is not level
    assert fleet._current_rates is level


@pytest.mark.slow
def test_the_last_line_has_each_forecast_and_now_is_what_least_moves_does(
    days: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scenario(days, tmp_path / "days")
    assert main([str(tmp_path / "days"), "--day-s", str(DAY_S)]) == 0
    found = json.loads(capsys.readouterr().out.rstrip().rsplit("\n", 1)[1])["days"]
    measures = measure_figures(days, run_simulation(days, read_policy("LeastMoves")).lines)
    assert found["LeastMoves"]["now"] == {name: measures[name] for name in SHOWN}
    assert found["LeastMoves"]["true"]["max_over_bound_p95"] < measures["max_over_bound_p95"]
    assert len({tuple(one.values()) for one in found["LeastMoves"].values()}) == len(FORECASTS)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--day-s", "86400"], "--day-s: 86400 s; days lasts 7200 s, expected two days at least"),
        (["--minutes", "90"], "--minutes: 90; days lasts 120, expected less than half of it"),
        (["--forecasts", "profile"], "--forecasts profile: expected --day-s, too"),
    ],
)
def test_what_cannot_be_asked_is_told_in_one_line(
    days: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], told: str
) -> None:
    write_scenario(days, tmp_path / "days")
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "days"), *wrong])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
