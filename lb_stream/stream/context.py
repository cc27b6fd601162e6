"""What the tasks of a batch are told: those that decode, and those that decide."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lb_stream.contracts.settings import Settings
from lb_stream.store import checkpoint_of
from lb_stream.stream.records import RecordRejected
from lb_stream.stream.shards.directory import ShardMap
from lb_stream.stream.shards.memory_files import read_memories
from lb_stream.stream.shards.share import EVERY_CLUSTER, Share


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """Names that the decoder needs.

    `known` maps every known cluster to its slices; `partitions` is how many the next stage has;
    `allowed` is the regular expression of the clusters that are served. `first`: of this batch's
    tasks this one calls the clusters of which nothing has come. Clusters that aren't in `share` are
    other pipelines'.
    """

    default_cluster: str
    commands_topic: str
    known: Mapping[str, ShardMap]
    partitions: int = 1
    allowed: str = ""
    first: bool = True
    share: Share = EVERY_CLUSTER

    @property
    def unknown_records_cluster(self) -> str:
        """The cluster under which rejected records of unknown clusters are told."""
        return (
            self.default_cluster
            if self.share.includes(self.default_cluster)
            else self.fallback_cluster
        )

    @property
    def fallback_cluster(self) -> str:
        """The cluster where a record is rejected that names none: the default one, unless only
        others are known."""
        return (
            self.default_cluster
            if self.default_cluster in self.known or not self.known
            else min(self.known)
        )

    def check(self, cluster: str) -> None:
        """Raises Rejection for a cluster that isn't served."""
        if self.allowed and not re.fullmatch(self.allowed, cluster):
            raise RecordRejected(
                "key", cluster, f"a cluster that matches stream.allowed_clusters = {self.allowed}"
            )


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What a batch's rounds start from, beside their views.

    `memories` is canonical JSON by cluster; so is what shadows remember.

    Both are empty where `stored` says in which blocks tasks find those of their own clusters.
    """

    settings: Settings
    file_tag: str  # begins the names of this batch's files
    log_seq: int
    epoch: int
    caught_up: bool
    memories: Mapping[str, str]
    # a cluster without a memory counts its rounds from here: none of a forgotten one's is counted
    # twice
    first_seq: int = 0
    poison_events: Mapping[str, list[dict[str, Any]]] = field(
        default_factory=dict
    )  # by cluster; rejected events of records stepped over
    shadow_memories: Mapping[str, str] = field(default_factory=dict)
    stored: tuple[str, ...] = ()
    recorded: Mapping[str, Mapping[str, int]] = field(
        default_factory=dict
    )  # of clusters that may be forgotten: bundle → record's version

    def of(self, clusters: Iterable[str]) -> BatchContext:
        """The same, with what these clusters remember. Raises FileNotFoundError."""
        if not self.stored:
            return self
        own = read_memories(checkpoint_of(self.settings.stream), self.stored, clusters)
        return replace(self, memories=own.balancer, shadow_memories=own.shadows, stored=())
