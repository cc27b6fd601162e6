"""Interfaces of the batch to other rooms: the log, publisher, tables, backlog and observers."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from lb_stream.contracts.columns.rounds import EMPTY
from lb_stream.contracts.reads import Reads
from lb_stream.stream.rows import FigureFile


class StreamError(RuntimeError):
    """The stream has ended; the message has the reason, and what to do."""


class FatalError(StreamError):
    """A fatal error: the job ends, as a restart without a change would fail again."""


Entries = list[list[dict[str, Any]]]
"""One column of entries, parsed: a list for each round, in the order of the rows.

All readers share the lists: to change an entry, copy it.
"""


@dataclass(frozen=True)
class Logged:
    """One batch as the log has it: a row for each cluster, sorted by cluster.

    A column of JSON is parsed once, when it is needed.
    """

    log_seq: int
    rounds: pa.Table
    _parsed: dict[str, Entries] = field(default_factory=dict, init=False, compare=False)

    def entries(self, column: str) -> Entries:
        """Return what a column of entries (contracts.columns.rounds) lists, by rounds."""
        if column not in self._parsed:
            # Most texts are empty, and there is one for each cluster.
            self._parsed[column] = [
                json.loads(text) if text != EMPTY else []
                for text in self.rounds[column].to_pylist()
            ]
        return self._parsed[column]

    @cached_property
    def files(self) -> list[dict[str, FigureFile]]:
        """Table → the file of figures that each round names for it."""
        return [
            json.loads(text) if text != "{}" else {} for text in self.rounds["files"].to_pylist()
        ]


def forgotten_clusters(logged: Logged) -> list[str]:
    """Return the clusters that a batch has forgotten: those without a memory in the log."""
    rows = logged.rounds.select(["cluster", "memory"]).to_pylist()
    return [row["cluster"] for row in rows if not row["memory"]]


class Log(Protocol):
    """The log: a batch's decisions are made once its rows are appended."""

    last_seq: int

    @property
    def app(self) -> str:
        """The name of the pipeline and its checkpoint."""

    @property
    def memories(self) -> Mapping[str, str]:
        """Cluster → memory after its last round, canonical JSON; without forgotten clusters."""

    @property
    def shadow_memories(self) -> Mapping[str, str]:
        """The memory of each cluster's shadows, canonical JSON."""

    @property
    def first_seq(self) -> int:
        """The highest round number of any forgotten cluster; 0: none was forgotten."""

    def find(self, batch_id: int) -> Logged | None:
        """Return the rounds of this batch if they are in the log already."""

    def append_once(self, batch_id: int, rounds: pa.Table) -> Logged:
        """Append a batch's rounds (columns of contracts.columns.rounds.ROUND_SCHEMA)."""

    def remember(self, rounds: pa.Table) -> None:
        """Take the memories of logged rounds as those that the next batch begins from."""

    def run_upkeep(self) -> None:
        """Put small files together now and then. A batch calls it once it has done its work."""


class Publisher(Protocol):
    """Publishes decisions to the brokers."""

    def publish(self, logged: Logged, reads: Sequence[Reads] = ()) -> None:
        """Publish a batch, unless it is published already; and in any case what the job reads."""

    def close(self) -> None:
        """Release the connections."""


class Tables(Protocol):
    """The tables that people read."""

    def project(self, logged: Logged) -> None:
        """Write a batch to all tables that follow from the log."""

    def ownership_versions(self, clusters: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """Return cluster → bundle → version of its ownership record, of some clusters."""

    def replace_parts(
        self, app: str, batch_id: int, files: Mapping[str, Mapping[str, FigureFile]]
    ) -> None:
        """Commit a batch's files: replace parts of `bundle_averages`, add rows to history.

        `files`: part → table → file.
        """

    def add_history(
        self, app: str, batch_id: int, files: Mapping[str, Mapping[str, FigureFile]]
    ) -> None:
        """Commit the files of history of a batch that doesn't write `bundle_averages`."""


class Backlog(Protocol):
    """The records that were in the topics when the job started."""

    @property
    def is_read(self) -> bool:
        """Whether all of them have been read."""

    def record_batch(self, batch_id: int | None) -> None:
        """Note that a batch has been read."""


class PoisonRecords(Protocol):
    """The records that the job skips because reading them would end it."""

    def rejected_events(
        self, batch_id: int, known: Collection[str]
    ) -> Mapping[str, Sequence[Mapping[str, object]]]:
        """Return known cluster → poison records that this batch reports, as rejected events."""


class NoPoisonRecords:
    """The poison records of a job that skips none."""

    def rejected_events(
        self, batch_id: int, known: Collection[str]
    ) -> Mapping[str, Sequence[Mapping[str, object]]]:
        """Return no event."""
        return {}


class BatchObserver(Protocol):
    """Observes the phases of each batch. It takes hardly any time, and never fails."""

    def begin(self, batch_id: int) -> None:
        """Note that a batch begins."""

    def done(self, phase: str) -> None:
        """Note that a phase has ended; it began when the phase before it ended, or with `begin`.

        A phase may have several parts, whose times are added. Calls come from two threads, but
        never at the same time.
        """

    def finish(self, logged: Logged) -> None:
        """Note that the batch is complete; `logged`: its rounds."""


class NoObserver:
    """Observes nothing."""

    def begin(self, batch_id: int) -> None:
        """Do nothing."""

    def done(self, phase: str) -> None:
        """Do nothing."""

    def finish(self, logged: Logged) -> None:
        """Do nothing."""
