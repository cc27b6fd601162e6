"""overload, threshold, uniform, avg, place_avg: the modular shedders, called as a round calls them
but on views without pending moves."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.view import Bools, ClusterView
from lb_stream.core.placement.base import PlacementContext, Targets
from lb_stream.core.shedding.avg import target_key
from lb_stream.core.shedding.base import ShedContext, Unloads
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import view_of_loads
from tests.conformance.registry import PROFILE, Case, kind


@kind("threshold")
def threshold(case: Case) -> Any:
    """ThresholdShedder: unloads and smoothed usage after every round."""
    return [
        {"unloads": unloads_by_broker(view, unloads), "usage": dict(memory.usage)}
        for view, unloads, memory in shedding_rounds(case, "ThresholdShedder")
    ]


@kind("overload")
def overload(case: Case) -> Any:
    """OverloadShedder: unloads of every round."""
    return [
        {"unloads": unloads_by_broker(view, unloads)}
        for view, unloads, _ in shedding_rounds(case, "OverloadShedder")
    ]


@kind("uniform")
def uniform(case: Case) -> Any:
    """UniformLoadShedder: unloads of every round."""
    return [
        {"unloads": unloads_by_broker(view, unloads)}
        for view, unloads, _ in shedding_rounds(case, "UniformLoadShedder")
    ]


@kind("avg")
def avg(case: Case) -> Any:
    """AvgShedder: unloads with their destinations, scores and hit counts after every round."""
    config = cluster_config(
        PROFILE | {"shedding_strategy": "AvgShedder"} | case["config"]
    ).shedder_config
    return [
        _avg_result(view, unloads, memory, config)
        for view, unloads, memory in shedding_rounds(case, "AvgShedder")
    ]


@kind("place_avg")
def place_avg(case: Case) -> Any:
    """AvgShedder as both: after each round's shedding a broker for each bundle of `place`.

    What chance has picked is forgotten again before the next bundle.
    """
    config = cluster_config(
        PROFILE
        | {"shedding_strategy": "AvgShedder", "placement_strategy": "AvgShedder"}
        | case["config"]
    )
    results = []
    rounds = [given for given in case["rounds"] for _ in range(int(given.get("repeat", 1)))]
    memory = config.shedder.memory({})
    for given in rounds:
        view = view_of_loads(
            given, config.balancer.weights, given if "brokerOrder" in given else case
        )
        unloads, memory = config.shedder.function(
            ShedContext.build(view, config.shedder_config, memory, _eligible(view, given))
        )
        result = _avg_result(view, unloads, memory, config.shedder_config)
        candidates = np.array(
            [view.brokers.names.index(name) for name in given["candidates"]], np.intp
        )
        targets = Targets.from_view(view)
        placed = []
        for name in given["place"]:
            bundle = int(view.bundles.rows_of([name])[0])
            known = memory.target.get(target_key(view, bundle, config.placement_config))
            expected = known is not None and known in given["candidates"]
            before = dict(memory.target)
            best, memory = config.placement.function(
                PlacementContext(targets, candidates, bundle, config.placement_config, memory)
            )
            pick = view.brokers.names[int(best.rows[0])] if len(best.rows) else None
            if expected or pick is None:
                placed.append({"bundle": name, "random": False, "pick": pick})
                continue
            again, memory = config.placement.function(
                PlacementContext(targets, candidates, bundle, config.placement_config, memory)
            )
            sticky = view.brokers.names[int(again.rows[0])] == pick
            placed.append(
                {
                    "bundle": name,
                    "random": True,
                    "pickIsCandidate": pick in given["candidates"],
                    "sticky": sticky,
                }
            )
            memory.target = before
        results.append(result | {"placed": placed})
    return results


def _avg_result(view: ClusterView, unloads: Unloads, memory: Any, config: Any) -> dict[str, Any]:
    """The destination of a bundle is what the memory holds after the pass: bundles with equal
    figures share it."""
    names = view.brokers.names
    triples = [
        [
            view.bundles.name(proposal.bundle),
            names[proposal.source],
            memory.target[target_key(view, proposal.bundle, config)],
        ]
        for proposal in unloads.proposals
    ]
    return {
        "unloads": sorted(triples, key=lambda triple: triple[1]),
        "scores": dict(zip(names, (100 * view.brokers.usage).tolist(), strict=True)),
        "hitsHigh": dict(memory.hits_high),
        "hitsLow": dict(memory.hits_low),
    }


def shedding_rounds(case: Case, name: str) -> Iterator[tuple[ClusterView, Unloads, Any]]:
    """Run one shedder over a case's rounds. Yields what it saw, proposed and remembered."""
    config = cluster_config(PROFILE | {"shedding_strategy": name} | case["config"])
    memory = config.shedder.memory({})
    for given in case["rounds"]:
        for _ in range(int(given.get("repeat", 1))):
            view = view_of_loads(
                given, config.balancer.weights, given if "brokerOrder" in given else case
            )
            unloads, memory = _shed(config, view, memory, given)
            yield view, unloads, memory


def _shed(
    config: ClusterConfig, view: ClusterView, memory: Any, given: Mapping[str, Any]
) -> tuple[Unloads, Any]:
    unloads, memory = config.shedder.function(
        ShedContext.build(view, config.shedder_config, memory, _eligible(view, given))
    )
    return unloads, memory


def _eligible(view: ClusterView, given: Mapping[str, Any]) -> Bools:
    """Bundles that have data, are no system's and were not unloaded lately."""
    names = view.bundles.names.to_pylist()
    recent, known = set(given.get("recentlyUnloadedBundles", ())), given.get("bundleData", {})
    allowed: Bools = ~view.bundles.system & np.array(
        [name in known and name not in recent for name in names], np.bool_
    )
    return allowed


def unloads_by_broker(view: ClusterView, unloads: Unloads) -> list[list[str]]:
    """[bundle, broker] of each proposal: brokers by name, within a broker as chosen."""
    pairs = [
        [view.bundles.name(proposal.bundle), view.brokers.names[proposal.source]]
        for proposal in unloads.proposals
    ]
    return sorted(pairs, key=lambda pair: pair[1])
