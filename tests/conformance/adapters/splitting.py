"""split_task, split_strategy, split_boundary, topic_hash: triggers and algorithms of splitting,
topics and their bundles."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.names import SYSTEM_NAMESPACE, namespace_codes, namespace_of, parse_bundle
from lb_stream.core.model.releases import NAME_RULES
from lb_stream.core.model.topics import Ring, full_topic_name, namespace_of_topic, topic_hashes
from lb_stream.core.model.view import Floats
from lb_stream.core.splitting import (
    OwnBundles,
    Range,
    SplitLoads,
    SplitMemory,
    SplitRejected,
    Topics,
    cut,
    split_strategy,
    split_task,
)
from lb_stream.core.splitting.manual import Rejected, find_algorithm
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import bundle_rates, in_order, stats
from tests.conformance.registry import PULSAR_4_0, Case, kind

NOTHING = {"short": [0.0] * 4}


@kind("split_task")
def split_task_case(case: Case) -> Any:
    """BundleSplitterTask: [bundle, broker] of all that are to be split, by name."""
    return {"splits": sorted(_too_large(case, case["bundleCounts"]))}


@kind("manager_split")
def manager_split(case: Case) -> Any:
    """ModularLoadManagerImpl: the splits that its leader asks for, and whose data it keeps.

    The data is the reference's own: this balancer keeps a bundle's averages until reports no longer
    name it, whatever became of the split.
    """
    release, splitting = case["config"]["profile"], cluster_config(case["config"]).splitting
    if not splitting.split_enabled or len(case["brokers"]) <= 1:
        return {"splits": [], "bundleData": sorted(case["bundleData"])}
    rings = {
        name: {f"{name}/{lower}_{upper}" for lower, upper in pairwise(ring)}
        for name, ring in case["rings"].items()
    }
    asked = {
        bundle
        for bundle, _ in _too_large(case, {name: len(ring) for name, ring in rings.items()})
        if release == PULSAR_4_0 or bundle in rings.get(namespace_of(bundle), ())
    }
    failing = set(case.get("failingSplits", ())) if release == "pulsar-5.0" else set()
    unload = splitting.unload_split_bundles
    return {
        "splits": [[bundle, unload] for bundle in sorted(asked)],
        "bundleData": sorted(case["bundleData"].keys() - (asked - failing)),
    }


def _too_large(case: Case, bundle_counts: Mapping[str, int]) -> list[list[str]]:
    config = cluster_config(case["config"]).splitting
    brokers = in_order(case["brokers"], case.get("brokerOrder"))
    latest = {
        (name, broker): stats(form)
        for broker in brokers
        for name, form in case["brokers"][broker].get("lastStats", {}).items()
    }
    names = [name for name, _ in latest]
    known = {name: case["bundleData"].get(name, NOTHING) for name in names}
    _, long = bundle_rates(known, names)
    loads = _loads([*latest.values()], long.rate, long.throughput)
    eligible = np.ones(len(names), np.bool_)
    namespaces, texts = namespace_codes(pa.array(names, pa.string()))
    counts = np.array([bundle_counts.get(text, 1) for text in texts], np.int64)
    found = split_task(loads, eligible, lambda rows: (namespaces[rows], counts), config)
    return [list([*latest][row]) for row in found.rows.tolist()]


@kind("split_strategy")
def split_strategy_case(case: Case) -> Any:
    """DefaultNamespaceBundleSplitStrategyImpl: decisions in the order taken, hit counts
    afterwards."""
    config, memory, results = cluster_config(case["config"]), SplitMemory(), []
    for given in case["rounds"]:
        own = _own_bundles(given)
        for _ in range(int(given.get("repeat", 1))):
            look, memory = split_strategy(own, config.splitting, config.split_algorithms, memory)
            decisions = [
                [
                    choice.bundle,
                    choice.reason,
                    [child.rpartition("/")[2] for child in choice.cut.children],
                ]
                for choice in look.choices
            ]
            results.append({"decisions": decisions, "hitCounts": dict(memory.hits)})
    return results


def _own_bundles(given: dict[str, Any]) -> OwnBundles:
    latest = {name: stats(form) for name, form in given["bundleStats"].items()}
    rates = [
        (one.msg_rate_in + one.msg_rate_out, one.msg_throughput_in + one.msg_throughput_out)
        for one in latest.values()
    ]
    rate, throughput = np.array(rates, np.float64).reshape(-1, 2).T
    not_owned = set(given.get("notOwned", ()))
    topics = given.get("topics", {})
    return OwnBundles(
        names=pa.array([*latest], pa.string()),
        loads=_loads([*latest.values()], rate, throughput),
        owned=np.array([name not in not_owned for name in latest], np.bool_),
        bundle_counts=given.get("bundleCounts", {}),
        splitting=tuple(parse_bundle(name) for name in given.get("splitting", ())),
        topics_of=lambda name: _topics(topics.get(name, []), given.get("topicStats", {})),
    )


def _loads(latest: list[BundleStats], rate: Floats, throughput: Floats) -> SplitLoads:
    topics = np.array([one.topics for one in latest], np.int64)
    return SplitLoads(
        topics,
        np.array([one.producer_count + one.consumer_count for one in latest], np.int64),
        rate,
        throughput,
    )


def _topics(names: list[str], forms: dict[str, Any]) -> Topics:
    latest = {name: stats(form) for name, form in forms.items()}
    return Topics.from_names(
        names,
        {
            name: (
                one.msg_rate_in + one.msg_rate_out,
                one.msg_throughput_in + one.msg_throughput_out,
            )
            for name, one in latest.items()
        },
    )


@kind("split_boundary")
def split_boundary_case(case: Case) -> Any:
    """A split algorithm: its boundaries, and the children that the namespace gets."""
    config = cluster_config(case["config"])
    topics = _topics(case.get("topics", []), case.get("topicStats", {}))
    bundle = Range.from_bundle(
        case["bundle"], topics, case.get("positions", ()), case.get("force", False)
    )
    found = config.split_algorithms.boundaries(
        config.split_algorithms.named(case["algorithm"]), bundle
    )
    if found.wrong:
        raise ValueError(found.why)
    if not found.positions:
        return {"boundaries": None if found.positions is None else []}
    result = cut(parse_bundle(case["bundle"]), found.positions)
    boundaries = {"boundaries": list(found.positions)}
    if isinstance(result, SplitRejected):
        return boundaries | {"splitError": result.detail}
    return boundaries | {"children": [child.rpartition("/")[2] for child in result.children]}


@kind("split_request")
def split_request(case: Case) -> Any:
    """NamespaceService's split by an algorithm's name: its boundaries, or null."""
    config = cluster_config(case["config"])
    strategy = find_algorithm(case.get("algorithm"), config.splitting, config.split_algorithms)
    if isinstance(strategy, Rejected):
        raise ValueError(strategy.detail)
    topics = _topics(case.get("topics", []), case.get("topicStats", {}))
    found = config.split_algorithms.boundaries(strategy, Range.from_bundle(case["bundle"], topics))
    return {"boundaries": None if found.positions is None else list(found.positions)}


@kind("topic_hash")
def topic_hash_case(case: Case) -> Any:
    """Every topic's whole name, hash, and bundle."""
    rules = NAME_RULES[cluster_config(case["config"]).balancer.pulsar_names]
    names = [full_topic_name(topic, rules) for topic in case["topics"]]
    boundaries = [int(boundary, 16) for boundary in case["boundaries"]]
    bundles = [
        Ring.from_boundaries(namespace_of_topic(name, rules), boundaries).bundle_of(name)
        for name in names
    ]
    return [
        {"topic": name, "hash": value, "bundle": bundle}
        for name, value, bundle in zip(names, topic_hashes(names).tolist(), bundles, strict=True)
    ]


@kind("system_namespaces")
def system_namespaces(case: Case) -> Any:
    """Which namespaces are Pulsar's own, and which are names at all."""
    release = cluster_config(case["config"]).balancer.pulsar_names
    own = re.compile(_OWN_OF_4_0 if release == "4.0" else _OWN_SINCE_4_2)
    return [
        {
            "namespace": name,
            "system": name == SYSTEM_NAMESPACE or own.fullmatch(name) is not None,
            "slaOrHeartbeat": own.fullmatch(name) is not None,
            "valid": NAME_RULES[release].is_namespace(name),
        }
        for name in case["namespaces"]
    ]


_OWN_OF_4_0 = r"(sla-monitor/[^/:]+|pulsar)/[^:]+:\d+"
_OWN_SINCE_4_2 = r"(sla-monitor|pulsar)/[^:]+:\d+"
"""Text before a port that is like a namespace of a broker's own, however many parts it has."""
