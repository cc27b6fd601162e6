"""Which settings a shadow may have, and what is said of others."""

from pathlib import Path

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.settings.load import LoadedSettings, load
from tests.support.wordings import check_wording

CONF = """
[balancer]
threshold_percent = 12
[cluster.eu]
shedding_interval_ms = 5000
[cluster.eu.shadow.avg]
loadBalancerLoadSheddingStrategy = "AvgShedder"
placement_strategy = "AvgShedder"
dynamic_bad_manager = "fallback"
"""


def loaded(folder: Path, text: str, *arguments: str, **environment: str) -> LoadedSettings:
    """The settings in a file with this text."""
    path = folder / "lb.toml"
    path.write_text(text)
    return load(path, None, arguments, environment)


def test_a_shadow_has_its_own_settings_over_its_clusters(tmp_path: Path) -> None:
    settings = loaded(tmp_path, CONF).settings
    own = settings.shadows_of("eu")["avg"]
    assert own["shedding_strategy"] == own["placement_strategy"] == "AvgShedder"
    assert settings.of_cluster("eu") == {"threshold_percent": 12.0, "shedding_interval_ms": 5000}
    assert (settings.shadows_of("us"), settings.of_cluster("us")) == (
        {},
        {"threshold_percent": 12.0},
    )


def test_shadows_can_be_set_by_arguments_and_variables_and_are_typed(tmp_path: Path) -> None:
    by_argument = loaded(tmp_path, CONF, "cluster.eu.west.shadow.calm.min_dwell_ms=5")
    assert by_argument.settings.shadows_of("eu.west") == {"calm": {"min_dwell_ms": 5}}
    assert by_argument.origins[("cluster", "eu.west", "shadow", "calm", "min_dwell_ms")] == "--set"
    by_variable = loaded(tmp_path, CONF, LB_CLUSTER__EU__SHADOW__CALM__SHEDDING_ENABLED="false")
    assert by_variable.settings.shadows_of("eu")["calm"] == {"shedding_enabled": False}


@pytest.mark.parametrize(
    "text",
    [
        "[cluster.eu.shadow.a]\nthreshhold_percent = 5",
        "[cluster.eu.shadow.a]\nthreshold_percent = 'x'",
        "[cluster.eu.shadow.a]\ndry_run = true",
        "[cluster.eu.shadow.a]\nshort_samples = 3",
        "[cluster.eu.shadow.a]\nsplit_enabled = true",
        "[cluster.eu.shadow.a]\nplacement_strategy = 'AvgShedder'",
        "[cluster.eu.shadow.a.shadow.b]\nenabled = true",
        "[balancer.shadow.a]\nenabled = true",
        "[cluster.eu.shadow.real]\nenabled = true",
        "[cluster.eu.shadow.'a b']\nenabled = true",
        "[cluster.eu.shadow.a]",
        "[cluster.eu]\nshadow = 3",
    ],
)
def test_what_cannot_be_a_shadow_is_refused_with_the_place_and_what_is_expected(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(SettingError) as error:
        loaded(tmp_path, text)
    check_wording(error.value)


def test_what_of_a_shadows_settings_is_replaced_is_told_once(tmp_path: Path) -> None:
    (warning,) = loaded(
        tmp_path, "[cluster.eu.shadow.a]\nshedding_strategy = 'AvgShedder'"
    ).warnings
    assert warning.startswith(
        "cluster.eu.shadow.a: shedding_strategy = 'AvgShedder' without placement_strategy"
    )
