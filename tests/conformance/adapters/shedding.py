"""overload, threshold, uniform, avg, place_avg: the modular shedders, called as a round calls them
but on views without pending moves."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.view import Bools, ClusterView
from lb_stream.core.placement.base import PlacementContext, Targets
from lb_stream.core.shedding.avg import end_plan, target_key
from lb_stream.core.shedding.base import ShedContext, Unloads
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import view_of_loads
from tests.conformance.registry import Case, kind


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
    config = cluster_config({"shedding_strategy": "AvgShedder"} | case["config"]).shedder_config
    return [
        _avg_result(view, unloads, memory, config)
        for view, unloads, memory in shedding_rounds(case, "AvgShedder")
    ]


@kind("place_avg")
def place_avg(case: Case) -> Any:
    """AvgShedder as both: after each round's shedding a broker for each bundle of `place`.

    What chance has picked is forgotten again before the next bundle.
    """
    results = []
    for given, sheds in _avg_rounds(case):
        result, memory = sheds.result, sheds.memory
        placed = []
        for name in given["place"]:
            before = replace(memory, target=dict(memory.target))
            choice = sheds.place(name, given["candidates"], given)
            if choice.planned or not (given["candidates"] or sheds.is_plan):
                placed.append({"bundle": name, "random": False, "pick": choice.pick})
                continue
            again = sheds.place(name, given["candidates"], given)
            drawn = {
                "bundle": name,
                "random": True,
                "pickIsCandidate": choice.pick in given["candidates"],
                "sticky": not sheds.is_plan and again.pick == choice.pick,
            }
            if sheds.is_plan and len(choice.among) < len(given["candidates"]):
                drawn["among"] = sorted(choice.among)
            placed.append(drawn)
            memory.target = before.target
        results.append(result | {"placed": placed})
    return results


@kind("avg_plan")
def avg_plan(case: Case) -> Any:
    """AvgShedder's plans: after each round's shedding the brokers that it would pick, step by step.

    The leader's loads at a step are the round's, but for what the step says.
    """
    results = []
    for given, sheds in _avg_rounds(case):
        placed = [_avg_step(sheds, given, step) for step in given["steps"]]
        results.append(sheds.result | {"placed": placed})
    return results


def _avg_step(sheds: "AvgRound", given: Mapping[str, Any], step: Mapping[str, Any]) -> Any:
    if step.get("completed"):
        sheds.complete()
        return {"completed": True}
    gone = step.get("gone", ())
    loads = dict(given) | {
        "brokers": {
            name: broker
            for name, broker in (given["brokers"] | step.get("brokers", {})).items()
            if name not in gone
        },
        "bundleData": given["bundleData"] | step.get("bundleData", {}),
    }
    choice = sheds.place(step["bundle"], step["candidates"], loads)
    line: dict[str, Any] = {"bundle": step["bundle"]}
    if choice.planned:
        return line | {"pick": choice.pick}
    if (
        choice.among and not sheds.is_plan
    ):  # what chance has picked is forgotten again, and any plan with it
        sheds.memory.target.pop(choice.key, None)
    if choice.among:
        among = choice.among if sheds.is_plan else step["candidates"]
        return line | {"among": sorted(among)}
    return line | ({"empty": True} if sheds.is_plan else {"error": "no candidate"})


@dataclass(frozen=True)
class AvgChoice:
    """What a placement by AvgShedder gave: the broker, whether it was planned, who else might.

    `key`: what the bundle's destination is remembered under.
    """

    pick: str | None
    planned: bool
    among: list[str]
    key: str


@dataclass
class AvgRound:
    """AvgShedder after one round's shedding: its result, and what it remembers."""

    config: ClusterConfig
    memory: Any
    result: dict[str, Any]

    @property
    def is_plan(self) -> bool:
        """Whether destinations go by a plan, as in Pulsar 5.0."""
        return bool(self.config.placement_config.plans_each_pass)

    def complete(self) -> None:
        """Forget the plan: the attempt to unload is over. Before 5.0 nothing is forgotten."""
        self.memory = end_plan(self.config.shedder_config, self.memory)

    def place(self, name: str, candidates: list[str], loads: Mapping[str, Any]) -> AvgChoice:
        """Select a broker. A candidate that the loads don't know has no report."""
        missing = [broker for broker in candidates if broker not in loads["brokers"]]
        known = loads["brokers"] | {broker: {} for broker in missing}
        bundles = loads.get("bundleData", {})
        view = view_of_loads(
            {**loads, "brokers": known, "bundleData": bundles | {name: bundles[name]}}
            if name in bundles
            else {**loads, "brokers": {**known, "-": {"bundles": [name]}}},
            self.config.balancer.weights,
        )
        usage = np.where(np.isin(view.brokers.names, missing), np.nan, view.brokers.usage)
        view = replace(view, brokers=replace(view.brokers, usage=usage))
        rows = np.array([view.brokers.names.index(broker) for broker in candidates], np.intp)
        bundle = int(view.bundles.rows_of([name])[0])
        config = self.config.placement_config
        key = target_key(view, bundle, config)
        wanted = self.memory.target.get(key)
        best, self.memory = self.config.placement.function(
            PlacementContext(Targets.from_view(view), rows, bundle, config, self.memory)
        )
        among = [view.brokers.names[row] for row in best.rows.tolist()]
        pick = among[0] if among else None
        return AvgChoice(pick, wanted in candidates and among == [wanted], among, key)


def _avg_rounds(case: Case) -> Iterator[tuple[Mapping[str, Any], AvgRound]]:
    """Shed as AvgShedder does in each round that sheds; memory lives through the case."""
    config = cluster_config(
        {"shedding_strategy": "AvgShedder", "placement_strategy": "AvgShedder"} | case["config"]
    )
    sheds = AvgRound(config, config.shedder.memory({}), {})
    for given in case["rounds"]:
        for _ in range(int(given.get("repeat", 1))):
            sheds.result = {}
            if given.get("shed", True):
                view = _view(config, case, given)
                unloads, sheds.memory = _shed(config, view, sheds.memory, given)
                sheds.result = _avg_result(view, unloads, sheds.memory, config.shedder_config)
            yield given, sheds


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
    config = cluster_config({"shedding_strategy": name} | case["config"])
    memory = config.shedder.memory({})
    for given in case["rounds"]:
        for _ in range(int(given.get("repeat", 1))):
            view = _view(config, case, given)
            unloads, memory = _shed(config, view, memory, given)
            yield view, unloads, memory


def _view(config: ClusterConfig, case: Case, given: Mapping[str, Any]) -> ClusterView:
    order = given if "brokerOrder" in given else case
    return view_of_loads(given, config.balancer.weights, order, config.balancer.pulsar_names)


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
