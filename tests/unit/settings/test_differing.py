"""What a broker's settings in force would change here: nothing that is meant to differ, nothing that
nothing reads, and every other difference."""

import pytest

from lb_stream.settings.differing import Comparison, compare_settings, parse_java_text
from tests.support.pulsar_keys import defaults_of

RELEASE = {"profile": "pulsar-5.0"}


def compare(
    runtime: dict[str, str], own: dict[str, object] | None = None, by: str = "lb.toml"
) -> Comparison:
    """A broker of 5.0 that has these settings besides its defaults, and a cluster's own."""
    defaults = {name: text for name, (_, text) in defaults_of("5.0").items() if text}
    given = RELEASE | (own or {})
    return compare_settings(
        defaults | runtime, given, {("balancer", name): by for name in given}, ""
    )


def keys(compared: Comparison) -> list[str]:
    return [setting.key for setting in compared.differing]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Optional.empty", None),
        ("Optional[1.0]", "1.0"),
        ("null", None),
        (None, None),
        ("", None),
        ("[]", ""),
        ("[a/b, c/d]", "a/b,c/d"),
        ("[a]", "a"),
        ("true", "true"),
        (" 5 ", "5"),
        (5, "5"),
    ],
)
def test_a_value_as_java_writes_it_is_read_as_a_broker_conf_has_it(
    text: object, value: str | None
) -> None:
    assert parse_java_text(text) == value


def test_what_is_set_under_our_name_is_meant_to_differ() -> None:
    runtime = {"maxUnloadPercentage": "0.4", "loadBalancerBrokerMaxTopics": "9"}
    assert keys(compare(runtime, {"max_unload_ratio": 0.1})) == ["broker_max_topics"]


def test_what_is_set_under_pulsars_name_is_meant_to_be_the_brokers() -> None:
    given = {"max_unload_ratio": 0.1}
    (found,) = compare({}, given, by="broker.conf, maxUnloadPercentage").differing
    assert (found.broker_value, found.value) == (0.5, 0.1)


@pytest.mark.parametrize(
    "runtime",
    [
        {"loadBalancerSheddingEnabled": "false", "loadBalancerAutoBundleSplitEnabled": "false"},
        {"namespaceBundleUnloadingTimeoutMs": "1"},
        {"loadBalancerHostUsageCheckIntervalMinutes": "7"},  # no effect here
        {"loadBalancerOverrideBrokerNicSpeedGbps": "Optional[1.0]"},
        {"loadBalancerBrokerThresholdShedderPercentage": "50"},  # AvgShedder does not read it
        {"loadBalancerReportUpdateThresholdPercentage": "50"},  # only agents read it
        {"statsUpdateFrequencyInSecs": "7"},  # no key of balancing
        {"loadBalancerDirectMemoryResourceWeight": "0.0"},  # unset here, and counts as 0
        {"loadBalancerBandwithInResourceWeight": "1.0"},
        {"loadBalancerLoadSheddingStrategy": "AvgShedder"},
    ],
)
def test_other_values_change_nothing_here(runtime: dict[str, str]) -> None:
    assert compare(runtime) == Comparison((), ())


@pytest.mark.parametrize(
    ("runtime", "key", "value"),
    [
        ({"loadBalancerDirectMemoryResourceWeight": "0.5"}, "direct_memory_weight", 0.5),
        ({"loadBalancerBandwithInResourceWeight": "0.5"}, "bandwidth_in_weight", 0.5),
        (
            {"loadBalancerSheddingExcludedNamespaces": "[a/b, c/d]"},
            "shedding_excluded_namespaces",
            ("a/b", "c/d"),
        ),
        ({"loadBalancerSheddingIntervalMinutes": "3"}, "shedding_interval_ms", 180_000),
        ({"loadBalancerAvgShedderLowThreshold": "20"}, "low_threshold_points", 20),
    ],
)
def test_a_value_that_counts_is_found_in_the_unit_here(
    runtime: dict[str, str], key: str, value: object
) -> None:
    (found,) = compare(runtime).differing
    assert (found.key, found.broker_value) == (key, value)


def test_the_keys_of_a_strategy_that_would_run_count_too() -> None:
    threshold = "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder"
    found = compare(
        {
            "loadBalancerLoadSheddingStrategy": threshold,
            "loadBalancerBrokerThresholdShedderPercentage": "50",
        }
    )
    assert keys(found) == ["shedding_strategy", "placement_strategy", "threshold_percent"]


def test_an_extensible_broker_says_so() -> None:
    manager = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
    found = {
        setting.key: setting for setting in compare({"loadManagerClassName": manager}).differing
    }
    assert found["load_manager"].broker_value == "extensible"


def test_a_pair_that_does_not_go_together_with_what_is_set_here_is_one_difference() -> None:
    """AvgShedder as the placement of another shedder: Pulsar 4.0 would run its simple manager."""
    own = {"profile": "pulsar-4.0", "shedding_strategy": "ThresholdShedder"}
    found = compare({}, own)
    assert found.unusable == ()
    assert "placement_strategy" in keys(found) and "load_manager" not in keys(found)


def test_a_value_that_cannot_be_read_hides_no_other() -> None:
    found = compare({"loadBalancerBrokerMaxTopics": "many", "maxUnloadPercentage": "0.4"})
    assert keys(found) == ["max_unload_ratio"]
    (line,) = found.unusable
    assert line.startswith("broker_max_topics = 'many' in the broker")
