"""What tests of documented settings and systems ask of a cluster."""

from typing import Any

from lb_stream.core.config.cluster_config import ClusterConfig
from tests.support.scenario import Cluster


def runs(config: ClusterConfig) -> tuple[str, str, str]:
    return config.balancer.load_manager, config.shedder.name, config.placement.name


def played(*commands: str, **settings: Any) -> Cluster:
    """A cluster after the commands of a scenario."""
    cluster = Cluster(settings=settings)
    for command in commands:
        list(cluster.do(command))
    return cluster


def decided(cluster: Cluster) -> list[tuple[str, str, str | None, str | None]]:
    assert cluster.last is not None
    return [
        (decision.kind, decision.bundle, decision.source, decision.destination)
        for decision in cluster.last.decisions
    ]
