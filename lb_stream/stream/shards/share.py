"""Which clusters a pipeline balances, where several share the topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from lb_stream.contracts.base import matches_whole
from lb_stream.contracts.settings import StreamSettings

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Share:
    """The clusters that `include` matches and `exclude` doesn't, by their whole names; "" matches
    all of them as `include`, none as `exclude`. All others are other pipelines': their records are
    passed over without a word."""

    include: str = ""
    exclude: str = ""

    @staticmethod
    def from_settings(settings: StreamSettings) -> Share:
        """Return the share that the settings name."""
        return Share(settings.clusters, settings.excluded_clusters)

    def includes(self, cluster: str) -> bool:
        """Whether this pipeline balances the cluster."""
        return not (self.include or self.exclude) or _has(self.include, self.exclude, cluster)

    def select(self, clusters: Mapping[str, _T]) -> dict[str, _T]:
        """What concerns the clusters of this pipeline."""
        return {name: what for name, what in clusters.items() if self.includes(name)}


EVERY_CLUSTER = Share()


@lru_cache(maxsize=1 << 17)
def _has(include: str, exclude: str, cluster: str) -> bool:
    return (not include or matches_whole(include, cluster)) and not (
        exclude and matches_whole(exclude, cluster)
    )
