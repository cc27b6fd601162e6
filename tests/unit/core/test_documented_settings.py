"""Keys that Pulsar's documentation names with their defaults, and what a setting decides where
documentation and reference disagree."""

from typing import Any

import numpy as np
import pytest

from lb_stream.agent.report_needed import ReportFigures, report_needed
from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.reports import ModularLoadReport, ResourceUsage
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.splitting import Range, Topics
from lb_stream.settings.names import list_known_names, list_models
from lb_stream.settings.resolve import ResolvedSettings, cluster_config, resolve, resolve_uncached
from tests.conformance.forms import resource_columns
from tests.support.documented import decided, played, runs
from tests.support.split_cases import FLOW, flow_bundle, limits, task
from tests.support.split_cases import loads as split_loads
from tests.support.vectors import cycles, loads, place, shed, vector

MINUTE_MS = 60_000

DEFAULTS: dict[
    str, tuple[Any, str, Any]
] = {  # Pulsar's key → its documented default, our key, what that is with us
    "loadManagerClassName": ("ModularLoadManagerImpl", "load_manager", "modular"),
    "loadBalancerReportUpdateMaxIntervalMinutes": (15, "report_max_interval_ms", 15 * MINUTE_MS),
    "loadBalancerResourceQuotaUpdateIntervalMinutes": (
        15,
        "loadBalancerResourceQuotaUpdateIntervalMinutes",
        15,
    ),
    "loadBalancerBrokerOverloadedThresholdPercentage": (85, "overloaded_threshold_percent", 85),
    "loadBalancerNamespaceBundleMaxMsgRate": (30_000, "bundle_max_msgs_per_s", 30_000),
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": (100, "bundle_max_bandwidth_mb", 100),
    "loadBalancerHistoryResourcePercentage": (0.9, "history_ratio", 0.9),
    "loadBalancerBrokerThresholdShedderPercentage": (10, "threshold_percent", 10),
    "loadBalancerMsgRateDifferenceShedderThreshold": (50, "rate_difference_percent", 50),
    "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": (
        4,
        "throughput_multiplier",
        4,
    ),
    "loadBalancerBrokerLoadTargetStd": (0.25, "target_std", 0.25),
    "loadBalancerLoadSheddingStrategy": (
        "ThresholdShedder",
        "shedding_strategy",
        "ThresholdShedder",
    ),
    "loadBalancerLoadPlacementStrategy": (
        "LeastLongTermMessageRate",
        "placement_strategy",
        "LeastLongTermMessageRate",
    ),
    "maxUnloadPercentage": (0.2, "max_unload_ratio", 0.2),
    "loadBalancerAvgShedderLowThreshold": (15, "low_threshold_points", 15),
    "loadBalancerAvgShedderHighThreshold": (40, "high_threshold_points", 40),
    "loadBalancerAvgShedderHitCountLowThreshold": (8, "hit_count_low", 8),
    "loadBalancerAvgShedderHitCountHighThreshold": (2, "hit_count_high", 2),
}


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_named_key_has_its_documented_default(key: str) -> None:
    documented, ours, expected = DEFAULTS[key]
    assert list_known_names()[key][0] == ours
    models = [model for model in list_models() if ours in model.model_fields]
    assert models and {model.model_fields[ours].default for model in models} == {expected}
    resolved, default = resolve({key: documented}), resolve({})
    given, bare = resolved.config, default.config
    assert (given.balancer, given.splitting, resolved.reporting) == (
        bare.balancer,
        bare.splitting,
        default.reporting,
    )
    assert (given.shedder, given.shedder_config, given.placement, given.placement_config) == (
        bare.shedder,
        bare.shedder_config,
        bare.placement,
        bare.placement_config,
    )


# --- where documentation and reference disagree: what the default does, and what the option gives
# ---


def test_weighting_of_the_least_long_term_message_rate_is_the_plain_rate_and_the_option_divides_by_what_is_free() -> (
    None
):
    given = vector("place_llmr")
    plain, _ = place(given["brokers"], given["config"])
    divided, scores = place(
        given["brokers"], given["config"] | {"placement_weighting": "documented"}
    )
    assert (plain, divided) == (["B"], ["A"])
    assert scores["A"] == pytest.approx(1000 / (0.85 - 0.35), rel=1e-6)


def test_heap_memory_is_no_part_of_the_maximum_usage_unless_the_usage_profile_says_so() -> None:
    columns = resource_columns([{"memory": [90, 100], "directMemory": [80, 100], "cpu": [30, 100]}])
    found = {
        name: float(max_weighted_usage(columns, cluster_config(settings).balancer.weights)[0])
        for name, settings in {
            "reference": {},
            "documents": {"usage_profile": "2.x"},
            "weighted": {"direct_memory_weight": 1},
        }.items()
    }
    assert found == pytest.approx({"reference": 0.3, "documents": 0.9, "weighted": 0.8}, rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, 0.25), ({"threshold_target": "below_average"}, 0.35)]
)
def test_threshold_shedders_target_is_below_average_plus_threshold_and_with_the_option_below_average(
    settings: dict[str, Any], expected: float
) -> None:
    """Usage 0.60 among 0.30 on average: 0.60 - 0.30 - 0.10 + 0.05, or 0.60 - 0.30 + 0.05, of 1
    GB/s; in bundles of 10 MB/s."""
    bundles = {f"t/n/0x{number:08x}_0x{number + 1:08x}": 1e7 for number in range(100)}
    found, _, _ = shed(
        loads({"hot": 0.6, "cold": 0.15, "colder": 0.15}, 1e9, {"hot": bundles}), settings
    )
    assert len(found["hot"]) == pytest.approx(expected * 100, abs=1)


def overloaded(at: float) -> bool:
    data = loads(
        {"b": at}, 1e9, {"b": {"t/n/0x00000000_0x00000001": 1e8, "t/n/0x00000001_0x00000002": 1e7}}
    )
    return bool(
        shed(data, {"shedding_strategy": "OverloadShedder", "overloaded_threshold_percent": 75})[0]
    )


def above_average(at: float) -> bool:
    """The average is 0.5: the other one has as much less."""
    data = loads(
        {"b": at, "a": 1 - at},
        1e9,
        {"b": {"t/n/0x00000000_0x00000001": 1e8, "t/n/0x00000001_0x00000002": 1e7}},
    )
    return bool(shed(data, {"threshold_percent": 25})[0])


def pair_apart(at: float) -> bool:
    data = {
        "brokers": {
            "high": {
                "cpu": [25 + at, 100],
                "msgRateIn": 1e6,
                "bundles": ["t/n/0x00000000_0x00000001"],
            },
            "low": {"cpu": [25, 100], "msgRateIn": 0},
        },
        "bundleData": {"t/n/0x00000000_0x00000001": {"short": [0, 0, 10, 0]}},
    }
    return bool(
        shed(
            data,
            {"shedding_strategy": "AvgShedder", "high_threshold_points": 50, "hit_count_high": 1},
        )[0]
    )


def rates_apart(at: float) -> bool:
    names = ["t/n/0x00000000_0x00000001", "t/n/0x00000001_0x00000002"]
    data = {
        "brokers": {"high": {"msgRateIn": at, "bundles": names}, "low": {"msgRateIn": 10_000}},
        "bundleData": {name: {"short": [0, 0, 500, 0]} for name in names},
    }
    return bool(
        shed(data, {"shedding_strategy": "UniformLoadShedder", "min_unload_msgs_per_s": 0})[0]
    )


def deviating(at: float) -> bool:
    """Two brokers that are `at` from their average; nobody is overloaded or idle."""
    brokers = {
        name: {"weightedMaxEMA": load, "msgThroughputEMA": 1e6, "throughput": 1e6}
        for name, load in (("a", 0.5 + at), ("b", 0.5 - at))
    }
    return bool(
        cycles({"brokers": brokers, "topBundles": {"a": [["x", 1e5], ["y", 1e5]], "b": []}})[-1][1]
    )


def too_many_topics(at: float) -> bool:
    return bool(task(split_loads(topics=int(at))))


def refused_by_placement(at: float) -> bool:
    return bool(
        np.isinf(
            place({"a": {"longRate": 5, "usage": at}}, {"overloaded_threshold_percent": 75})[1]["a"]
        )
    )


@pytest.mark.parametrize(
    ("acts", "threshold", "step", "at_equality"),
    [
        pytest.param(overloaded, 0.75, 0.01, True, id="OverloadShedder"),
        pytest.param(above_average, 0.75, 0.01, True, id="ThresholdShedder"),
        pytest.param(pair_apart, 50, 1, True, id="AvgShedder"),
        pytest.param(rates_apart, 15_000, 1, False, id="UniformLoadShedder"),
        pytest.param(deviating, 0.25, 0.01, False, id="TransferShedder"),
        pytest.param(too_many_topics, 1000, 1, False, id="split"),
        pytest.param(refused_by_placement, 0.75, 0.01, False, id="placement"),
    ],
)
def test_equality_exceeds_a_threshold_where_it_does_in_the_reference(
    acts: Any, threshold: float, step: float, at_equality: bool
) -> None:
    assert [acts(threshold - step), acts(threshold), acts(threshold + step)] == [
        False,
        at_equality,
        True,
    ]


@pytest.mark.parametrize(
    ("settings", "destination"), [({}, "b"), ({"modular_preselect_destination": False}, None)]
)
def test_modular_destination_is_chosen_with_the_unload_and_with_the_option_once_the_bundle_is_released(
    settings: dict[str, Any], destination: str | None
) -> None:
    cluster = played(
        "brokers a=0.90 b=0.20",
        "bundles a: t/n/0=60MB t/n/1=40MB",
        "round",
        shedding_interval_ms=0,
        history_ratio=0,
        **settings,
    )
    assert [(kind, to) for kind, _, _, to in decided(cluster)] == [("unload", destination)]
    for command in ("brokers a=0.50 b=0.50", "obey", "round"):
        list(cluster.do(command))
    assert [(kind, to) for kind, _, _, to in decided(cluster)] == [("assign", "b")]


def test_a_wrong_load_manager_class_falls_back_when_it_stands_in_a_file_and_by_command_only_with_the_option() -> (
    None
):
    wrong = {"loadManagerClassName": "org.example.NoLoadManager"}
    assert runs(cluster_config(wrong))[0] == "simple"
    with pytest.raises(SettingError, match="NoLoadManager"):
        resolve_uncached(wrong, dynamic=True)
    assert (
        runs(resolve_uncached(wrong | {"dynamic_bad_manager": "fallback"}, dynamic=True).config)[0]
        == "simple"
    )


def test_the_default_shedder_is_the_newest_releases_and_the_one_of_before_can_be_chosen() -> None:
    older = "org.apache.pulsar.broker.loadbalance.impl.OverloadShedder"
    assert (
        cluster_config({}).shedder.name
        == cluster_config({"profile": "documented"}).shedder.name
        == "ThresholdShedder"
    )
    assert (
        cluster_config({"loadBalancerLoadSheddingStrategy": older}).shedder.name
        == "OverloadShedder"
    )


@pytest.mark.parametrize(("least", "moved"), [({}, []), ({"minUnloadMessage": 249}, [200.0])])
def test_the_avg_shedder_example_moves_nothing_unless_the_least_amount_to_unload_is_lowered(
    least: dict[str, Any], moved: list[float]
) -> None:
    """Half of the difference between 1 000 and 500 messages/s is 250."""
    names = {"t/n/0x00000000_0x00000001": 300.0, "t/n/0x00000001_0x00000002": 200.0}
    data = {
        "brokers": {
            "b20": {"cpu": [20, 100], "msgRateIn": 500},
            "b80": {"cpu": [80, 100], "msgRateIn": 1000, "bundles": list(names)},
        },
        "bundleData": {name: {"short": [0, 0, rate, 0]} for name, rate in names.items()},
    }
    found, _, _ = shed(
        data,
        {"shedding_strategy": "AvgShedder", "maxUnloadPercentage": 0.5, "hit_count_high": 1}
        | least,
    )
    assert [names[name] for name in found.get("b80", [])] == moved


@pytest.mark.parametrize(
    ("settings", "sheds"),
    [
        ({}, ["cpu", "bandwidthIn", "bandwidthOut"]),
        (
            {"loadBalancerDirectMemoryResourceWeight": 1},
            ["cpu", "directMemory", "bandwidthIn", "bandwidthOut"],
        ),
        (
            {"usage_profile": "2.x"},
            ["cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"],
        ),
    ],
    ids=["reference", "weighted", "documented"],
)
def test_overload_shedder_looks_at_either_metric_of_cpu_and_network_and_at_memory_with_an_option(
    settings: dict[str, Any], sheds: list[str]
) -> None:
    names = ["t/n/0x00000000_0x00000001", "t/n/0x00000001_0x00000002"]
    bundles = {name: {"short": [1e8, 0, 0, 0]} for name in names}
    found = []
    for resource in ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"):
        data = {"brokers": {"b": {resource: [95, 100], "bundles": names}}, "bundleData": bundles}
        found += (
            [resource] if shed(data, {"shedding_strategy": "OverloadShedder"} | settings)[0] else []
        )
    assert found == sheds


def test_short_and_long_samples_come_with_reports_on_change_or_every_fifteen_minutes_or_as_the_example_has_it_every_two() -> (
    None
):
    def report(cpu: float) -> ReportFigures:
        return ReportFigures.from_report(
            ModularLoadReport(cpu=ResourceUsage(usage=cpu, limit=100.0)), {"cpu": 1.0}
        )

    def needed(config: ResolvedSettings, minutes: float, cpu: float = 50.0) -> bool:
        return report_needed(report(50.0), report(cpu), int(minutes * MINUTE_MS), config.reporting)

    config, example = (
        resolve({}),
        resolve({"loadBalancerReportUpdateMaxIntervalMinutes": 2}),
    )
    assert [needed(config, 0.1, 59.0), needed(config, 0.1, 61.0)] == [False, True]
    assert [needed(config, 15), needed(config, 15.1), needed(example, 2), needed(example, 2.1)] == [
        False,
        True,
        False,
        True,
    ]
    assert (example.config.fold.short_samples * 2, example.config.fold.long_samples * 2) == (
        20,
        2000,
    ), "minutes that the averages reach back"


@pytest.mark.parametrize(
    ("settings", "topic_count", "flow"),
    [
        ({}, 0x4D000000, "referencePositions"),
        ({"hex_midpoint": "decimal_hex"}, 0x50000000, "documentedPositions"),
    ],
    ids=["reference", "decimal_hex"],
)
def test_midpoints_are_exact_and_those_of_the_documents_come_from_decimal_arithmetic_on_hex_digits(
    settings: dict[str, Any], topic_count: int, flow: str
) -> None:
    hashes = [int(text, 16) for text in vector("split_topic_count")["hashes"]]
    topics = Topics(np.array(hashes, np.int64), np.zeros(6), np.zeros(6), np.ones(6, np.bool_))
    known = cluster_config(settings).split_algorithms
    assert known.boundaries(
        known.named("topic_count_equally_divide"), Range(0, 0x80000000, topics)
    ).positions == (topic_count,)
    for case in FLOW["cases"]:
        known = cluster_config(settings | limits(case)).split_algorithms
        found = known.boundaries(known.named("flow_or_qps_equally_divide"), flow_bundle())
        assert found.positions == tuple(int(text, 16) for text in case[flow])
