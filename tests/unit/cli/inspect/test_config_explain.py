"""`lbctl config explain`: what is in force, who gave it, who reads it, what was given in vain."""

from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.unread import WHY
from lb_stream.settings.names import list_models
from tests.support.lbctl_runner import lbctl
from tests.support.wordings import check_wording

TOML = """
[stream]
pipeline_id = "p"
[balancer]
profile = "documented"
loadBalancerSheddingIntervalMinutes = 2
threshold_percent = 12
low_threshold_points = 3
[cluster.eu-1]
shedding_strategy = "AvgShedder"
placement_strategy = "AvgShedder"
"""
CONF = """
loadBalancerBrokerOverloadedThresholdPercentage=80
loadBalancerHostUsageCheckIntervalMinutes=1
loadBalancerReportUpdateMaxIntervalMinutes=1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lb.toml").write_text(TOML)
    (tmp_path / "broker.conf").write_text(CONF)
    return tmp_path


def explained(folder: Path, *arguments: str) -> dict[str, Any]:
    given = ("--config", "lb.toml", "--broker-conf", "broker.conf", "--set", "dry_run=false")
    result = lbctl(
        "config",
        "explain",
        *arguments,
        *given,
        "--json",
        cwd=folder,
        env={"LB_BALANCER__COMFORT_PERCENT": "50"},
    )
    assert result.code == 0, result.err
    return result.objects[0]


def by_key(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{one['section']}.{one['key']}": one for one in answer["settings"]}


def test_every_setting_says_where_its_value_comes_from(folder: Path) -> None:
    found = by_key(explained(folder, "--all"))
    origins = {
        name: found[f"balancer.{name}"]["given_by"]
        for name in (
            "mode",
            "comfort_percent",
            "threshold_percent",
            "shedding_interval_ms",
            "overloaded_threshold_percent",
            "usage_profile",
            "enabled",
            "report_timeout_ms",
        )
    }
    assert origins == {
        "mode": "--set, dry_run",
        "comfort_percent": "LB_BALANCER__COMFORT_PERCENT",
        "threshold_percent": "lb.toml",
        "shedding_interval_ms": "lb.toml, loadBalancerSheddingIntervalMinutes",
        "overloaded_threshold_percent": "broker.conf, "
        "loadBalancerBrokerOverloadedThresholdPercentage",
        "usage_profile": "profile documented",
        "enabled": "default",
        "report_timeout_ms": "two report_max_interval_ms",
    }
    values = {
        name: found[f"balancer.{name}"]["value"]
        for name in ("shedding_interval_ms", "usage_profile", "report_timeout_ms")
    }
    assert values == {
        "shedding_interval_ms": 120_000,
        "usage_profile": "2.x",
        "report_timeout_ms": 120_000,
    }
    assert (found["stream.pipeline_id"]["value"], found["stream.pipeline_id"]["given_by"]) == (
        "p",
        "lb.toml",
    )


def test_all_lists_every_key_there_is_once(folder: Path) -> None:
    keys = [
        one["key"] for one in explained(folder, "--all")["settings"] if one["section"] == "balancer"
    ]
    assert sorted(keys) == sorted({name for model in list_models() for name in model.model_fields})


def test_what_the_chosen_strategies_do_not_read_was_given_in_vain(folder: Path) -> None:
    assert set(explained(folder)["ineffective"]) == {
        "low_threshold_points",
        "comfort_percent",
        "loadBalancerHostUsageCheckIntervalMinutes",
    }
    own = explained(folder, "--cluster", "eu-1")
    assert set(own["ineffective"]) == {
        "threshold_percent",
        "comfort_percent",
        "loadBalancerHostUsageCheckIntervalMinutes",
    }
    found = by_key(own)
    assert found["balancer.low_threshold_points"]["read_by"] == ["AvgShedder"]
    assert found["balancer.max_unload_ratio"] | {"meaning": ""} == found[
        "balancer.max_unload_ratio"
    ] | {
        "value": 0.5,
        "given_by": "profile documented",
        "pulsar": "maxUnloadPercentage",
        "meaning": "",
    }


def test_the_warnings_say_why_and_stand_beside_the_table(folder: Path) -> None:
    result = lbctl("config", "explain", "--config", "lb.toml", cwd=folder)
    assert result.code == 0
    assert result.err.splitlines() == [
        "warning: balancer.low_threshold_points (lb.toml) is not read: it is for AvgShedder; "
        "this cluster has the modular manager with ThresholdShedder and LeastLongTermMessageRate"
    ]
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(
        line.startswith("threshold_percent ") and line.split()[1:4] == ["12.0", "%", "lb.toml"]
        for line in lines
    )
    assert "comfort_percent" not in result.out


def test_one_key_by_any_of_its_names_is_told_in_full(tmp_path: Path) -> None:
    name = "loadBalancerBandwithInResourceWeight"
    for asked in (
        "bandwidth_in_weight",
        "balancer.bandwidth_in_weight",
        "loadBalancerBandwidthInResourceWeight",
        name,
    ):
        out = lbctl("config", "explain", asked, cwd=tmp_path).out
        assert out.startswith("balancer.bandwidth_in_weight = 1.0\n  given by   default\n")
        assert (
            "in Pulsar  loadBalancerBandwidthInResourceWeight" in out
            and "read by    the balancer" in out
        )


@pytest.mark.parametrize("key", WHY)
def test_a_key_without_effect_says_why(tmp_path: Path, key: str) -> None:
    assert f"read by    none: {WHY[key]}" in lbctl("config", "explain", key, cwd=tmp_path).out


def test_an_unknown_key_is_answered_with_the_nearest_ones(tmp_path: Path) -> None:
    result = lbctl("config", "explain", "treshold_percent", cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    check_wording(result.err)


def test_secrets_stay_hidden(tmp_path: Path) -> None:
    given = (
        "--set",
        "kafka.options.sasl_plain_password=hunter2",
        "--set",
        "kafka.options.sasl_mechanism=PLAIN",
    )
    for more in ((), ("--json",), ("kafka.options",)):
        result = lbctl("config", "explain", *more, *given, cwd=tmp_path)
        assert (
            result.code == 0 and "hunter2" not in result.out + result.err and "PLAIN" in result.out
        )


def test_a_setting_is_found_by_its_other_word_too(tmp_path: Path) -> None:
    answer = lbctl("config", "explain", "dry_run", "--set", "dry_run=false", cwd=tmp_path)
    assert answer.code == 0 and answer.out.startswith('balancer.mode = "act"')
