"""Every documented key of Pulsar's load balancer is understood, has Pulsar's default, and may
change when it may change there."""

import json
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.keys import KeyModel, key_metadata
from lb_stream.settings.load import load
from lb_stream.settings.names import list_known_names, list_models, normalise_names
from lb_stream.settings.resolve import resolve

FILE = Path(__file__).parents[2] / "data" / "vectors" / "configuration_keys.json"
KEYS: dict[str, dict[str, Any]] = json.loads(FILE.read_text())["keys"]

OTHER_DEFAULTS = {
    "loadBalancerLoadSheddingStrategy": "ThresholdShedder",  # the simple name of the class
    "loadBalancerLoadPlacementStrategy": "LeastLongTermMessageRate",
    "loadBalancerMemoryResourceWeight": None,  # not set: what it counts is up to usage_profile
    "loadBalancerDirectMemoryResourceWeight": None,
}
AT_RUN_TIME_HERE = {"loadBalancerLoadPlacementStrategy"}  # Pulsar wants a restart
AT_A_START_ONLY = {
    "loadBalancerReportUpdateThresholdPercentage",  # agents read them when they start
    "loadBalancerReportUpdateMinIntervalMillis",
}


def model_of(ours: str) -> type[KeyModel]:
    return next(model for model in list_models() if ours in model.model_fields)


def test_there_are_75_of_them_and_all_are_known() -> None:
    assert len(KEYS) == 75 and KEYS.keys() <= list_known_names().keys()


@pytest.mark.parametrize("name", KEYS)
def test_the_default_is_pulsars(name: str) -> None:
    ours, _ = list_known_names()[name]
    model, given = model_of(ours), KEYS[name]["default"]
    default = model.model_fields[ours].default
    if name in OTHER_DEFAULTS:
        assert default == OTHER_DEFAULTS[name]
    elif given is not None:
        assert getattr(model(**normalise_names({name: given})), ours) == default
    else:
        assert default is None


@pytest.mark.parametrize("name", KEYS)
def test_it_may_change_at_run_time_when_pulsars_may(name: str) -> None:
    ours, _ = list_known_names()[name]
    assert key_metadata(model_of(ours), ours).dynamic == (
        name in AT_RUN_TIME_HERE or (KEYS[name]["dynamic"] and name not in AT_A_START_ONLY)
    )


def test_a_broker_conf_with_all_of_them_at_their_defaults_is_no_configuration_at_all(
    tmp_path: Path,
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "".join(
            f"{name}={key['default']}\n" for name, key in KEYS.items() if key["default"] is not None
        )
    )
    loaded = load(broker_conf=file, environment={})
    (warning,) = loaded.warnings
    assert warning.endswith(
        "Pulsar's default, and without effect here (see lbctl config explain KEY)"
    )
    resolved, default = resolve(loaded.settings.of_cluster("")), resolve({})
    given, bare = resolved.config, default.config
    assert (given.shedder, given.shedder_config, given.placement_config) == (
        bare.shedder,
        bare.shedder_config,
        bare.placement_config,
    )
    assert (given.splitting, resolved.reporting, given.balancer.weights) == (
        bare.splitting,
        default.reporting,
        bare.balancer.weights,
    )
