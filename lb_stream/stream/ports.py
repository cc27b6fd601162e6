"""What the shell of a batch needs from the world: a log, a publisher, tables, and how far the input
has been read."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from lb_stream.contracts.columns.rounds import EMPTY


class StreamError(RuntimeError):
    """The stream has ended; the text says why and what to do."""


class FatalError(StreamError):
    """The job ends: starting it again as it is would not help."""


Entries = list[list[dict[str, Any]]]
"""Of each round, in the order of the rows: what one of its columns lists.

They are shared: whoever needs others makes copies.
"""


@dataclass(frozen=True)
class Logged:
    """One batch as it is in the log: a row for each cluster, sorted by cluster.

    A column of JSON is parsed once, when it is asked for.
    """

    log_seq: int
    rounds: pa.Table
    _parsed: dict[str, Entries] = field(default_factory=dict, init=False, compare=False)

    def entries(self, column: str) -> Entries:
        """Return what a column of entries (contracts.columns.rounds) lists, by rounds."""
        if column not in self._parsed:
            # Most say nothing, and their number is that of the clusters.
            self._parsed[column] = [
                json.loads(text) if text != EMPTY else []
                for text in self.rounds[column].to_pylist()
            ]
        return self._parsed[column]

    @cached_property
    def files(self) -> list[dict[str, dict[str, Any]]]:
        """Table → the file of figures that the round names for it (stream.figures.File)."""
        return [
            json.loads(text) if text != "{}" else {} for text in self.rounds["files"].to_pylist()
        ]


def forgotten_clusters(logged: Logged) -> list[str]:
    """The clusters that a batch has forgotten: in the log they have no memory."""
    rows = logged.rounds.select(["cluster", "memory"]).to_pylist()
    return [row["cluster"] for row in rows if not row["memory"]]


class Log(Protocol):
    """Where a batch's decisions are made by being written down."""

    last_seq: int

    @property
    def app(self) -> str:
        """Names the pipeline and its checkpoint."""

    @property
    def memories(self) -> Mapping[str, str]:
        """Each cluster's memory after its last round, canonical JSON; none of clusters that have
        been forgotten."""

    @property
    def shadow_memories(self) -> Mapping[str, str]:
        """The same of each cluster's shadows."""

    @property
    def first_seq(self) -> int:
        """The greatest number that a forgotten cluster has had; 0: there is none."""

    def find(self, batch_id: int) -> Logged | None:
        """What has been decided in this batch, when it has been decided before."""

    def append_once(self, batch_id: int, rounds: pa.Table) -> Logged:
        """Write a batch's rounds down (contracts.columns.rounds.ROUND_SCHEMA)."""

    def remember(self, rounds: pa.Table) -> None:
        """Take the memories of logged rounds as those that the next batch starts from."""

    def run_upkeep(self) -> None:
        """Do what keeps the log quick, now and then; a batch has just done all that others wait
        for."""


class Publisher(Protocol):
    """Publishes decisions to the brokers."""

    def publish(self, logged: Logged) -> None:
        """Publish a batch, once."""

    def close(self) -> None:
        """Release the connections."""


class Tables(Protocol):
    """The tables that people read."""

    def project(self, logged: Logged) -> None:
        """Bring every table but that of averages up to this batch."""

    def ownership_versions(self, clusters: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """The ownership records of some clusters: cluster → bundle → version."""

    def replace_parts(
        self, app: str, batch_id: int, files: Mapping[str, Mapping[str, Mapping[str, Any]]]
    ) -> None:
        """Put a batch's files (part → table → stream.figures.File) in the place of those parts of
        `bundle_averages`, and add to history."""


class Backlog(Protocol):
    """How far the input has been read."""

    @property
    def is_read(self) -> bool:
        """Whether everything that was there at the start has been read."""

    def record_batch(self, batch_id: int | None) -> None:
        """Note that a batch has been read."""


class PoisonRecords(Protocol):
    """Tells of records that the job steps over because reading them would end it."""

    def rejected_events(
        self, batch_id: int, known: Collection[str]
    ) -> Mapping[str, list[dict[str, Any]]]:
        """Known cluster → the records that this batch reports as stepped over, as rejected
        events."""


class NoPoisonRecords:
    """No record is stepped over."""

    def rejected_events(
        self, batch_id: int, known: Collection[str]
    ) -> Mapping[str, list[dict[str, Any]]]:
        """Nothing."""
        return {}


class BatchObserver(Protocol):
    """Watches how each batch goes. It takes hardly any time, and never fails."""

    def begin(self, batch_id: int) -> None:
        """A batch begins."""

    def done(self, phase: str) -> None:
        """The phase of that name has ended.

        It began when the phase before it ended, or with `begin`.
        """

    def finish(self, logged: Logged) -> None:
        """All that this batch has to do is done; what came of it."""


class NoObserver:
    """Nobody is told."""

    def begin(self, batch_id: int) -> None:
        """Nothing."""

    def done(self, phase: str) -> None:
        """Nothing."""

    def finish(self, logged: Logged) -> None:
        """Nothing."""
