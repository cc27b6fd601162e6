"""What one sender may cause: storms are found before their records are parsed.

A storm is more records of one kind by one broker within a second, by Kafka's append times, than
`admission.records_per_second`. The newest record of an honest storm (an agent in a loop, a backlog
that a producer sends at once) says all, so it counts alone. What counts depends on the records, not
on how long anything takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

SECOND_MS = 1_000
ANSWERS = ("ack", "ask")
"""Kinds of records whose newest doesn't stand for the others: each is about another bundle."""
ANSWERS_FACTOR = 10
"""How many times as many of these a broker may send within a second."""
MAX_TRIES = 10
"""Records of a storm that are parsed until one can be taken."""
TOP_BUNDLES = b'"topBundlesLoadData"'
"""A report of an extensible manager is two records; only the second one has this field."""


@dataclass(frozen=True, slots=True)
class Storm:
    """Too many records of one kind and one second by one broker.

    `rows`: their places in the batch, the newest first. `kind`: the header's; None: reports.
    """

    key: bytes
    kind: str | None
    rows: list[int]

    @property
    def is_of_answers(self) -> bool:
        """Whether each of the records is about something else."""
        return self.kind in ANSWERS


def find_storms(
    batch: pa.RecordBatch, limit: int, commands_topic: str, by_signature: bool
) -> list[Storm]:
    """Return the storms of a batch of raw records, in the order of their first records.

    `limit`: records of one kind that a broker may send within a second; 0: no limit.
    `by_signature`: the newest record is the one with the latest signature, so that a copy of an
    older one can't displace it; else the last one in the partition.
    """
    if not limit or len(batch) <= limit:
        return []
    # A number for each broker, kind and second; -1: a command, or a key that names no broker.
    key = pc.fill_null(batch.column("key"), b"").dictionary_encode()
    kind = pc.fill_null(batch.column("kind"), "report").dictionary_encode()
    append_ms = batch.column("append_ms").to_numpy()
    second = append_ms // SECOND_MS
    second -= second.min()
    group = key.indices.to_numpy().astype(np.int64) * len(kind.dictionary)
    group = (group + kind.indices.to_numpy()) * (int(second.max()) + 1) + second
    is_command = pc.equal(batch.column("topic"), commands_topic)
    group[is_command.to_numpy(zero_copy_only=False).astype(np.bool_)] = -1
    names_none = [not name or name.endswith(b"/") for name in key.dictionary.to_pylist()]
    group[np.array(names_none)[key.indices.to_numpy()]] = -1
    # Those with too many records.
    numbers, first, counts = np.unique(group, return_index=True, return_counts=True)
    is_full = (counts > limit) & (numbers >= 0)
    if not is_full.any():
        return []
    order = [np.arange(len(group)), append_ms]
    if by_signature:
        order.append(pc.fill_null(batch.column("signed_us"), 0).to_numpy())
    newest_first = np.lexsort(order)[::-1]
    # Each storm's rows stand together, the newest first, once they are sorted by group.
    by_group = newest_first[np.argsort(group[newest_first], kind="stable")]
    begins = np.searchsorted(group[by_group], numbers)
    storms = []
    for place in np.flatnonzero(is_full)[np.argsort(first[is_full])].tolist():
        row, begin = int(first[place]), int(begins[place])
        rows = by_group[begin : begin + int(counts[place])].tolist()
        name = batch.column("kind")[row].as_py()
        storm = Storm(batch.column("key")[row].as_py() or b"", name, rows)
        if not storm.is_of_answers or len(rows) > limit * ANSWERS_FACTOR:
            storms.append(storm)
    return storms


def without_storms(batch: pa.RecordBatch, storms: list[Storm]) -> pa.RecordBatch:
    """Return the records of a batch that are in no storm."""
    if not storms:
        return batch
    is_outside: NDArray[np.bool_] = np.ones(len(batch), np.bool_)
    for storm in storms:
        is_outside[storm.rows] = False
    return batch.filter(pa.array(is_outside))


_SUMMARY = re.compile(r"(\d{1,9}) more")


def summarise_records(count: int) -> str:
    """Return the value of a row that stands for so many rejected records."""
    return f"{count} more"


def count_records(broker: str | None, value: str | None) -> int:
    """Return the number of records that a row of rejected records stands for.

    `broker`, `value`: columns of the row. A summary is of no broker.
    """
    found = None if broker else _SUMMARY.fullmatch(value or "")
    return 1 if found is None else int(found[1])
