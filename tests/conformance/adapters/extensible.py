"""broker_load, top_bundles, report_needed, transfer: what the extensible manager knows of its
brokers, and its shedder."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic.alias_generators import to_snake

from lb_stream.agent.load_data import BrokerLoad
from lb_stream.agent.report_needed import ReportFigures, report_needed
from lb_stream.contracts.keys import pulsar_names
from lb_stream.contracts.reports import ModularLoadReport, ReportConfig, ResourceUsage
from lb_stream.core.model.names import SYSTEM_NAMESPACE, is_system_bundle, namespace_of
from lb_stream.core.model.releases import Release
from lb_stream.core.shedding.broker_loads import UNWEIGHTED, five_weights
from lb_stream.core.shedding.top_bundles import reported_top
from lb_stream.core.shedding.transfer import TransferShedderConfig
from lb_stream.core.shedding.transfer_cycle import Cycle, LoadStore, Top, run_cycle
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import FOUR_NAMES, RESOURCE_NAMES, bundle_rates, rates, resource, stats
from tests.conformance.reference_only import stored_top, with_stats
from tests.conformance.registry import Case, kind

_MOST = "loadBalancerMaxNumberOfBundlesInBundleLoadReport"
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Settings:
    """A case's config: the shedder's own keys, the weights of a broker's load, what is excluded."""

    shedder: TransferShedderConfig
    weights: dict[str, float]
    excluded: frozenset[str]
    release: Release

    @staticmethod
    def of(config: Mapping[str, Any]) -> "Settings":
        checked = cluster_config({"shedding_strategy": "TransferShedder"} | dict(config))
        own = checked.shedder_config
        assert isinstance(own, TransferShedderConfig)
        excluded = frozenset(checked.balancer.shedding_excluded_namespaces)
        weights = five_weights(checked.balancer.weights, own.memory_weight)
        return Settings(own, weights, excluded, checked.balancer.pulsar_names)

    def updated(self, load: BrokerLoad, given: Mapping[str, Any], at_ms: int) -> BrokerLoad:
        resources = {ours: resource(given.get(theirs)) for theirs, ours in RESOURCE_NAMES.items()}
        throughput = float(given.get("msgThroughputIn", 0)) + float(
            given.get("msgThroughputOut", 0)
        )
        return load.updated(resources, throughput, self.weights, self.shedder.history_ratio, at_ms)


@kind("broker_load")
def broker_load(case: Case) -> Any:
    """BrokerLoadData.update and clear: the figures after every round."""
    settings, load, results = Settings.of(case["config"]), BrokerLoad(), []
    for given in case["rounds"]:
        load = load.cleared() if given.get("clear") else settings.updated(load, given, NOW_MS)
        results.append(
            {
                "maxResourceUsage": load.max_usage,
                "weightedMaxEMA": load.load,
                "msgThroughputEMA": load.throughput,
            }
        )
    return results


@kind("top_bundles")
def top_bundles(case: Case) -> Any:
    """The bundles that a broker reports (TopKBundles), or whose averages the leader stores: names
    in the resulting order."""
    names = list(case["bundles"])
    if case["of"] == "bundleData":
        return [
            names[at] for at in stored_top(*bundle_rates(case["bundles"], names), int(case["k"]))
        ]
    if case["of"] == "modular":
        return _stored_names(case)
    own = Settings.of(case["config"])
    settings = own.shedder
    with_policies = {*case.get("isolatedNamespaces", ()), *case.get("antiAffinityNamespaces", ())}
    forms = [stats(form) for form in case["bundles"].values()]
    allowed = [
        not is_system_bundle(name, own.release)
        and namespace_of(name) != SYSTEM_NAMESPACE
        and namespace_of(name) not in own.excluded
        and (settings.shed_bundles_with_policies or namespace_of(name) not in with_policies)
        for name in names
    ]
    four = rates(
        [
            [form.msg_throughput_in, form.msg_throughput_out, form.msg_rate_in, form.msg_rate_out]
            for form in forms
        ]
    )
    connections = np.array(
        [form.topics + form.consumer_count + form.producer_count for form in forms], np.int64
    )
    cache_bytes = np.array([form.cache_size for form in forms], np.int64)
    return [
        names[at]
        for at in reported_top(
            four, connections, cache_bytes, np.array(allowed, np.bool_), int(case["k"])
        )
    ]


def _stored_names(case: Case) -> list[str]:
    """selectTopKBundle: the highest, as many as the brokers may report together; all by name."""
    config = {name: value for name, value in case["config"].items() if name != _MOST}
    excluded = cluster_config(config).balancer.shedding_excluded_namespaces
    names = [name for name in case["bundles"] if namespace_of(name) not in excluded]
    most = case["config"].get(_MOST, 10) * len(case["brokers"])
    if not 0 < most < len(names):
        return sorted(names)
    return [names[at] for at in stored_top(*bundle_rates(case["bundles"], names), most)]


@kind("report_needed")
def needed(case: Case) -> Any:
    """Whether each manager's broker would write its report."""
    names = pulsar_names(ReportConfig)
    own = {
        names[name][0]: value * names[name][1]
        for name, value in case["config"].items()
        if name in names
    }
    weights = cluster_config(
        {name: value for name, value in case["config"].items() if name not in names}
    ).balancer.weights
    last, local = _report(case["last"]), _report(case["local"])
    return {
        manager: report_needed(
            ReportFigures.from_report(last, usage),
            ReportFigures.from_report(local, usage),
            int(case["lastUpdateAgoMs"]),
            ReportConfig(**own),
        )
        for manager, usage in (("modular", weights), ("extensible", UNWEIGHTED))
    }


def _report(broker: Mapping[str, Any]) -> ModularLoadReport:
    """BROKER as local data: sums of its statistics unless it says otherwise."""
    usages = {
        ours: ResourceUsage(usage=pair[0], limit=pair[1])
        for ours, pair in ((o, resource(broker.get(t))) for t, o in RESOURCE_NAMES.items())
    }
    report = with_stats(
        ModularLoadReport(**usages),
        {name: stats(form) for name, form in broker.get("lastStats", {}).items()},
    )
    said = {to_snake(name): float(broker[name]) for name in FOUR_NAMES if name in broker}
    counted = {"num_bundles": len(broker["bundles"])} if "bundles" in broker else {}
    return report.model_copy(update=said | counted)


@dataclass
class Stored:
    """What the stores hold of one broker."""

    load: BrokerLoad = field(default_factory=BrokerLoad)
    given: Mapping[str, Any] = field(default_factory=dict)


@kind("transfer")
def transfer(case: Case) -> Any:
    """TransferShedder on each round's load store; what brokers average lives on while a round
    doesn't name them."""
    settings, known, hits, results = Settings.of(case["config"]), dict[str, Stored](), 0, []
    for given in [one for one in case["rounds"] for _ in range(int(one.get("repeat", 1)))]:
        stored = {
            name: _store(settings, known.get(name), broker)
            for name, broker in given["brokers"].items()
        }
        known |= stored
        unloaded = {
            name: NOW_MS - int(ago)
            for name, ago in given.get("recentlyUnloadedBrokers", {}).items()
        }
        bundles = _Bundles(
            case, given, {name: one.given for name, one in stored.items()}, settings.excluded
        )
        store = _load_store(stored, given, bundles)
        cycle = run_cycle(
            store, settings.shedder.limits, hits, unloaded, bundles.may_take(settings), NOW_MS
        )
        hits = cycle.hits
        results.append(_result(cycle, store, bundles))
    return results


def _store(settings: Settings, before: Stored | None, given: Mapping[str, Any]) -> Stored:
    load = settings.updated(
        (before or Stored()).load, given, NOW_MS - int(given.get("updatedAgoMs", 0))
    )
    forced = {
        "load": float(given.get("weightedMaxEMA", load.load)),
        "throughput": float(given.get("msgThroughputEMA", load.throughput)),
    }
    return Stored(BrokerLoad(load.max_usage, updated_ms=load.updated_ms, **forced), given)


class _Bundles:
    """The bundles of one round by number, and who may have them."""

    def __init__(
        self,
        case: Case,
        given: Mapping[str, Any],
        brokers: Mapping[str, Mapping[str, Any]],
        excluded: Collection[str] = (),
    ) -> None:
        self.excluded = excluded
        self.case, self.given, self.brokers = case, given, brokers
        self.order = list(brokers)
        self.names = list(
            dict.fromkeys(
                top[0] for broker in brokers.values() for top in broker.get("topBundles", ())
            )
        )
        self.number = {name: number for number, name in enumerate(self.names)}

    def top(self, broker: str) -> Top:
        """The broker's list as given."""
        rows = self.brokers[broker].get("topBundles", ())
        owners, recent = (
            self.case.get("owners", {}),
            set(self.given.get("recentlyUnloadedBundles", ())),
        )
        return Top(
            np.array([self.number[row[0]] for row in rows], np.intp),
            np.array([float(row[1]) + float(row[2]) for row in rows]),
            np.array(
                [
                    owners.get(row[0], broker) == broker
                    and row[0] not in recent
                    and namespace_of(row[0]) not in self.excluded
                    for row in rows
                ],
                np.bool_,
            ),
        )

    def may_take(self, settings: Settings) -> Callable[[int, int], bool]:
        """What policies and filters say, as far as the case gives any."""
        policies = self.case.get("policies", {})
        bound = {
            *policies.get("isolatedNamespaces", ()),
            *policies.get("antiAffinityNamespaces", ()),
        }
        real_service = "policies" in self.case or "owners" in self.case

        def allowed(bundle: int, broker: int) -> bool:
            if not real_service:
                return True
            namespace, name = namespace_of(self.names[bundle]), self.order[broker]
            if namespace in bound and not settings.shedder.shed_bundles_with_policies:
                return False
            candidates = policies.get("candidates", {}).get(namespace)
            return (
                name in candidates
                if candidates is not None
                else self.brokers[name].get("registered", True)
            )

        return allowed


def _load_store(
    stored: Mapping[str, Stored], given: Mapping[str, Any], bundles: _Bundles
) -> LoadStore:
    loads = [one.load for one in stored.values()]
    throughput = [
        float(one.given.get("msgThroughputIn", 0)) + float(one.given.get("msgThroughputOut", 0))
        for one in stored.values()
    ]
    names = tuple(stored)
    return LoadStore(
        names=names,
        load=np.array([load.load for load in loads]),
        throughput_ema=np.array([load.throughput for load in loads]),
        throughput=np.array(throughput),
        updated_ms=np.array([load.updated_ms for load in loads], np.int64),
        top=lambda row, _soon: bundles.top(names[row]),
        without_data=tuple(given.get("brokersWithoutLoadData", ())),
    )


def _result(cycle: Cycle, store: LoadStore, bundles: _Bundles) -> dict[str, Any]:
    loads = zip(store.names, store.load.tolist(), store.throughput_ema.tolist(), strict=True)
    return {
        "decisions": [
            [
                bundles.names[move.bundle],
                store.names[move.source],
                None if move.destination is None else store.names[move.destination],
                move.why.reason,
            ]
            for move in cycle.moves
        ],
        "skipped": [] if cycle.skip is None else [f"Skip:{cycle.skip}"],
        "load": {
            name: {"weightedMaxEMA": load, "msgThroughputEMA": throughput}
            for name, load, throughput in loads
        },
        "avg": cycle.average,
        "std": cycle.std,
        "stdAfter": cycle.std_after,
        "hitCount": cycle.hits,
        "recentlyUnloadedBrokers": sorted(cycle.unloaded),
    }
