"""manager, manager_shed: the modular manager's fold of the reports and its assignments, on shards that live
through the rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from lb_stream.contracts.balancer import MANAGER_CLASSES
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.filters.candidates import Candidates
from lb_stream.core.filters.preallocation import Preallocations, count
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.policies import Policies
from lb_stream.core.model.rates import RATE_COLUMNS
from lb_stream.core.model.view import ClusterView, Rates, Rows
from lb_stream.core.placement.base import Targets
from lb_stream.core.round.shed import observe_loads, unload_from_hot
from lb_stream.core.round.state import Call, RoundInputs, RoundState
from lb_stream.core.shedding.avg import PLANNED
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import FOUR_NAMES, RESOURCE_NAMES, in_order, resource, stats
from tests.conformance.reference_only import add_bundles
from tests.conformance.registry import Case, kind
from tests.support.build import Report, batch_of

AS_THE_LEADER = FoldConfig(bundle_retention_ms=0, broker_retention_ms=1, sample_mode="reference")
OWN_CLASS = next(iter(MANAGER_CLASSES))


NO_LIMITS_OF_OURS = {
    "count_pending_moves": False,
    "max_moves_in_flight": 1_000_000,
    "max_moves_in_flight_per_broker": 1_000_000,
    "max_moves_per_minute": 1_000_000,
}
"""What Pulsar has no limits for."""


@kind("manager")
def manager(case: Case) -> Any:
    """ModularLoadManagerImpl: what it assigns, and what it knows after every round."""
    leader = Leader.of(case)
    results = []
    for now_ms, given in enumerate(case["rounds"], 1):
        assigned = leader.assign(leader.begin(now_ms, given), given)
        results.append({"assigned": assigned} | leader.known())
    return results


@kind("manager_shed")
def manager_shed(case: Case) -> Any:
    """ModularLoadManagerImpl: reports, doLoadShedding, then assignments."""
    leader = Leader.of(case)
    results = []
    for now_ms, given in enumerate(case["rounds"], 1):
        if given.get("forgetUnloads"):
            leader.unloaded = {}
        state = leader.begin(now_ms, given)
        unloads = leader.shed(state, given) if given.get("shed", True) else []
        results.append(
            {
                "unloads": unloads,
                "recentlyUnloaded": sorted(leader.unloaded),
                "assigned": leader.assign(state, given),
            }
        )
    return results


class SmallestName(Targets):
    """Chance that always takes the broker with the smallest name."""

    def draw(self, subject: str, candidates: Rows) -> int:
        """Return the row of the smallest name."""
        return min(candidates.tolist(), key=self.view.brokers.names.__getitem__)


class WithoutGroups(Candidates):
    """The recorded leader finds no anti-affinity group where it asks whether an unload helps.

    Its recorder answers that question for placements only.
    """

    def unload_helps(self, bundle: int, current: int, allowed: Rows) -> bool:
        """Return True: a bundle outside of any group."""
        return True


class Leader:
    """What lives through a case."""

    def __init__(self, config: ClusterConfig, policies: Policies, failing: set[str]) -> None:
        self.config, self.policies, self.failing = config, policies, failing
        self.shard, self.preallocations = Shard.empty(), Preallocations()
        self.strategies: dict[str, Any] = {}
        self.brokers: Mapping[str, Any] = {}
        self.unloaded: dict[str, int] = {}
        self.now_ms = 0
        self.asks_for_leadership = config.balancer.profile == "pulsar-5.0"

    @staticmethod
    def of(case: Case) -> "Leader":
        """Before the first round of a case."""
        groups, domains = case.get("antiAffinityGroups", {}), case.get("failureDomains", {})
        return Leader(
            cluster_config(NO_LIMITS_OF_OURS | case["config"]),
            Policies((), groups, domains),
            set(case.get("failingUnloads", ())),
        )

    def begin(self, now_ms: int, given: Mapping[str, Any]) -> RoundState:
        """Take the reports, if there are any, and begin a round."""
        self.now_ms = now_ms
        if "brokers" in given:
            self.brokers = given["brokers"]
            self.shard, _ = fold(
                self.shard,
                batch_of([_report(name, now_ms, one) for name, one in self.brokers.items()]),
                now_ms,
                replace(AS_THE_LEADER, release=self.config.balancer.pulsar_names),
            )
            release = self.config.balancer.preallocation_release
            self.preallocations = self.preallocations.updated(
                self._view(now_ms), release, set(given.get("leaderOwned", ()))
            )
        release = self.config.balancer.pulsar_names
        self.shard = add_bundles(self.shard, given.get("assign", ()), now_ms, release)
        return self._state(self._view(now_ms, given.get("brokerOrder")))

    def _state(self, view: ClusterView) -> RoundState:
        inputs = RoundInputs.untouched(
            view, self.config, seed=None, memory=Memory(strategies=self.strategies)
        )
        state = RoundState.begin(replace(inputs, recently_unloaded=self.unloaded))
        begun = Targets.from_view(view, None)
        columns = {field.name: getattr(begun, field.name) for field in fields(begun)}
        state.targets = SmallestName(**columns)
        count(self.preallocations.entries, state.targets, state.candidates)
        return state

    def assign(self, state: RoundState, given: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Assign the round's bundles one by one."""
        assigned = [self._assign(state, bundle) for bundle in given.get("assign", ())]
        self.strategies = state.strategies_after()
        return assigned

    def shed(self, state: RoundState, given: Mapping[str, Any]) -> list[list[Any]]:
        """Shed as the leader does: each unload call is [bundle, destination]."""
        state.candidates = WithoutGroups(state.view, state.config.balancer, state.refusals)
        observe_loads(state)
        unload_from_hot(state)
        names = state.view.brokers.names
        decisions = sorted(state.decisions, key=lambda decision: names.index(decision.source))
        calls: list[list[Any]] = []
        for decision in decisions[: self._most_unloads(given)]:
            failed = ["failed"] if decision.bundle in self.failing else []
            calls.append([decision.bundle, decision.destination, *failed])
            if not failed:
                self.unloaded[decision.bundle] = self.now_ms
        return calls

    def _most_unloads(self, given: Mapping[str, Any]) -> int | None:
        """Return after how many unloads the round ends because the leadership is lost: since 5.0.

        This balancer's leader is a job: one that was fenced publishes nothing at all.
        """
        return given.get("leaderUnloads") if self.asks_for_leadership else None

    def known(self) -> dict[str, Any]:
        """Return the averages of bundles and brokers after a round."""
        return {
            "bundleData": self._bundle_data(),
            "brokers": self._brokers(self._view(self.now_ms)),
        }

    def _view(self, now_ms: int, order: Sequence[str] | None = None) -> ClusterView:
        view = view_of("c", [self.shard], now_ms, self.config.balancer.weights)
        reported = [self.brokers[name] for name in view.brokers.names]
        versions = tuple(one.get("brokerVersionString", "") for one in reported)
        classes = tuple(one.get("loadManagerClassName", OWN_CLASS) for one in reported)
        brokers = replace(view.brokers, versions=versions, load_managers=classes)
        return laid_out(replace(view, policies=self.policies, brokers=brokers), order)

    def _assign(self, state: RoundState, bundle: str) -> dict[str, Any]:
        if bundle in self.preallocations.given:
            return {"bundle": bundle, "broker": self.preallocations.given[bundle], "calls": []}
        names, row = state.view.brokers.names, int(state.view.bundles.rows_of([bundle])[0])
        choice = state.place(row)
        if choice is None:
            return {"bundle": bundle, "broker": None, "calls": []}
        self.preallocations = self.preallocations.given_to(
            row, choice.destination, state.targets, state.candidates
        )
        return {
            "bundle": bundle,
            "broker": names[choice.destination],
            "calls": [_call(names, call) for call in choice.calls],
        }

    def _bundle_data(self) -> dict[str, Any]:
        return {
            row["name"]: {
                "short": [row[f"short_{value}"] for value in RATE_COLUMNS],
                "shortSamples": row["short_samples"],
                "long": [row[f"long_{value}"] for value in RATE_COLUMNS],
                "longSamples": row["long_samples"],
                "topics": row["topics"],
            }
            for row in self.shard.bundles.to_pylist()
        }

    def _brokers(self, view: ClusterView) -> dict[str, Any]:
        return {
            broker: {
                f"{span}Term{name[0].upper()}{name[1:]}": value
                for span, sums in (("short", view.brokers.short), ("long", view.brokers.long))
                for name, value in zip(FOUR_NAMES, sums.row(row), strict=True)
            }
            | {
                "preallocated": sorted(
                    entry.bundle for entry in self.preallocations.entries if entry.broker == broker
                )
            }
            for row, broker in enumerate(view.brokers.names)
        }


def _report(name: str, now_ms: int, broker: Mapping[str, Any]) -> Report:
    resources = {ours: resource(broker.get(theirs)) for theirs, ours in RESOURCE_NAMES.items()}
    return Report(
        name,
        now_ms,
        {bundle: stats(form) for bundle, form in broker.get("lastStats", {}).items()},
        resources,
    )


def laid_out(view: ClusterView, order: Sequence[str] | None) -> ClusterView:
    """Return the view with its brokers in another order; None: as they are."""
    names = view.brokers.names
    rows = np.array([names.index(name) for name in in_order(names, order)], np.intp)
    place = np.append(np.argsort(rows), -1)
    brokers = replace(
        view.brokers,
        **{
            field.name: _taken(getattr(view.brokers, field.name), rows)
            for field in fields(view.brokers)
            if field.name != "weights"
        },
    )
    owner = place[view.bundles.owner].astype(np.int32)
    return replace(view, brokers=brokers, bundles=replace(view.bundles, owner=owner))


def _taken(column: Any, rows: Rows) -> Any:
    if column is None:
        return None
    if isinstance(column, tuple):
        return tuple(column[row] for row in rows.tolist())
    if isinstance(column, Mapping):
        return {name: tuple(part[rows] for part in pair) for name, pair in column.items()}
    return column.take(rows) if isinstance(column, Rates) else column[rows]


def _call(names: tuple[str, ...], call: Call) -> dict[str, Any]:
    candidates = sorted(names[row] for row in call.candidates)
    best = sorted(names[row] for row in call.best)
    line: dict[str, Any] = {"candidates": candidates}
    if call.strategy == "RoundRobinBrokerSelector":
        return line | {"roundRobin": True}
    if call.strategy != "AvgShedder":
        return line | {"best": best}
    if call.unit == PLANNED:
        return line
    return line | {"among": candidates if len(best) == 1 else best}
