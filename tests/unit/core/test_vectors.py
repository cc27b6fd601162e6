"""The specification's worked examples, in both profiles where they differ."""

from typing import Any

import numpy as np
import pytest

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import DEFAULT_RATES, FoldConfig, fold
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.chance import draw
from lb_stream.core.model.rates import RATE_COLUMNS
from lb_stream.core.model.resources import max_usage, max_weighted_usage, percent
from lb_stream.core.shedding.base import ShedContext
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import FOUR_NAMES, resource_columns, view_of_loads
from tests.support.build import Report, batch_of
from tests.support.vectors import PROFILES, loads, place, shed, vector

OUR_NAMES = dict(zip(FOUR_NAMES, RATE_COLUMNS, strict=True))


# --- usage ---


@pytest.mark.parametrize("case", vector("usage_ratio")["cases"])
def test_a_usage_is_computed_in_single_precision_and_its_maximum_in_double(
    case: dict[str, Any],
) -> None:
    columns = resource_columns([case["usageLimit"]])
    for theirs, expected in case["percent"].items():
        ours = {
            "directMemory": "direct_memory",
            "bandwidthIn": "bandwidth_in",
            "bandwidthOut": "bandwidth_out",
        }.get(theirs, theirs)
        assert float(percent(*columns[ours])[0]) == expected
    assert float(max_usage(columns)[0]) == pytest.approx(case["unweightedMax"], rel=1e-6)


@pytest.mark.parametrize(
    ("profile", "field"),
    [("pulsar-4.0", "weightedMax_default_weights"), ("documented", "max_profile_2x")],
)
@pytest.mark.parametrize("case", vector("usage_ratio")["cases"])
def test_a_brokers_usage_counts_the_resources_of_its_profile(
    profile: str, field: str, case: dict[str, Any]
) -> None:
    weights = cluster_config({"profile": profile}).balancer.weights
    assert float(
        max_weighted_usage(resource_columns([case["usageLimit"]]), weights)[0]
    ) == pytest.approx(case[field], rel=1e-12)


# --- averages ---


def test_short_and_long_averages_follow_the_worked_example_sample_by_sample() -> None:
    expected = vector("avg_bundle")
    shard = Shard.empty()
    config = FoldConfig(expected["shortMax"], expected["longMax"])
    for now_ms, step in enumerate(expected["steps"]):
        shard, _ = fold(
            shard,
            batch_of([Report("b", now_ms, {"p": BundleStats(msg_rate_in=step["sample"])})]),
            now_ms,
            config,
        )
        row = shard.bundles.to_pylist()[0]
        seen = {
            span: (row[f"{span}_rate_in_msgs_per_s"], row[f"{span}_samples"])
            for span in ("short", "long")
        }
        assert seen == {span: (step[span], step[f"{span}NumSamples"]) for span in ("short", "long")}


def test_a_bundle_without_samples_has_the_documented_defaults() -> None:
    defaults = vector("avg_bundle")["defaults"]
    assert tuple(defaults[name] for name in FOUR_NAMES) == DEFAULT_RATES
    shard, _ = fold(Shard.empty(), batch_of([Report("b", 0, {"p": None})]), 0, FoldConfig())
    row = shard.bundles.to_pylist()[0]
    assert {
        name: row[f"{span}_{OUR_NAMES[name]}"] for name in FOUR_NAMES for span in ("short", "long")
    } == {name: float(defaults[name]) for name in FOUR_NAMES}
    assert (row["short_samples"], row["long_samples"]) == (0, 0)


def test_a_brokers_averages_are_the_sums_over_its_bundles_unknown_ones_at_the_default() -> None:
    given = vector("avg_broker")
    data = {
        name: {span: [data[span][value] for value in FOUR_NAMES] for span in data}
        for name, data in given["bundleData"].items()
    }
    view = view_of_loads(
        {"brokers": {"b": {"bundles": given["bundles"]}}, "bundleData": data}, {"cpu": 1.0}
    )
    seen = {"short": view.brokers.short.row(0), "long": view.brokers.long.row(0)}
    wanted = {
        span: tuple(
            given["expected"][f"{span}Term{name[0].upper()}{name[1:]}"] for name in FOUR_NAMES
        )
        for span in seen
    }
    assert seen == wanted


def test_the_default_windows_are_the_documented_minutes() -> None:
    given, config = vector("avg_windows"), cluster_config({}).fold
    assert config.short_samples * given["updateIntervalMinutes"] == given["expectedShortMinutes"]
    assert config.long_samples * given["updateIntervalMinutes"] == given["expectedLongMinutes"]


# --- ThresholdShedder ---


@pytest.mark.parametrize("profile", PROFILES)
def test_threshold_shedder_unloads_from_the_documented_hot_broker_only(profile: str) -> None:
    given = vector("shed_threshold")
    bundles = {name: {f"{name}/x": 5e8, f"{name}/y": 1e8} for name in given["usage"]}
    found, (unloads, _), _ = shed(
        loads(given["usage"], 1e9, bundles), {"profile": profile} | given["config"]
    )
    assert list(found) == given["expectedShedding"]
    assert unloads.proposals[0].average == pytest.approx(
        given["expectedClusterAverage"], abs=1e-7
    )  # usages are single precision
    assert unloads.proposals[0].limit == pytest.approx(given["expectedThreshold"], abs=1e-7)


@pytest.mark.parametrize(
    ("profile", "expected"), [("pulsar-4.0", ["a", "b"]), ("documented", ["a", "b", "c", "d"])]
)
def test_bundles_leave_until_the_profiles_share_of_the_throughput_is_reached(
    profile: str, expected: list[str]
) -> None:
    given = vector("shed_threshold")
    amounts = given["amounts"]
    data = loads(given["usage"], amounts["broker1Throughput"], {"broker1": amounts["bundles"]})
    found, _, _ = shed(data, {"profile": profile} | given["config"])
    assert found == {"broker1": expected}
    assert amounts["expected"] == ["a", "b"]


@pytest.mark.parametrize(
    ("profile", "expected"), [("pulsar-4.0", {}), ("documented", {"broker1": ["a"]})]
)
def test_a_small_broker_sheds_only_when_more_than_the_least_throughput_would_move(
    profile: str, expected: dict[str, list[str]]
) -> None:
    given = vector("shed_threshold")
    data = loads(
        given["usage"],
        given["amounts"]["smallBroker"]["broker1Throughput"],
        {"broker1": given["amounts"]["bundles"]},
    )
    found, (unloads, _), _ = shed(data, {"profile": profile} | given["config"])
    assert found == expected
    assert [refusal.rule for refusal in unloads.refusals] == (
        [] if expected else ["min_throughput"]
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_a_broker_exactly_at_average_plus_threshold_sheds(profile: str) -> None:
    given = vector("shed_threshold")["equality"]
    bundles = {name: {f"{name}/x": 5e8, f"{name}/y": 1e8} for name in given["usage"]}
    settings = {
        "profile": profile,
        "loadBalancerBrokerThresholdShedderPercentage": given["thresholdPercentage"],
    }
    found, _, _ = shed(loads(given["usage"], 1e9, bundles), settings)
    assert list(found) == given["expectedShedding"]


def test_smoothed_usage_follows_the_worked_history() -> None:
    given = vector("avg_history")
    config = cluster_config({"loadBalancerHistoryResourcePercentage": given["historyPercentage"]})
    memory = config.shedder.memory({})
    for step in given["steps"]:
        view = view_of_loads(loads({"b": step["usage"]}), config.balancer.weights)
        _, memory = config.shedder.function(ShedContext.build(view, config.shedder_config, memory))
        assert memory.usage["b"] == pytest.approx(step["smoothed"], abs=1e-7)


@pytest.mark.parametrize("enabled", [False, True])
def test_with_the_lower_boundary_one_of_ten_equally_loaded_brokers_helps_the_idle_one(
    enabled: bool,
) -> None:
    given = vector("shed_threshold_lower_boundary")
    bundles = {
        name: {f"{name}/{index}": load for index, load in enumerate(given["bundlesEach"])}
        for name, usage in given["usage"].items()
        if usage > 0
    }
    data = loads(given["usage"], given["throughputEach"], bundles)
    found, _, view = shed(data, given["config"] | {"lowerBoundarySheddingEnabled": enabled})
    sizes = {
        broker: [
            float(view.bundles.short.throughput[view.bundles.rows_of([name])[0]]) for name in names
        ]
        for broker, names in found.items()
    }
    assert sizes == (given["expectedWith"] if enabled else given["expectedWithout"])


# --- LeastLongTermMessageRate ---


@pytest.mark.parametrize(
    ("profile", "field"), [("pulsar-4.0", "expectedNone"), ("documented", "expectedDocumented")]
)
def test_the_least_long_term_rate_wins_weighted_as_the_profile_says(
    profile: str, field: str
) -> None:
    given = vector("place_llmr")
    best, scores = place(given["brokers"], {"profile": profile} | given["config"])
    assert best == given[field]["best"]
    wanted = {
        name: np.inf if isinstance(score, str) else score
        for name, score in given[field]["scores"].items()
    }
    assert scores == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("case", vector("place_llmr")["preallocated"])
def test_bundles_on_their_way_count_at_their_destination(case: dict[str, Any]) -> None:
    given = vector("place_llmr")
    best, scores = place(given["brokers"], given["config"], {"B": case["B"]})
    assert (best, scores["B"]) == (case["best"], case["scoreB"])


@pytest.mark.parametrize("profile", PROFILES)
def test_when_all_are_overloaded_all_are_equally_good(profile: str) -> None:
    given = vector("place_llmr")["allOverloaded"]
    best, _ = place(given["brokers"], {"profile": profile})
    assert best == given["best"]


def test_a_broker_exactly_at_the_threshold_is_not_overloaded() -> None:
    given = vector("place_llmr")["atThreshold"]
    _, scores = place({"A": {"longRate": 5, "usage": given["usage"]}}, {})
    assert np.isinf(scores["A"]) == given["overloaded"]


def test_a_broker_exactly_at_the_threshold_is_the_last_choice_when_rates_are_weighted() -> None:
    brokers = {
        "A": {"longRate": 0, "usage": 0.75},
        "B": {"longRate": 1e9, "usage": 0.5},
    }  # both exact in single precision
    best, scores = place(brokers, {"profile": "documented", "overloaded_threshold_percent": 75})
    assert (best, scores["A"]) == (["B"], np.inf)


def test_chance_is_fair_and_repeatable() -> None:
    rows = np.arange(4)
    drawn = [draw(7, f"t/n/{index}", rows) for index in range(400)]
    assert drawn == [draw(7, f"t/n/{index}", rows) for index in range(400)]
    assert np.bincount(drawn, minlength=4).min() > 60
