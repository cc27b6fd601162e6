"""The clusters of `placement_model` as the core sees them: a view, settings, the round's loads."""

from dataclasses import astuple, replace
from typing import Any

import numpy as np

from lb_stream.contracts.balancer import MANAGER_CLASSES
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.policies import IsolationPolicy, Policies
from lb_stream.core.model.quotas import VALUES, Factors, Learned, Quotas
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.state import RoundInputs, RoundState
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import RESOURCE_NAMES, view_of_loads
from tests.support.placement_model import Cluster, SimpleManager

THEIR_NAMES = {ours: theirs for theirs, ours in RESOURCE_NAMES.items()}
CLASSES = {manager: f"some.package.{name}" for name, manager in MANAGER_CLASSES.items()}


def settings_of(cluster: Cluster, **more: Any) -> ClusterConfig:
    """What the cluster's switches are called."""
    return cluster_config(
        {
            "load_manager": cluster.manager,
            "distribute_bundles_evenly": cluster.evenly,
            "broker_max_topics": cluster.max_topics,
            "failure_domains_enabled": cluster.domains_enabled,
            "prefer_later_versions": cluster.later_versions,
            "anti_affinity_counts": "group" if cluster.own_counts else "others",
        }
        | more
    )


def view_of_cluster(cluster: Cluster, simple: SimpleManager | None = None) -> ClusterView:
    """Rows sorted by name. Bundles have default averages and no topics."""
    names = sorted(cluster.brokers)
    brokers = {
        name: {
            THEIR_NAMES[resource]: pair for resource, pair in cluster.brokers[name].usage.items()
        }
        | {
            "numTopics": cluster.brokers[name].topics,
            "bundles": [b for b in sorted(cluster.owners) if cluster.owners[b] == name],
        }
        for name in names
    }
    data = {bundle: {"short": [0, 0, 0, 0]} for bundle in sorted(cluster.owners)}
    loads = {"brokers": brokers, "bundleData": data, "bundleOrder": sorted(cluster.owners)}
    view = view_of_loads(loads, {"cpu": 1.0})
    policies = Policies(
        tuple(IsolationPolicy(*policy) for policy in cluster.policies),
        cluster.groups,
        cluster.domains,
        cluster.non_persistent,
    )
    columns = replace(
        view.brokers,
        persistent_topics=np.array([cluster.brokers[name].persistent for name in names], np.bool_),
        non_persistent_topics=np.array(
            [cluster.brokers[name].non_persistent for name in names], np.bool_
        ),
        versions=tuple(cluster.brokers[name].version for name in names),
        load_managers=tuple(
            CLASSES.get(cluster.brokers[name].manager, cluster.brokers[name].manager)
            for name in names
        ),
        alive=np.array([cluster.brokers[name].alive for name in names], np.bool_),
    )
    return replace(
        view,
        brokers=columns,
        policies=policies,
        quotas=None if simple is None else _learned(simple),
    )


def _learned(simple: SimpleManager) -> Learned:
    rows = np.array(
        [astuple(simple.quotas[bundle]) for bundle in sorted(simple.quotas)], float
    ).reshape(-1, len(VALUES))
    columns = {name: rows[:, column].copy() for column, name in enumerate(VALUES)}
    return Learned(
        Quotas(columns),
        dict(zip(VALUES, astuple(simple.default), strict=True)),
        Factors(cpu=simple.cpu_factor),
    )


def state_of(
    view: ClusterView, config: ClusterConfig, seed: int | None = 1, memory: Memory | None = None
) -> RoundState:
    """A round about to place bundles."""
    return RoundState.begin(RoundInputs.untouched(view, config, seed, memory))


def place_and_count(state: RoundState, bundle: str) -> str | None:
    """Where the round puts the bundle; the choice counts in its next ones."""
    row = int(state.view.bundles.rows_of([bundle])[0])
    choice = state.place(row)
    if choice is None:
        return None
    state.candidates.add(row, choice.destination)
    state.targets.add(row, choice.destination)
    return state.view.brokers.names[choice.destination]


def kept_of(state: RoundState, bundle: str) -> set[str]:
    """The candidates that the filters leave."""
    pool = state.candidates.pool_for(int(state.view.bundles.rows_of([bundle])[0]), state.targets)
    return {state.view.brokers.names[row] for row in pool.kept.tolist()}
