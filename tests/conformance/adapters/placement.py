"""place_least_long_term, place_least_resource(_ext), place_round_robin: the placement strategies,
called as a round calls them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lb_stream.agent.load_data import BrokerLoad
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.filters.candidates import Candidates
from lb_stream.core.filters.preallocation import Preallocated, count
from lb_stream.core.model.chance import draw
from lb_stream.core.model.memory import Memory
from lb_stream.core.placement.base import PlacementContext, Targets
from lb_stream.core.round.state import RoundInputs, RoundState
from lb_stream.settings.resolve import cluster_config
from tests.conformance.adapters.extensible import NOW_MS, Settings
from tests.conformance.forms import DEFAULT_BUNDLE, view_of_loads
from tests.conformance.registry import Case, kind


@kind("place_least_long_term")
def place_least_long_term(case: Case) -> Any:
    """LeastLongTermMessageRate: the brokers among which it would draw."""
    config = cluster_config({"placement_strategy": "LeastLongTermMessageRate"} | case["config"])
    return [
        _called(config, targets_of(given, config.balancer.weights), given["candidates"], None)[0]
        for given in repeated(case)
    ]


@kind("place_least_resource")
def place_least_resource(case: Case) -> Any:
    """The modular LeastResourceUsageWithWeight: the best brokers, and the smoothed usages after
    every call.

    Where a round names its active brokers, all others have a row that isn't alive.
    """
    config = cluster_config({"placement_strategy": "LeastResourceUsageWithWeight"} | case["config"])
    memory, results = config.placement.memory({}), []
    for given in repeated(case):
        active = given.get("activeBrokers")
        gone = memory.usage.keys() - given["brokers"].keys() if active is not None else ()
        view = view_of_loads(
            {"brokers": given["brokers"] | {name: {} for name in gone}}, config.balancer.weights
        )
        if active is not None:
            view = replace(
                view, brokers=replace(view.brokers, alive=np.isin(view.brokers.names, active))
            )
        result, memory = _called(config, Targets.from_view(view), given["candidates"], memory)
        results.append(result | {"usage": memory.usage})
    return results


@kind("place_least_resource_ext")
def place_least_resource_ext(case: Case) -> Any:
    """The extensible LeastResourceUsageWithWeight on the loads that brokers report.

    Candidates that a round doesn't name have none in it; what was smoothed before lives on.
    """
    config = cluster_config({"load_manager": "extensible"} | case["config"])
    settings, loads, results = Settings.of(case["config"]), dict[str, BrokerLoad](), []
    for given in repeated(case):
        loads |= {
            name: settings.updated(loads.get(name, BrokerLoad()), broker, NOW_MS)
            for name, broker in given["brokers"].items()
        }
        names = dict.fromkeys([*given["brokers"], *given["candidates"]])
        view = view_of_loads(
            {"brokers": {name: given["brokers"].get(name, {}) for name in names}},
            config.balancer.weights,
        )
        load_ema = np.array(
            [
                loads[name].load if name in given["brokers"] else np.nan
                for name in view.brokers.names
            ]
        )
        view = replace(view, brokers=replace(view.brokers, load_ema=load_ema))
        result, _ = _called(config, Targets.from_view(view), given["candidates"], None)
        results.append(result | {"usage": {name: loads[name].load for name in given["brokers"]}})
    return results


@kind("place_ext_manager")
def place_ext_manager(case: Case) -> Any:
    """ExtensibleLoadManagerImpl.selectAsync: the brokers among which it would draw, or whose turn.

    All brokers of a round are registered; what they average lives on.
    """
    config = cluster_config({"load_manager": "extensible"} | case["config"])
    settings, loads, results = Settings.of(case["config"]), dict[str, BrokerLoad](), []
    strategies: dict[str, Any] = {}
    for given in repeated(case):
        loads |= {
            name: settings.updated(loads.get(name, BrokerLoad()), broker, NOW_MS)
            for name, broker in given["brokers"].items()
        }
        asked = [select["bundle"] for select in given["select"]]
        known = {
            name: broker | {"bundles": [], "numTopics": broker.get("topics", 0)}
            for name, broker in given["brokers"].items()
        }
        data = dict.fromkeys(asked, DEFAULT_BUNDLE)
        view = view_of_loads({"brokers": known, "bundleData": data}, config.balancer.weights, given)
        load_ema = np.array([loads[name].load for name in view.brokers.names])
        view = replace(view, brokers=replace(view.brokers, load_ema=load_ema))
        memory = Memory(strategies=strategies)
        state = RoundState.begin(RoundInputs.untouched(view, config, seed=None, memory=memory))
        results.append({"selected": [_selected(state, select) for select in given["select"]]})
        strategies = state.strategies_after()
    return results


def _selected(state: RoundState, select: Mapping[str, Any]) -> dict[str, Any]:
    names, excluded = state.view.brokers.names, set(select.get("exclude", ()))
    bundle = int(state.view.bundles.rows_of([select["bundle"]])[0])
    kept = state.candidates.pool_for(bundle, state.targets).kept.tolist()
    rows = np.array([row for row in kept if names[row] not in excluded], np.intp)
    choice = state.place_among(bundle, rows, ())
    line = {"bundle": select["bundle"]}
    if choice is None:
        return line | {"empty": True}
    call = choice.calls[0]
    best = [names[row] for row in call.best]
    if call.strategy == "RoundRobinBrokerSelector":
        return line | {"pick": best[0]}
    return line | {"best": sorted(best), "pickIsBest": names[choice.destination] in best}


@kind("place_round_robin")
def place_round_robin(case: Case) -> Any:
    """RoundRobinBrokerSelector: whose turn it is, the brokers in the order of the round's
    candidates."""
    config = cluster_config({"placement_strategy": "RoundRobinBrokerSelector"} | case["config"])
    memory, results = config.placement.memory({}), []
    for given in repeated(case):
        view = view_of_loads(
            {"brokers": {name: {} for name in given["candidates"]}}, config.balancer.weights
        )
        result, memory = _called(config, Targets.from_view(view), given["candidates"], memory)
        results.append({"pick": result["best"][0] if result["best"] else None})
    return results


def repeated(case: Case) -> Iterator[Case]:
    """The rounds of a case, each as often as it says."""
    return (given for given in case["rounds"] for _ in range(int(given.get("repeat", 1))))


def _called(
    config: ClusterConfig, targets: Targets, candidates: list[str], memory: Any
) -> tuple[dict[str, Any], Any]:
    """One call of the strategy: the brokers among which it would draw, and what it remembers."""
    names = targets.view.brokers.names
    rows = np.array([names.index(name) for name in candidates], np.intp)
    best, memory = config.placement.function(
        PlacementContext(targets, rows, -1, config.placement_config, memory)
    )
    chosen = [names[row] for row in best.rows]
    pick_is_best = not chosen or names[draw(0, "bundle", best.rows)] in chosen
    return {"best": chosen, "pickIsBest": pick_is_best, "empty": not chosen}, memory


def targets_of(loads: dict[str, Any], weights: Any) -> Targets:
    """The brokers' loads: their long-term rates as given, and the preallocated bundles as the
    reference counts them."""
    preallocated = {
        f"{bundle}@{row}": (row, data)
        for row, broker in enumerate(loads["brokers"].values())
        for bundle, data in broker.get("preallocatedBundleData", {}).items()
    }
    brokers = {name: broker | {"bundles": []} for name, broker in loads["brokers"].items()}
    view = view_of_loads(
        {
            "brokers": brokers,
            "bundleData": {name: data for name, (_, data) in preallocated.items()},
        },
        weights,
    )
    targets = Targets.from_view(view)
    for row, broker in enumerate(brokers.values()):
        average = broker.get("timeAverageData", {})
        targets.long_rate[row] = average.get("longTermMsgRateIn", 0.0) + average.get(
            "longTermMsgRateOut", 0.0
        )
    given = [
        Preallocated.from_view(view, bundle, view.brokers.names[row])
        for bundle, (row, _) in enumerate(preallocated.values())
    ]
    count(given, targets, Candidates(view, cluster_config({}).balancer))
    return targets
