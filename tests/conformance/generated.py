"""Cases that nobody has written: hypothesis strategies for each kind, in the form that the recorded
cases have.

Figures come from coarse grids, so that ties, zeros and exact limits are met often. Left out, as in
the recorded cases: what Pulsar's own classes answer by chance (ties inside the quick-select of top
bundles; of 4.0, AvgShedder's scores less than a point apart).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from lb_stream.core.model.names import parse_bundle

Case = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

WEIGHTS = tuple(
    f"loadBalancer{name}ResourceWeight"
    for name in ("CPU", "DirectMemory", "BandwidthIn", "BandwidthOut")
)
ALGORITHMS = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
)
PLACEMENTS = tuple(
    f"org.apache.pulsar.broker.loadbalance.impl.{name}"
    for name in ("LeastLongTermMessageRate", "LeastResourceUsageWithWeight")
)

# --- parts ---

counts = st.integers(0, 3)
rate = st.one_of(
    st.sampled_from([0, 1, 10, 100, 1000, 4096]),
    st.integers(0, 60_000),
    st.floats(0, 1e5).map(lambda value: round(value, 6)),
)
throughput = st.one_of(
    st.sampled_from([0, 1, 1000, 1_048_576, 10_485_760]),
    st.integers(0, 1 << 30),
    st.floats(0, 1e9).map(lambda value: round(value, 6)),
)
four = st.tuples(throughput, throughput, rate, rate).map(list)
percent = st.integers(0, 48).map(lambda steps: steps * 2.5)
limit = st.sampled_from([0, 1, 100, 400, 1600, 1e7, 12345.678])
usage = st.one_of(percent, st.floats(0, 130).map(lambda value: round(value, 3)))


@st.composite
def resource(draw: Draw) -> list[float]:
    """[usage, limit]; the limit is 0 now and then."""
    most = draw(limit)
    return [draw(usage) * (most or 100) / 100, most]


def resources(heap: bool = True) -> st.SearchStrategy[Case]:
    """Some of the five resources."""
    names = ["cpu", "bandwidthIn", "bandwidthOut", "directMemory", *(["memory"] if heap else [])]
    return st.fixed_dictionaries(
        {"cpu": resource()}, optional={name: resource() for name in names[1:]}
    )


def config(**choices: Sequence[Any]) -> st.SearchStrategy[Case]:
    """Some of these keys, each with one of its values, and the resources' weights now and then."""
    keys = {name: st.sampled_from(values) for name, values in choices.items()}
    weights = st.one_of(
        st.just({}),
        st.dictionaries(
            st.sampled_from(WEIGHTS), st.sampled_from([0, 0.25, 0.5, 1, 1.5, 2]), max_size=3
        ),
    )
    return st.builds(
        lambda own, more: own | more, st.fixed_dictionaries({}, optional=keys), weights
    )


def names_of_bundles(least: int = 0, most: int = 12) -> st.SearchStrategy[list[str]]:
    """Different bundles of three namespaces, one of them Pulsar's own."""
    namespace = st.sampled_from(["t/n0", "t/n1", "t/n1", "t/n2", "pulsar/system"])
    name = st.builds(
        lambda space, part: f"{space}/0x{part << 28:08x}_0x{min((part + 1) << 28, 0xFFFFFFFF):08x}",
        namespace,
        st.integers(0, 15),
    )
    return st.lists(name, min_size=least, max_size=most, unique=True)


def names_of_brokers(least: int = 0, most: int = 7) -> st.SearchStrategy[list[str]]:
    """Different brokers, in any order."""
    return st.lists(
        st.integers(0, 40).map(lambda number: f"b{number}:8080"),
        min_size=least,
        max_size=most,
        unique=True,
    )


bundle_data = st.builds(
    lambda short, long, topics: (
        {"short": short}
        | ({} if long is None else {"long": long})
        | ({"topics": topics} if topics else {})
    ),
    four,
    st.one_of(st.none(), four),
    st.sampled_from([0, 0, 1, 100]),
)
session_stats = st.fixed_dictionaries(
    {
        "msgRateIn": rate,
        "msgRateOut": rate,
        "msgThroughputIn": throughput,
        "msgThroughputOut": throughput,
    },
    optional={
        "consumerCount": st.sampled_from([0, 10, 499, 500, 501]),
        "producerCount": st.sampled_from([0, 1, 499, 500, 501]),
        "topics": st.sampled_from([0, 1, 2, 100, 999, 1000, 1001]),
        "cacheSize": st.sampled_from([0, 99_999, 100_000, 250_000]),
    },
)


def dealt(draw: Draw, bundles: Sequence[str], brokers: Sequence[str]) -> dict[str, list[str]]:
    """Broker → its bundles; some are nobody's."""
    owners = [draw(st.sampled_from([*brokers, None])) if brokers else None for _ in bundles]
    return {
        broker: [bundle for bundle, owner in zip(bundles, owners, strict=True) if owner == broker]
        for broker in brokers
    }


@st.composite
def load_data(draw: Draw, broker: st.SearchStrategy[Case], least: int = 0) -> Case:
    """LOADDATA: what a modular leader sees."""
    brokers, bundles = draw(names_of_brokers(least)), draw(names_of_bundles())
    served = dealt(draw, bundles, brokers)
    known = [bundle for bundle in bundles if draw(st.integers(0, 9))]
    reports = {name: draw(broker) | {"bundles": served[name]} | draw(totals) for name in brokers}
    data = {bundle: draw(bundle_data) for bundle in known}
    recent = [bundle for bundle in bundles if draw(st.integers(0, 5)) == 0]
    return {"brokers": reports, "bundleData": data} | (
        {"recentlyUnloadedBundles": recent} if recent else {}
    )


totals = st.builds(
    lambda values: dict(
        zip(("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut"), values, strict=True)
    ),
    four,
)


def rounds(one: st.SearchStrategy[Case], most: int = 3) -> st.SearchStrategy[list[Case]]:
    """Some rounds, a few of them several times."""
    repeated = st.builds(
        lambda given, times: given | ({"repeat": times} if times > 1 else {}),
        one,
        st.sampled_from([1, 1, 1, 2, 4]),
    )
    return st.lists(repeated, min_size=1, max_size=most)


# --- kinds ---


def shedder_cases(
    kind: str,
    keys: Mapping[str, Sequence[Any]],
    broker: st.SearchStrategy[Case] | None = None,
    **more: Any,
) -> st.SearchStrategy[Case]:
    """Cases of a modular shedder, with some of these keys."""
    given = load_data(resources(heap=False) if broker is None else broker)
    one = st.builds(
        lambda loads: loads | {"emitBundleOrder": True, "activeBrokers": [*loads["brokers"]]}, given
    )
    return st.fixed_dictionaries(
        {"kind": st.just(kind), "config": config(**keys), "rounds": rounds(one)} | more
    )


AVG_KEYS: dict[str, Sequence[Any]] = {
    "loadBalancerAvgShedderLowThreshold": [0, 5, 20, 30],
    "loadBalancerAvgShedderHighThreshold": [20, 30, 50],
    "loadBalancerAvgShedderHitCountHighThreshold": [0, 1, 2, 3],
    "loadBalancerAvgShedderHitCountLowThreshold": [0, 1, 2, 4],
    "minUnloadMessage": [0, 1, 100, 100_000],
    "minUnloadMessageThroughput": [0, 1, 1000, 1_000_000_000],
    "maxUnloadPercentage": [0.1, 0.3, 0.5, 1.0],
}


def _without_weights(case: Case) -> Case:
    """AvgShedder's comparator is inconsistent for scores less than a point apart: whole steps of
    2.5 % only."""
    return case | {
        "config": {key: value for key, value in case["config"].items() if key not in WEIGHTS}
    }


whole_steps = st.builds(lambda value: {"cpu": [value, 100]}, percent)


@st.composite
def _placing(draw: Draw, case: Case) -> Case:
    """A case's rounds with candidates, and bundles to place."""
    for given in case["rounds"]:
        given.pop("repeat", None)
        names = [*given["brokers"]]
        given["candidates"] = [
            name for name in draw(st.permutations(names)) if draw(st.integers(0, 4))
        ]
        given["place"] = (
            [name for name in given["bundleData"] if draw(st.booleans())]
            if given["candidates"]
            else []
        )
    return case


@st.composite
def _placement(draw: Draw, kind: str, extensible: bool = False) -> Case:
    """A strategy that chooses among candidates, some of which nothing is known of."""
    keys: dict[str, Sequence[Any]] = {
        "loadBalancerBrokerOverloadedThresholdPercentage": [30, 50, 70, 85, 100],
        "loadBalancerHistoryResourcePercentage": [0, 0.2, 0.5, 0.9, 0.99, 1],
        "loadBalancerAverageResourceUsageDifferenceThresholdPercentage": [0, 1, 5, 20, 40],
    }
    brokers = draw(names_of_brokers(1))
    given = []
    for _ in range(draw(st.integers(1, 4))):
        reports = {}
        for name in brokers:
            report = draw(resources())
            if not extensible:
                own = [one for one in draw(names_of_bundles(0, 2)) if not one.startswith("pulsar/")]
                report |= {"bundles": own, "msgRateIn": draw(rate), "msgRateOut": draw(rate)}
                report["timeAverageData"] = {
                    "longTermMsgRateIn": draw(rate),
                    "longTermMsgRateOut": draw(rate),
                }
            reports[name] = report
        candidates = draw(st.permutations(brokers))[: draw(st.integers(1, len(brokers)))]
        given.append({"brokers": reports, "candidates": candidates})
    return {"kind": kind, "config": draw(config(**keys)), "rounds": given}


@st.composite
def _preallocating(draw: Draw, case: Case) -> Case:
    """Bundles that brokers were given and have not reported."""
    for given in case["rounds"]:
        for broker in given["brokers"].values():
            names = draw(names_of_bundles(0, 2))
            if names:
                broker["preallocatedBundleData"] = {name: draw(bundle_data) for name in names}
    return case


@st.composite
def _transfer(draw: Draw) -> Case:
    keys: dict[str, Sequence[Any]] = {
        "loadBalancerSheddingConditionHitCountThreshold": [0, 0, 0, 1, 3],
        "loadBalancerMaxNumberOfBrokerSheddingPerCycle": [0, 1, 2, 3, 10],
        "loadBalancerBrokerOverloadedThresholdPercentage": [50, 75, 85, 95],
        "loadBalancerBrokerLoadTargetStd": [0.05, 0.15, 0.25, 0.4],
        "loadBalancerTransferEnabled": [False],
        "loadBalancerDebugModeEnabled": [True],
        "loadBalancerMaxNumberOfBundlesInBundleLoadReport": [1, 5, 10],
    }
    given = []
    for _ in range(draw(st.integers(1, 3))):
        brokers, names = draw(names_of_brokers()), [*draw(names_of_bundles(0, 14))]
        served = dealt(draw, [name for name in names if not name.startswith("pulsar/")], brokers)
        reports = {}
        for broker in brokers:
            tops = [[bundle, *draw(four)] for bundle in served[broker]]
            report = draw(resources()) | draw(totals) | {"bundleCount": len(tops) + draw(counts)}
            report |= {"topBundles": tops} if draw(st.integers(0, 9)) else {}
            report |= draw(
                st.sampled_from([{}] * 9 + [{"updatedAgoMs": 700_000}, {"registered": False}])
            )
            report |= {"msgThroughputEMA": draw(throughput)} if draw(st.integers(0, 9)) == 0 else {}
            reports[broker] = report
        one: Case = {"brokers": reports}
        if recent := [bundle for bundle in names if draw(st.integers(0, 5)) == 0]:
            one["recentlyUnloadedBundles"] = recent
        if draw(st.integers(0, 7)) == 0 and brokers:
            one["recentlyUnloadedBrokers"] = {
                brokers[0]: draw(st.sampled_from([0, 90_000, 600_000]))
            }
        if draw(st.integers(0, 14)) == 0:
            one["brokersWithoutLoadData"] = ["b99:8080"]
        given.append(one | ({"repeat": 3} if draw(st.integers(0, 4)) == 0 else {}))
    case: Case = {"kind": "transfer", "config": draw(config(**keys)), "rounds": given}
    if draw(st.integers(0, 5)) == 0:
        everyone = sorted({broker for one in given for broker in one["brokers"]})
        spaces = ["t/n0", "t/n1", "t/n2"]
        case["policies"] = {
            "isolatedNamespaces": draw(st.lists(st.sampled_from(spaces), unique=True)),
            "antiAffinityNamespaces": draw(st.lists(st.sampled_from(spaces), unique=True)),
            "candidates": {
                space: [broker for broker in everyone if draw(st.booleans())]
                for space in spaces
                if draw(st.booleans())
            },
        }
        case["owners"] = {}
    return case


@st.composite
def _manager(draw: Draw) -> Case:
    keys: dict[str, Sequence[Any]] = {
        "loadBalancerBrokerMaxTopics": [0, 10, 100],
        "preferLaterVersions": [True],
        "loadBalancerDistributeBundlesEvenlyEnabled": [False],
    }
    case: Case = {
        "kind": "manager",
        "config": draw(config(**keys))
        | {"loadBalancerLoadPlacementStrategy": draw(st.sampled_from(PLACEMENTS))},
    }
    if draw(st.integers(0, 3)) == 0:
        case["antiAffinityGroups"] = {"t/n0": "g", "t/n1": "g"}
        if draw(st.booleans()):
            case["config"]["failureDomainsEnabled"] = True
            case["failureDomains"] = {
                f"b{number}:8080": draw(st.sampled_from(["east", "west"]))
                for number in range(0, 41, 2)
            }
    given, everyone = [], draw(names_of_brokers(1, 6))
    for _ in range(draw(st.integers(1, 3))):
        brokers = [name for name in everyone if draw(st.integers(0, 7))] or everyone[:1]
        names = [name for name in draw(names_of_bundles(0, 10)) if not name.startswith("pulsar/")]
        served = dealt(draw, names, brokers)
        reports = {}
        for name in brokers:
            report = draw(resources(heap=False)) | {
                "lastStats": {
                    bundle: [*draw(four), draw(st.integers(0, 60))] for bundle in served[name]
                }
            }
            if "preferLaterVersions" in case["config"]:
                report["brokerVersionString"] = draw(st.sampled_from(["4.0.6", "4.0.7", "4.0.7"]))
            reports[name] = report
        assign = [
            name
            for name in draw(names_of_bundles(0, 4))
            if name not in names and not name.startswith("pulsar/")
        ]
        if any(not one["brokers"].keys() <= reports.keys() for one in given):
            # What a dead broker was promised the leader drops when it hears of that death, which is
            # no part of a case.
            assign = [name for name in assign if not any(name in one["assign"] for one in given)]
        owned = [name for name in assign if draw(st.integers(0, 3)) == 0]
        given.append({"brokers": reports, "leaderOwned": owned, "assign": assign})
    return case | {"rounds": given}


@st.composite
def _split_task(draw: Draw) -> Case:
    brokers, names = draw(names_of_brokers(1, 4)), draw(names_of_bundles())
    served = dealt(draw, names, brokers)
    reports = {
        name: {"lastStats": {bundle: draw(session_stats) for bundle in served[name]}}
        for name in brokers
    }
    data = {bundle: draw(bundle_data) for bundle in names if draw(st.integers(0, 4))}
    counted = {space: draw(st.sampled_from([1, 3, 127, 128])) for space in ("t/n0", "t/n1", "t/n2")}
    return {
        "kind": "split_task",
        "config": draw(config(**SPLIT_KEYS)),
        "brokers": reports,
        "bundleData": data,
        "bundleCounts": counted,
    }


SPLIT_KEYS: dict[str, Sequence[Any]] = {
    "loadBalancerNamespaceBundleMaxTopics": [1, 100, 1000],
    "loadBalancerNamespaceBundleMaxSessions": [-1, 0, 500, 1000],
    "loadBalancerNamespaceBundleMaxMsgRate": [0, 100, 1000, 30_000],
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": [0, 1, 10, 100, 2047, 2048, 4096],
    "loadBalancerNamespaceMaximumBundles": [1, 4, 128],
}


@cache
def _topics_by_hash(namespace: str) -> list[tuple[int, str]]:
    """Two thousand topics of a namespace in the order of their hashes."""
    names = [f"persistent://{namespace}/topic-{number}" for number in range(2000)]
    return sorted((zlib.crc32(name.encode()), name) for name in names)


@st.composite
def topics_of(draw: Draw, names: Sequence[str]) -> Case:
    """bundle → some of the topics whose hash it has, and their statistics."""
    topics = {}
    for bundle in names:
        namespace, lower, upper = parse_bundle(bundle)
        inside = [name for value, name in _topics_by_hash(namespace) if lower <= value < upper]
        topics[bundle] = (
            draw(st.lists(st.sampled_from(inside), max_size=7, unique=True)) if inside else []
        )
    return {
        "topics": topics,
        "topicStats": {topic: draw(four) for listed in topics.values() for topic in listed},
    }


@st.composite
def _split_strategy(draw: Draw) -> Case:
    keys = SPLIT_KEYS | {
        "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": [0, 0, 1, 2],
        "loadBalancerMaxNumberOfBundlesToSplitPerCycle": [1, 2, 10],
        "defaultNamespaceBundleSplitAlgorithm": [*ALGORITHMS, "nonsense"],
    }
    given = []
    for _ in range(draw(st.integers(1, 2))):
        names = [name for name in draw(names_of_bundles(0, 6)) if not name.startswith("pulsar/")]
        one = {
            "bundleStats": {bundle: draw(session_stats) for bundle in names},
            "bundleCounts": {"t/n0": draw(st.sampled_from([1, 3, 127, 128]))},
        }
        one |= {"notOwned": [name for name in names if draw(st.integers(0, 7)) == 0]}
        one |= {"splitting": [name for name in names if draw(st.integers(0, 9)) == 0]}
        one |= draw(topics_of(names))
        given.append(one | ({"repeat": 3} if draw(st.booleans()) else {}))
    return {"kind": "split_strategy", "config": draw(config(**keys)), "rounds": given}


@st.composite
def _split_boundary(draw: Draw) -> Case:
    keys = {
        name: SPLIT_KEYS[name]
        for name in (
            "loadBalancerNamespaceBundleMaxMsgRate",
            "loadBalancerNamespaceBundleMaxBandwidthMbytes",
        )
    }
    keys |= {"flowOrQpsDifferenceThresholdPercentage": [0, 10, 20, 100]}
    algorithm = draw(st.sampled_from(ALGORITHMS))
    lower = draw(st.one_of(st.just(0), st.integers(0, 0xFFFFFFF0)))
    upper = draw(st.one_of(st.just(0xFFFFFFFF), st.integers(lower + 1, 0xFFFFFFFF)))
    bundle = f"t/n0/0x{lower:08x}_0x{upper:08x}"
    known = draw(topics_of([bundle]))
    case: Case = {
        "kind": "split_boundary",
        "algorithm": algorithm,
        "bundle": bundle,
        "config": draw(config(**keys)),
    }
    case |= {
        "config": {key: value for key, value in case["config"].items() if key not in WEIGHTS},
        "topics": known["topics"][bundle],
    }
    if algorithm == "flow_or_qps_equally_divide":
        case["topicStats"] = known["topicStats"]
    if algorithm == "specified_positions_divide":
        case["positions"] = draw(
            st.lists(st.one_of(st.integers(lower, upper), st.integers(0, 0xFFFFFFFF)), max_size=4)
        )
        case["force"] = draw(st.booleans())
    return case


@st.composite
def _top_bundles(draw: Draw) -> Case:
    """Figures far apart: the reference's quick-select orders by chance what its comparator takes
    for equal. k = 0 fails there."""
    names = draw(names_of_bundles(0, 12))
    sizes = draw(st.permutations(range(1, 1 + len(names))))
    bundles = {
        name: [size * 1_000_000, size * 2_000_000, size * 1000, size * 77]
        for name, size in zip(names, sizes, strict=True)
    }
    policies = draw(st.sampled_from([{}, {"loadBalancerSheddingBundlesWithPoliciesEnabled": True}]))
    spaces = st.lists(st.sampled_from(["t/n0", "t/n1", "t/n2"]), unique=True)
    case: Case = {
        "kind": "top_bundles",
        "of": "stats",
        "k": draw(st.sampled_from([1, 3, 5, 50])),
        "config": policies,
        "bundles": bundles,
    }
    return case | {"isolatedNamespaces": draw(spaces), "antiAffinityNamespaces": draw(spaces)}


@st.composite
def _topic_hash(draw: Draw) -> Case:
    local = st.text(
        st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"), exclude_characters="/"),
        min_size=1,
        max_size=12,
    )
    prefix = st.sampled_from(["persistent://t/n0/", "non-persistent://t/n0/", "t/n0/"])
    cuts = draw(st.lists(st.integers(1, 0xFFFFFFFE), max_size=6, unique=True))
    boundaries = [f"0x{cut:08x}" for cut in sorted({0, 0xFFFFFFFF, *cuts})]
    topics = draw(
        st.lists(
            st.builds(
                lambda begin, end: begin + end,
                prefix,
                local.filter(lambda name: name.strip() == name),
            ),
            min_size=1,
            max_size=8,
        )
    )
    return {"kind": "topic_hash", "topics": topics, "boundaries": boundaries}


@st.composite
def _report_needed(draw: Draw) -> Case:
    def local(names: list[str]) -> Case:
        return draw(resources()) | {"lastStats": {name: draw(session_stats) for name in names}}

    names = draw(names_of_bundles(0, 4))
    last = local(names)
    now = last if draw(st.booleans()) else local(draw(st.sampled_from([names, names[1:], []])))
    keys = config(
        loadBalancerReportUpdateThresholdPercentage=[1, 5, 10, 30],
        loadBalancerReportUpdateMaxIntervalMinutes=[1, 15],
    )
    ago = draw(st.sampled_from([0, 1000, 59_000, 61_000, 899_000, 901_000, 3_600_000]))
    return {
        "kind": "report_needed",
        "config": draw(keys),
        "last": last,
        "local": now,
        "lastUpdateAgoMs": ago,
    }


@st.composite
def _broker_average(draw: Draw) -> Case:
    names = draw(names_of_bundles(0, 8))
    data = {name: draw(bundle_data) for name in names if draw(st.integers(0, 3))}
    return {
        "kind": "broker_average",
        "bundles": names,
        "bundleData": data,
        "defaultStats": [50_000, 50_000, 50, 50],
    }


samples = st.lists(
    four.flatmap(lambda values: st.integers(0, 900).map(lambda topics: [*values, topics])),
    min_size=1,
    max_size=12,
)
history = config(loadBalancerHistoryResourcePercentage=[0, 0.2, 0.5, 0.9, 1])

KINDS: dict[str, st.SearchStrategy[Case]] = {
    "message_average": st.fixed_dictionaries(
        {
            "kind": st.just("message_average"),
            "maxSamples": st.sampled_from([1, 2, 3, 10, 1000]),
            "samples": st.lists(four, max_size=12),
        },
        optional={"defaultStats": st.just([50_000, 50_000, 50, 50])},
    ),
    "bundle_average": st.fixed_dictionaries(
        {"kind": st.just("bundle_average"), "samples": samples},
        optional={
            "numShortSamples": st.integers(1, 12),
            "numLongSamples": st.integers(1, 20),
            "defaultStats": st.just([50_000, 50_000, 50, 50]),
        },
    ),
    "broker_average": _broker_average(),
    "local_broker": st.fixed_dictionaries(
        {
            "kind": st.just("local_broker"),
            "config": config(),
            "rounds": st.lists(
                st.builds(
                    lambda used, stats, clean: (
                        used | {"lastStats": stats} | ({"cleanDeltas": True} if clean else {})
                    ),
                    resources(),
                    names_of_bundles(0, 5).flatmap(
                        lambda names: st.fixed_dictionaries({name: session_stats for name in names})
                    ),
                    st.booleans(),
                ),
                min_size=1,
                max_size=4,
            ),
        }
    ),
    "broker_load": st.fixed_dictionaries(
        {
            "kind": st.just("broker_load"),
            "config": history,
            "rounds": st.lists(
                st.one_of(
                    st.builds(lambda used, sums: used | sums, resources(), totals),
                    st.just({"clear": True}),
                ),
                min_size=1,
                max_size=6,
            ),
        }
    ),
    "overload": shedder_cases(
        "overload", {"loadBalancerBrokerOverloadedThresholdPercentage": [30, 60, 75, 80, 85, 95]}
    ),
    "threshold": shedder_cases(
        "threshold",
        {
            "loadBalancerBrokerThresholdShedderPercentage": [0, 5, 10, 20, 25],
            "loadBalancerHistoryResourcePercentage": [0, 0.2, 0.5, 0.9, 1],
            "loadBalancerBundleUnloadMinThroughputThreshold": [0, 0.001, 0.1, 1, 10],
            "lowerBoundarySheddingEnabled": [True, False],
        },
    ),
    "uniform": shedder_cases(
        "uniform",
        {
            "loadBalancerMsgRateDifferenceShedderThreshold": [-1, 0, 10, 50, 1000],
            "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": [-1, 0, 1.5, 2, 4],
            "minUnloadMessage": [0, 1, 100, 100_000],
            "minUnloadMessageThroughput": [0, 1, 1000, 1_000_000_000],
            "maxUnloadPercentage": [0.1, 0.2, 0.5, 1.0],
            "maxUnloadBundleNumPerShedding": [-1, 0, 1, 3],
        },
    ),
    "avg": shedder_cases("avg", AVG_KEYS, whole_steps).map(_without_weights),
    "place_avg": shedder_cases("place_avg", AVG_KEYS, whole_steps)
    .map(_without_weights)
    .flatmap(_placing),
    "place_least_long_term": _placement("place_least_long_term").flatmap(_preallocating),
    "place_least_resource": _placement("place_least_resource"),
    "place_least_resource_ext": _placement("place_least_resource_ext", extensible=True),
    "place_round_robin": st.fixed_dictionaries(
        {
            "kind": st.just("place_round_robin"),
            "config": st.just({}),
            "rounds": rounds(st.fixed_dictionaries({"candidates": names_of_brokers(0, 5)}), most=5),
        }
    ),
    "transfer": _transfer(),
    "split_task": _split_task(),
    "split_strategy": _split_strategy(),
    "split_boundary": _split_boundary(),
    "topic_hash": _topic_hash(),
    "top_bundles": _top_bundles(),
    "manager": _manager(),
    "report_needed": _report_needed(),
}
"""Each kind of case that the reference answers → the strategy that makes some."""


def make_cases(kind: str, strategy: st.SearchStrategy[Case], count: int, begin: int) -> list[Case]:
    """Make so many different cases of a kind; the same for the same `begin`.

    Fewer where the kind has no more.
    """
    found: list[Case] = []

    @hypothesis.seed(begin)
    @hypothesis.settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @hypothesis.given(strategy)
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return [{"id": f"{kind}-{begin}-{number}"} | case for number, case in enumerate(found)]
