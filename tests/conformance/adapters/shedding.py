"""threshold: the modular shedders, called as a round calls them but on views without pending moves."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lb_stream.core.config import ClusterConfig, cluster_config
from lb_stream.core.shedding.base import Unloads
from lb_stream.core.view import Bools, ClusterView
from tests.conformance.forms import view_of_loads
from tests.conformance.registry import PROFILE, Case, kind


@kind("threshold")
def threshold(case: Case) -> Any:
    """ThresholdShedder: unloads and smoothed usage after every round."""
    return [
        {"unloads": unloads_by_broker(view, unloads), "usage": dict(memory.usage)}
        for view, unloads, memory in shedding_rounds(case, "ThresholdShedder")
    ]


def shedding_rounds(case: Case, name: str) -> Iterator[tuple[ClusterView, Unloads, Any]]:
    """Run one shedder over a case's rounds. Yields what it saw, proposed and remembered."""
    config = cluster_config(PROFILE | {"shedding_strategy": name} | case["config"])
    memory = config.shedder.memory({})
    for given in case["rounds"]:
        for _ in range(int(given.get("repeat", 1))):
            view = view_of_loads(given, config.balancer.weights, given if "brokerOrder" in given else case)
            unloads, memory = _shed(config, view, memory, given)
            yield view, unloads, memory


def _shed(config: ClusterConfig, view: ClusterView, memory: Any, given: Mapping[str, Any]) -> tuple[Unloads, Any]:
    unloads, memory = config.shedder.function(view, config.shedder_config, memory, _eligible(view, given))
    return unloads, memory


def _eligible(view: ClusterView, given: Mapping[str, Any]) -> Bools:
    """Bundles that have data, are no system's and were not unloaded lately."""
    names = view.bundles.names.to_pylist()
    recent, known = set(given.get("recentlyUnloadedBundles", ())), given.get("bundleData", {})
    allowed: Bools = ~view.bundles.system & np.array([name in known and name not in recent for name in names], np.bool_)
    return allowed


def unloads_by_broker(view: ClusterView, unloads: Unloads) -> list[list[str]]:
    """[bundle, broker] of each proposal: brokers by name, within a broker as chosen."""
    pairs = [[view.bundles.name(one.bundle), view.brokers.names[one.source]] for one in unloads.proposals]
    return sorted(pairs, key=lambda pair: pair[1])
