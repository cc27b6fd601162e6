"""A micro-batch after the fold of its shards: decide, log, publish, project."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from lb_stream.contracts.reads import Reads
from lb_stream.contracts.settings import SecuritySettings, Settings
from lb_stream.core.commands.audited import JobChange
from lb_stream.settings.rights import RightsFile
from lb_stream.settings.signing import SignersFile
from lb_stream.store import Store, checkpoint_of, tables_of
from lb_stream.stream.announcements import AwaitedRosters, ReadsAnnouncer
from lb_stream.stream.columns.bases import delete_old_bases
from lb_stream.stream.columns.rosters import delete_old_rosters
from lb_stream.stream.context import BatchContext
from lb_stream.stream.figures import part_files
from lb_stream.stream.kafka_absence import KafkaAbsence
from lb_stream.stream.ports import (
    Backlog,
    BatchObserver,
    Log,
    Logged,
    NoObserver,
    NoPoisonRecords,
    PoisonRecords,
    Publisher,
    Tables,
)
from lb_stream.stream.rows import FigureFile
from lb_stream.stream.shards.block_files import BlockRefs, delete_batch_files, delete_unused_files
from lb_stream.stream.shards.directory import (
    NEW,
    ListeningTime,
    ShardMap,
    delete_directories,
    read_asked,
    read_directory,
    write_access_file,
    write_directory,
)
from lb_stream.stream.shards.memory_files import distribute_memories
from lb_stream.stream.shards.share import Share
from lb_stream.stream.shards.slicing import (
    ClusterBlocks,
    DueShard,
    LastWritten,
    Parts,
    are_averages_due,
    due_parts,
    history_parts,
    next_shard_map,
)
from lb_stream.stream.task.crash import crash_point
from lb_stream.stream.task.current_task import current_task
from lb_stream.stream.transforms import to_rounds

CLEAN_EVERY = 10
"""Every this many batches, files that no batch needs any more are deleted."""
CLEAN_ROSTERS_EVERY = 1_000
"""Every this many batches, rosters that nobody has sent for long are deleted."""
CLEAN_BASES_EVERY = 100
"""Every this many batches, bases that no delta refers to any more are deleted."""


class _FinishedBatch(NamedTuple):
    """A batch, the next one's directory, and each cluster's blocks after it."""

    batch_id: int
    directory: Mapping[str, ShardMap]
    clusters: Mapping[str, ClusterBlocks]


@dataclass(slots=True)
class Balancer:
    """The function that Spark calls for each batch (`foreachBatch`).

    A restarted job reads all of its state from the log and the checkpoint. `signers`: the keys that
    may sign; None: signatures do not matter. `rights`: who may send which commands; None: everyone
    may send all. `took_over`: how this job has come to lead; None: it was simply started.
    `_next_directory`: the last directory that this job has written, with the batch that it is for;
    -1: none. `_last_batch`: the last batch that this job has finished.
    """

    settings: Settings
    log: Log
    outbox: Publisher
    tables: Tables
    backlog: Backlog
    epoch: int
    observer: BatchObserver = field(default_factory=NoObserver)
    poison_records: PoisonRecords = field(default_factory=NoPoisonRecords)
    signers: SignersFile | None = None
    rights: RightsFile | None = None
    took_over: JobChange | None = None
    _listening: ListeningTime = field(default_factory=ListeningTime)
    _announcer: ReadsAnnouncer = field(default_factory=ReadsAnnouncer)
    _awaited: AwaitedRosters = field(default_factory=AwaitedRosters)
    _next_directory: tuple[int, Mapping[str, ShardMap]] = field(default=(-1, {}), init=False)
    _last_batch: _FinishedBatch | None = field(default=None, init=False)
    _absence: KafkaAbsence = field(init=False)

    def __post_init__(self) -> None:
        self._absence = KafkaAbsence.from_settings(self.settings.stream)

    @property
    def _checkpoint(self) -> Store:
        return checkpoint_of(self.settings.stream)

    def __call__(self, shards: DataFrame, batch_id: int) -> None:
        """Decide, log, publish and project a batch. A batch in the log is not decided again.

        A thread publishes and projects, while tasks write the due files of averages and history.
        They are committed after that. An error of the thread is raised when the tasks have ended.
        """
        crash_point("on_entry")
        self._absence.end_wait()
        self.observer.begin(batch_id)
        # First, so that a batch that runs again after a restart sees the same backlog.
        self.backlog.record_batch(batch_id)
        if self.signers is not None:
            write_access_file(self._checkpoint, batch_id, "signers", self.signers.text())
        if self.rights is not None:
            write_access_file(self._checkpoint, batch_id, "rights", self.rights.text())
        directory = self._read_directory(batch_id)
        logged, clusters = self._decide_once(shards, batch_id, directory)
        reads = self._list_reads(directory, clusters)
        averages_due = are_averages_due(
            directory, clusters, self.settings.stream.averages_interval_ms
        )
        with ThreadPoolExecutor(1) as executor:
            publishing = executor.submit(self._publish_and_project, logged, reads)
            try:
                files = self._write_due_files(
                    shards.sparkSession, batch_id, directory, clusters, averages_due
                )
            finally:
                # If both fail, the error of the thread is raised: the other may follow from it.
                publishing.result()
        self.observer.done("averages")
        if files and averages_due:
            self.tables.replace_parts(self.log.app, batch_id, files)
        elif files:
            self.tables.add_history(self.log.app, batch_id, files)
        self.observer.done("project")
        self._write_next_directory(directory, clusters, logged, batch_id, averages_due)
        self.log.run_upkeep()
        self.observer.finish(logged)
        crash_point("before_commit")
        self._absence.begin_wait()

    def _list_reads(
        self, directory: Mapping[str, ShardMap], clusters: Mapping[str, ClusterBlocks]
    ) -> tuple[Reads, ...]:
        """Return what is to be announced now of the forms of reports that this job reads."""
        missing = {cluster: after.missing_rosters for cluster, after in clusters.items()}
        self._awaited.note_missing(missing)
        known = dict.fromkeys(directory, ()) | missing
        return self._announcer.list_due(known, self.log.app.rpartition("/")[2])

    def _read_directory(self, batch_id: int) -> dict[str, ShardMap]:
        """Return the shard maps of this pipeline's clusters in this batch."""
        written_for, directory = self._next_directory
        if written_for != batch_id:
            directory = read_directory(self._checkpoint, batch_id, self.epoch)
        return Share.from_settings(self.settings.stream).select(directory)

    def _decide_once(
        self, shards: DataFrame, batch_id: int, directory: Mapping[str, ShardMap]
    ) -> tuple[Logged, dict[str, ClusterBlocks]]:
        """Return the batch's rounds as the log has them, and each cluster's blocks after them."""
        logged = self.log.find(batch_id)
        if logged is not None:
            self.log.remember(logged.rounds)
            # Run the frame nevertheless, as Spark commits the state only then.
            clusters = blocks_of_shards(shards.drop("events").toArrow())
            self.observer.done("decide")
            return logged, clusters
        # The only Spark action of a batch on this frame.
        rounds = shards.transform(to_rounds(self._context(batch_id, directory))).toArrow()
        clusters = blocks_of_rounds(rounds)
        self.observer.done("decide")
        crash_point("before_log")
        logged = self.log.append_once(batch_id, rounds.filter(pc.invert(rounds["idle"])))
        self.observer.done("log")
        crash_point("after_log")
        return logged, clusters

    def _publish_and_project(self, logged: Logged, reads: tuple[Reads, ...]) -> None:
        """Publish a batch, then write the tables that follow from the log."""
        self._absence.begin_wait()
        self.outbox.publish(logged, reads)
        self._absence.end_wait()
        self.observer.done("publish")
        crash_point("after_publish")
        self.tables.project(logged)
        self.observer.done("project")

    def _write_due_files(
        self,
        spark: SparkSession,
        batch_id: int,
        directory: Mapping[str, ShardMap],
        clusters: Mapping[str, ClusterBlocks],
        averages_due: bool,
    ) -> dict[str, Mapping[str, FigureFile]]:
        """Return the due files of averages and history, part → table → file.

        Tasks write those that the deciding tasks have not written.
        """
        find_parts = due_parts if averages_due else history_parts
        parts = find_parts(directory, clusters, self.settings.stream.history_resolution_ms)
        files = _files_written_ahead(parts, clusters) if averages_due else {}
        missing = {part: entries for part, entries in parts.items() if part not in files}
        if missing:
            files |= self._part_files(spark, missing, batch_id, averages_due)
        return {part: files[part] for part in parts}

    def write_pending_averages(self) -> None:
        """Write what `bundle_averages` lacks after the last batch: the job ends in order.

        A job that ends otherwise leaves that to the next one.
        """
        if self._last_batch is None:
            return
        batch_id, directory, clusters = self._last_batch
        unsampled = {name: replace_fields(after, sampled=False) for name, after in clusters.items()}
        parts = due_parts(directory, unsampled)
        root, name = tables_of(self.settings.stream), f"{self._file_tag(batch_id)}-end"
        files = {
            part: part_files(part, entries, root, self._checkpoint, name)
            for part, entries in parts.items()
        }
        if files:
            self.tables.replace_parts(self.log.app, batch_id, files)

    def _context(self, batch_id: int, directory: Mapping[str, ShardMap]) -> BatchContext:
        """Return the context of the batch's deciding tasks."""
        stream, share = self.settings.stream, Share.from_settings(self.settings.stream)
        memories = distribute_memories(
            share.select(self.log.memories),
            share.select(self.log.shadow_memories),
            self._checkpoint,
            batch_id,
            self.epoch,
            tasks=stream.shuffle_partitions,
        )
        leaving = [cluster for cluster, shard_map in directory.items() if shard_map.leaving]
        return BatchContext(
            settings=self.settings.model_copy(update={"security": SecuritySettings()}),
            file_tag=self._file_tag(batch_id),
            log_seq=self.log.last_seq + 1,
            epoch=self.epoch,
            caught_up=self.backlog.is_read and not self._absence.is_recent,
            memories=memories.balancer,
            shadow_memories=memories.shadows,
            stored=memories.stored,
            first_seq=self.log.first_seq,
            poison_events=self.poison_records.rejected_events(batch_id, directory.keys()),
            ownership_versions=self.tables.ownership_versions(leaving) if leaving else {},
            took_over=self.took_over,
            awaited=self._awaited.of_next_batch(),
            last_written=LastWritten.from_directory(directory),
        )

    def _file_tag(self, batch_id: int) -> str:
        """Return the prefix of the names of a batch's files of figures.

        It contains the epoch, so that a fenced job overwrites no file of its successor.
        """
        return f"{self.log.app.rpartition('/')[2]}-{batch_id:09d}-{self.epoch}"

    def _part_files(
        self, spark: SparkSession, parts: Parts, batch_id: int, averages_due: bool
    ) -> dict[str, dict[str, FigureFile]]:
        """Have executors write the parts of `bundle_averages` if they are due, and history.

        Returns part → table → file.
        """
        # The function `write` may not refer to `self`, which can't be pickled.
        root = tables_of(self.settings.stream)
        checkpoint = self._checkpoint
        tag = self._file_tag(batch_id)

        def write(part: tuple[str, list[DueShard]]) -> tuple[str, dict[str, FigureFile]]:
            name, entries = part
            file_name = f"{tag}-{current_task().attempt}"
            return name, part_files(name, entries, root, checkpoint, file_name, averages_due)

        context = spark.sparkContext
        tasks = min(len(parts), context.defaultParallelism)
        return dict(context.parallelize(list(parts.items()), tasks).map(write).collect())

    def _write_next_directory(
        self,
        directory: Mapping[str, ShardMap],
        clusters: Mapping[str, ClusterBlocks],
        logged: Logged,
        batch_id: int,
        averages_due: bool,
    ) -> None:
        """Write the next batch's directory, and delete files that no batch needs any more."""
        stream = self.settings.stream
        # The next shard maps. A cluster without blocks has just been forgotten.
        shard_maps = dict(directory)
        for cluster, after in clusters.items():
            if after.blocks:
                before = directory.get(cluster, NEW)
                shard_maps[cluster] = next_shard_map(
                    before,
                    after,
                    stream.shard_bundles,
                    stream.history_resolution_ms,
                    averages_due,
                )
            else:
                shard_maps.pop(cluster, None)
        # Pending decisions, and clusters that a command has forgotten.
        for row in logged.rounds.select(["cluster", "memory", "results"]).to_pylist():
            if (shard_map := shard_maps.get(row["cluster"])) is not None:
                shard_maps[row["cluster"]] = replace(
                    shard_map,
                    asked=read_asked(row["memory"]),
                    leaving=shard_map.leaving or is_to_be_forgotten(row["results"]),
                )
        # Clusters that have been silent for too long.
        now_ms = max((after.now_ms for after in clusters.values()), default=0)
        self._listening.record_batch(now_ms, self.backlog.is_read)
        silent = self._listening.silent_clusters(shard_maps, now_ms, stream.cluster_retention_ms)
        silent += self._listening.unconfirmed_clusters(
            shard_maps, now_ms, self.settings.admission.unconfirmed_cluster_ms
        )
        for cluster in silent:
            shard_maps[cluster] = replace(shard_maps[cluster], leaving=True)
        is_written = write_directory(self._checkpoint, batch_id + 1, self.epoch, shard_maps)
        self._next_directory = (batch_id + 1 if is_written else -1, shard_maps)
        self._last_batch = _FinishedBatch(batch_id, shard_maps, clusters)
        self._remove_old_files(batch_id)

    def _remove_old_files(self, batch_id: int) -> None:
        """Delete files of the checkpoint that no batch needs.

        In an object store only every CLEAN_EVERY batches, as listing files takes a request.
        """
        is_due = batch_id % CLEAN_EVERY == 0
        if is_due or self._checkpoint.local is not None:
            delete_batch_files(self._checkpoint, batch_id, self.epoch)
        if is_due:
            oldest = batch_id + 1 - self.settings.stream.keep_views
            used = delete_directories(self._checkpoint, oldest)
            delete_unused_files(self._checkpoint, used, oldest)
        if batch_id % CLEAN_ROSTERS_EVERY == 0:
            delete_old_rosters(self._checkpoint, time.time_ns() // 1_000_000)
        if batch_id % CLEAN_BASES_EVERY == 0:
            delete_old_bases(self._checkpoint, time.time_ns() // 1_000_000)


def _files_written_ahead(
    parts: Parts, clusters: Mapping[str, ClusterBlocks]
) -> dict[str, Mapping[str, FigureFile]]:
    """Return the files of those of the given parts that the deciding tasks have written."""
    written = {
        part: files for after in clusters.values() for part, files in after.part_files.items()
    }
    return {part: written[part] for part in parts if part in written}


def is_to_be_forgotten(results: str | None) -> bool:
    """Return whether a command of the round has the cluster forgotten."""
    return any(
        result["kind"] == "forget-cluster"
        and result["outcome"] == "done"
        and not result["repeated"]
        for result in json.loads(results or "[]")
    )


_BLOCKS_COLUMNS = [
    "cluster",
    "now_ms",
    "blocks",
    "sampled",
    "bundles",
    "error",
    "confirmed",
    "waits",
    "missing_rosters",
    "part_files",
]


def blocks_of_rounds(rounds: pa.Table) -> dict[str, ClusterBlocks]:
    """Return each cluster's blocks after a batch, from its rounds."""
    clusters = {}
    for row in rounds.select(_BLOCKS_COLUMNS).to_pylist():
        references = tuple(
            (brokers, names, values) for brokers, names, values in json.loads(row["blocks"])
        )
        clusters[row["cluster"]] = ClusterBlocks(
            row["now_ms"],
            references,
            row["sampled"],
            row["bundles"],
            row["error"] is not None,
            row["confirmed"],
            row["waits"],
            tuple(json.loads(row["missing_rosters"])),
            json.loads(row["part_files"]),
        )
    return clusters


def blocks_of_shards(shards: pa.Table) -> dict[str, ClusterBlocks]:
    """Return each cluster's blocks after a batch that was in the log already, from its shards.

    Every cluster counts as sampled, as the tables may lack its figures.
    """
    blocks: dict[str, list[BlockRefs]] = {}
    now_ms: dict[str, int] = {}
    for row in shards.sort_by("shard").to_pylist():
        references = blocks.setdefault(row["cluster"], [])
        if row["brokers"] is not None:
            references.append((row["brokers"], row["names"], row["values"]))
        if row["clock"] is not None:
            now_ms[row["cluster"]] = max(clock["append_ms"] for clock in json.loads(row["clock"]))
    return {
        cluster: ClusterBlocks(now_ms[cluster], tuple(references), sampled=True)
        for cluster, references in blocks.items()
    }
