"""The audit: rows that follow from the log, chained by hash in each cluster.

A row copies what the log says of an answer, so that a rebuild, also by a later version, gives the
same bytes. The chain goes on from the table's last row of the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction

from lb_stream.contracts.audit import CUT, Head, hash_row
from lb_stream.contracts.tables import AUDIT
from lb_stream.core.commands.audited import JOB_CHANGES
from lb_stream.io.tables.commits import Mark, Marks, Table
from lb_stream.io.tables.delta import add_files, commit_once, dataset, write_rows
from lb_stream.stream.ports import Logged

Row = dict[str, Any]
Heads = dict[str, Head]
"""Cluster → the end of its chain."""
_COPIED = (
    "at_ms",
    "by",
    "key_id",
    "right",
    "kind",
    "old_value",
    "new_value",
    "outcome",
    "rule",
    "text",
    "decision_ids",
    "repeated",
)
"""Fields of an answer under the same name in a row; answers of older versions lack some."""


def audit_rows(logged: Logged) -> list[Row]:
    """Return a batch's rows, without number and hash: one for each answer, in their order.

    Changes that came with the job's start are answers without a command's id.
    """
    entries = logged.entries("results")
    if not any(entries):
        return []
    places = logged.rounds.select(["cluster", "seq", "now_ms"]).to_pylist()
    return [
        audit_row(place, logged.log_seq, answer)
        for place, answers in zip(places, entries, strict=True)
        for answer in answers
    ]


def audit_row(place: Row, log_seq: int, answer: Row) -> Row:
    """Return the row of an answer. `place`: cluster, seq and now_ms of its round."""
    kind = answer["kind"]
    return {
        **{name: answer.get(name) for name in _COPIED},
        # The sender of a command that can't be read chooses its kind.
        "kind": f"'{kind}'" if kind == CUT or (kind in JOB_CHANGES and answer["id"]) else kind,
        **place,
        "log_seq": log_seq,
        "objects": answer.get("objects", []),
        "arguments": json.dumps(answer["arguments"], sort_keys=True),
        "command_id": answer["id"] or None,
    }


def chain(rows: Iterable[Mapping[str, Any]], heads: Heads) -> list[Row]:
    """Return rows with their numbers and hashes, and move the heads on."""
    chained = []
    for given in rows:
        head = heads.get(given["cluster"], Head())
        row = {**given, "number": head.number + 1, "previous_hash": head.hash}
        row["hash"] = hash_row(row, head.hash)
        heads[row["cluster"]] = Head(row["number"], row["hash"])
        chained.append(row)
    return chained


def read_heads(table: Table, clusters: Collection[str]) -> Heads:
    """Return the ends of these clusters' chains, as far as the table has rows of them."""
    wanted = pc.field("cluster").isin(sorted(clusters))
    rows = dataset(table).to_table(["cluster", "number", "hash"], filter=wanted)
    return find_heads(rows)


def find_heads(rows: pa.Table) -> Heads:
    """Return the end of each cluster's chain, from columns cluster, number and hash."""
    last = (
        rows.sort_by([("cluster", "ascending"), ("number", "ascending")])
        .group_by("cluster", use_threads=False)
        .aggregate([("number", "last"), ("hash", "last")])
    )
    return {row["cluster"]: Head(row["number_last"], row["hash_last"]) for row in last.to_pylist()}


def count_old_rows(table: Table, before_ms: int) -> int:
    """Return how many rows are older than a time, without those that stand for deleted ones."""
    rows = dataset(table).to_table(["kind"], filter=pc.field("now_ms") < before_ms)
    return int(pc.sum(pc.not_equal(rows["kind"], CUT)).as_py() or 0)


def cut(table: Table, before_ms: int, at_ms: int, why: str) -> int:
    """Delete the rows older than `before_ms`, and return their number.

    In each cluster one row stands for them: it has the number and the hash of the last one. `at_ms`
    and `why`: when and for what reason. Raises CommitFailedError if others have committed.
    """
    live = table.live()
    rows = dataset(table).to_table(AUDIT.schema.names).cast(AUDIT.schema)
    parts, deleted = list[pa.Table](), 0
    for cluster in pc.unique(rows["cluster"]).to_pylist():
        own = rows.filter(pc.equal(rows["cluster"], cluster)).sort_by("number")
        is_kept = pc.greater_equal(own["now_ms"], before_ms)
        # No row is deleted behind one that stays: the clock may have been set back.
        first_kept = pc.index(is_kept, True).as_py()
        old = own.slice(0, len(own) if first_kept < 0 else first_kept).to_pylist()
        if any(row["kind"] != CUT for row in old):
            parts.append(pa.Table.from_pylist([_stand_in(old, at_ms, why)], AUDIT.schema))
            deleted += sum(row["kind"] != CUT for row in old)
            own = own.slice(len(old))
        parts.append(own)
    if deleted:
        file = write_rows(table, pa.concat_tables(parts).combine_chunks(), "cut")
        table.commit([file], replaced=live)
    return deleted


def _stand_in(old: list[Row], at_ms: int, why: str) -> Row:
    """Return the row that stands for these, the first of which may stand for others."""
    last = old[-1]
    first = json.loads(old[0]["old_value"])["first"] if old[0]["kind"] == CUT else old[0]["number"]
    row = {name: last[name] for name in ("cluster", "number", "log_seq", "seq", "now_ms", "hash")}
    row |= {
        "at_ms": at_ms,
        "kind": CUT,
        "objects": [f"rows {first} to {last['number']}"],
        "arguments": "{}",
        "old_value": json.dumps({"first": first, "last": last["number"]}),
        "outcome": "done",
        "text": why,
        "decision_ids": [],
        "repeated": False,
    }
    return row | {"previous_hash": hash_row(row, last["hash"])}


@dataclass(slots=True)
class AuditTable:
    """The table `audit` and its only writer, as far as the pipeline's log allows one.

    `_heads`: of clusters that this job has written rows of. They are read anew after a commit that
    failed, or that another job has made.
    """

    table: Table
    _heads: Heads = field(default_factory=dict)

    def append(self, rows: list[Row], mark: Mark) -> None:
        """Append a batch's rows, unless the table has the batch."""
        clusters = {row["cluster"] for row in rows}

        def put(marks: Marks) -> None:
            if unknown := clusters - self._heads.keys():
                self._heads |= read_heads(self.table, unknown)
            heads = dict(self._heads)
            chained = pa.Table.from_pylist(chain(rows, heads), AUDIT.schema)
            self._heads = {}  # until the commit is made
            file: AddAction = write_rows(self.table, chained, f"{mark[1]:012d}")
            add_files(self.table, AUDIT, [file], marks)
            self._heads = heads

        if not commit_once(self.table, mark, put):
            self._heads = {}
