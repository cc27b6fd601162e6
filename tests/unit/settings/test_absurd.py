"""Commands that are legal but absurd are refused with what they would do, unless they are forced."""

from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.settings.absurd import SENSIBLE, explain_absurd
from lb_stream.settings.load import load
from lb_stream.settings.names import list_models
from lb_stream.settings.overrides import build_inverse_commands
from tests.support.command_rounds import TWO, command, play, view
from tests.support.wordings import check_wording

ABSURD = {
    "shedding_interval_ms": 0,
    "heartbeat_timeout_ms": 1,
    "unloading_timeout_ms": 10 * 365 * 86_400_000,
    "bandwidth_in_weight": 1e308,
    "loadBalancerSheddingGracePeriodMinutes": 60_000_000 // 60,
    "overloaded_threshold_percent": 1,
    "cpu_weight": 1e300,
    "freezes": "2026-01-01 2036-01-01 UTC long",
}


def answer(kind: str, given: dict[str, Any] | None = None, **fields: Any) -> Any:
    more = {} if given is None else {"given": given}
    return play(view(**TWO), Memory(), command(kind, **fields), **more)


@pytest.mark.parametrize("key", ABSURD)
def test_an_absurd_setting_must_be_forced(key: str) -> None:
    made = answer("set-config", values={key: ABSURD[key]})
    (result,) = made.results
    assert (result.outcome, result.rule) == ("refused", "absurd")
    assert not made.memory.operator_state.settings
    check_wording(result.text)
    forced = answer("set-config", values={key: ABSURD[key]}, force=True)
    assert forced.results[0].outcome == "done"
    assert forced.memory.operator_state.settings == {key: ABSURD[key]}


def test_a_wrong_setting_is_wrong_even_if_it_is_forced() -> None:
    made = answer("set-config", values={"shedding_interval_ms": -1}, force=True)
    assert made.results[0].rule == "setting"


def test_defaults_and_values_that_operators_choose_are_not_absurd() -> None:
    for model in list_models():
        own = {name: field.default for name, field in model.model_fields.items()}
        given = {name: value for name, value in own.items() if isinstance(value, int | float)}
        assert explain_absurd(given) == []
    chosen = {"max_moves_in_flight": 0, "min_dwell_ms": 7 * 86_400_000, "mode": "act"}
    assert explain_absurd(chosen | {"freezes": "2026-12-20 2027-01-02 UTC holidays"}) == []


def test_each_sensible_range_is_of_a_setting() -> None:
    known = {name for model in list_models() for name in model.model_fields}
    assert SENSIBLE.keys() <= known
    assert "shedding_interval_ms" in BalancerConfig.model_fields


def test_the_last_broker_that_takes_bundles_is_drained_by_force_only() -> None:
    drained = answer("drain-broker", broker="a").memory
    refused = play(view(**TWO), drained, command("drain-broker", "y", broker="b"))
    assert (refused.results[-1].outcome, refused.results[-1].rule) == ("refused", "absurd")
    assert refused.memory.operator_state.drained == ("a",)
    check_wording(refused.results[-1].text)
    forced = play(view(**TWO), drained, command("drain-broker", "z", broker="b", force=True))
    assert forced.memory.operator_state.drained == ("a", "b")


def test_undo_restores_what_was_forced() -> None:
    before = OperatorState(settings={"shedding_interval_ms": 0})
    (back,) = build_inverse_commands(["shedding_interval_ms"], before)
    assert back.arguments == {"values": {"shedding_interval_ms": 0}, "force": True}


def test_of_absurd_values_in_its_own_files_the_job_warns_and_goes_by_them(tmp_path: Path) -> None:
    file = tmp_path / "lb.toml"
    file.write_text(
        "[balancer]\nshedding_interval_ms = 0\n"
        "[cluster.eu]\nbandwidth_in_weight = 1e308\nmin_dwell_ms = 1000\n"
        "[cluster.eu.shadow.s]\noverloaded_threshold_percent = 1\n"
    )
    loaded = load(toml=file, environment={})
    keys = [warning.partition(" = ")[0] for warning in loaded.warnings]
    assert keys == [
        "balancer.shedding_interval_ms",
        "cluster.eu.bandwidth_in_weight",
        "cluster.eu.shadow.s.overloaded_threshold_percent",
    ]
    assert loaded.settings.of_cluster("eu")["shedding_interval_ms"] == 0
    check_wording("\n".join(loaded.warnings))
