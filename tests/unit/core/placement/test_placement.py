"""Placement strategies: the specification's worked examples, and what the recorded decisions don't
show."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.filters import Census
from lb_stream.core.filters.anti_affinity import AntiAffinity, FailureDomain, unload_helps
from lb_stream.core.filters.base import FilterContext
from lb_stream.core.model.policies import Policies
from lb_stream.core.model.quotas import Learned
from lb_stream.core.model.view import ClusterView
from lb_stream.core.placement.base import Best, PlacementContext, Targets
from lb_stream.core.placement.round_robin import LAST_TURN
from lb_stream.core.placement.simple import Estimates, QuotaTally
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import view_of_loads

WEIGHTS = {"cpu": 1.0}
HEARTBEAT = "pulsar/a:8080/0x00000000_0xffffffff"
X, Y = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"


def vector(name: str) -> Any:
    return json.loads(
        (Path(__file__).parents[3] / "data" / "vectors" / f"{name}.json").read_text(
            encoding="utf-8"
        )
    )


def view_with(usage: dict[str, float], **more: Any) -> ClusterView:
    """Brokers with the given cpu usage that report one bundle and one message each."""
    brokers = {
        name: {"cpu": [cpu * 100, 100], "msgRateIn": 1, "bundles": [X], **more}
        for name, cpu in usage.items()
    }
    return view_of_loads({"brokers": brokers}, WEIGHTS)


def ask(
    config: ClusterConfig, view: ClusterView, memory: Any = None, among: list[str] | None = None
) -> tuple[list[str], Best, Any]:
    """One call of the configured strategy: the best brokers' names, all it says, what it
    remembers."""
    names = view.brokers.names
    rows = np.array([names.index(name) for name in (names if among is None else among)], np.intp)
    memory = config.placement.memory({}) if memory is None else memory
    best, memory = config.placement.function(
        PlacementContext(Targets.from_view(view), rows, 0, config.placement_config, memory)
    )
    return [names[row] for row in best.rows], best, memory


def test_what_one_round_places_on_a_broker_adds_up_resource_by_resource() -> None:
    brokers = {
        "a": {"cpu": [0, 100], "bandwidthIn": [80, 100], "msgThroughputIn": 100, "bundles": [X, Y]},
        "b": {"cpu": [50, 100], "bandwidthIn": [0, 100], "bundles": []},
    }
    data = {bundle: {"short": [50, 0, 0, 0]} for bundle in (X, Y)}
    targets = Targets.from_view(
        view_of_loads({"brokers": brokers, "bundleData": data}, {"cpu": 1.0, "bandwidth_in": 1.0})
    )
    expected = []
    for bundle in (0, 1):
        targets.add(bundle, 1)
        expected.append(float(targets.usage[1]))
    assert expected == pytest.approx(
        [0.5, 0.8]
    )  # the first one's bandwidth is still below the cpu, both together are not


# --- LeastResourceUsageWithWeight ---

MODULAR = {"placement_strategy": "LeastResourceUsageWithWeight"}


@pytest.mark.parametrize("profile", ["pulsar-4.0", "documented"])
@pytest.mark.parametrize("case", vector("place_lruww")["cases"])
def test_the_best_lie_below_the_average_by_the_difference(
    case: dict[str, Any], profile: str
) -> None:
    config = cluster_config(MODULAR | {"profile": profile} | vector("place_lruww")["config"])
    names, best, _ = ask(config, view_with(case["usage"]))
    assert names == case.get(
        "best_reference", case["best"]
    )  # 30 of 100 is a little more than 0.3 in single precision
    assert best.scores.mean() == pytest.approx(case["average"])


def test_every_call_is_a_sample_of_every_candidate_and_of_nobody_else() -> None:
    config = cluster_config(MODULAR | {"history_ratio": 0.5})
    _, _, memory = ask(config, view_with({"a": 0.5, "b": 0.25}))
    _, _, memory = ask(config, view_with({"a": 1.0, "b": 0.75}), memory, among=["a"])
    assert memory.usage == {"a": 0.75, "b": 0.25}
    assert config.placement.memory(json.loads(json.dumps(memory.to_dict()))).usage == memory.usage


@pytest.mark.parametrize("quiet", [{"bundles": []}, {"msgRateIn": 0}])
def test_the_past_does_not_count_for_a_broker_without_bundles_or_messages(
    quiet: dict[str, Any],
) -> None:
    config = cluster_config(MODULAR | {"history_ratio": 0.5})
    _, _, memory = ask(config, view_with({"a": 0.5}))
    _, _, memory = ask(config, view_with({"a": 1.0}, **quiet), memory)
    assert memory.usage == {"a": 1.0}


@pytest.mark.parametrize(("profile", "usage"), [("default", 1.0), ("pulsar-4.0", 0.75)])
def test_a_broker_with_nothing_but_its_heartbeat_bundle_has_no_bundle(
    profile: str, usage: float
) -> None:
    config = cluster_config(MODULAR | {"history_ratio": 0.5, "profile": profile})
    _, _, memory = ask(config, view_with({"a": 0.5}))
    _, _, memory = ask(config, view_with({"a": 1.0}, bundles=[HEARTBEAT]), memory)
    assert memory.usage == {"a": usage}


def test_brokers_that_are_dead_or_not_there_are_forgotten() -> None:
    config = cluster_config(MODULAR | {"history_ratio": 0.5})
    _, _, memory = ask(config, view_with({"a": 0.5, "b": 0.5, "c": 0.5}))
    view = view_with({"a": 0.5, "b": 0.5})
    view = replace(view, brokers=replace(view.brokers, alive=np.array([True, False])))
    _, _, memory = ask(config, view, memory, among=["a"])
    assert memory.to_dict() == {"usage": {"a": 0.5}}


EXTENSIBLE = {"load_manager": "extensible", "placement_strategy": "RoundRobinBrokerSelector"}


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        ([0.1, 0.5, 0.9], ["a"]),
        ([0.1, np.nan, 0.9], ["a"]),  # the average is that of those which are known
        ([0.5, np.nan, 0.5], ["a", "b", "c"]),
        ([np.nan, np.nan, np.nan], ["a", "b", "c"]),
    ],
)
def test_the_extensible_manager_goes_by_followed_loads_and_falls_back_on_everybody(
    loads: list[float], expected: list[str]
) -> None:
    view = view_with({"a": 0.9, "b": 0.1, "c": 0.1})
    view = replace(view, brokers=replace(view.brokers, load_ema=np.array(loads)))
    assert ask(cluster_config(EXTENSIBLE), view)[0] == expected


@pytest.mark.parametrize(
    "settings",
    [
        MODULAR,
        EXTENSIBLE,
        {},
        {"placement_strategy": "RoundRobinBrokerSelector"},
        {"load_manager": "simple"},
    ],
)
def test_without_candidates_nobody_is_best(settings: dict[str, Any]) -> None:
    assert ask(cluster_config(settings), view_with({"a": 0.5}), among=[])[0] == []


# --- RoundRobinBrokerSelector ---


def test_brokers_take_turns_and_a_change_is_seen_when_a_stale_one_is_met_or_their_number_changes() -> (
    None
):
    config = cluster_config({"placement_strategy": "RoundRobinBrokerSelector"})
    view, memory, seen = view_with(dict.fromkeys("abcd", 0.5)), None, []
    for among in ("abc", "abc", "abc", "abd", "abd", "abd", "ab"):
        names, _, memory = ask(config, view, memory, list(among))
        memory = config.placement.memory(memory.to_dict())
        seen += names
    assert seen == ["a", "b", "c", "a", "b", "d", "a"]
    assert memory is not None
    assert memory.to_dict() == {"turn": 7, "brokers": ["a", "b"]}


def test_the_turn_begins_anew_after_the_largest_number() -> None:
    config = cluster_config({"placement_strategy": "RoundRobinBrokerSelector"})
    view, memory = (
        view_with(dict.fromkeys("ab", 0.5)),
        config.placement.memory({"turn": LAST_TURN, "brokers": ["a", "b"]}),
    )
    assert [ask(config, view, memory)[0] for _ in range(3)] == [["b"], ["a"], ["b"]]


def test_a_broker_that_has_gone_keeps_its_turn_until_it_is_met() -> None:
    config = cluster_config({"placement_strategy": "RoundRobinBrokerSelector"})
    memory = config.placement.memory({"turn": 0, "brokers": ["b", "gone"]})
    view = view_with(dict.fromkeys("ab", 0.5))
    assert ask(config, view, memory)[0] == ["b"]
    assert memory.to_dict()["brokers"] == ["b", "gone"]
    assert ask(config, view, memory)[0] == ["b"]
    assert memory.to_dict()["brokers"] == ["a", "b"]


# --- anti-affinity ---


def grouped(counts: dict[str, int]) -> ClusterView:
    """Brokers that own one bundle each of as many namespaces of one group."""
    names = {
        broker: [f"t/n{index}-{broker}/0x00000000_0xffffffff" for index in range(count)]
        for broker, count in counts.items()
    }
    bundles = sorted(bundle for mine in names.values() for bundle in mine)
    loads = {
        "brokers": {broker: {"bundles": mine} for broker, mine in names.items()},
        "bundleOrder": bundles,
    }
    groups = {bundle.rpartition("/")[0]: "g" for bundle in bundles} | {"t/new": "G"}
    domains = {
        broker: domain
        for domain, brokers in vector("place_antiaffinity")["domains"].items()
        for broker in brokers
    }
    return replace(view_of_loads(loads, WEIGHTS), policies=Policies((), groups, domains))


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("domains", [True, False])
def test_a_groups_namespaces_keep_apart_as_in_the_worked_example(domains: bool, idle: bool) -> None:
    given = vector("place_antiaffinity")
    view = grouped(given["namespaceCounts"] | (given["withIdle"]["extra"] if idle else {}))
    census, asked = (
        Census(view),
        FilterContext(np.arange(len(view.brokers)), 0, "t/new", view.brokers.topics),
    )
    counts = census.of_group("t/new")
    assert counts is not None
    assert (
        dict(zip(view.brokers.names, counts.tolist(), strict=True)).items()
        >= given["namespaceCounts"].items()
    )
    if domains:
        kept = FailureDomain(view, census).keep(asked)
        assert {view.brokers.names[row][:2] for row in kept} == (
            {"b7"} if idle else {"b1", "b2", "b3", "b4"}
        )
        asked = replace(asked, rows=kept)
    kept = AntiAffinity(census).keep(asked)
    wanted = (
        given["withIdle"]["expected"]
        if idle
        else given["expectedCandidates"]
        if domains
        else given["withoutDomains"]
    )
    assert [view.brokers.names[row] for row in kept] == wanted


@pytest.mark.parametrize(
    ("counts", "allowed", "current", "helps"),
    [
        (None, [0, 1], 0, True),
        ([0, 0, 0], [0, 1], 0, True),
        ([1, 0, 0], [0, 1], 0, True),
        ([1, 1, 0], [0, 1], 0, False),  # the third broker, which has none, isn't allowed
        ([2, 1, 0], [0, 1], 0, True),
        ([1, 2, 0], [0, 1], 0, True),  # not all are equal: as the reference says
        ([0, 0, 5], [0, 1], 2, True),
        ([1, 1, 5], [0, 1], 2, False),
        ([1, 1, 5], [], 0, False),
    ],
)
def test_an_unload_helps_unless_all_allowed_brokers_have_equally_many(
    counts: list[int] | None, allowed: list[int], current: int, helps: bool
) -> None:
    assert (
        unload_helps(
            None if counts is None else np.array(counts), np.array(allowed, np.intp), current
        )
        is helps
    )


# --- the simple manager ---


@pytest.mark.parametrize(("profile", "chosen"), [("default", ["b"]), ("pulsar-4.0", ["a"])])
def test_a_broker_with_nothing_but_its_heartbeat_bundle_stays_empty_until_others_are_loaded(
    profile: str, chosen: list[str]
) -> None:
    config = cluster_config({"load_manager": "simple", "profile": profile})
    brokers = {
        "a": {"cpu": [10, 100], "bundles": [HEARTBEAT]},
        "b": {"cpu": [40, 100], "bundles": [X]},
    }
    view = view_of_loads({"brokers": brokers, "bundleData": {Y: {"short": [0, 0, 0, 0]}}}, WEIGHTS)
    best, _, _ = ask(config, view)
    assert best == chosen


def test_quotas_in_bytes_are_compared_with_bandwidths_in_kilobits() -> None:
    limits = {
        "cpu": [0, 400],
        "memory": [0, 4000],
        "directMemory": [30, 100],
        "bandwidthIn": [10, 1000],
        "bandwidthOut": [2500, 10_000],
    }
    view = view_of_loads(
        {
            "brokers": {"a": limits | {"bundles": [X]}, "b": limits},
            "bundleData": {Y: {"short": [0, 0, 0, 0]}},
        },
        WEIGHTS,
    )
    book = QuotaTally.from_view(replace(view, quotas=Learned.initial(2)))
    seen = Estimates.from_tally(book, np.array([0, 1]))
    shown = {name: percents.tolist() for name, percents in seen.percents.items()}
    assert shown == {
        "cpu": [1.0, 0.0],  # 160 msg/s at 0.025 %
        "memory": [2.0, 0.0],
        "bandwidth_in": [pytest.approx(78.125), 1.0],  # 100 000 bytes/s are 781.25 kbit/s
        "bandwidth_out": [25.0, 25.0],
        "direct_memory": [30.0, 30.0],
    }
    assert seen.load.tolist() == [pytest.approx(78.125), 30.0]
    assert (seen.rate.tolist(), book.bundles.tolist()) == ([160.0, 0.0], [1, 0])
    assert seen.capacity.tolist() == [1.0, 1.0]  # 1 000 kbit/s inbound carry one bundle and a bit
    place = int(view.bundles.rows_of([Y])[0])
    book.count([(place, 1)])
    assert (book.bundles.tolist(), Estimates.from_tally(book, np.array([1])).rate.tolist()) == (
        [1, 1],
        [160.0],
    )


def test_a_bundle_on_its_way_is_preallocated_at_its_destination() -> None:
    view = view_of_loads({"brokers": {"a": {"bundles": [X]}, "b": {"bundles": [Y]}}}, WEIGHTS)
    in_flight = np.array([name == Y for name in view.bundles.names.to_pylist()])
    book = QuotaTally.from_view(replace(view, bundles=replace(view.bundles, in_flight=in_flight)))
    assert (book.loaded["rate_in"].tolist(), book.preallocated["rate_in"].tolist()) == (
        [40.0, 0.0],
        [0.0, 40.0],
    )
    assert book.bundles.tolist() == [1, 1]


# --- which strategy a cluster uses ---


@pytest.mark.parametrize(
    ("settings", "name", "unit"),
    [
        (
            {
                "placement_strategy": "org.apache.pulsar.broker.loadbalance.impl.RoundRobinBrokerSelector"
            },
            "RoundRobinBrokerSelector",
            "turn",
        ),
        (EXTENSIBLE, "LeastResourceUsageWithWeight", "ratio"),
        ({"load_manager": "simple"}, "leastLoadedServer", "%"),
        (
            {"load_manager": "simple", "loadBalancerPlacementStrategy": "leastMsgPerSecond"},
            "leastMsgPerSecond",
            "msg/s",
        ),
        (
            {"load_manager": "simple", "loadBalancerPlacementStrategy": "no such"},
            "weightedRandomSelection",
            "%",
        ),
        (
            {
                "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.SimpleLoadManagerImpl"
            },
            "leastLoadedServer",
            "%",
        ),
    ],
)
def test_the_load_manager_decides_whose_strategies_there_are(
    settings: dict[str, Any], name: str, unit: str
) -> None:
    config = cluster_config(settings)
    assert config.placement.name == name
    assert ask(config, view_with({"a": 0.5}))[1].unit == unit
