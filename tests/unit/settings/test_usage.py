"""Which settings count where: what is called unread changes nothing, whatever its value."""

import json
from collections.abc import Mapping
from typing import Any, get_args

import pytest

from lb_stream.contracts.keys import KeyModel
from lb_stream.settings.names import list_models
from lb_stream.settings.resolve import cluster_config
from lb_stream.settings.usage import (
    CONDITIONS,
    NONE_READS,
    explain_unread,
    find_readers,
    list_possible_readers,
    list_strategies_reading,
)
from lb_stream.sim import SimBroker, build_cluster
from tests.support.sim_loop import ClosedLoop
from tests.support.wordings import check_wording

START_MS = 1_767_225_600_000
QUICK: Mapping[str, Any] = {
    "shedding_interval_ms": 2_000,
    "shedding_grace_period_ms": 20_000,
    "history_ratio": 0.2,
    "threshold_percent": 5,
    "min_throughput_mb": 1.0,
    "overloaded_threshold_percent": 40,
    "low_threshold_points": 10,
    "high_threshold_points": 20,
    "hit_count_low": 2,
    "hit_count_high": 1,
    "rate_difference_percent": 25.0,
    "throughput_multiplier": 1.8,
    "target_std": 0.05,
    "hit_count_threshold": 0,
    "unload_delay_ms": 5_000,
    "comfort_percent": 90,
    "bundle_max_topics": 8,
    "namespace_max_bundles": 6,
}
"""Eager settings: rounds in which nothing happens would show nothing."""
CLUSTERS: Mapping[str, Mapping[str, Any]] = {
    "threshold": {},
    "overload": {
        "shedding_strategy": "OverloadShedder",
        "placement_strategy": "LeastResourceUsageWithWeight",
    },
    "range": {
        "shedding_strategy": "RangeThresholdShedder",
        "placement_strategy": "RoundRobinBrokerSelector",
        "split_enabled": False,
    },
    "uniform": {"shedding_strategy": "UniformLoadShedder", "count_pending_moves": False},
    "avg": {"shedding_strategy": "AvgShedder", "placement_strategy": "AvgShedder"},
    "transfer": {"shedding_strategy": "TransferShedder", "split_enabled": False},
    "extensible": {"load_manager": "extensible"},
    "simple": {
        "load_manager": "simple",
        "simple_placement_strategy": "leastMsgPerSecond",
        "usage_profile": "2.x",
    },
    "quiet": {"shedding_enabled": False, "split_enabled": False},  # a split moves its children
}
NAMES = {
    "auto_approve": ("kind=move",),
    "shedding_strategy": "OverloadShedder",
    "placement_strategy": "RoundRobinBrokerSelector",
    "simple_placement_strategy": "leastLoadedServer",
}


class Extensible(SimBroker):
    """A broker whose reports say that it runs the extensible manager: that one's filters let nobody
    else have a bundle."""

    def report(self) -> dict[str, Any]:
        return {
            **super().report(),
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.extensions."
            "ExtensibleLoadManagerImpl",
        }


def keys() -> dict[str, type[KeyModel]]:
    return {name: model for model in list_models() for name in model.model_fields}


def other_value(model: type[KeyModel], name: str, now: Any) -> Any:
    """A value of the key that isn't `now`, within its limits."""
    if name in NAMES:
        return NAMES[name]
    annotation = model.model_fields[name].annotation
    if isinstance(now, bool):
        return not now
    choices = [choice for choice in get_args(annotation) if isinstance(choice, str)]
    if choices:
        return next(choice for choice in choices if choice != now)
    if isinstance(now, tuple):
        return ("public/ns-0",)
    if isinstance(now, str):
        return f"{now}x"
    return 1 if now in (None, 0) else now / 2 if isinstance(now, float) else now // 2


def run(settings: Mapping[str, Any]) -> list[str]:
    """All that 25 rounds of a cluster with a hot broker decided, refused and remembered, except
    which settings were given: the audit compares these with the next job's."""
    loop = ClosedLoop(build_cluster(5, 40, "hot_spot", 1, START_MS, at_s=3.0), settings, START_MS)
    if settings.get("load_manager") == "extensible":
        loop.brokers = {
            name: Extensible(loop.cluster, name, clock=lambda: loop.now_ms) for name in loop.brokers
        }
    rounds = [loop.step() for _ in range(25)]
    memories = [json.loads(one.memory.to_json()) for one in rounds]
    assert all(memory.pop("own_settings") for memory in memories)
    return [
        f"{one.decisions} {one.refusals} {memory}"
        for one, memory in zip(rounds, memories, strict=True)
    ]


@pytest.mark.parametrize("name", CLUSTERS)
def test_what_is_called_unread_changes_nothing_whatever_its_value(name: str) -> None:
    settings = {**QUICK, **CLUSTERS[name]}
    config = cluster_config(settings)
    models = keys()
    unread = [key for key in models if not find_readers(key, config)]
    changed = {
        key: other_value(models[key], key, settings.get(key, models[key].model_fields[key].default))
        for key in unread
    }
    assert len(changed) > 15
    before = run(settings)
    assert name == "quiet" or any(
        "kind='unload'" in one or "kind='transfer'" in one for one in before
    )
    assert run({**settings, **changed}) == before


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("threshold", "threshold_percent"),
        ("threshold", "distribute_bundles_evenly"),
        ("threshold", "bundle_max_topics"),
        ("overload", "overloaded_threshold_percent"),
        ("uniform", "rate_difference_percent"),
        ("avg", "low_threshold_points"),
        ("transfer", "target_std"),
        ("simple", "overloaded_threshold_percent"),
    ],
)
def test_what_is_called_read_may_change_everything(name: str, key: str) -> None:
    settings = {**QUICK, **CLUSTERS[name]}
    assert find_readers(key, cluster_config(settings))
    other = {
        "distribute_bundles_evenly": False,
        "bundle_max_topics": 10_000,
        "target_std": 0.9,
    }.get(key, 90)
    assert run({**settings, key: other}) != run(settings)


def test_every_key_has_readers_or_a_reason_why_nobody_reads_it() -> None:
    config = cluster_config({})
    for name in keys():
        assert list_possible_readers(name)
        assert find_readers(name, config) or explain_unread(name, config)
    assert list_possible_readers("loadBalancerMultiPhaseBundleUnload") == (NONE_READS,)
    assert list_strategies_reading("comfort_percent") == ("SimpleLoadManager",)
    check_wording(explain_unread("comfort_percent", config))


def test_every_condition_is_about_a_key_that_there_is() -> None:
    assert set(CONDITIONS) <= set(keys())
