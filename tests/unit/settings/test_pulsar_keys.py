"""Every key of Pulsar's load balancer, of each release, is understood, has that release's default
under its profile, and may change when it may change there."""

from pathlib import Path

import pytest

from lb_stream.contracts.keys import KeyModel, key_metadata
from lb_stream.contracts.settings import Settings
from lb_stream.settings.explain import explain_settings
from lb_stream.settings.load import load, same_value
from lb_stream.settings.names import list_known_names, list_models, normalise_names
from lb_stream.settings.resolve import resolve
from tests.support.pulsar_keys import KEYS, RELEASES, defaults_of

UNSET_HERE = {  # what they count is up to usage_profile
    "loadBalancerMemoryResourceWeight": 0.0,
    "loadBalancerDirectMemoryResourceWeight": 0.0,
}
AT_RUN_TIME_HERE = {"loadBalancerLoadPlacementStrategy"}  # Pulsar wants a restart
AT_A_START_ONLY = {
    "loadBalancerReportUpdateThresholdPercentage",  # agents read them when they start
    "loadBalancerReportUpdateMinIntervalMillis",
}


def model_of(ours: str) -> type[KeyModel]:
    return next(model for model in list_models() if ours in model.model_fields)


def keys_of(release: str) -> dict[str, str | None]:
    """Each key of a release → its default there; None: it has none."""
    return {name: default for name, (_, default) in defaults_of(release).items()}


def test_each_release_has_its_keys_and_all_are_known() -> None:
    assert [len(keys_of(release)) for release in RELEASES] == [75, 77, 104]
    assert KEYS.keys() <= list_known_names().keys()


def test_a_later_release_has_other_defaults_for_five_keys() -> None:
    before, after = keys_of("4.2"), keys_of("5.0")
    assert [name for name in before if before[name] != after[name]] == [
        "defaultNumberOfNamespaceBundles",
        "loadBalancerLoadSheddingStrategy",
        "loadBalancerLoadPlacementStrategy",
        "loadBalancerDistributeBundlesEvenlyEnabled",
        "maxUnloadPercentage",
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_broker_conf_leaves_out_has_the_default_of_the_profiles_release(
    release: str,
) -> None:
    settings = Settings(balancer={"profile": f"pulsar-{release}"})
    in_force = {setting.key: setting for setting in explain_settings(settings, {}, "")}
    differing = {}
    for name, default in keys_of(release).items():
        ours, _ = list_known_names()[name]
        expected = None
        if default is not None:
            expected = getattr(model_of(ours)(**normalise_names({name: default})), ours)
        found = in_force[ours].value
        found = UNSET_HERE.get(name) if found is None else found
        if not same_value(found, expected):
            differing[name] = (found, expected)
    assert differing == {}


@pytest.mark.parametrize("name", KEYS)
def test_it_may_change_at_run_time_when_pulsars_may(name: str) -> None:
    ours, _ = list_known_names()[name]
    assert key_metadata(model_of(ours), ours).dynamic == (
        name in AT_RUN_TIME_HERE or (KEYS[name]["dynamic"] and name not in AT_A_START_ONLY)
    )


@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_conf_with_all_of_a_releases_defaults_is_its_profile(
    tmp_path: Path, release: str
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "".join(f"{name}={default}\n" for name, default in keys_of(release).items() if default)
    )
    profile = f"profile=pulsar-{release}"
    loaded = load(broker_conf=file, arguments=(profile,), environment={})
    (warning,) = loaded.warnings
    assert warning.endswith(
        "Pulsar's default, and without effect here (see lbctl config explain KEY)"
    )
    given = resolve(loaded.settings.of_cluster(""))
    bare = resolve({"profile": f"pulsar-{release}"})
    unset = ("memory_weight", "direct_memory_weight")
    assert {name: value for name, value in given.values.items() if name not in unset} == {
        name: value for name, value in bare.values.items() if name not in unset
    } | {name: given.values[name] for name in ("shedding_strategy", "placement_strategy")}
    assert (given.config.shedder, given.config.placement, given.config.balancer.weights) == (
        bare.config.shedder,
        bare.config.placement,
        bare.config.balancer.weights,
    )
