"""Finds who reads a setting: which strategies, and under which other settings.

A setting that a cluster does not read changes nothing there. A strategy reads the keys of its own
model. Keys of the balancer and of splitting are read in every cluster, except those of
`CONDITIONS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lb_stream.contracts.balancer import BalancerConfig
from lb_stream.contracts.keys import KeyModel
from lb_stream.contracts.reports import ReportConfig
from lb_stream.contracts.unread import WHY
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.placement import extensible_placement
from lb_stream.core.shedding.base import traits_of
from lb_stream.core.splitting import SplittingConfig, split_algorithm
from lb_stream.core.splitting.manual import FLOW
from lb_stream.settings.names import REGISTRIES

EVERY_CLUSTER = "every cluster"
AGENTS = "agents that report"
REPORT_INTERVAL = "report_max_interval_ms"
"""The key from whose value the default of report_timeout_ms follows: it is twice as long."""
NONE_READS = "none"
BALANCER = "the balancer"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition under which a key is read. `reader`: who reads it then, for people."""

    reader: str
    holds: Callable[[ClusterConfig], bool]


def _manager(*names: str) -> Callable[[ClusterConfig], bool]:
    return lambda config: config.balancer.load_manager in names


_MODULAR = Condition("the modular manager", _manager("modular"))
_SIMPLE = Condition("the simple manager", _manager("simple"))
_NOT_SIMPLE = Condition("the modular and the extensible manager", _manager("modular", "extensible"))
_SHEDDING = Condition(
    "every cluster with shedding_enabled", lambda config: config.balancer.shedding_enabled
)
_SPLITS = Condition(
    "every cluster with split_enabled, and the simple manager without (it logs the splits that it "
    "doesn't make)",
    lambda config: config.splitting.split_enabled or config.balancer.load_manager == "simple",
)
_MERGES = Condition(
    "every cluster with merge_advice_enabled", lambda config: config.splitting.merge_advice_enabled
)
_LIMITS = Condition(
    "every cluster with split_enabled (but, unless split_by_limits is always, no cluster whose "
    "shedder plans splits) or merge_advice_enabled, and the simple manager without",
    lambda config: (
        (_SPLITS.holds(config) and not config.leaves_splits_to_plan) or _MERGES.holds(config)
    ),
)
_PLANNED_SPLITS = Condition(
    "every cluster with split_enabled whose shedder plans splits",
    lambda config: config.splitting.split_enabled and config.plans_splits,
)
_APPROVE = Condition(
    "every cluster whose mode is approve", lambda config: config.balancer.mode == "approve"
)
_CHILDREN = Condition(
    "the modular and the simple manager with split_enabled, unless the shedder plans splits",
    lambda config: (
        config.splitting.split_enabled
        and config.balancer.load_manager != "extensible"
        and not config.plans_splits
    ),
)
_EXTENSIBLE_SPLITS = Condition(
    "the extensible manager with split_enabled",
    lambda config: config.splitting.split_enabled and config.balancer.load_manager == "extensible",
)
_SPLITS_OF_AGENTS = Condition(
    "the extensible manager with split_enabled; with a shedder that plans splits only if "
    "split_by_limits is always",
    lambda config: _EXTENSIBLE_SPLITS.holds(config) and not config.leaves_splits_to_plan,
)


def _agents(*algorithms: str) -> Condition:
    """Build the condition that agents of the extensible manager cut bundles by these algorithms.

    Under other managers the brokers themselves find the boundaries among topics.
    """
    return Condition(
        f"agents under the extensible manager, for {' and '.join(algorithms)}",
        lambda config: (
            _SPLITS_OF_AGENTS.holds(config) and config.split_algorithms.named().name in algorithms
        ),
    )


CONDITIONS = {
    "shedding_strategy": Condition(
        "the modular manager, and the extensible one for a shedder of its own",
        lambda config: config.balancer.shedding_strategy.rpartition(".")[2] == config.shedder.name,
    ),
    "placement_strategy": _MODULAR,
    "simple_placement_strategy": _SIMPLE,
    "shedding_interval_ms": _SHEDDING,
    "shedding_excluded_namespaces": _SHEDDING,
    "min_dwell_ms": _SHEDDING,
    "overloaded_threshold_percent": _MODULAR,
    "distribute_bundles_evenly": _MODULAR,
    "failure_domains_enabled": _NOT_SIMPLE,
    "anti_affinity_counts": _NOT_SIMPLE,
    "anti_affinity_repair": Condition(
        "the modular and the extensible manager with shedding_enabled",
        lambda config: _NOT_SIMPLE.holds(config) and config.balancer.shedding_enabled,
    ),
    "prefer_later_versions": _NOT_SIMPLE,
    "preallocation_release": Condition(
        "every cluster with count_pending_moves off",
        lambda config: not config.balancer.count_pending_moves,
    ),
    "memory_weight": Condition(
        "every cluster under usage_profile 2.x",
        lambda config: config.balancer.usage_profile == "2.x",
    ),
    "modular_preselect_destination": Condition(
        "the modular manager, unless the shedder itself chooses destinations",
        lambda config: (
            config.balancer.load_manager == "modular"
            and not traits_of(config.shedder).chooses_destination
        ),
    ),
    **dict.fromkeys(("proposal_expires_ms", "max_proposals", "auto_approve"), _APPROVE),
    "unload_split_bundles": _CHILDREN,
    "bundle_max_topics": _LIMITS,
    "bundle_max_sessions": _LIMITS,
    "bundle_max_msgs_per_s": _LIMITS,
    "bundle_max_bandwidth_mb": _LIMITS,
    "bandwidth_limit_32bit": _LIMITS,
    "namespace_max_bundles": _SPLITS,
    "max_splits_in_flight": _SPLITS,
    "merge_advice_after_ms": _MERGES,
    "split_interval_ms": _SPLITS_OF_AGENTS,
    "max_splits_per_cycle": _SPLITS_OF_AGENTS,
    "split_hit_count": _SPLITS_OF_AGENTS,
    "split_namespace_match": _EXTENSIBLE_SPLITS,
    "split_by_limits": _PLANNED_SPLITS,
    "split_at_several_boundaries": Condition(
        f"{_agents(FLOW).reader}; the extensible manager with a shedder that plans splits",
        lambda config: (
            _agents(FLOW).holds(config)
            or (_EXTENSIBLE_SPLITS.holds(config) and config.plans_splits)
        ),
    ),
    "flow_difference_percent": _agents(FLOW),
    "flow_duplicate_hash": _agents(FLOW),
    "hex_midpoint": _agents("topic_count_equally_divide", FLOW),
}
"""Key of the balancer or of splitting that not every cluster reads → who does."""


def list_strategies_reading(name: str) -> tuple[str, ...]:
    """Return the strategies whose own settings hold the key, by name."""
    found: dict[str, None] = {}
    for registry in REGISTRIES:
        for strategy in registry.names:
            model = registry[strategy].config
            if model is not SplittingConfig and name in model.model_fields:
                of_manager = " (extensible)" if registry is extensible_placement else ""
                found[f"{strategy}{of_manager}"] = None
    return tuple(found)


def list_possible_readers(name: str) -> tuple[str, ...]:
    """Return all who read the key under some settings. Raises KeyError for an unknown key."""
    found: list[str] = []
    if any(name in model.model_fields for model in (BalancerConfig, SplittingConfig)):
        condition = CONDITIONS.get(name)
        found.append(condition.reader if condition else EVERY_CLUSTER)
    found += list_strategies_reading(name)
    if name in ReportConfig.model_fields:
        found += [
            AGENTS,
            *([f"{EVERY_CLUSTER}, for report_timeout_ms"] * (name == REPORT_INTERVAL)),
        ]
    if name in WHY:
        found.append(NONE_READS)
    if not found:
        raise KeyError(name)
    return tuple(found)


def find_readers(name: str, config: ClusterConfig) -> tuple[str, ...]:
    """Find who reads the key in a cluster with these settings.

    Empty: nothing reads it, and another value would change nothing there.
    """
    found: list[str] = []
    if any(name in model.model_fields for model in (BalancerConfig, SplittingConfig)):
        condition = CONDITIONS.get(name)
        if condition is None or condition.holds(config):
            found.append(BALANCER)
    chosen: list[tuple[str, type[KeyModel]]] = [
        (config.shedder.name, config.shedder.config),
        (config.placement.name, config.placement.config),
    ]
    used = config.split_algorithms.named()
    chosen.append((used.name, split_algorithm[used.name].config))
    found += dict.fromkeys(
        strategy
        for strategy, model in chosen
        if model is not SplittingConfig and name in model.model_fields
    )
    if name in ReportConfig.model_fields:
        found += [AGENTS, *([BALANCER] * (name == REPORT_INTERVAL))]
    return tuple(found)


def explain_unread(name: str, config: ClusterConfig) -> str:
    """Explain why nothing reads the key under these settings."""
    if name in WHY:
        return WHY[name]
    readers = " and ".join(list_possible_readers(name))
    return (
        f"it is for {readers}; this cluster has the {config.balancer.load_manager} manager with "
        f"{config.shedder.name} and {config.placement.name}"
    )
