"""The log: one append to the Delta table `rounds` for each batch. When it is there, the batch's decisions are made."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from lb_stream.contracts.tables import ROUNDS
from lb_stream.io.checkpoint import checkpoint_uuid
from lb_stream.io.delta import committed, dataset, open_table, transaction
from lb_stream.stream.ports import Logged, Stopped


class LogError(Stopped):
    """The log is not as this job left it; the text says what to do."""


class RoundLog:
    """Writer of the log of one pipeline.

    A job that was shut out may log one more batch before it notices. `meanwhile` is given such a batch, to publish and project it:
    of two jobs, the one that was shut out fails at that.
    """

    meanwhile: Callable[[Logged], None]

    def __init__(self, root: str, pipeline: str, checkpoint: str) -> None:
        self._table = open_table(root, ROUNDS)
        self._pipeline, self._checkpoint = pipeline, checkpoint
        rows = self._read(["app", "cluster", "seq", "epoch", "log_seq"])
        others = sorted({app.rpartition("/")[0] for app in pc.unique(rows["app"]).to_pylist()} - {pipeline})
        if others:
            raise LogError(f"{root} holds the log of the pipeline {others[0]!r}: give {pipeline!r} tables of its own (stream.tables)")
        self.last_seq = int(pc.max(rows["log_seq"]).as_py()) if len(rows) else -1
        self.last_epoch = int(pc.max(rows["epoch"]).as_py()) if len(rows) else 0
        self.memories = self._memories(rows)

    @cached_property
    def app(self) -> str:
        """The pipeline's id and the checkpoint's uuid: batch ids are unique within it. Known once Spark has made the checkpoint."""
        uuid = checkpoint_uuid(self._checkpoint)
        if uuid is None:
            raise LogError(f"no checkpoint can be read at {self._checkpoint}: give stream.checkpoint as an absolute path or a URI")
        return f"{self._pipeline}/{uuid}"

    def _read(self, columns: list[str], filters: pc.Expression | None = None) -> pa.Table:
        return dataset(self._table).to_table(columns=columns, filter=filters)

    def _memories(self, rows: pa.Table) -> dict[str, str]:
        """Each cluster's memory after its last round."""
        if not len(rows):
            return {}
        last = rows.group_by("cluster").aggregate([("log_seq", "max")])
        wanted = {(cluster, seq) for cluster, seq in zip(last["cluster"].to_pylist(), last["log_seq_max"].to_pylist(), strict=True)}
        found = self._read(["cluster", "log_seq", "memory"], pc.field("log_seq").isin(sorted({seq for _, seq in wanted})))
        return {row["cluster"]: row["memory"] for row in found.to_pylist() if (row["cluster"], row["log_seq"]) in wanted}

    def find(self, batch_id: int) -> Logged | None:
        """What has been decided in this batch, when it has been decided before, by this job or by the one before it."""
        version = committed(self._table, self.app)
        newest = self._table.transaction_version(self._pipeline)
        if version is not None and version >= batch_id:
            rounds = self._read(ROUNDS.schema.names, (pc.field("app") == self.app) & (pc.field("batch_id") == batch_id))
            logged = _logged(rounds.sort_by("cluster"), self.last_seq)
            self.last_seq = max(self.last_seq, logged.log_seq)
            return logged
        for logged in self.since(self.last_seq + 1) if newest is not None and newest > self.last_seq else ():
            self.meanwhile(logged)
            self.remember(logged.rounds)
            self.last_seq = logged.log_seq
        return None

    def append_once(self, batch_id: int, rounds: pa.Table) -> Logged:
        """Log a batch's rounds (stream.decide.ROUND_SCHEMA); when the job before this one has logged the batch meanwhile, its rounds count.

        Raises LogError when another job has logged something else meanwhile.
        """
        count = len(rounds)
        if not count:
            return Logged(self.last_seq, ROUNDS.schema.empty_table())
        log_seq = self.last_seq + 1
        columns = {name: rounds[name] for name in rounds.column_names} | {
            "app": pa.array([self.app] * count, pa.string()),
            "batch_id": np.full(count, batch_id, np.int64),
            "log_seq": np.full(count, log_seq, np.int64),
        }
        table = pa.table({name: columns[name] for name in ROUNDS.schema.names}, schema=ROUNDS.schema).sort_by("cluster")
        properties = transaction((self.app, batch_id), (self._pipeline, log_seq))
        try:
            write_deltalake(self._table, table, mode="append", commit_properties=properties)
        except CommitFailedError as error:
            return self._logged_meanwhile(batch_id, error)
        self.last_seq = log_seq
        self.remember(table)
        return Logged(log_seq, table)

    def _logged_meanwhile(self, batch_id: int, error: CommitFailedError) -> Logged:
        version = committed(self._table, self.app)
        if version is None or version < batch_id or (logged := self.find(batch_id)) is None:
            raise LogError(f"another job of the pipeline {self._pipeline!r} writes to the log, too: this one stops ({error})") from error
        self.remember(logged.rounds)
        return logged

    def remember(self, rounds: pa.Table) -> None:
        """Take the memories of logged rounds as those that the next batch starts from; a cluster without a round is none yet."""
        for row in rounds.select(["cluster", "seq", "memory", "error"]).to_pylist():
            if row["seq"] > 0 or row["error"] is not None:
                self.memories[row["cluster"]] = row["memory"]

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """Topic and partition → the first offset that no logged batch has read."""
        found: dict[tuple[str, int], int] = {}
        for inputs in self._read(["inputs"])["inputs"].to_pylist():
            for topic, partitions in json.loads(inputs)["offsets"].items():
                for number, (_, last) in partitions.items():
                    place = (topic, int(number))
                    found[place] = max(found.get(place, 0), last + 1)
        return found

    def since(self, log_seq: int) -> list[Logged]:
        """All batches from `log_seq` on, in order: what a publisher or projection has missed."""
        rounds = self._read(ROUNDS.schema.names, pc.field("log_seq") >= log_seq).sort_by(
            [("log_seq", "ascending"), ("cluster", "ascending")]
        )
        numbers = rounds["log_seq"].to_numpy()
        return [_logged(rounds.filter(pa.array(numbers == number)), number) for number in np.unique(numbers).tolist()]


def _logged(rounds: pa.Table, otherwise: int) -> Logged:
    return Logged(int(rounds["log_seq"][0].as_py()) if len(rounds) else otherwise, rounds)
