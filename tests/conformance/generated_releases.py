"""Generated cases of the kinds that show what Pulsar 4.2 and 5.0 changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.conformance.generated import (
    ALGORITHMS,
    AVG_KEYS,
    KINDS,
    SPLIT_KEYS,
    WEIGHTS,
    Case,
    Draw,
    bundle_data,
    config,
    dealt,
    four,
    load_data,
    make_cases,
    names_of_brokers,
    names_of_bundles,
    percent,
    resources,
    session_stats,
    topics_of,
    whole_steps,
)

CLASSES = "org.apache.pulsar.broker.loadbalance.impl."
SPACES = ["t/n0", "t/n1", "t/n2"]


@st.composite
def _avg_plan(draw: Draw) -> Case:
    """Rounds of AvgShedder, and placements between which loads change and brokers go."""
    keys = AVG_KEYS | {"loadBalancerBrokerOverloadedThresholdPercentage": [30, 60, 85]}
    given = []
    for _ in range(draw(st.integers(1, 3))):
        one = draw(load_data(whole_steps, 2))
        names, bundles = [*one["brokers"]], [*one["bundleData"]]
        steps: list[Case] = []
        for _ in range(draw(st.integers(0, 6)) if bundles else 0):
            step: Case = {
                "bundle": draw(st.sampled_from(bundles)),
                "candidates": [name for name in names if draw(st.integers(0, 4))],
            }
            if draw(st.integers(0, 4)) == 0:
                hot = draw(st.sampled_from(names))
                step["brokers"] = {hot: one["brokers"][hot] | {"cpu": [draw(percent), 100]}}
            if draw(st.integers(0, 6)) == 0:
                step["gone"] = [draw(st.sampled_from(names))]
            steps.append({"completed": True} if draw(st.integers(0, 9)) == 0 else step)
        shed = {} if draw(st.integers(0, 4)) else {"shed": False}
        given.append(one | {"steps": steps, "activeBrokers": names} | shed)
    own = {name: value for name, value in draw(config(**keys)).items() if name not in WEIGHTS}
    return {"kind": "avg_plan", "config": own, "rounds": given}


@st.composite
def _manager_shed(draw: Draw) -> Case:
    """A leader's rounds: reports, a shedding pass, assignments."""
    strategy = draw(
        st.sampled_from(["AvgShedder", "ThresholdShedder", "OverloadShedder", "UniformLoadShedder"])
    )
    pairs = strategy == "AvgShedder" and draw(st.integers(0, 4))
    keys: dict[str, Sequence[Any]] = {
        "loadBalancerAvgShedderHitCountHighThreshold": [1, 2],
        "loadBalancerAvgShedderHitCountLowThreshold": [1, 4],
        "minUnloadMessage": [0, 10],
        "minUnloadMessageThroughput": [0],
        "maxUnloadPercentage": [0.2, 0.5, 0.9],
        "loadBalancerBundleUnloadMinThroughputThreshold": [0],
        "loadBalancerHistoryResourcePercentage": [0, 0.5],
    }
    own = {name: draw(st.sampled_from(values)) for name, values in keys.items()} | {
        "loadBalancerLoadSheddingStrategy": f"{CLASSES}{strategy}",
        "loadBalancerLoadPlacementStrategy": (
            f"{CLASSES}{'AvgShedder' if pairs else 'LeastLongTermMessageRate'}"
        ),
        "loadBalancerDistributeBundlesEvenlyEnabled": draw(st.booleans()),
    }
    brokers = draw(names_of_brokers(2, 5))
    given = []
    for _ in range(draw(st.integers(1, 3))):
        names = [name for name in draw(names_of_bundles(0, 12)) if not name.startswith("pulsar/")]
        served = dealt(draw, names, brokers)
        reports = {
            name: {
                "cpu": [draw(percent), 100],
                "lastStats": {
                    bundle: [*draw(four), draw(st.integers(0, 40))] for bundle in served[name]
                },
            }
            for name in brokers
        }
        given.append(
            {"brokers": reports, "leaderOwned": []}
            | ({"forgetUnloads": True} if draw(st.booleans()) else {})
            | ({"leaderUnloads": 1} if draw(st.integers(0, 7)) == 0 else {})
        )
    everything = [
        bundle
        for one in given
        for report in one["brokers"].values()
        for bundle in report["lastStats"]
    ]
    failing = [bundle for bundle in dict.fromkeys(everything) if draw(st.integers(0, 9)) == 0]
    case: Case = {"kind": "manager_shed", "config": own, "rounds": given}
    return case | ({"failingUnloads": failing} if failing else {})


@st.composite
def _manager_split(draw: Draw) -> Case:
    """Bundles of today's rings, and of earlier ones."""
    brokers, names = draw(names_of_brokers(1, 4)), draw(names_of_bundles(0, 10))
    names = [name for name in names if not name.startswith("pulsar/")]
    served = dealt(draw, names, brokers)
    cuts = [f"0x{min(part << 28, 0xFFFFFFFF):08x}" for part in range(17)]
    rings = {
        space: [cut for cut in cuts if cut in (cuts[0], cuts[-1]) or draw(st.integers(0, 5))]
        for space in SPACES
    }
    keys = SPLIT_KEYS | {"loadBalancerAutoUnloadSplitBundlesEnabled": [True, False]}
    own = {name: value for name, value in draw(config(**keys)).items() if name not in WEIGHTS}
    return {
        "kind": "manager_split",
        "config": own,
        "rings": rings,
        "brokers": {
            name: {"lastStats": {bundle: draw(session_stats) for bundle in served[name]}}
            for name in brokers
        },
        "bundleData": {name: draw(bundle_data) for name in names},
        "failingSplits": [name for name in names if draw(st.integers(0, 4)) == 0],
    }


@st.composite
def _manager_start(draw: Draw) -> Case:
    shedders = ["AvgShedder", "ThresholdShedder", "OverloadShedder", "UniformLoadShedder", "Nope"]
    placements = [
        "AvgShedder",
        "LeastLongTermMessageRate",
        "LeastResourceUsageWithWeight",
        "RoundRobinBrokerSelector",
        "Nope",
    ]
    chosen = {
        "loadBalancerLoadSheddingStrategy": draw(st.sampled_from([None, *shedders])),
        "loadBalancerLoadPlacementStrategy": draw(st.sampled_from([None, *placements])),
    }
    own = {key: f"{CLASSES}{name}" for key, name in chosen.items() if name is not None}
    return {"kind": "manager_start", "config": own}


@st.composite
def _isolation(draw: Draw) -> Case:
    """Policies whose expressions name hosts, ports, both, or nothing that is there."""
    hosts = ["broker-0.pulsar", "broker-1.pulsar", "10.0.0.1", "[2001:db8::6]"]
    brokers = [f"{host}:{port}" for host in hosts for port in ("8080", "8081", "x")]
    pattern = st.sampled_from(
        [
            *("broker-0.*", "broker-.*", "10\\.0\\.0\\.\\d+", ".*:8080", "broker-0\\.pulsar:.*"),
            *("broker-1\\.pulsar", "nobody", ".*", "10\\.0\\.0\\.1:8081", ".*2001.*:8080"),
        ]
    )
    policies = {
        f"p{number}": {
            "namespaces": [draw(st.sampled_from(["t/n0", "t/.*", "t/n1"]))],
            "primary": draw(st.lists(pattern, min_size=1, max_size=2, unique=True)),
            "secondary": draw(st.lists(pattern, max_size=2, unique=True)),
            "minLimit": draw(st.integers(0, 3)),
        }
        for number in range(draw(st.integers(1, 3)))
    }
    return {
        "kind": "isolation",
        "config": {},
        "policies": policies,
        "brokers": [name for name in draw(st.permutations(brokers)) if draw(st.booleans())],
        "bundle": draw(st.sampled_from(["t/n0", "t/n1", "v/n"])) + "/0x00000000_0xffffffff",
    }


@st.composite
def _place_ext_manager(draw: Draw) -> Case:
    keys: dict[str, Sequence[Any]] = {
        "loadBalancerAverageResourceUsageDifferenceThresholdPercentage": [0, 1, 5, 20],
        "loadBalancerBrokerMaxTopics": [10, 50, 50_000],
    }
    given, brokers = [], draw(names_of_brokers(1, 6))
    for _ in range(draw(st.integers(1, 3))):
        reports = {
            name: draw(resources())
            | {"bundleCount": draw(st.integers(0, 9)), "topics": draw(st.sampled_from([0, 10, 60]))}
            for name in brokers
        }
        select = [
            {"bundle": bundle} | ({"exclude": brokers[:1]} if draw(st.integers(0, 5)) == 0 else {})
            for bundle in draw(names_of_bundles(1, 6))
            if not bundle.startswith("pulsar/")
        ]
        given.append({"brokers": reports, "select": select})
    own = draw(config(**keys))
    return {"kind": "place_ext_manager", "config": own, "rounds": given}


@st.composite
def _split_request(draw: Draw) -> Case:
    bundle = draw(st.sampled_from(["t/n0/0x00000000_0xffffffff", "t/n0/0x40000000_0x80000000"]))
    known = draw(topics_of([bundle]))
    keys: dict[str, Sequence[Any]] = {
        "loadBalancerNamespaceBundleMaxMsgRate": [0, 100, 30_000],
        "defaultNamespaceBundleSplitAlgorithm": [
            *(name for name in ALGORITHMS if name != "specified_positions_divide")
        ],
    }
    own = {name: value for name, value in draw(config(**keys)).items() if name not in WEIGHTS}
    asked = draw(st.sampled_from([None, "nonsense", *keys["defaultNamespaceBundleSplitAlgorithm"]]))
    case = {
        "kind": "split_request",
        "bundle": bundle,
        "config": own,
        "topics": known["topics"][bundle],
        "topicStats": known["topicStats"],
    }
    return case | ({} if asked is None else {"algorithm": asked})


@st.composite
def _system_namespaces(draw: Draw) -> Case:
    part = st.sampled_from(["pulsar", "sla-monitor", "c", "b0:8080", "system", "t", "n", "b:x:1"])
    name = st.lists(part, min_size=2, max_size=4).map("/".join)
    return {"kind": "system_namespaces", "namespaces": draw(st.lists(name, min_size=1, max_size=9))}


KINDS_OF_RELEASES: dict[str, st.SearchStrategy[Case]] = {
    "avg_plan": _avg_plan(),
    "isolation": _isolation(),
    "manager_shed": _manager_shed(),
    "manager_split": _manager_split(),
    "manager_start": _manager_start(),
    "place_ext_manager": _place_ext_manager(),
    "split_request": _split_request(),
    "system_namespaces": _system_namespaces(),
}
"""Each kind of case that came with 4.2 and 5.0 → the strategy that makes some."""

ALL_KINDS = KINDS | KINDS_OF_RELEASES


def cases(kind: str, count: int, begin: int) -> list[Case]:
    """Make so many different cases of any kind; the same for the same `begin`."""
    return make_cases(kind, ALL_KINDS[kind], count, begin)
