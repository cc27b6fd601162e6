"""Clusters of mixed sizes: most are small, a few large."""

from __future__ import annotations

from collections.abc import Iterable

from lb_stream.contracts.decisions import Decision
from tests.bench.stream.fleet import Fleet, Shape

SIZES = {"small": (0.8, 3, 4), "medium": (0.18, 4, 16), "large": (0.02, 8, 64)}
"""Share of the clusters, brokers in each, bundles on each broker."""


def shapes(clusters: int, weight: int) -> dict[str, Shape]:
    """How many clusters there are of each size, one at least; each broker has `weight` times its
    bundles."""
    counts = {size: max(1, round(share * clusters)) for size, (share, _, _) in SIZES.items()}
    counts["small"] += max(clusters - sum(counts.values()), 1 - counts["small"])
    return {
        size: Shape(counts[size], brokers, weight * bundles)
        for size, (_, brokers, bundles) in SIZES.items()
    }


class MixedFleet:
    """Fleets of several shapes as one. `weight` multiplies the bundles of each broker."""

    def __init__(self, clusters: int, weight: int = 1) -> None:
        self.weight = weight
        self._fleets = {
            size: Fleet(shape, prefix=size) for size, shape in shapes(clusters, weight).items()
        }

    @property
    def bundles(self) -> int:
        return sum(fleet.shape.all_bundles for fleet in self._fleets.values())

    @property
    def cluster_names(self) -> list[str]:
        return [name for fleet in self._fleets.values() for name in fleet.cluster_names]

    def __str__(self) -> str:
        return "+".join(map(str, self._fleets.values()))

    def generation(self) -> list[tuple[bytes, bytes]]:
        """(key, value) of a new report of every broker."""
        return [record for fleet in self._fleets.values() for record in fleet.generation()]

    def obey(self, decisions: Iterable[Decision]) -> int:
        """Each fleet obeys what is said to its clusters. Returns how many decisions there were."""
        told: dict[str, list[Decision]] = {size: [] for size in self._fleets}
        for decision in decisions:
            told[decision.cluster.rpartition("-")[0]].append(decision)
        return sum(fleet.obey(told[size]) for size, fleet in self._fleets.items())
