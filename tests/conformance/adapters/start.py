"""manager_start: which load manager and strategies start with the configured classes."""

from typing import Any

from lb_stream.settings.resolve import cluster_config
from tests.conformance.registry import Case, kind

CLASSES = {"simple": "SimpleLoadManagerImpl", "extensible": "ExtensibleLoadManagerWrapper"}


@kind("manager_start")
def manager_start(case: Case) -> Any:
    """LoadManager.create: the manager that starts, and the modular manager's strategies."""
    config = cluster_config(case["config"])
    manager = config.balancer.load_manager
    if not config.balancer.enabled:
        return {"loadManager": "NoopLoadManager"}
    if manager != "modular":
        return {"loadManager": CLASSES[manager]}
    shedding, placement = config.shedder.name, config.placement.name
    return {
        "loadManager": "ModularLoadManagerWrapper",
        "shedding": shedding,
        "placement": placement,
        "sameObject": shedding == placement,
    }
