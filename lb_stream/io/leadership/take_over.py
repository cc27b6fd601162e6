"""Takes over a cluster from another pipeline: copies its memory to this pipeline's log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.columns.rounds import LoggedRound
from lb_stream.contracts.tables import ROUNDS
from lb_stream.core.model.memory import Memory
from lb_stream.io.leadership.leader import last_leader
from lb_stream.io.tables.commits import Table
from lb_stream.io.tables.delta import (
    add_files,
    existing_table,
    numeric_dataset,
    open_table,
    write_rows,
)
from lb_stream.io.tables.log import build_offset_marks, find_pipeline, next_offsets
from lb_stream.store import Store

APP = "taken-over"
"""Replaces the checkpoint's uuid in the copied row, as no batch has made it."""
_KEPT = ("cluster", "seq", "epoch", "now_ms", "memory", "inputs", "shadow_memory")
"""Columns of the cluster's last round that are copied: decisions would be published once more."""


class TakeOverError(RuntimeError):
    """The cluster can't be taken over. The message has the reason, and what to do."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The result of a take-over.

    `seq`, `epoch`: of the cluster's last round; `pending`: pending decisions; `log_seq`: number of
    the new row in the log.
    """

    cluster: str
    pipeline: str
    seq: int
    epoch: int
    pending: int
    log_seq: int


def take_over(
    cluster: str, source: Store, target: Store, pipeline: str, topics: Collection[str]
) -> TakenOver:
    """Append a cluster's last memory in the tables `source` to the log in the tables `target`.

    Ids of decisions, versions of ownership records and epochs continue. A pipeline that has not
    read `topics` yet begins at the offsets at which the other has ended. Raises TakeOverError,
    TableMismatch, and one of COMMIT_TROUBLES if a job writes to the log at the same time.
    """
    # The cluster's last round in the source.
    given = existing_table(source, ROUNDS)
    last = None if given is None else _find_last_round(given, cluster)
    if given is None or last is None or not last["memory"]:
        raise TakeOverError(
            f"the log in {source} has no cluster {cluster}: check the cluster's name and the folder"
        )
    # Refuse while a job runs, for another pipeline's tables, and if the target is not older.
    for root in (source, target):
        if (leader := last_leader(root)) is not None and leader.runs_here:
            raise TakeOverError(
                f"the job of the pipeline {leader.pipeline!r} runs (process {leader.pid}), and may "
                f"decide about {cluster} now: stop it first"
            )
    log = open_table(target, ROUNDS)
    if (other := find_pipeline(log)) not in (None, pipeline):
        raise TakeOverError(
            f"{target} holds the log of the pipeline {other!r}, not of {pipeline!r}: name other "
            "tables (stream.tables), or that pipeline (stream.pipeline_id)"
        )
    own = _find_last_round(log, cluster)
    if own is not None and (own["epoch"], own["seq"]) >= (last["epoch"], last["seq"]):
        raise TakeOverError(
            f"the log in {target} has {cluster} up to round {own['seq']}, epoch {own['epoch']}, "
            f"that in {source} only up to round {last['seq']}, epoch {last['epoch']}: it has been "
            "taken over already, or the folders are swapped"
        )
    # Append the copy, with the offsets that the other pipeline has read.
    newest = log.transaction_version(pipeline)
    log_seq = 0 if newest is None else newest + 1
    row = asdict(LoggedRound(**{name: last[name] for name in _KEPT}))
    row |= {"app": f"{pipeline}/{APP}", "batch_id": log_seq, "log_seq": log_seq}
    file = write_rows(
        log, pa.Table.from_pylist([row], ROUNDS.schema), f"{log_seq:012d}", durable=True
    )
    read: Mapping[tuple[str, int], int] = {}
    if not next_offsets(log, pipeline, topics):
        read = next_offsets(given, find_pipeline(given) or "", topics)
    add_files(
        log,
        ROUNDS,
        [file],
        [(pipeline, log_seq), *build_offset_marks(pipeline, read)],
        durable=True,
    )
    pending = len(Memory.from_json(last["memory"]).pending)
    return TakenOver(cluster, pipeline, last["seq"], last["epoch"], pending, log_seq)


def _find_last_round(log: Table, cluster: str) -> dict[str, Any] | None:
    """Return the cluster's last row in a log; None: it has none."""
    rows = numeric_dataset(log)
    numbers = rows.to_table(columns=["log_seq", "cluster"])
    numbers = numbers.filter(pc.equal(numbers["cluster"], cluster))
    if not len(numbers):
        return None
    found = rows.to_table(
        columns=ROUNDS.schema.names, filter=pc.field("log_seq") == pc.max(numbers["log_seq"])
    )
    row: dict[str, object] = found.filter(pc.equal(found["cluster"], cluster)).to_pylist()[-1]
    return row
