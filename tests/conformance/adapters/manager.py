"""manager: the modular manager's fold of the reports and its assignments, on shards that live
through the rounds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lb_stream.contracts.balancer import MANAGER_CLASSES
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.filters.preallocation import Preallocations, count
from lb_stream.core.model.blocks import RATE_COLUMNS, Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.policies import Policies
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.state import Call, RoundInputs, RoundState
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import FOUR_NAMES, RESOURCE_NAMES, resource, stats
from tests.conformance.reference_only import add_bundles
from tests.conformance.registry import PROFILE, Case, kind
from tests.support.build import Report, batch_of

AS_THE_LEADER = FoldConfig(bundle_retention_ms=0, broker_retention_ms=1, sample_mode="reference")
OWN_CLASS = next(iter(MANAGER_CLASSES))


@kind("manager")
def manager(case: Case) -> Any:
    """ModularLoadManagerImpl: what it assigns, and what it knows after every round."""
    leader = Leader(
        cluster_config(PROFILE | case["config"]),
        Policies((), case.get("antiAffinityGroups", {}), case.get("failureDomains", {})),
    )
    return [leader.round(now_ms, given) for now_ms, given in enumerate(case["rounds"], 1)]


class Leader:
    """What lives through a case."""

    def __init__(self, config: ClusterConfig, policies: Policies) -> None:
        self.config, self.policies = config, policies
        self.shard, self.preallocations, self.strategies = (
            Shard.empty(),
            Preallocations(),
            dict[str, Any](),
        )
        self.brokers: Mapping[str, Any] = {}

    def round(self, now_ms: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Reports, if there are any, then assignments one by one."""
        if "brokers" in given:
            self.brokers = given["brokers"]
            self.shard, _ = fold(
                self.shard,
                batch_of([_report(name, now_ms, one) for name, one in self.brokers.items()]),
                now_ms,
                AS_THE_LEADER,
            )
            release = self.config.balancer.preallocation_release
            self.preallocations = self.preallocations.updated(
                self._view(now_ms), release, set(given.get("leaderOwned", ()))
            )
        self.shard = add_bundles(self.shard, given.get("assign", ()), now_ms)
        view = self._view(now_ms)
        state = RoundState.begin(
            RoundInputs.untouched(
                view, self.config, seed=None, memory=Memory(strategies=self.strategies)
            )
        )
        count(self.preallocations.entries, state.targets, state.candidates)
        assigned = [self._assign(state, bundle) for bundle in given.get("assign", ())]
        self.strategies = state.strategies_after()
        return {
            "assigned": assigned,
            "bundleData": self._bundle_data(),
            "brokers": self._brokers(view),
        }

    def _view(self, now_ms: int) -> ClusterView:
        view = view_of("c", [self.shard], now_ms, self.config.balancer.weights)
        reported = [self.brokers[name] for name in view.brokers.names]
        versions = tuple(one.get("brokerVersionString", "") for one in reported)
        classes = tuple(one.get("loadManagerClassName", OWN_CLASS) for one in reported)
        return replace(
            view,
            policies=self.policies,
            brokers=replace(view.brokers, versions=versions, load_managers=classes),
        )

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


def _call(names: tuple[str, ...], call: Call) -> dict[str, list[str]]:
    return {
        "candidates": [names[row] for row in call.candidates],
        "best": [names[row] for row in call.best],
    }
