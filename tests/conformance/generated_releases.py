"""Generated cases of the kinds that show what Pulsar 4.2 and 5.0 changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    counts,
    dealt,
    four,
    load_data,
    make_cases,
    names_of_brokers,
    names_of_bundles,
    percent,
    resources,
    session_stats,
    shedder_cases,
    topics_of,
    whole_steps,
)
from tests.conformance.registry import PULSAR_4_0

PACKAGE = "org.apache.pulsar.broker.loadbalance."
CLASSES = f"{PACKAGE}impl."
SPACES = ["t/n0", "t/n1", "t/n2"]
NEW = ["t/n0/0x08000000_0x0c000000"]
"""A bundle that no report names."""


@st.composite
def _avg_plan(draw: Draw) -> Case:
    """Rounds of AvgShedder, and placements between which loads change and brokers go.

    Half of the steps are about bundles of the broker that sheds: without its partner, which the
    plan names, without both, or with a partner that has become hot.
    """
    keys = AVG_KEYS | {
        "loadBalancerBrokerOverloadedThresholdPercentage": [30, 60, 85],
        "loadBalancerAvgShedderHitCountHighThreshold": [1, 1, 2],
        "loadBalancerAvgShedderHitCountLowThreshold": [1, 2],
        "minUnloadMessage": [0, 0, 100],
        "minUnloadMessageThroughput": [0],
    }
    given = []
    for _ in range(draw(st.integers(1, 3))):
        one = draw(load_data(whole_steps, 2))
        brokers = one["brokers"]
        names, bundles = (
            sorted(brokers, key=lambda name: brokers[name]["cpu"][0]),
            [*one["bundleData"]],
        )
        partner, hot = names[0], names[-1]
        of_hot = [bundle for bundle in bundles if bundle in brokers[hot]["bundles"]]
        steps: list[Case] = []
        for _ in range(draw(st.integers(0, 8)) if bundles else 0):
            gone = draw(st.sampled_from([[], [], [], [partner], [hot, partner], names[:-1]]))
            step: Case = {
                "bundle": draw(st.sampled_from(bundles + of_hot * 3)),
                "candidates": [
                    name for name in names if name not in gone and draw(st.integers(0, 7))
                ],
            }
            if draw(st.integers(0, 2)) == 0:
                heated = draw(st.sampled_from([partner, *names]))
                step["brokers"] = {heated: brokers[heated] | {"cpu": [draw(percent), 100]}}
            if draw(st.integers(0, 6)) == 0:
                step["gone"] = [draw(st.sampled_from([partner, *names]))]
            steps.append({"completed": True} if draw(st.integers(0, 11)) == 0 else step)
        shed = {} if draw(st.integers(0, 4)) else {"shed": False}
        given.append(one | {"steps": steps, "activeBrokers": names} | shed)
    own = _pick(draw, keys, "loadBalancerBrokerOverloadedThresholdPercentage")
    return {"kind": "avg_plan", "config": own, "rounds": given}


def _pick(draw: Draw, keys: Mapping[str, Sequence[Any]], *maybe: str) -> Case:
    """Draw a value of each key; those of `maybe` may be left out."""
    return {
        name: draw(st.sampled_from(values))
        for name, values in keys.items()
        if name not in maybe or draw(st.booleans())
    }


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
            | ({"leaderUnloads": draw(counts)} if draw(st.integers(0, 7)) == 0 else {})
            | ({"assign": names[:2] + NEW} if draw(st.integers(0, 3)) == 0 else {})
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
    managers = ["", "no.such.Manager", "java.lang.String", "NoopLoadManager"]
    managers += [f"impl.{name}" for name in ("ModularLoadManagerImpl", "SimpleLoadManagerImpl")]
    if draw(st.integers(0, 4)) == 0:
        manager = draw(st.sampled_from(managers))
        name = manager if "." in manager.removeprefix("impl.") or not manager else PACKAGE + manager
        return {"kind": "manager_start", "config": {"loadManagerClassName": name}}
    chosen = {
        "loadBalancerLoadSheddingStrategy": draw(st.sampled_from([None, *shedders])),
        "loadBalancerLoadPlacementStrategy": draw(st.sampled_from([None, *placements])),
    }
    own = {key: f"{CLASSES}{name}" for key, name in chosen.items() if name is not None}
    return {"kind": "manager_start", "config": own}


@st.composite
def _isolation(draw: Draw) -> Case:
    """Policies whose expressions name hosts, ports, both, or nothing that is there."""
    hosts = ["broker-0.pulsar", "broker-1.pulsar", "10.0.0.1", "[2001:db8::6]", "[::1]"]
    brokers = [f"{host}:{port}" for host in hosts for port in ("8080", "8081", "x")]
    pattern = st.sampled_from(
        [
            *("broker-0.*", "broker-.*", "10\\.0\\.0\\.\\d+", ".*:8080", "broker-0\\.pulsar:.*"),
            *("broker-1\\.pulsar", "nobody", ".*", "10\\.0\\.0\\.1:8081", ".*2001.*:8080"),
            *("\\[::1\\]:.*", "\\[?::1\\]?:8080", "::1:8080", "\\[::1\\]"),
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


# --- more of the kinds that 4.0 has, too ---


@st.composite
def _excluding(draw: Draw, case: Case) -> Case:
    """The case with excluded namespaces, now and then."""
    if draw(st.integers(0, 2)):
        excluded = draw(st.lists(st.sampled_from(SPACES), min_size=1, max_size=2, unique=True))
        case["config"]["loadBalancerSheddingExcludedNamespaces"] = excluded
    return case


@st.composite
def _with_own_namespaces(draw: Draw, case: Case) -> Case:
    """The case with heartbeat and SLA-monitor bundles, of two parts and of three."""
    for given in case["rounds"]:
        for name, broker in given["brokers"].items():
            if draw(st.integers(0, 3)) == 0:
                space = draw(
                    st.sampled_from(["pulsar", "sla-monitor", "pulsar/c", "sla-monitor/c"])
                )
                bundle = f"{space}/{name}/0x00000000_0xffffffff"
                broker["bundles"] = [*broker["bundles"], bundle]
                given["bundleData"][bundle] = draw(bundle_data)
    return case


@st.composite
def _saturating(draw: Draw, case: Case) -> Case:
    """The case with so much traffic, now and then, that 32 bits don't hold the need."""
    if draw(st.integers(0, 3)):
        return case
    for given in case["rounds"]:
        for broker in given["brokers"].values():
            broker |= {name: broker[name] * 100_000 for name in TOTALS if name in broker}
        for data in given["bundleData"].values():
            data["short"] = [value * 100_000 for value in data["short"]]
    return case


@st.composite
def _names_of_topics(draw: Draw, case: Case) -> Case:
    """The case with a single topic of any domain, whose name may be none."""
    local = draw(st.sampled_from(["orders", "a/b", "a/b/c", "é/x", "", " "]))
    number, ends = draw(st.integers(0, 99)), ["0-7FFF", "0000-7fff", "8000-ffff", "2-1", "0-10000"]
    end = draw(st.sampled_from(["", *(f"/{hashes}-{number}" for hashes in ends), "/0-1-x"]))
    begin = draw(
        st.sampled_from(
            [
                *(f"{domain}://t/n0/" for domain in ("persistent", "topic", "segment", "bogus")),
                *("segment://t/n0/", "persistent://t/c/n0/", "topic://t/c/n0/", "t/c/n0/", "t/n0/"),
                *("persistent://t$/n0/", "t/", "", "/", "segment://t/n 0/"),
            ]
        )
    )
    return case | {"topics": [begin + local + (end if begin.startswith("segment") else "")]}


TOTALS = ("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut")
SHEDDERS = {
    "overload": KINDS["overload"],
    "threshold": KINDS["threshold"],
    "uniform": KINDS["uniform"].flatmap(_saturating),
    # since 4.2 scores less than a point apart are in their order
    "avg": shedder_cases("avg", AVG_KEYS),
}
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

SINCE_4_2: dict[str, st.SearchStrategy[Case]] = {
    **{kind: made.flatmap(_with_own_namespaces) for kind, made in SHEDDERS.items()},
    **{
        kind: ALL_KINDS[kind].flatmap(_excluding)
        for kind in ("transfer", "manager", "manager_shed", "top_bundles", "place_ext_manager")
    },
    "topic_hash": KINDS["topic_hash"].flatmap(
        lambda case: st.one_of(st.just(case), _names_of_topics(case))
    ),
}
"""Kinds of which releases since 4.2 are asked more than 4.0 → the strategy that makes some."""


def cases(kind: str, count: int, begin: int, profile: str = PULSAR_4_0) -> list[Case]:
    """Make so many different cases of any kind for a release; the same for the same `begin`."""
    made = ALL_KINDS[kind] if profile == PULSAR_4_0 else SINCE_4_2.get(kind, ALL_KINDS[kind])
    return make_cases(kind, made, count, begin)
