"""The shell of a micro-batch whose shards' views are there: decide, log, publish, project."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from lb_stream.contracts.settings import Settings
from lb_stream.store import Store, checkpoint_of, tables_of
from lb_stream.stream.context import BatchContext
from lb_stream.stream.figures import File, part_files
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
from lb_stream.stream.shards.block_files import Blocks, delete_batch_files, delete_unused_files
from lb_stream.stream.shards.directory import (
    NEW,
    ListeningGap,
    ShardMap,
    delete_directories,
    read_asked,
    read_directory,
    write_directory,
)
from lb_stream.stream.shards.memory_files import distribute_memories
from lb_stream.stream.shards.share import Share
from lb_stream.stream.shards.slicing import ClusterBlocks, Parts, due_parts, next_shard_map
from lb_stream.stream.task.crash import crash_point
from lb_stream.stream.task.current_task import current_task
from lb_stream.stream.transforms import to_rounds

TIDY_EVERY = 10
"""Batches between two looks for files that nobody needs any more."""


@dataclass(slots=True)
class Balancer:
    """The `foreachBatch` of the job. Everything it keeps can be had again from the log."""

    settings: Settings
    log: Log
    outbox: Publisher
    tables: Tables
    backlog: Backlog
    epoch: int
    observer: BatchObserver = field(default_factory=NoObserver)
    poison_records: PoisonRecords = field(default_factory=NoPoisonRecords)
    _listening_gap: ListeningGap = field(default_factory=ListeningGap)
    _written: tuple[int, Mapping[str, ShardMap]] = field(default=(-1, {}), init=False)
    """The last directory that this job has written, and the batch that it is for; -1: none."""

    @property
    def _checkpoint(self) -> Store:
        return checkpoint_of(self.settings.stream)

    def __call__(self, shards: DataFrame, batch_id: int) -> None:
        """Decide once, publish and project what the log says; decide nothing when run again."""
        crash_point("on_entry")
        self.observer.begin(batch_id)
        # At once: a batch that is run again after a restart sees the same.
        self.backlog.record_batch(batch_id)
        directory = self._read_directory(batch_id)
        logged, views = self._decide_once(shards, batch_id, directory)
        self.outbox.publish(logged)
        self.observer.done("publish")
        crash_point("after_publish")
        self._project(shards.sparkSession, batch_id, directory, logged, views)
        self.observer.done("project")
        self._write_next_directory(directory, views, logged, batch_id)
        self.log.run_upkeep()
        self.observer.finish(logged)
        crash_point("before_commit")

    def _read_directory(self, batch_id: int) -> dict[str, ShardMap]:
        """Return how this pipeline's clusters are cut into shards in this batch."""
        written, known = self._written
        if written != batch_id:
            known = read_directory(self._checkpoint, batch_id, self.epoch)
        return Share.from_settings(self.settings.stream).select(known)

    def _decide_once(
        self, shards: DataFrame, batch_id: int, directory: Mapping[str, ShardMap]
    ) -> tuple[Logged, dict[str, ClusterBlocks]]:
        """Return the batch's rounds as the log has them, and each cluster's blocks after them."""
        logged = self.log.find(batch_id)
        if logged is not None:
            self.log.remember(logged.rounds)
            # Spark commits the state only of a frame that has been run.
            views = views_of_shards(shards.drop("events").toArrow())
            self.observer.done("decide")
            return logged, views
        # The one action of a batch.
        rounds = shards.transform(to_rounds(self._context(batch_id, directory))).toArrow()
        views = views_of_rounds(rounds)
        self.observer.done("decide")
        crash_point("before_log")
        logged = self.log.append_once(batch_id, rounds.filter(pc.invert(rounds["idle"])))
        self.observer.done("log")
        crash_point("after_log")
        return logged, views

    def _project(
        self,
        spark: SparkSession,
        batch_id: int,
        directory: Mapping[str, ShardMap],
        logged: Logged,
        views: Mapping[str, ClusterBlocks],
    ) -> None:
        """Write the tables here, while tasks write the files of averages that are due."""
        parts = due_parts(directory, views, self.settings.stream.history_resolution_ms)
        with ThreadPoolExecutor(1) as beside:
            projected = beside.submit(self.tables.project, logged)
            try:
                files = self._part_files(spark, parts, batch_id) if parts else {}
                self.observer.done("averages")
            finally:
                # An error of the tables comes first: the tasks' may follow from it.
                projected.result()
        if parts:
            self.tables.replace_parts(self.log.app, batch_id, files)

    def _context(self, batch_id: int, known: Mapping[str, ShardMap]) -> BatchContext:
        leaving = [cluster for cluster, slices in known.items() if slices.leaving]
        stream, share = self.settings.stream, Share.from_settings(self.settings.stream)
        own, of_shadows = share.select(self.log.memories), share.select(self.log.shadow_memories)
        memories = distribute_memories(
            own, of_shadows, self._checkpoint, batch_id, self.epoch, tasks=stream.shuffle_partitions
        )
        return BatchContext(
            settings=self.settings,
            file_tag=self._file_tag(batch_id),
            log_seq=self.log.last_seq + 1,
            epoch=self.epoch,
            caught_up=self.backlog.is_read,
            memories=memories.balancer,
            shadow_memories=memories.shadows,
            stored=memories.stored,
            first_seq=self.log.first_seq,
            poison_events=self.poison_records.rejected_events(batch_id, known.keys()),
            recorded=self.tables.ownership_versions(leaving) if leaving else {},
        )

    def _file_tag(self, batch_id: int) -> str:
        """Return the name of a batch's figures.

        It has the epoch: a job that was shut out can't write over what its heir has committed.
        """
        return f"{self.log.app.rpartition('/')[2]}-{batch_id:09d}-{self.epoch}"

    def _part_files(
        self, spark: SparkSession, parts: Parts, batch_id: int
    ) -> dict[str, dict[str, File]]:
        """Have executors write the due parts of `bundle_averages`, and history.

        Returns part → table → file.
        """
        root, checkpoint, name = (
            tables_of(self.settings.stream),
            self._checkpoint,
            self._file_tag(batch_id),
        )
        tasks = spark.sparkContext.parallelize(
            list(parts.items()), min(len(parts), spark.sparkContext.defaultParallelism)
        )
        return dict(
            tasks.map(
                lambda part: (
                    part[0],
                    part_files(*part, root, checkpoint, f"{name}-{current_task()[2]}"),
                )
            ).collect()
        )

    def _write_next_directory(
        self,
        directory: Mapping[str, ShardMap],
        views: Mapping[str, ClusterBlocks],
        logged: Logged,
        batch_id: int,
    ) -> None:
        """Write the next batch's directory: which clusters there are, how cut, which leave.

        Now and then delete what nobody needs any more.
        """
        stream = self.settings.stream
        # How clusters are cut from now on. One without blocks has just been forgotten.
        slices = {
            cluster: next_shard_map(
                directory.get(cluster, NEW),
                view,
                stream.shard_bundles,
                stream.history_resolution_ms,
            )
            for cluster, view in views.items()
        }
        after = {
            cluster: shards
            for cluster, shards in (dict(directory) | slices).items()
            if cluster not in views or views[cluster].blocks
        }
        # What brokers have been asked for, and clusters that a command has forgotten.
        for row in logged.rounds.select(["cluster", "memory", "results"]).to_pylist():
            if (shards := after.get(row["cluster"])) is not None:
                leaving = shards.leaving or is_to_be_forgotten(row["results"])
                asked = read_asked(row["memory"])
                after[row["cluster"]] = replace(shards, asked=asked, leaving=leaving)
        # Clusters that have been silent for their time.
        now_ms = max((view.now_ms for view in views.values()), default=0)
        self._listening_gap.record_batch(now_ms, self.backlog.is_read)
        for cluster in self._listening_gap.forgotten(after, now_ms, stream.cluster_retention_ms):
            after[cluster] = replace(after[cluster], leaving=True)
        written = write_directory(self._checkpoint, batch_id + 1, self.epoch, after)
        self._written = (batch_id + 1 if written else -1, after)
        self._remove_old_files(batch_id)

    def _remove_old_files(self, batch_id: int) -> None:
        """Delete files of the checkpoint that no batch needs; in an object store only now and then.

        There the list of files is a request of its own.
        """
        tidies = batch_id % TIDY_EVERY == 0
        if tidies or self._checkpoint.local is not None:
            delete_batch_files(self._checkpoint, batch_id, self.epoch)
        if tidies:
            oldest = batch_id + 1 - self.settings.stream.keep_views
            delete_unused_files(
                self._checkpoint, delete_directories(self._checkpoint, oldest), oldest
            )


def is_to_be_forgotten(results: str | None) -> bool:
    """Whether a round's answers say that an operator's command has the cluster forgotten."""
    return any(
        answer["kind"] == "forget-cluster"
        and answer["outcome"] == "done"
        and not answer["repeated"]
        for answer in json.loads(results or "[]")
    )


def views_of_rounds(rounds: pa.Table) -> dict[str, ClusterBlocks]:
    """Each cluster's view after a batch that has just been decided."""
    given = rounds.select(
        ["cluster", "now_ms", "blocks", "sampled", "bundles", "error"]
    ).to_pylist()
    return {
        row["cluster"]: ClusterBlocks(
            row["now_ms"],
            _blocks(json.loads(row["blocks"])),
            row["sampled"],
            row["bundles"],
            row["error"] is not None,
        )
        for row in given
    }


def views_of_shards(shards: pa.Table) -> dict[str, ClusterBlocks]:
    """The same for a batch that was decided before: all of it may be new to the tables."""
    found: dict[str, list[Blocks]] = {}
    now_ms: dict[str, int] = {}
    for row in shards.sort_by("shard").to_pylist():
        blocks = found.setdefault(row["cluster"], [])
        if row["brokers"] is not None:
            blocks.append((row["brokers"], row["names"], row["values"]))
        if row["clock"] is not None:
            now_ms[row["cluster"]] = max(seen["append_ms"] for seen in json.loads(row["clock"]))
    return {
        cluster: ClusterBlocks(now_ms[cluster], tuple(blocks), sampled=True)
        for cluster, blocks in found.items()
    }


def _blocks(given: list[list[str]]) -> tuple[Blocks, ...]:
    return tuple((brokers, names, values) for brokers, names, values in given)
