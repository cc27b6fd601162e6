"""Who leads: a row of the table `leaders` for each start of the job."""

from __future__ import annotations

import os
import socket
import time

import pyarrow as pa
from deltalake import write_deltalake

from lb_stream.contracts.tables import LEADERS
from lb_stream.io.delta import open_table, transaction


def announce(root: str, pipeline: str, epoch: int) -> None:
    """Write down that this process leads from now on. Whoever led before has been shut out of publishing already."""
    since_ms = time.time_ns() // 1_000_000
    row = {"pipeline": pipeline, "epoch": epoch, "host": socket.getfqdn(), "pid": os.getpid(), "since_ms": since_ms}
    data = pa.Table.from_pylist([row], LEADERS.schema)
    write_deltalake(open_table(root, LEADERS), data, mode="append", commit_properties=transaction((pipeline, epoch)))
