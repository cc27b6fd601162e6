"""The log: one append to the Delta table `rounds` for each batch.

Once it is committed, the batch's decisions are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import Dataset

from lb_stream.contracts.tables import ROUNDS
from lb_stream.io.kafka.checkpoint import checkpoint_uuid
from lb_stream.io.tables.commits import COMMIT_ATTEMPTS, COMMIT_TROUBLES, Mark, Table
from lb_stream.io.tables.compaction import COMPACT_EVERY, compact_small_files
from lb_stream.io.tables.delta import add_files, numeric_dataset, open_table, read_mark, write_rows
from lb_stream.io.tables.formats import stamp
from lb_stream.store import Store
from lb_stream.stream.ports import FatalError, Logged

READ_ROWS = 5_000
"""Most rows of the log in memory while missed batches are read. A row may have megabytes."""


class LogError(FatalError):
    """The log differs from what this job has written. The message has the remedy."""


class RoundLog:
    """The writer of one pipeline's log.

    A fenced job may log one more batch, which it fails to publish. `on_foreign_batch` publishes and
    projects that batch.

    `last_seq`, `last_epoch`: number of the last batch, and epoch of the last job. `first_seq`: the
    highest number of a round of a forgotten cluster. `memories`, `shadow_memories`: cluster →
    memory after its last round.
    """

    on_foreign_batch: Callable[[Logged], None]

    def __init__(self, root: Store, pipeline: str, checkpoint: Store) -> None:
        self._table = open_table(root, ROUNDS)
        stamp(self._table)
        self._pipeline, self._checkpoint = pipeline, checkpoint
        self._appended = 0  # batches since the last compaction
        newest = self._table.mark(pipeline)
        if newest is None and (other := find_pipeline(self._table)) is not None:
            raise LogError(
                f"{root} holds the log of the pipeline {other!r}: give {pipeline!r} tables of its "
                "own (stream.tables)"
            )
        self.last_seq = -1 if newest is None else newest
        rows = self._read(["cluster", "epoch", "log_seq"])  # a few bytes of each row
        self.last_epoch = int(pc.max(rows["epoch"]).as_py()) if len(rows) else 0
        self.first_seq = self._table.mark(self._forgotten) or 0
        self.memories: dict[str, str] = {}
        self.shadow_memories: dict[str, str] = {}
        if len(rows):
            self.remember(self._last_rounds(rows))

    @cached_property
    def app(self) -> str:
        """Return the pipeline's id and the checkpoint's uuid, within which batch ids are unique.

        Raises LogError before Spark has made the checkpoint.
        """
        uuid = checkpoint_uuid(self._checkpoint)
        if uuid is None:
            raise LogError(
                f"no checkpoint can be read at {self._checkpoint}: give stream.checkpoint as an "
                "absolute path or a URI"
            )
        return f"{self._pipeline}/{uuid}"

    def _read(self, columns: list[str], filters: pc.Expression | None = None) -> pa.Table:
        """Return these columns of the log's rows that pass the filter."""
        return numeric_dataset(self._table).to_table(columns=columns, filter=filters)

    def _last_rounds(self, rows: pa.Table) -> pa.Table:
        """Return each cluster's last row, with the columns that `remember` needs."""
        last = rows.group_by("cluster").aggregate([("log_seq", "max")])
        clusters, log_seqs = last["cluster"].to_pylist(), last["log_seq_max"].to_pylist()
        wanted = set(zip(clusters, log_seqs, strict=True))
        columns = ["cluster", "log_seq", "seq", "memory", "error", "shadow_memory"]
        found = self._read(columns, pc.field("log_seq").isin(sorted(set(log_seqs))))
        places = zip(found["cluster"].to_pylist(), found["log_seq"].to_pylist(), strict=True)
        return found.filter(pa.array([place in wanted for place in places], pa.bool_()))

    def has_batch(self, batch_id: int) -> bool:
        """Return whether this batch has been decided."""
        version = read_mark(self._table, self.app)
        return version is not None and version >= batch_id

    def find(self, batch_id: int) -> Logged | None:
        """Return a batch's rounds if this checkpoint's job has logged them; None: it has not.

        Batches that another job has logged since are published and remembered first.
        """
        if self._table.has_grown:
            self._table.refresh()
        version, newest = self._table.mark(self.app), self._table.mark(self._pipeline)
        if version is not None and version >= batch_id:
            rounds = self._read(ROUNDS.schema.names, pc.field("batch_id") == batch_id)
            rounds = rounds.filter(pc.equal(rounds["app"], self.app))
            logged = _logged(rounds.sort_by("cluster"), self.last_seq)
            self.last_seq = max(self.last_seq, logged.log_seq)
            return logged
        if newest is not None and newest > self.last_seq:
            for logged in self.since(self.last_seq + 1):
                self.on_foreign_batch(logged)
                self.remember(logged.rounds)
                self.last_seq = logged.log_seq
        return None

    def append_once(self, batch_id: int, rounds: pa.Table) -> Logged:
        """Log a batch's rounds (contracts.columns.rounds.ROUND_SCHEMA), and return them.

        If another job has logged the batch since, its rounds are returned. If upkeep has changed
        the table, the commit is tried again. Raises LogError if another job has logged another
        batch.
        """
        count = len(rounds)
        if not count:
            return Logged(self.last_seq, ROUNDS.schema.empty_table())
        # Write the rows to a file.
        log_seq = self.last_seq + 1
        columns = {name: rounds[name] for name in rounds.column_names} | {
            "app": pa.array([self.app] * count, pa.string()),
            "batch_id": np.full(count, batch_id, np.int64),
            "log_seq": np.full(count, log_seq, np.int64),
        }
        table = pa.table(
            {name: columns[name] for name in ROUNDS.schema.names}, schema=ROUNDS.schema
        ).sort_by("cluster")
        file = write_rows(self._table, table, f"{log_seq:012d}", durable=True)
        # Batch, round numbers and offsets also go into transactions, which upkeep never deletes.
        marks = [(self._pipeline, log_seq), (self.app, batch_id)]
        if pc.any(pc.equal(table["memory"], "")).as_py():
            marks.append((self._forgotten, log_seq + 1))
        marks += self._offset_marks(table["inputs"])

        # Commit the file, unless another job of the pipeline has logged a batch.
        for attempt in range(COMMIT_ATTEMPTS):
            try:
                add_files(self._table, ROUNDS, [file], marks, durable=True)
                break
            except COMMIT_TROUBLES as error:
                newest = read_mark(self._table, self._pipeline)
                if (-1 if newest is None else newest) != self.last_seq:
                    return self._logged_meanwhile(batch_id, error)
                if attempt == COMMIT_ATTEMPTS - 1:
                    raise
        self.last_seq = log_seq
        self._appended += 1
        self.remember(table)
        return Logged(log_seq, table)

    def run_upkeep(self) -> None:
        """Compact the files of single batches if there are many. Called between batches."""
        if self._appended >= COMPACT_EVERY:
            compact_small_files(self._table)
            self._appended = 0

    def _logged_meanwhile(self, batch_id: int, error: Exception) -> Logged:
        """Return a batch that another job has logged. Raises LogError if it has logged another."""
        version = read_mark(self._table, self.app)
        if version is None or version < batch_id or (logged := self.find(batch_id)) is None:
            raise LogError(
                f"another job of the pipeline {self._pipeline!r} writes to the log: this one stops "
                f"({error}). To run both, give each its own stream.pipeline_id, stream.tables and "
                "stream.checkpoint"
            ) from error
        self.remember(logged.rounds)
        return logged

    def remember(self, rounds: pa.Table) -> None:
        """Keep the memories of logged rounds, with which the next batch begins.

        Forgotten clusters, and clusters without a round, have no memory.
        """
        columns = ["cluster", "seq", "memory", "error", "shadow_memory"]
        for row in rounds.select(columns).to_pylist():
            if not row["memory"]:
                self.memories.pop(row["cluster"], None)
                self.shadow_memories.pop(row["cluster"], None)
                self.first_seq = max(self.first_seq, row["seq"])
            elif row["seq"] > 0 or row["error"] is not None:
                self.memories[row["cluster"]] = row["memory"]
                self.shadow_memories[row["cluster"]] = row["shadow_memory"]

    def _offset_marks(self, inputs: pa.ChunkedArray) -> Iterator[Mark]:
        """Yield transactions with the offsets that a batch has read, by its rounds' inputs.

        Transactions are kept for ever, and are read without the log's rows.
        """
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for text in pc.unique(inputs).to_pylist():
            for topic, partitions in msgspec.json.decode(text, type=_Inputs).offsets.items():
                found.setdefault(topic, {}).update(partitions)
        for topic, partitions in found.items():
            name = _mark(self._pipeline, topic)
            yield name, max(self._table.mark(name) or 0, 1 + max(map(int, partitions)))
            for number, (_, last) in partitions.items():
                yield _mark(self._pipeline, topic, int(number)), last + 1

    @property
    def _forgotten(self) -> str:
        """Return the name of the transaction with the highest round number of a forgotten cluster.

        The rows of such a cluster may have been deleted.
        """
        return f"{self._pipeline}:forgotten"

    def next_offsets(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return (topic, partition) → the first offset that no logged batch has read."""
        return next_offsets(self._table, self._pipeline, topics)

    def since(self, log_seq: int) -> Iterator[Logged]:
        """Yield all batches from number `log_seq` on, in order.

        At most READ_ROWS rows are in memory, or those of one batch.
        """
        rows = numeric_dataset(self._table)
        wanted = pc.field("log_seq") >= log_seq
        return read_batches(rows, rows.to_table(columns=["log_seq"], filter=wanted)["log_seq"])


class _Inputs(msgspec.Struct):
    """The offsets in a round's inputs: topic → partition → first and last offset."""

    offsets: dict[str, dict[str, tuple[int, int]]]


def _mark(pipeline: str, topic: str, partition: int | None = None) -> str:
    """Return the name of the transaction with the next offset of a partition.

    Without a partition it is that with the number of the topic's partitions.
    """
    return f"{pipeline}:{topic}" if partition is None else f"{pipeline}:{topic}/{partition}"


def next_offsets(log: Table, pipeline: str, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    """Return (topic, partition) → the first offset that no logged batch has read."""
    places = [
        (topic, number)
        for topic in topics
        for number in range(log.mark(_mark(pipeline, topic)) or 0)
    ]
    found = {place: log.mark(_mark(pipeline, *place)) for place in places}
    return {place: offset for place, offset in found.items() if offset is not None}


def build_offset_marks(pipeline: str, offsets: Mapping[tuple[str, int], int]) -> Iterator[Mark]:
    """Yield the transactions of a pipeline with these next offsets."""
    for topic in {topic for topic, _ in offsets}:
        yield _mark(pipeline, topic), 1 + max(number for name, number in offsets if name == topic)
    for place, offset in offsets.items():
        yield _mark(pipeline, *place), offset


def find_pipeline(log: Table) -> str | None:
    """Return the pipeline that the log belongs to; None: the log is empty."""
    rows = numeric_dataset(log).head(1, columns=["app"])
    return str(rows["app"][0].as_py()).rpartition("/")[0] if len(rows) else None


def read_batches(rows: Dataset, log_seqs: pa.ChunkedArray) -> Iterator[Logged]:
    """Yield the batches with these numbers, in order.

    `log_seqs`: the number of each row. At most READ_ROWS rows are in memory, or those of one batch.
    """
    numbers, counts = np.unique(log_seqs.to_numpy(), return_counts=True)
    cuts = np.flatnonzero(np.diff(np.cumsum(counts) // READ_ROWS)) + 1
    for piece in np.split(numbers, cuts):
        if not len(piece):
            continue
        wanted = (pc.field("log_seq") >= int(piece[0])) & (pc.field("log_seq") <= int(piece[-1]))
        rounds = rows.to_table(columns=ROUNDS.schema.names, filter=wanted).sort_by(
            [("log_seq", "ascending"), ("cluster", "ascending")]
        )
        ends = np.flatnonzero(np.diff(rounds["log_seq"].to_numpy(), append=-1)) + 1
        for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            yield _logged(rounds.slice(start, end - start), -1)


def _logged(rounds: pa.Table, default: int) -> Logged:
    """Return a batch from its rows. `default`: its number if it has no rows."""
    return Logged(int(rounds["log_seq"][0].as_py()) if len(rounds) else default, rounds)
