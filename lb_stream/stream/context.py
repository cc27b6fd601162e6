"""The contexts of a batch's tasks: of those that decode, and of those that decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lb_stream.access.rights import Rights
from lb_stream.contracts.patterns import matches_whole
from lb_stream.contracts.settings import AdmissionSettings, Settings
from lb_stream.core.commands.audited import JobChange
from lb_stream.store import checkpoint_of
from lb_stream.stream.columns.reading import ColumnarReader
from lb_stream.stream.records import RecordRejected
from lb_stream.stream.shards.directory import ShardMap
from lb_stream.stream.shards.memory_files import read_memories
from lb_stream.stream.shards.share import EVERY_CLUSTER, Share
from lb_stream.stream.shards.slicing import LastWritten
from lb_stream.stream.signed_records import SignatureCheck


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """The settings and clusters of a decoding task.

    `known`: each known cluster's shard map. `partitions`: their number in the next stage.
    `allowed`: regular expression of the clusters that are served. `first`: this is the batch's
    first task, which also emits rows for clusters without records. `share`: this pipeline's
    clusters; all others belong to other pipelines. `signatures`: checks records' signatures;
    None: they do not matter. `rights`: who may send which commands; None: everyone may send all.
    `admission`: how much one sender may cause. `columnar`: knows the rosters and bases that
    columnar reports may use; None: those of the task alone.
    """

    default_cluster: str
    commands_topic: str
    known: Mapping[str, ShardMap]
    partitions: int = 1
    allowed: str = ""
    first: bool = True
    share: Share = EVERY_CLUSTER
    signatures: SignatureCheck | None = None
    rights: Rights | None = None
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    columnar: ColumnarReader | None = None

    @property
    def unknown_records_cluster(self) -> str:
        """The cluster under which rejected records of unknown clusters are listed."""
        if self.share.includes(self.default_cluster):
            return self.default_cluster
        return self.fallback_cluster

    @property
    def fallback_cluster(self) -> str:
        """The cluster under which a record that names none is rejected.

        It is the default cluster, unless only other clusters are known.
        """
        if self.default_cluster in self.known or not self.known:
            return self.default_cluster
        return min(self.known)

    def require_allowed(self, cluster: str) -> None:
        """Raise RecordRejected for a cluster that isn't served."""
        if self.allowed and not matches_whole(self.allowed, cluster):
            raise RecordRejected(
                "key", cluster, f"a cluster that matches stream.allowed_clusters = {self.allowed}"
            )


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The inputs of a batch's rounds, apart from the batch's own records.

    `file_tag`: prefix of the names of the batch's files. `memories` and `shadow_memories`:
    canonical JSON by cluster; both are empty if `stored` refers to blocks that hold them.
    `first_seq`: the number from which a cluster without a memory counts its rounds, so that no
    `seq` of a forgotten cluster comes again. `poison_events`: by cluster, rejected events of poison
    records. `ownership_versions`: of clusters that may be forgotten, bundle → version of its
    ownership record. `took_over`: how this job has come to lead, if another one led before; it is
    for each cluster's first round. `awaited`: by cluster, brokers whose rosters or bases earlier
    batches lacked; None: the cluster waits no longer. `last_written`: what is due of
    `bundle_averages` follows from it; None: tasks write none of it.
    """

    settings: Settings
    file_tag: str
    log_seq: int
    epoch: int
    caught_up: bool
    memories: Mapping[str, str]
    first_seq: int = 0
    poison_events: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)
    shadow_memories: Mapping[str, str] = field(default_factory=dict)
    stored: tuple[str, ...] = ()
    ownership_versions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    took_over: JobChange | None = None
    awaited: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    last_written: LastWritten | None = None

    def with_memories(self, clusters: Iterable[str]) -> BatchContext:
        """Return the context with the memories of these clusters read.

        Raises FileNotFoundError if the file of the memories is gone.
        """
        if not self.stored:
            return self
        memories = read_memories(checkpoint_of(self.settings.stream), self.stored, clusters)
        return replace(
            self, memories=memories.balancer, shadow_memories=memories.shadows, stored=()
        )
