"""The clusters that a pipeline balances, if several pipelines share the topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from lb_stream.contracts.patterns import matches_whole
from lb_stream.contracts.settings import StreamSettings

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Share:
    """A pipeline's clusters: those whose whole name `include` matches and `exclude` doesn't.

    Both are regular expressions. An empty `include` matches every cluster, an empty `exclude` none.
    Records of other clusters are another pipeline's, and are skipped silently.
    """

    include: str = ""
    exclude: str = ""

    @staticmethod
    def from_settings(settings: StreamSettings) -> Share:
        """Return the share that the settings name."""
        return Share(settings.clusters, settings.excluded_clusters)

    def includes(self, cluster: str) -> bool:
        """Return whether this pipeline balances the cluster."""
        if not (self.include or self.exclude):
            return True
        return _includes(self.include, self.exclude, cluster)

    def select(self, clusters: Mapping[str, _T]) -> dict[str, _T]:
        """Return the entries of this pipeline's clusters."""
        return {name: value for name, value in clusters.items() if self.includes(name)}


EVERY_CLUSTER = Share()


@lru_cache(maxsize=1 << 17)
def _includes(include: str, exclude: str, cluster: str) -> bool:
    return (not include or matches_whole(include, cluster)) and not (
        exclude and matches_whole(exclude, cluster)
    )
