"""Which load manager and which strategies the settings come to, in Pulsar's words and in ours."""

from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import Settings
from lb_stream.settings.explain import explain_settings
from lb_stream.settings.load import load
from lb_stream.settings.resolve import cluster_config, resolve, resolve_uncached
from tests.support.documented import runs

IMPL = "org.apache.pulsar.broker.loadbalance.impl."
EXTENSIONS = "org.apache.pulsar.broker.loadbalance.extensions."
SIMPLE = f"{IMPL}SimpleLoadManagerImpl"
EXTENSIBLE = f"{EXTENSIONS}ExtensibleLoadManagerImpl"


MODULAR_RUNS = ("modular", "ThresholdShedder", "LeastLongTermMessageRate")
SIMPLE_RUNS = ("simple", "SimpleLoadManager", "leastLoadedServer")
EXTENSIBLE_RUNS = ("extensible", "TransferShedder", "LeastResourceUsageWithWeight")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, MODULAR_RUNS),
        ({"loadManagerClassName": f"{IMPL}ModularLoadManagerImpl"}, MODULAR_RUNS),
        ({"loadManagerClassName": SIMPLE}, SIMPLE_RUNS),
        ({"loadManagerClassName": EXTENSIBLE}, EXTENSIBLE_RUNS),
        ({"load_manager": "simple"}, SIMPLE_RUNS),
        ({"load_manager": "extensible"}, EXTENSIBLE_RUNS),
        ({"load_manager": "ExtensibleLoadManagerImpl"}, EXTENSIBLE_RUNS),
        (
            {
                "load_manager": "extensible",
                "loadBalancerLoadSheddingStrategy": f"{EXTENSIONS}scheduler.TransferShedder",
            },
            EXTENSIBLE_RUNS,
        ),
        (
            {"shedding_strategy": "TransferShedder"},
            ("modular", "TransferShedder", "LeastLongTermMessageRate"),
        ),
        (
            {"loadBalancerLoadSheddingStrategy": f"{IMPL}OverloadShedder"},
            ("modular", "OverloadShedder", "LeastLongTermMessageRate"),
        ),
        (
            {"loadBalancerLoadSheddingStrategy": "OverloadShedder"},
            ("modular", "OverloadShedder", "LeastLongTermMessageRate"),
        ),
        (
            {"shedding_strategy": "AvgShedder", "placement_strategy": "AvgShedder"},
            ("modular", "AvgShedder", "AvgShedder"),
        ),
    ],
)
def test_each_manager_runs_its_own_strategies(
    given: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    resolved = resolve(given)
    assert runs(resolved.config) == expected
    assert resolved.warnings == ()


@pytest.mark.parametrize(
    ("given", "expected", "text"),
    [
        ({"loadManagerClassName": ""}, SIMPLE_RUNS, "load_manager = ''"),
        ({"load_manager": " "}, SIMPLE_RUNS, "load_manager = ' '"),
        (
            {"loadManagerClassName": "com.example.OwnManager"},
            SIMPLE_RUNS,
            "load_manager = 'com.example.OwnManager': expected one of modular",
        ),
        ({"loadManagerClassName": "OwnManager"}, SIMPLE_RUNS, "load_manager = 'OwnManager'"),
        (
            {"load_manager": "com.example.OwnManager"},
            SIMPLE_RUNS,
            "load_manager = 'com.example.OwnManager'",
        ),
        (
            {"loadBalancerLoadSheddingStrategy": f"{IMPL}NoShedder"},
            SIMPLE_RUNS,
            "NoShedder': expected one of AvgShedder",
        ),
        (
            {"loadBalancerLoadSheddingStrategy": "NoShedder"},
            SIMPLE_RUNS,
            "shedding_strategy = 'NoShedder'",
        ),
        (
            {"loadBalancerLoadSheddingStrategy": ""},
            SIMPLE_RUNS,
            "shedding_strategy = '': expected one of AvgShedder",
        ),
        (
            {"loadBalancerLoadPlacementStrategy": " "},
            SIMPLE_RUNS,
            "placement_strategy = ' ': expected one of AvgShedder",
        ),
        (
            {"loadBalancerLoadPlacementStrategy": f"{IMPL}Nowhere"},
            SIMPLE_RUNS,
            "Nowhere': expected one of AvgShedder",
        ),
        (
            {"loadBalancerLoadPlacementStrategy": f"{IMPL}AvgShedder"},
            SIMPLE_RUNS,
            "or shedding_strategy = 'AvgShedder' too",
        ),
        (
            {"loadBalancerLoadSheddingStrategy": f"{EXTENSIONS}scheduler.TransferShedder"},
            SIMPLE_RUNS,
            f"shedding_strategy = '{EXTENSIONS}scheduler.TransferShedder'",
        ),
        (
            {"load_manager": "extensible", "shedding_strategy": "ThresholdShedder"},
            EXTENSIBLE_RUNS,
            "shedding_strategy = 'ThresholdShedder'",
        ),
        (
            {"load_manager": "extensible", "loadBalancerLoadSheddingStrategy": "a.b.No"},
            EXTENSIBLE_RUNS,
            "shedding_strategy = 'a.b.No'",
        ),
        (
            {"load_manager": "simple", "shedding_strategy": "ThresholdShedder"},
            SIMPLE_RUNS,
            "shedding_strategy = 'ThresholdShedder'",
        ),
        (
            {"load_manager": "simple", "simple_placement_strategy": "nearest"},
            ("simple", "SimpleLoadManager", "weightedRandomSelection"),
            "simple_placement_strategy = 'nearest': expected one of leastLoadedServer, "
            "leastMsgPerSecond, weightedRandomSelection; ",
        ),
        (
            {"shedding_strategy": "AvgShedder"},
            ("modular", "AvgShedder", "LeastLongTermMessageRate"),
            "placement_strategy = 'AvgShedder'",
        ),
    ],
)
def test_what_pulsar_answers_with_another_manager_is_done_with_a_warning(
    given: dict[str, Any], expected: tuple[str, str, str], text: str
) -> None:
    resolved = resolve(given)
    assert runs(resolved.config) == expected
    (warning,) = resolved.warnings
    assert text in warning


@pytest.mark.parametrize(
    ("given", "key", "value", "expected"),
    [
        (
            {"load_manager": "modullar"},
            "load_manager",
            "modullar",
            "one of modular, simple, extensible",
        ),
        ({"load_manager": 4}, "load_manager", 4, "one of modular, simple, extensible"),
        ({"cpu_weight": float("inf")}, "cpu_weight", float("inf"), "a finite number"),
        (
            {"shedding_strategy": "NoShedder"},
            "shedding_strategy",
            "NoShedder",
            "one of AvgShedder, LeastMoves, OverloadShedder",
        ),
        (
            {"shedding_strategy": ["ThresholdShedder"]},
            "shedding_strategy",
            ["ThresholdShedder"],
            "text",
        ),
        (
            {"placement_strategy": "Nowhere"},
            "placement_strategy",
            "Nowhere",
            "one of AvgShedder, LeastLongTermMessageRate",
        ),
        (
            {"placement_strategy": "AvgShedder"},
            "placement_strategy",
            "AvgShedder",
            "or shedding_strategy = 'AvgShedder' too",
        ),
        (
            {"load_manager": "simple", "shedding_strategy": "NoShedder"},
            "shedding_strategy",
            "NoShedder",
            "one of AvgShedder",
        ),
    ],
)
def test_what_is_wrong_in_our_own_words_is_refused_with_key_value_and_what_could_stand_there(
    given: dict[str, Any], key: str, value: Any, expected: str
) -> None:
    with pytest.raises(SettingError) as caught:
        cluster_config(given)
    assert (caught.value.key, caught.value.value) == (key, value)
    assert expected in caught.value.expected


@pytest.mark.parametrize("name", ["com.example.OwnManager", ""])
def test_a_command_that_names_an_unknown_manager_is_refused_by_default_and_falls_back_as_documented(
    name: str,
) -> None:
    with pytest.raises(SettingError, match="load_manager"):
        resolve_uncached({"loadManagerClassName": name}, dynamic=True)
    for settings in ({"profile": "documented"}, {"dynamic_bad_manager": "fallback"}):
        assert (
            runs(resolve_uncached({"loadManagerClassName": name} | settings, dynamic=True).config)
            == SIMPLE_RUNS
        )
    assert (
        runs(resolve_uncached({"loadManagerClassName": SIMPLE}, dynamic=True).config) == SIMPLE_RUNS
    )


def test_settings_from_files_keep_their_fallback_and_tell_of_it_once(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(
        "loadManagerClassName=com.example.Own\nloadBalancerLoadSheddingStrategy=NoShedder\n"
    )
    (tmp_path / "lb.toml").write_text(
        "[cluster.eu]\nload_manager = 'modular'\nshedding_strategy = 'OverloadShedder'\n"
    )
    loaded = load(tmp_path / "lb.toml", tmp_path / "broker.conf", (), {})
    assert runs(cluster_config(loaded.settings.of_cluster("us"))) == SIMPLE_RUNS
    assert runs(cluster_config(loaded.settings.of_cluster("eu")))[:2] == (
        "modular",
        "OverloadShedder",
    )
    assert [warning.partition(":")[0] for warning in loaded.warnings] == [
        "load_manager = 'com.example.Own'"
    ]
    assert resolve(loaded.settings.of_cluster("us")).values["load_manager"] == "simple"
    assert resolve(loaded.settings.of_cluster("eu")).values["load_manager"] == "modular"


def test_namespaces_that_are_never_shed_from_may_be_a_list_or_text() -> None:
    expected = ("t/a", "t/b")
    assert (
        cluster_config(
            {"loadBalancerSheddingExcludedNamespaces": "t/a, t/b,"}
        ).balancer.shedding_excluded_namespaces
        == expected
    )
    assert (
        cluster_config(
            {"shedding_excluded_namespaces": ["t/a", "t/b"]}
        ).balancer.shedding_excluded_namespaces
        == expected
    )


def test_every_key_of_the_transfer_shedder_has_pulsars_default() -> None:
    config = cluster_config({"load_manager": "extensible"}).shedder_config.model_dump()
    assert config == {
        "target_std": 0.25,
        "hit_count_threshold": 3,
        "transfer_enabled": True,
        "max_brokers_per_cycle": 3,
        "unload_delay_ms": 180_000,
        "load_data_ttl_ms": 1_800_000,
        "top_bundles": 10,
        "shed_bundles_with_policies": False,
        "overloaded_threshold_percent": 85,
        "history_ratio": 0.9,
        "memory_weight": None,
        "debug_mode": False,
        "transfer_swap_gain": "debug_only",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "profile pulsar-5.0"),
        (
            {"shedding_strategy": "ThresholdShedder"},
            "bad_strategies, in place of AvgShedder (profile pulsar-5.0)",
        ),
        ({"placement_strategy": f"{IMPL}LeastLongTermMessageRate"}, "lb.toml"),
    ],
)
def test_what_takes_a_placements_place_is_explained_as_that(
    given: dict[str, Any], expected: str
) -> None:
    settings = Settings(balancer={"profile": "pulsar-5.0", **given})
    origins = {("balancer", name): "lb.toml" for name in given}
    explained = {setting.key: setting for setting in explain_settings(settings, origins, "")}
    found = explained["placement_strategy"]
    assert found.given_by == expected
