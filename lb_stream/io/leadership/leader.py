"""Reads and writes the table `leaders`, which has a row for each start of the job."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from lb_stream.contracts.tables import LEADERS
from lb_stream.io.local.processes import started_ms
from lb_stream.io.tables.delta import (
    append_rows,
    existing_table,
    numeric_dataset,
    open_table,
    read_mark,
)
from lb_stream.store import Store


@dataclass(frozen=True, slots=True)
class Leader:
    """One start of the job. `since_ms` 0: not known."""

    pipeline: str
    epoch: int
    host: str
    pid: int
    since_ms: int = 0

    @property
    def is_here(self) -> bool:
        """Return whether the job was started on this machine."""
        return self.host == this_host()

    @property
    def runs_here(self) -> bool:
        """Return whether its process still runs here; a later one with its id doesn't count."""
        began_ms = started_ms(self.pid) if self.is_here else None
        return began_ms is not None and (not self.since_ms or began_ms <= self.since_ms)


@cache
def this_host() -> str:
    """Return this machine's name as the job writes it."""
    return socket.getfqdn()


def last_leader(root: Store) -> Leader | None:
    """Return the job that has led last with these tables, or None.

    Epochs decide, because the clocks of two machines differ.
    """
    table = existing_table(root, LEADERS)
    rows = (
        []
        if table is None
        else numeric_dataset(table).to_table(columns=list(Leader.__slots__)).to_pylist()
    )
    return max(
        (Leader(**row) for row in rows),
        key=lambda leader: (leader.epoch, leader.since_ms),
        default=None,
    )


def is_leader(root: Store, pipeline: str) -> bool:
    """Return whether no other job has begun to lead since this process did."""
    last = last_leader(root)
    return (
        last is not None and (last.pipeline, last.pid) == (pipeline, os.getpid()) and last.is_here
    )


def announce_leader(root: Store, pipeline: str, last_epoch: int) -> int:
    """Record that this process leads from now on, and return its epoch.

    The epoch is greater than that of every earlier start, whether that start has logged a round or
    not. `last_epoch`: the greatest in the log. Earlier leaders have been fenced already. Raises
    CommitFailedError when another start is announced at the same time.
    """
    table = open_table(root, LEADERS)
    epoch = max(last_epoch, read_mark(table, pipeline) or 0) + 1
    since_ms = time.time_ns() // 1_000_000
    row = {
        "pipeline": pipeline,
        "epoch": epoch,
        "host": this_host(),
        "pid": os.getpid(),
        "since_ms": since_ms,
    }
    append_rows(
        table,
        LEADERS,
        pa.Table.from_pylist([row], LEADERS.schema),
        f"{epoch:012d}",
        [(pipeline, epoch)],
        durable=True,
    )
    return epoch
