"""split_task, split_strategy, split_boundary, topic_hash: triggers and algorithms of splitting,
topics and their bundles."""

from typing import Any

import numpy as np
import pyarrow as pa

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.model.names import namespace_codes, parse_bundle
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
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import bundle_rates, in_order, stats
from tests.conformance.registry import PROFILE, Case, kind

NOTHING = {"short": [0.0] * 4}


@kind("split_task")
def split_task_case(case: Case) -> Any:
    """BundleSplitterTask: [bundle, broker] of all that are to be split, by name."""
    config = cluster_config(PROFILE | case["config"]).splitting
    brokers = in_order(case["brokers"], case.get("brokerOrder"))
    latest = {
        (name, broker): stats(form)
        for broker in brokers
        for name, form in case["brokers"][broker].get("lastStats", {}).items()
    }
    names = [name for name, _ in latest]
    known = {name: case["bundleData"].get(name, NOTHING) for name in names}
    _, long = bundle_rates(known, names)
    loads, eligible = (
        _loads([*latest.values()], long.rate, long.throughput),
        np.ones(len(names), np.bool_),
    )
    namespaces, texts = namespace_codes(pa.array(names, pa.string()))
    counts = np.array([case["bundleCounts"].get(text, 1) for text in texts], np.int64)
    found = split_task(loads, eligible, lambda rows: (namespaces[rows], counts), config)
    return {"splits": sorted([list([*latest][row]) for row in found.rows.tolist()])}


@kind("split_strategy")
def split_strategy_case(case: Case) -> Any:
    """DefaultNamespaceBundleSplitStrategyImpl: decisions in the order taken, hit counts
    afterwards."""
    config, memory, results = cluster_config(PROFILE | case["config"]), SplitMemory(), []
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
    config = cluster_config(PROFILE | case["config"])
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


@kind("topic_hash")
def topic_hash_case(case: Case) -> Any:
    """Every topic's whole name, hash, and bundle."""
    names = [full_topic_name(topic) for topic in case["topics"]]
    boundaries = [int(boundary, 16) for boundary in case["boundaries"]]
    bundles = [
        Ring.from_boundaries(namespace_of_topic(name), boundaries).bundle_of(name) for name in names
    ]
    return [
        {"topic": name, "hash": value, "bundle": bundle}
        for name, value, bundle in zip(names, topic_hashes(names).tolist(), bundles, strict=True)
    ]
