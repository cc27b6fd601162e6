"""isolation: which brokers the isolation policies leave for a bundle."""

from dataclasses import replace
from typing import Any

from lb_stream.core.filters.candidates import Candidates
from lb_stream.core.model.policies import IsolationPolicy, Policies
from lb_stream.core.placement.base import Targets
from lb_stream.settings.resolve import cluster_config
from tests.conformance.forms import view_of_loads
from tests.conformance.registry import Case, kind


@kind("isolation")
def isolation(case: Case) -> Any:
    """LoadManagerShared.applyNamespacePolicies: the candidates, sorted."""
    config = cluster_config(case["config"])
    policies = tuple(
        IsolationPolicy(
            tuple(policy["namespaces"]),
            tuple(policy["primary"]),
            tuple(policy["secondary"]),
            int(policy["minLimit"]),
        )
        for policy in case["policies"].values()
    )
    loads = {
        "brokers": {name: {} for name in case["brokers"]} | {"-": {"bundles": [case["bundle"]]}}
    }
    view = view_of_loads(loads, config.balancer.weights)
    view = replace(view, policies=Policies(policies))
    bundle = int(view.bundles.rows_of([case["bundle"]])[0])
    kept = Candidates(view, config.balancer).allowed(bundle, Targets.from_view(view))
    return {
        "candidates": sorted(view.brokers.names[row] for row in kept if row < len(case["brokers"]))
    }
